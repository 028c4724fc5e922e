//! Runs releases and their undo, and measures them.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::child::{Measured, measure};
use calipam_repair::journal::Recorded;

use crate::Failed;

pub(super) struct Released {
    /// Seconds of the whole command: check, plan, trial in memory, writes.
    pub seconds: f64,
    /// Seconds from the first line of the journal to the last.
    pub writing: f64,
    pub peak_mib: f64,
    pub recorded: Recorded,
}

/// Releases every leaked address at one look.
pub(super) fn release(program: &str, connection: &[String], journal: &Path) -> Result<Released, Failed> {
    let mut command = Command::new(program);
    command.args(["release", "--leaked", "--yes", "--grace", "0", "--settle", "0", "--journal"]).arg(journal);
    let Measured { seconds, peak_mib } = measure(command.args(connection), &[0])?;
    let recorded = Recorded::read(journal)?;
    let begun: jiff::Timestamp = recorded.header.started_at.parse()?;
    let ended = jiff::Timestamp::try_from(std::fs::metadata(journal)?.modified()?)?;
    let writing = ended.duration_since(begun).as_secs_f64();
    Ok(Released { seconds, writing, peak_mib, recorded })
}

/// Undoes a release.
pub(super) fn undo(program: &str, connection: &[String], journal: &Path) -> Result<(), Failed> {
    let mut command = Command::new(program);
    command.arg("undo").arg(journal).args(["--yes", "--journal"]).arg(journal.with_extension("back"));
    let ended = command.args(connection).stdout(Stdio::null()).status()?;
    if ended.success() { Ok(()) } else { Err(format!("the undo ended with {ended}").into()) }
}
