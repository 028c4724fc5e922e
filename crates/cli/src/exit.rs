//! How the program ends: outcomes, failures, and the exit code of each.

use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use calipam_repair::RepairError;
use calipam_workflow::{Error, NoConsent};

use crate::hints;

/// What a command came to, if nothing failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Nothing to complain about.
    Clean,
    /// Findings at or above the limit.
    Findings,
    /// Something that was asked for does not exist, or was left as it is.
    Refused,
    /// A cluster of a fleet was not read; what was found in the others is told anyway.
    PartlyRead,
}

/// Why a command could not do its work.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A wrong command line; what clap has said about it.
    CommandLine(String),
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
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::Usage { message: message.into(), hint: None }
    }

    /// What went wrong.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::Usage { message, .. } | Self::NotFound { message, .. } => message.clone(),
            Self::Workflow(error) => error.to_string(),
            Self::Io { doing, error } => format!("cannot {doing}: {error}"),
            Self::Interrupted => "interrupted".into(),
            Self::CommandLine(text) => what_clap_says(text).0,
            Self::Panic => PANIC.get().cloned().unwrap_or_else(|| "internal error".into()),
        }
    }

    /// True if it was printed when it happened.
    pub(crate) fn is_printed(&self) -> bool {
        matches!(self, Self::CommandLine(_) | Self::Panic)
    }

    /// What to do next, if there is something to say.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Usage { hint, .. } | Self::NotFound { hint, .. } => hint.clone(),
            Self::Workflow(error) => hints::error(error),
            Self::CommandLine(text) => what_clap_says(text).1,
            Self::Panic => Some(REPORT_IT.into()),
            Self::Io { .. } | Self::Interrupted => None,
        }
    }
}

impl<E: Into<Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Workflow(error.into())
    }
}

/// The exit code: the only place that knows them.
pub(crate) fn code(result: &Result<Outcome, Failure>) -> u8 {
    if PANICKED.load(Ordering::SeqCst) {
        return 4;
    }
    match result {
        Ok(Outcome::Clean) => 0,
        Ok(Outcome::Findings | Outcome::Refused) | Err(Failure::NotFound { .. }) => 1,
        Err(Failure::CommandLine(_) | Failure::Usage { .. }) => USAGE,
        Err(Failure::Workflow(error)) => workflow_code(error),
        Ok(Outcome::PartlyRead) | Err(Failure::Io { .. }) => 3,
        Err(Failure::Panic) => 4,
        Err(Failure::Interrupted) => INTERRUPTED,
    }
}

fn workflow_code(error: &Error) -> u8 {
    match error {
        Error::UnknownNode(_)
        | Error::UnknownNamespace(_)
        | Error::UnknownPool(_)
        | Error::NoNodeSelected
        | Error::UnknownNetwork(_)
        | Error::AmbiguousHandle { .. }
        | Error::Split(_)
        | Error::Configure(_)
        | Error::Migrate(_)
        | Error::Evict(_)
        | Error::SettingNotKept { .. }
        | Error::SeveralPools { .. }
        | Error::NotLocked
        | Error::UnknownBlock(_)
        | Error::NothingInCommon { .. }
        | Error::UnusableReport { .. }
        | Error::PodsNotRead
        | Error::DoubtfulKubernetes(_)
        | Error::TakenSince(_)
        | Error::Trial(_)
        | Error::TooManyChanges { .. }
        | Error::NoConsent(NoConsent::Declined) => 1,
        // The plan or journal is of another cluster, or more than was agreed to: nothing was begun.
        Error::Repair(
            RepairError::OtherCluster { .. } | RepairError::StrangeKey { .. } | RepairError::NotAgreed { .. },
        ) => 1,
        Error::NoJournalDirectory
        | Error::NotLive(_)
        | Error::TwoClusters { .. }
        | Error::ArchiveOfAnother { .. }
        | Error::BeforeArchive { .. }
        | Error::OneState(_)
        | Error::NoConsent(NoConsent::NoTerminal) => USAGE,
        Error::Datastore(error) | Error::Repair(RepairError::Datastore(error)) if error.is_usage() => USAGE,
        Error::Datastore(_)
        | Error::Repair(RepairError::Datastore(_) | RepairError::Journal(_) | RepairError::Lock { .. })
        | Error::NoReport { .. }
        | Error::EmptyArchive(_)
        | Error::Io { .. }
        | Error::NoConsent(NoConsent::Failed(_)) => 3,
    }
}

