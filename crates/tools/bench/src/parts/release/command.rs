//! Runs releases and their undo, and measures them.

use std::path::Path;
use std::process::Command;

use calipam_repair::journal::Recorded;

use crate::Failed;
use crate::child::measure;
use crate::measured::Measured;

pub(super) struct Released {
    /// The whole command: the check, the plan, the trial in memory, and the writes.
    pub run: Measured,
    /// Seconds from the first line of the journal to the last.
    pub writing: f64,
    pub recorded: Recorded,
}

/// Releases every leaked address without waiting for a second read.
pub(super) fn release(program: &str, connection: &[String], journal: &Path) -> Result<Released, Failed> {
    let mut command = Command::new(program);
    command.args(["release", "--leaked", "--yes", "--grace", "0", "--settle", "0", "--journal"]).arg(journal);
    let run = measure(command.args(connection), &[0])?;
    let recorded = Recorded::read(journal)?;
    let begun: jiff::Timestamp = recorded.header.started_at.parse()?;
    let ended = jiff::Timestamp::try_from(std::fs::metadata(journal)?.modified()?)?;
    let writing = ended.duration_since(begun).as_secs_f64();
    Ok(Released { run, writing, recorded })
}

/// Undoes a release.
pub(super) fn undo(program: &str, connection: &[String], journal: &Path) -> Result<(), Failed> {
    let mut command = Command::new(program);
    command.arg("undo").arg(journal).args(["--yes", "--journal"]).arg(journal.with_extension("back"));
    measure(command.args(connection), &[0]).map(drop)
}
