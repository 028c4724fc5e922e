//! The exit codes of outcomes and failures.

use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) use calipam_workflow::{Failure, FailureForm, Kind, Result};

use crate::render::text::escape;

/// The result of a command that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// No findings at or above the limit, and nothing was refused.
    Clean,
    /// Findings at or above the limit, or another answer that needs attention, such as differences.
    Findings,
    /// A named object does not exist, or a part of the request was not carried out.
    Refused,
    /// At least one cluster of a fleet was not read. The results of the other clusters are printed.
    PartlyRead,
}

/// Returns the exit code of a result. A panic, even on another thread, takes precedence over it.
pub(crate) fn code(result: &Result<Outcome>) -> u8 {
    if has_panicked() {
        return Kind::Internal as u8;
    }
    match result {
        Ok(Outcome::Clean) => 0,
        Ok(Outcome::Findings | Outcome::Refused) => Kind::Refused as u8,
        Ok(Outcome::PartlyRead) => Kind::Failed as u8,
        Err(failure) => failure.kind as u8,
    }
}

/// Returns the failure after ctrl-c or SIGTERM.
pub(crate) fn interrupted() -> Failure {
    Failure::new(Kind::Interrupted, "interrupted")
}

/// Returns the failure after ctrl-c or SIGTERM, with what the command has changed.
pub(crate) fn interrupted_after(changed: &str) -> Failure {
    Failure::new(Kind::Interrupted, format!("interrupted; {changed}"))
}

/// Returns the failure after a panic, which the panic hook has already reported.
pub(crate) fn panicked() -> Failure {
    let message = PANIC.get().cloned().unwrap_or_else(|| "internal error".into());
    Failure::new(Kind::Internal, message)
        .hint(REPORT_IT)
        .form(FailureForm::Already)
}

/// Prints clap's text: help and version on stdout, errors on stderr. Returns the failure for an error, which is marked
/// as printed.
pub(crate) fn print_clap_text(error: &clap::Error) -> Result<Outcome> {
    // A reader that has seen enough of the help is no failure.
    if let Err(failed) = error.print()
        && failed.kind() != io::ErrorKind::BrokenPipe
    {
        return Err(Failure::io("print the help")(failed));
    }
    if !error.use_stderr() {
        return Ok(Outcome::Clean);
    }
    let (message, hint) = split_clap_error(&error.to_string());
    Err(Failure::usage(message).hint_if(hint).form(FailureForm::Already))
}

/// Splits clap's error text into the message and the hint. The usage that follows them is left out.
fn split_clap_error(text: &str) -> (String, Option<String>) {
    let without_usage = text.split("\n\nUsage:").next().unwrap_or_default();
    let text = without_usage
        .split("\n\nFor more information")
        .next()
        .unwrap_or_default();
    let mut message_lines = Vec::new();
    let mut hint = None;
    for line in text.lines().map(str::trim) {
        let tip = line.strip_prefix("tip: ").or_else(|| line.strip_prefix("hint: "));
        if let Some(tip) = tip {
            // Only the first of several hints is shown.
            hint = hint.or(Some(tip.to_owned()));
        } else if !line.is_empty() {
            message_lines.push(line);
        }
    }

    let message = message_lines.join(" ");
    let message = message.strip_prefix("error: ").unwrap_or(&message);
    (message.to_owned(), hint)
}

const REPORT_IT: &str = "this is a bug in calipam; please report it with the command and this line";

/// The message of the first panic.
static PANIC: OnceLock<String> = OnceLock::new();

static PANICKED: AtomicBool = AtomicBool::new(false);

/// True after a panic in any thread. The exit code is then that of an internal error.
pub(crate) fn has_panicked() -> bool {
    PANICKED.load(Ordering::SeqCst)
}

/// Installs a panic hook that prints an error with a hint for the first panic, and nothing for later ones.
pub(crate) fn report_panics() {
    std::panic::set_hook(Box::new(|info| {
        if PANICKED.swap(true, Ordering::SeqCst) {
            return;
        }
        let text = info.payload_as_str().unwrap_or("no message");
        let mut message = format!("internal error: {text}");
        if let Some(location) = info.location() {
            message.push_str(&format!(" at {}:{}", location.file(), location.line()));
        }
        // If stderr is closed, `eprintln` would panic again.
        let _ = writeln!(
            io::stderr().lock(),
            "error: {}\nhint: {REPORT_IT}",
            escape(&message)
        );
        let _ = PANIC.set(message);
    }));
}

#[cfg(test)]
mod tests {
    use calipam_repair::{LockAction, LockFailure, RepairError};

    use super::*;

    #[test]
    fn every_result_has_its_exit_code() {
        let usage = calipam_datastore::SettingsError::no_endpoints();
        let reason = Box::new(LockFailure::Taken);
        let cases = [
            (Ok(Outcome::Clean), 0),
            (Ok(Outcome::Findings), 1),
            (Ok(Outcome::Refused), 1),
            (Ok(Outcome::PartlyRead), 3),
            (Err(Failure::refused("x")), 1),
            (
                Err(RepairError::NotAgreed {
                    agreed: 1,
                    planned: 2,
                }
                .into()),
                1,
            ),
            (
                Err(RepairError::Lock {
                    action: LockAction::Take,
                    reason,
                }
                .into()),
                3,
            ),
            (Err(Failure::usage("x")), 2),
            (Err(calipam_datastore::Error::from(usage).into()), 2),
            (
                Err(calipam_datastore::Error::NoCalico {
                    location: String::new(),
                }
                .into()),
                3,
            ),
            (Err(Failure::io("read")(io::Error::other("x"))), 3),
            (Err(panicked()), 4),
            (Err(interrupted()), 130),
        ];
        for (end, expected) in cases {
            assert_eq!(code(&end), expected, "{end:?}");
        }
    }

    #[test]
    fn clap_errors_are_split_into_message_and_hint() {
        let text = "error: unexpected argument '--leakd' found\n\n  tip: a similar argument exists: '--leaked'\n\n\
                    Usage: calipam release --leaked\n\nFor more information, try '--help'.\n";
        let hint = Some("a similar argument exists: '--leaked'".to_owned());
        assert_eq!(
            split_clap_error(text),
            ("unexpected argument '--leakd' found".into(), hint)
        );
        let missing = "error: the following required arguments were not provided:\n  <FILE>\n\nUsage: x\n";
        let message = "the following required arguments were not provided: <FILE>".to_owned();
        assert_eq!(split_clap_error(missing), (message, None));
    }
}
