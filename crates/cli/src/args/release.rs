//! Options of `release`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;
use clap::ValueHint::FilePath;

use super::address::address;
use super::selection::{SELECTION, SelectionArgs};
use super::writing::{CriteriaArgs, WritingArgs};

pub(super) const TARGETS: &str = "What to release";

/// Options of `release`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ReleaseArgs {
    /// Everything under this handle, by its full ID; can be repeated; `-` reads handles from stdin, one per line
    #[arg(long = "handle", value_name = "ID", allow_hyphen_values = true, help_heading = TARGETS)]
    pub handles: Vec<String>,
    /// This address; can be repeated
    #[arg(long = "ip", value_name = "ADDRESS", value_parser = address, value_delimiter = ',', help_heading = TARGETS)]
    pub addresses: Vec<IpAddr>,
    /// Every leaked address whose owner is recorded
    #[arg(long, help_heading = TARGETS)]
    pub leaked: bool,
    /// Every handle that no allocation refers to
    #[arg(long, help_heading = TARGETS)]
    pub orphan_handles: bool,
    /// Addresses that an earlier report lists (`calipam check -o json` or `calicoctl ipam check --output`) and a new
    /// check confirms; with several reports, those that all of them list
    #[arg(
        long = "from-report",
        value_name = "FILE",
        num_args = 1..,
        value_hint = FilePath,
        help_heading = TARGETS
    )]
    pub reports: Vec<PathBuf>,
    /// Release one --ip or --handle even if it is in use. With --from-report, accept reports of any age and version,
    /// and an unlocked datastore; also release addresses without a recorded owner
    #[arg(long, help_heading = TARGETS)]
    pub force: bool,
    #[command(flatten)]
    pub selection: SelectionArgs,
    /// Only what is recorded for pods and services in this namespace
    #[arg(short, long, value_name = "NAMESPACE", help_heading = SELECTION)]
    pub namespace: Option<String>,
    /// Print the plan and change nothing
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub criteria: CriteriaArgs,
    #[command(flatten)]
    pub writing: WritingArgs,
}
