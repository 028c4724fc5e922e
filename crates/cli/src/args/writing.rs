//! Options of the commands that write.

use std::collections::BTreeMap;
use std::path::PathBuf;

use calipam_check::Options;
use calipam_repair::journal::{VARIABLES, default_directory};
use calipam_workflow::{Criteria, Intent, Writing};
use clap::Args;
use clap::ValueHint::FilePath;
use jiff::SignedDuration;

use super::duration;

pub(super) const CHECKING: &str = "Checking";

/// Options of the commands that write.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Writing")]
pub(crate) struct WritingArgs {
    /// Do not ask for confirmation; required if stdin is not a terminal
    #[arg(short, long)]
    pub yes: bool,
    /// Write nothing if the plan has more changes than this
    #[arg(long, value_name = "N")]
    pub max_changes: Option<usize>,
    /// Lock the datastore while writing: no pod starts or stops during that time
    #[arg(long)]
    pub lock: bool,
    /// The journal of the run, for `undo` [default: a new file in ~/.local/state/calipam]
    #[arg(long, value_name = "FILE", value_hint = FilePath)]
    pub journal: Option<PathBuf>,
}

impl WritingArgs {
    /// Returns the intent of a calicoctl call, which needs no confirmation. `command` is recorded in the journal.
    pub(crate) fn agreed(command: &str) -> Intent {
        let args = Self {
            yes: true,
            max_changes: None,
            lock: false,
            journal: None,
        };
        args.intent(Some(command.to_owned()))
    }

    /// Returns the intent to carry out the plan of `command`. If `command` is `None`, the plan is only shown.
    pub(crate) fn intent(&self, command: Option<String>) -> Intent {
        let writing = command.map(|command| Writing {
            command,
            lock: self.lock,
            journal: self.journal.clone(),
            disk: None,
        });
        Intent {
            writing,
            max_changes: self.max_changes,
            journals: journals_folder(),
        }
    }
}

/// Returns the folder of the user's journals, if the environment names one.
pub(crate) fn journals_folder() -> Option<PathBuf> {
    let environment: BTreeMap<String, String> = VARIABLES
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), std::env::var(name).ok()?)))
        .collect();
    default_directory(&environment)
}

/// Options of the commands whose plans depend on findings.
#[derive(Clone, Debug, Args)]
pub(crate) struct CriteriaArgs {
    /// Skip allocations younger than this, and check leaked ones twice, this far apart;
    /// 0 for a single check [default: the cluster's leakGracePeriod, else 15m]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, help_heading = CHECKING)]
    pub grace: Option<SignedDuration>,
    #[command(flatten)]
    pub recheck: RecheckArgs,
}

impl CriteriaArgs {
    /// Returns the criteria of a check before a write.
    pub(crate) fn criteria(&self) -> Criteria {
        Criteria {
            options: Options {
                grace: self.grace,
                ..Options::default()
            },
            recheck_after: self.recheck.settle,
        }
    }
}

/// The default of `--settle`.
const SETTLE: &str = "5s";
/// The default of `--settle`, for commands of calicoctl, which have no such option.
pub(crate) const DEFAULT_SETTLE: SignedDuration = SignedDuration::from_secs(5);

/// The option to recheck findings that could be changes in progress.
#[derive(Clone, Debug, Args)]
pub(crate) struct RecheckArgs {
    /// Recheck changes in progress after this; 0 for never
    #[arg(long, value_name = "DURATION", default_value = SETTLE, value_parser = duration::parse, help_heading = CHECKING)]
    pub settle: SignedDuration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_of_calicoctl_wait_as_long_as_others() {
        assert_eq!(duration::parse(SETTLE).unwrap(), DEFAULT_SETTLE);
    }
}
