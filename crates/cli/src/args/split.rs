//! Options of `split`.

use calipam_model::IpNet;
use calipam_workflow::PoolName;
use clap::{ArgGroup, Args};

use super::writing::WritingArgs;

/// Options of `split`.
#[derive(Clone, Debug, Args)]
#[command(group = ArgGroup::new("pool").required(true))]
pub(crate) struct SplitArgs {
    /// Number of pools to create: 2, 4, 8 and so on
    #[arg(value_name = "NUMBER")]
    pub parts: u32,
    /// The pool, by name
    #[arg(long, value_name = "NAME", group = "pool")]
    pub name: Option<String>,
    /// The pool, by CIDR
    #[arg(long, value_name = "CIDR", group = "pool")]
    pub cidr: Option<IpNet>,
    /// Print the plan and change nothing
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub writing: WritingArgs,
}

impl SplitArgs {
    /// Returns the pool; clap ensures that there is one.
    pub(crate) fn pool(&self) -> PoolName {
        match (&self.name, self.cidr) {
            (None, Some(cidr)) => PoolName::Cidr(cidr),
            (name, _) => PoolName::Name(name.clone().unwrap_or_default()),
        }
    }
}
