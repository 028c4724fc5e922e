//! Options of `rebuild` and `undo`.

use std::path::PathBuf;

use calipam_model::IpNet;
use clap::{Args, ValueHint};
use jiff::SignedDuration;

use super::duration;
use super::writing::{JudgementArgs, WritingArgs};

const SCOPE: &str = "What to rebuild [default: everything]";

/// Options of `rebuild`.
#[derive(Clone, Debug, Args)]
pub(crate) struct RebuildArgs {
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
pub(crate) struct UndoArgs {
    /// The journal of the run to undo
    #[arg(
        value_name = "JOURNAL",
        value_hint = ValueHint::FilePath,
        required_unless_present_any = ["last", "list", "prune"],
        group = "journal_to_undo"
    )]
    pub run: Option<PathBuf>,
    /// Undo the newest run that is not undone yet: of the cluster that the connection options name, or of any
    #[arg(long, group = "journal_to_undo")]
    pub last: bool,
    /// List the journals of this user, newest first, and undo nothing
    #[arg(long, group = "journal_to_undo")]
    pub list: bool,
    /// Remove the journals that are older than --keep, after a question, and undo nothing
    #[arg(long, group = "journal_to_undo")]
    pub prune: bool,
    /// How long journals are kept before their removal is offered
    #[arg(long, value_name = "DURATION", default_value = "90d", value_parser = duration::parse_days)]
    pub keep: SignedDuration,
    /// Print what would be restored, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// How to write.
    #[command(flatten)]
    pub writing: WritingArgs,
}
