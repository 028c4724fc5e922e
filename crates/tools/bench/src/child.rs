//! Runs calipam and measures it.

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use calipam_testkit::servers::processor_seconds;

use crate::Failed;
use crate::measured::Measured;

/// Pause between two memory readings of a long run.
const LOOK: Duration = Duration::from_millis(5);

/// The arguments of a check that reads the cluster once and does not wait for findings to settle.
pub(crate) const CHECK: &str = "check --settle 0";

/// Runs a calipam command on the datastore that the connection options name. The command must succeed.
pub(crate) fn run(
    program: &str,
    command: &str,
    connection: &[impl AsRef<OsStr>],
) -> Result<Measured, Failed> {
    let mut child = Command::new(program);
    measure(child.args(command.split(' ')).args(["--output", "json"]).args(connection), &[0])
}

/// Measures a command, which must end with one of the expected exit codes. Discards its output.
pub(crate) fn measure(command: &mut Command, expected: &[i32]) -> Result<Measured, Failed> {
    let start = Instant::now();
    let spawned = command.stdout(Stdio::null()).spawn();
    let mut child = spawned.map_err(|error| format!("cannot run {command:?}: {error}"))?;
    let peak_mib = watch(&mut child, LOOK)?;
    let (seconds, ended) = (start.elapsed().as_secs_f64(), child.wait()?);
    match ended.code() {
        Some(code) if expected.contains(&code) => Ok(Measured { seconds, peak_mib, ..Measured::default() }),
        _ => Err(format!("{command:?} ended with {ended}").into()),
    }
}

/// Polls the memory of a process until it ends. Returns the peak in MiB.
pub(crate) fn watch(child: &mut Child, pause: Duration) -> io::Result<f64> {
    let mut peak_mib = 0.0;
    while child.try_wait()?.is_none() {
        // Linux records the peak, so only the last reading counts. The first one may come before `exec`, while the
        // process still shares the memory of this one.
        peak_mib = memory(child.id(), "VmHWM:").unwrap_or(peak_mib);
        thread::sleep(pause);
    }
    Ok(peak_mib)
}

/// The current resident memory of a process in MiB.
pub(crate) fn resident(process: u32) -> Option<f64> {
    memory(process, "VmRSS:")
}

fn memory(process: u32, field: &str) -> Option<f64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = text.lines().find(|line| line.starts_with(field))?;
    let kib: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib / 1024.0)
}

/// A running program. Dropping it ends the program.
pub(crate) struct Running(Child);

impl Running {
    /// Starts a program and waits for a line on stderr that satisfies `is_ready`. Also returns that line.
    pub(crate) fn start(
        command: &mut Command,
        is_ready: impl Fn(&str) -> bool,
    ) -> Result<(Self, String), Failed> {
        let mut running = Self(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?);
        let stderr = running.0.stderr.take().ok_or("no stderr")?;
        let mut lines = BufReader::new(stderr).lines();
        let ready = lines.find(|line| line.as_ref().is_ok_and(|line| is_ready(line)));
        let ready = ready.ok_or("the program has ended")??;
        thread::spawn(move || lines.for_each(drop));
        Ok((running, ready))
    }

    /// The processor time so far, in seconds.
    pub(crate) fn processor_seconds(&self) -> f64 {
        processor_seconds(self.0.id())
    }

    pub(crate) fn peak_mib(&self) -> f64 {
        memory(self.0.id(), "VmHWM:").unwrap_or_default()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
