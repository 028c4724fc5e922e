//! Runs of the program, and what they take.

use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use calipam_repair::journal::Recorded;

use crate::Failed;

/// How often the memory of the process is looked at. Linux keeps the peak, so that only the last look counts.
const LOOK: Duration = Duration::from_millis(5);

/// A release.
pub struct Released {
    /// The whole command: check, plan, trial in memory, writes.
    pub seconds: f64,
    /// From the first line of the journal to the last.
    pub writing: f64,
    pub peak_mib: f64,
    pub recorded: Recorded,
}

/// Releases every leaked address at one look.
pub fn release(program: &str, connection: &[String], journal: &Path) -> Result<Released, Failed> {
    let mut command = Command::new(program);
    command.args(["release", "--leaked", "--yes", "--grace", "0", "--settle", "0", "--journal"]).arg(journal);
    let begin = Instant::now();
    let mut child = command.args(connection).stdout(Stdio::null()).spawn()?;
    let status = format!("/proc/{}/status", child.id());
    let mut peak_mib: f64 = 0.0;
    let ended = loop {
        if let Some(ended) = child.try_wait()? {
            break ended;
        }
        peak_mib = peak_mib.max(peak(&status).unwrap_or_default());
        thread::sleep(LOOK);
    };
    let seconds = begin.elapsed().as_secs_f64();
    if !ended.success() {
        return Err(format!("the release ended with {ended}").into());
    }
    let recorded = Recorded::read(journal)?;
    let begun: jiff::Timestamp = recorded.header.started_at.parse()?;
    let ended = jiff::Timestamp::try_from(std::fs::metadata(journal)?.modified()?)?;
    let writing = ended.duration_since(begun).as_secs_f64();
    Ok(Released { seconds, writing, peak_mib, recorded })
}

/// Brings back what a release took away.
pub fn undo(program: &str, connection: &[String], journal: &Path) -> Result<(), Failed> {
    let mut command = Command::new(program);
    command.arg("undo").arg(journal).args(["--yes", "--journal"]).arg(journal.with_extension("back"));
    let ended = command.args(connection).stdout(Stdio::null()).status()?;
    if ended.success() { Ok(()) } else { Err(format!("the undo ended with {ended}").into()) }
}

/// The peak of resident memory (VmHWM) in MiB.
fn peak(status: &str) -> Option<f64> {
    let text = std::fs::read_to_string(status).ok()?;
    let line = text.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kib: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib / 1024.0)
}
