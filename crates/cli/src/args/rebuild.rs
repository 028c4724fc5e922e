//! Options of `rebuild` and `undo`.

use std::path::PathBuf;

use calipam_model::IpNet;
use calipam_plan::rebuild::Request;
use calipam_workflow::RebuildRequest;
use clap::Args;
use clap::ValueHint::{DirPath, FilePath};

use super::address::network;
use super::selection::{SELECTION, SelectionArgs};
use super::writing::{CriteriaArgs, WritingArgs};

/// Options of `rebuild`.
#[derive(Clone, Debug, Args)]
pub(crate) struct RebuildArgs {
    #[command(flatten)]
    pub selection: SelectionArgs,
    /// Only this block; can be repeated
    #[arg(long = "block", value_name = "CIDR", value_parser = network, value_delimiter = ',', help_heading = SELECTION)]
    pub blocks: Vec<IpNet>,
    /// Carry out the plan; without --apply, it is only printed
    #[arg(long)]
    pub apply: bool,
    /// The default, accepted for users who are used to the other commands that write.
    #[arg(long = "dry-run", hide = true, conflicts_with = "apply")]
    _dry_run: bool,
    /// Write each block, before and after, to a file in this directory
    #[arg(long, value_name = "DIR", value_hint = DirPath)]
    pub output_dir: Option<PathBuf>,
    /// Apply without pods from Kubernetes: with etcd, trust the workload endpoints
    #[arg(long)]
    pub endpoints_only: bool,
    #[command(flatten)]
    pub criteria: CriteriaArgs,
    #[command(flatten)]
    pub writing: WritingArgs,
}

impl RebuildArgs {
    /// Returns the request that these options describe.
    pub(crate) fn request(&self) -> RebuildRequest {
        let command = if self.apply {
            Some("rebuild --apply".to_owned())
        } else {
            None
        };
        RebuildRequest {
            wanted: Request {
                blocks: self.blocks.clone(),
                endpoints_only: self.endpoints_only,
                ..Request::default()
            },
            names: self.selection.names(None),
            output_dir: self.output_dir.clone(),
            criteria: self.criteria.criteria(),
            intent: self.writing.intent(command),
        }
    }
}

/// Options of `undo`.
#[derive(Clone, Debug, Args)]
pub(crate) struct UndoArgs {
    /// The journal of the run to undo
    #[arg(value_name = "JOURNAL", value_hint = FilePath, group = "journal_to_undo")]
    pub run: Option<PathBuf>,
    /// Undo the newest run that is not undone yet; with connection options, the newest on that cluster
    #[arg(long, group = "journal_to_undo")]
    pub last: bool,
    /// List this user's journals, newest first
    #[arg(long, group = "journal_to_undo")]
    pub list: bool,
    /// Print what would be restored and change nothing
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub writing: WritingArgs,
}
