//! A run of the program, and what it takes.

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How often the memory of the process is looked at. Linux keeps the peak, so that only the last look counts.
const LOOK: Duration = Duration::from_millis(5);

/// Wall time and peak memory of one run.
pub struct Measured {
    pub seconds: f64,
    pub peak_mib: f64,
}

/// Checks what the connection's options name, as one look without settling.
pub fn run(program: &str, connection: &[&str]) -> Result<Measured, String> {
    let mut command = Command::new(program);
    command.args(["check", "--settle", "0", "--output", "json"]).args(connection);
    let start = Instant::now();
    let mut child =
        command.stdout(Stdio::null()).spawn().map_err(|e| format!("cannot run {program}: {e}"))?;
    let status = format!("/proc/{}/status", child.id());
    let mut peak_mib: f64 = 0.0;
    let ended = loop {
        if let Some(ended) = child.try_wait().map_err(|e| e.to_string())? {
            break ended;
        }
        peak_mib = peak_mib.max(peak(&status).unwrap_or_default());
        thread::sleep(LOOK);
    };
    if !ended.success() {
        return Err(format!("the generated cluster is healthy, but `{program} check` ended with {ended}"));
    }
    Ok(Measured { seconds: start.elapsed().as_secs_f64(), peak_mib })
}

/// The peak of resident memory (VmHWM) in MiB.
fn peak(status: &str) -> Option<f64> {
    let text = std::fs::read_to_string(status).ok()?;
    let line = text.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kib: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib / 1024.0)
}