/// The exit code for what the user has to change in the call or in the settings.
pub(crate) const USAGE: u8 = 2;

/// The exit code after ctrl-c, as shells have it: 128 and the number of the signal. SIGTERM has no other.
pub(crate) const INTERRUPTED: u8 = 130;

/// Prints what clap says: help and version on stdout, errors on stderr.
pub(crate) fn command_line(error: &clap::Error) -> Result<Outcome, Failure> {
    match error.print() {
        Err(broken) if broken.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::Io { doing: "print the help".into(), error: broken })
        }
        _ if error.use_stderr() => Err(Failure::CommandLine(error.to_string())),
        _ => Ok(Outcome::Clean),
    }
}

/// Message and hint in what clap says of a wrong command line; the usage comes after them.
fn what_clap_says(text: &str) -> (String, Option<String>) {
    let text = text.split("\n\nUsage:").next().unwrap_or_default();
    let text = text.split("\n\nFor more information").next().unwrap_or_default();
    let is_hint = |line: &&str| ["tip: ", "hint: "].iter().any(|start| line.starts_with(start));
    let (hints, message): (Vec<&str>, Vec<&str>) =
        text.lines().map(str::trim).filter(|line| !line.is_empty()).partition(is_hint);
    let message = message.join(" ");
    let hint = hints.first().and_then(|line| line.split_once(": ")).map(|(_, hint)| hint.to_owned());
    (message.strip_prefix("error: ").unwrap_or(&message).to_owned(), hint)
}

const REPORT_IT: &str = "this is a bug in calipam; please report it with the command and this line";

/// What the first panic said.
static PANIC: OnceLock<String> = OnceLock::new();

/// A panic anywhere, in a worker thread too, makes the exit code that of an internal error.
static PANICKED: AtomicBool = AtomicBool::new(false);

/// Says of a panic what to do about it, instead of where the code is only.
pub(crate) fn report_panics() {
    std::panic::set_hook(Box::new(|info| {
        if PANICKED.swap(true, Ordering::SeqCst) {
            return;
        }
        let text = info.payload_as_str().unwrap_or("no message");
        let place = info.location().map(|place| format!(" at {}:{}", place.file(), place.line()));
        let message = format!("internal error: {text}{}", place.unwrap_or_default());
        // If stderr is closed there is no place to say it, and `eprintln` would panic again.
        let _ = writeln!(io::stderr().lock(), "error: {message}\nhint: {REPORT_IT}");
        let _ = PANIC.set(message);
    }));
}

#[cfg(test)]
mod tests {
    use calipam_repair::{LockAction, LockFailure};

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
            (
                Err(RepairError::Lock { action: LockAction::Take, reason: Box::new(LockFailure::Taken) }
                    .into()),
                3,
            ),
            (Err(Failure::usage("x")), 2),
            (Err(Failure::CommandLine(String::new())), 2),
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

    #[test]
    fn message_and_hint_of_clap_are_told_apart() {
        let text = "error: unexpected argument '--leakd' found\n\n  tip: a similar argument exists: '--leaked'\n\n\
                    Usage: calipam release --leaked\n\nFor more information, try '--help'.\n";
        let hint = Some("a similar argument exists: '--leaked'".to_owned());
        assert_eq!(what_clap_says(text), ("unexpected argument '--leakd' found".into(), hint));
        let missing = "error: the following required arguments were not provided:\n  <FILE>\n\nUsage: x\n";
        let message = "the following required arguments were not provided: <FILE>".to_owned();
        assert_eq!(what_clap_says(missing), (message, None));
    }
}
