//! Options of `split`.

use calipam_model::IpNet;
use calipam_workflow::{PoolName, SplitRequest};
use clap::{ArgGroup, Args};

use super::address::network;
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
    #[arg(long, value_name = "CIDR", value_parser = network, group = "pool")]
    pub cidr: Option<IpNet>,
    /// Print the plan and change nothing
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub writing: WritingArgs,
}

impl SplitArgs {
    /// Returns the request that these options describe.
    pub(crate) fn request(&self) -> SplitRequest {
        // clap ensures that there is a name or a CIDR, and not both.
        let pool = match self.cidr {
            Some(cidr) if self.name.is_none() => PoolName::Cidr(cidr),
            _ => PoolName::Name(self.name.clone().unwrap_or_default()),
        };
        let command = if self.dry_run {
            None
        } else {
            Some(format!("split {}", self.parts))
        };
        SplitRequest {
            pool,
            parts: self.parts,
            needs_lock: false,
            disables_first: false,
            intent: self.writing.intent(command),
        }
    }
}
