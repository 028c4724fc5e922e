//! Options of `rebuild` and `undo`.

use std::path::PathBuf;

use calipam_model::IpNet;
use clap::{Args, ValueHint};

use super::writing::{JudgementArgs, WritingArgs};

const SCOPE: &str = "What to rebuild [default: everything]";

/// Options of `rebuild`.
#[derive(Clone, Debug, Args)]
pub struct RebuildArgs {
    /// What lies in this pool, by name or CIDR; can be repeated
    #[arg(long = "pool", value_name = "POOL", value_delimiter = ',', help_heading = SCOPE)]
    pub pools: Vec<String>,
    /// Blocks of this node; can be repeated
    #[arg(long = "node", value_name = "NODE", value_delimiter = ',', help_heading = SCOPE)]
    pub nodes: Vec<String>,
    /// This block; can be repeated
    #[arg(long = "block", value_name = "CIDR", value_delimiter = ',', help_heading = SCOPE)]
    pub blocks: Vec<IpNet>,
    /// Write the plan to the datastore; without this it is only printed
    #[arg(long, conflicts_with = "dry_run")]
    pub apply: bool,
    /// Print the plan, and change nothing: what happens without --apply
    #[arg(long)]
    pub dry_run: bool,
    /// Write each block before and after into a file in this directory
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub output_dir: Option<PathBuf>,
    /// Apply although no pods were read from Kubernetes: on etcd, the endpoints are taken for the truth
    #[arg(long)]
    pub endpoints_only: bool,
    /// How to judge.
    #[command(flatten)]
    pub judgement: JudgementArgs,
    /// How to write.
    #[command(flatten)]
    pub writing: WritingArgs,
}

/// Options of `undo`.
#[derive(Clone, Debug, Args)]
pub struct UndoArgs {
    /// The journal of the run to undo
    #[arg(value_name = "JOURNAL", value_hint = ValueHint::FilePath)]
    pub run: PathBuf,
    /// Print what would be restored, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// How to write.
    #[command(flatten)]
    pub writing: WritingArgs,
}
