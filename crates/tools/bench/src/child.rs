//! A run of the program, and what it takes.

use std::io;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How often the memory of the process is looked at. Linux keeps the peak, so that only the last look counts: the first one may
/// come while the process still shares the memory of this one, before it becomes the program.
const LOOK: Duration = Duration::from_millis(5);

/// Wall time and peak memory of one run.
pub(crate) struct Measured {
    pub seconds: f64,
    pub peak_mib: f64,
}

/// The fastest run, with the highest peak of all.
pub(crate) fn best(runs: Vec<Measured>) -> Result<Measured, String> {
    let peak_mib = runs.iter().map(|run| run.peak_mib).max_by(f64::total_cmp).unwrap_or_default();
    let best = runs.into_iter().min_by(|a, b| a.seconds.total_cmp(&b.seconds));
    best.map(|best| Measured { peak_mib, ..best }).ok_or_else(|| "nothing was measured".to_owned())
}

/// Runs a command to its end, without its output.
pub(crate) fn measure(command: &mut Command) -> io::Result<(Measured, ExitStatus)> {
    let start = Instant::now();
    let mut child = command.stdout(Stdio::null()).spawn()?;
    let status = format!("/proc/{}/status", child.id());
    let mut peak_mib = 0.0;
    let ended = loop {
        if let Some(ended) = child.try_wait()? {
            break ended;
        }
        peak_mib = peak(&status).unwrap_or(peak_mib);
        thread::sleep(LOOK);
    };
    Ok((Measured { seconds: start.elapsed().as_secs_f64(), peak_mib }, ended))
}

/// The peak of resident memory (VmHWM) in MiB, by the process's file of its status.
pub(crate) fn peak(status: &str) -> Option<f64> {
    let text = std::fs::read_to_string(status).ok()?;
    let line = text.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kib: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib / 1024.0)
}
