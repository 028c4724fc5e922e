//! How the program ends: outcomes, failures, and the exit code of each.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use calipam_repair::RepairError;
use calipam_workflow::{Error, NoConsent};

use crate::hints;

/// What a command came to, where nothing failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing to complain about.
    Clean,
    /// Findings at or above the limit.
    Findings,
    /// Something that was asked for does not exist, or was left as it is.
    Refused,
}

/// Why a command could not do its work.
#[derive(Debug)]
pub enum Failure {
    /// A wrong command line; clap has said so.
    CommandLine,
    /// What the user has to change in the call.
    Usage { message: String, hint: Option<String> },
    /// What was asked for does not exist.
    NotFound { message: String, hint: Option<String> },
    /// The command could not be carried out.
    Workflow(Error),
    /// A file or the output.
    Io { doing: String, error: io::Error },
    /// The user has interrupted it.
    Interrupted,
    /// A mistake in this program; the panic hook has said so.
    Panic,
}

impl Failure {
    /// A usage error without a hint.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::Usage { message: message.into(), hint: None }
    }

    /// What went wrong; `None` where that was said already or is plain.
    pub fn message(&self) -> Option<String> {
        match self {
            Self::Usage { message, .. } | Self::NotFound { message, .. } => Some(message.clone()),
            Self::Workflow(error) => Some(error.to_string()),
            Self::Io { doing, error } => Some(format!("cannot {doing}: {error}")),
            Self::Interrupted => Some("interrupted".into()),
            Self::CommandLine | Self::Panic => None,
        }
    }

    /// What to do next, where there is something to say.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Usage { hint, .. } | Self::NotFound { hint, .. } => hint.clone(),
            Self::Workflow(error) => hints::error(error),
            Self::CommandLine | Self::Io { .. } | Self::Interrupted | Self::Panic => None,
        }
    }
}

impl<E: Into<Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Workflow(error.into())
    }
}

/// The exit code: the only place that knows them.
pub fn code(result: &Result<Outcome, Failure>) -> u8 {
    if PANICKED.load(Ordering::SeqCst) {
        return 4;
    }
    match result {
        Ok(Outcome::Clean) => 0,
        Ok(Outcome::Findings | Outcome::Refused) | Err(Failure::NotFound { .. }) => 1,
        Err(Failure::CommandLine | Failure::Usage { .. }) => 2,
        Err(Failure::Workflow(error)) => workflow_code(error),
        Err(Failure::Io { .. }) => 3,
        Err(Failure::Panic) => 4,
        Err(Failure::Interrupted) => INTERRUPTED,
    }
}

fn workflow_code(error: &Error) -> u8 {
    match error {
        Error::UnknownNode(_)
        | Error::UnknownPool(_)
        | Error::AmbiguousHandle { .. }
        | Error::Split(_)
        | Error::Configure(_)
        | Error::SettingNotKept { .. }
        | Error::SeveralPools { .. }
        | Error::NotLocked
        | Error::UnusableReport { .. }
        | Error::PodsNotRead
        | Error::Trial(_)
        | Error::TooManyChanges { .. }
        | Error::NoConsent(NoConsent::Declined) => 1,
        // The plan or journal is of another cluster, or more than was agreed to: nothing was begun.
        Error::Repair(
            RepairError::OtherCluster { .. } | RepairError::StrangeKey { .. } | RepairError::NotAgreed { .. },
        ) => 1,
        Error::NoReport { .. }
        | Error::NoJournalDirectory
        | Error::NotLive
        | Error::NoConsent(NoConsent::NoTerminal) => 2,
        Error::Datastore(error) | Error::Repair(RepairError::Datastore(error)) if error.is_usage() => 2,
        Error::Datastore(_)
        | Error::Repair(RepairError::Datastore(_) | RepairError::Journal(_) | RepairError::Lock { .. })
        | Error::Io { .. }
        | Error::NoConsent(NoConsent::Failed(_)) => 3,
    }
}

/// The exit code after ctrl-c, as shells have it: 128 and the number of the signal.
pub const INTERRUPTED: u8 = 130;

/// Prints what clap says: help and version on stdout, errors on stderr.
pub fn command_line(error: &clap::Error) -> Result<Outcome, Failure> {
    match error.print() {
        Err(broken) if broken.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::Io { doing: "print the help".into(), error: broken })
        }
        _ if error.use_stderr() => Err(Failure::CommandLine),
        _ => Ok(Outcome::Clean),
    }
}

/// A panic anywhere, in a worker thread too, makes the exit code that of an internal error.
static PANICKED: AtomicBool = AtomicBool::new(false);

/// Says of a panic what to do about it, instead of where the code is only.
pub fn report_panics() {
    std::panic::set_hook(Box::new(|info| {
        if PANICKED.swap(true, Ordering::SeqCst) {
            return;
        }
        let text = info.payload_as_str().unwrap_or("no message");
        let place = info.location().map(|place| format!(" at {}:{}", place.file(), place.line()));
        eprintln!("error: internal error: {text}{}", place.unwrap_or_default());
        eprintln!("hint: this is a mistake in calipam; please report it with the command and this line");
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_end_has_its_exit_code() {
        let usage = calipam_datastore::SettingsError::NoEndpoints;
        let cases = [
            (Ok(Outcome::Clean), 0),
            (Ok(Outcome::Findings), 1),
            (Ok(Outcome::Refused), 1),
            (Err(Failure::NotFound { message: String::new(), hint: None }), 1),
            (Err(Error::NoConsent(NoConsent::Declined).into()), 1),
            (Err(Error::NoConsent(NoConsent::NoTerminal).into()), 2),
            (Err(RepairError::NotAgreed { agreed: 1, planned: 2 }.into()), 1),
            (Err(RepairError::Lock { action: "take", reason: String::new() }.into()), 3),
            (Err(Failure::usage("x")), 2),
            (Err(Failure::CommandLine), 2),
            (Err(calipam_datastore::Error::from(usage).into()), 2),
            (Err(calipam_datastore::Error::NoCalico { location: String::new() }.into()), 3),
            (Err(Failure::Io { doing: String::new(), error: io::Error::other("x") }), 3),
            (Err(Failure::Panic), 4),
            (Err(Failure::Interrupted), 130),
        ];
        for (end, expected) in cases {
            assert_eq!(code(&end), expected, "{end:?}");
        }
    }
}
