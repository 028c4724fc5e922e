//! Options for several clusters.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;
use clap::ValueHint::AnyPath;
use jiff::SignedDuration;

use super::duration;

pub(super) const FLEET: &str = "Many clusters";

/// Options of the commands that read many clusters at once.
#[derive(Debug, Args)]
pub(crate) struct FleetArgs {
    /// Read clusters from this YAML file, or exports from this folder
    #[arg(
        long,
        value_name = "FILE|DIR",
        value_hint = AnyPath,
        conflicts_with_all = ["context", "datastore", "config", "etcd_endpoints", "kubeconfig"],
        help_heading = FLEET
    )]
    pub fleet: Option<PathBuf>,
    /// Also find problems between the clusters of `--context` (repeated, or with `*`, `?`), which route to each other
    #[arg(long, conflicts_with = "fleet", help_heading = FLEET)]
    pub routed: bool,
    /// Number of clusters to read at a time
    #[arg(long, value_name = "N", default_value = "8", help_heading = FLEET)]
    pub parallel: NonZeroUsize,
    /// Skip a cluster that takes longer than this
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration::parse, help_heading = FLEET)]
    pub cluster_timeout: SignedDuration,
}
