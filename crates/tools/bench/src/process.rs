//! Runs programs and measures them.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use calipam_testkit::servers::processor_seconds;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use crate::measured::Measured;

/// Pause between two readings of a command's memory.
const LOOK: Duration = Duration::from_millis(5);
/// The same for a call of a few milliseconds that is not timed.
pub(crate) const LOOK_CLOSELY: Duration = Duration::from_millis(1);

/// The arguments of a check that reads the cluster once and does not wait for findings to settle.
pub(crate) const CHECK: &str = "check --settle 0";

/// Runs calipam with the words of a command and more arguments. It must end with this code. Discards its output.
pub(crate) fn calipam(
    program: &str,
    command: &str,
    arguments: &[impl AsRef<OsStr>],
    code: i32,
) -> Result<Measured> {
    let mut calipam = Command::new(program);
    calipam
        .args(command.split(' '))
        .args(arguments)
        .stdout(Stdio::null());
    let (measured, ended, _) = run(&mut calipam, "", Some(LOOK))?;
    ensure!(ended.code() == Some(code), "{calipam:?} ended with {ended}");
    Ok(measured)
}

/// Runs a program to its end with `input` on stdin. Also returns what it wrote to stdout, if that is a pipe. Measures
/// its memory if a pause between two readings is given.
pub(crate) fn run(
    command: &mut Command,
    input: &str,
    pause: Option<Duration>,
) -> Result<(Measured, ExitStatus, String)> {
    let begin = Instant::now();
    let mut child = start(command, input)?;
    let process = child.id();
    let watch = pause.map(|pause| thread::spawn(move || peak_mib(process, pause)));
    let mut output = String::new();
    if let Some(stdout) = &mut child.stdout {
        stdout.read_to_string(&mut output)?;
    }
    // The process is not reaped yet, so that its processor time can still be read from `/proc`.
    let pid = Pid::from_raw(process.try_into()?).context("no process")?;
    waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)?;
    let seconds = begin.elapsed().as_secs_f64();
    let times = fs::read_to_string(format!("/proc/{process}/schedstat"))?;
    let nanos: f64 = times.split_whitespace().next().context("no times")?.parse()?;
    let peak_mib = watch.map_or(0.0, |watch| watch.join().expect("a reader does not panic"));
    let measured = Measured {
        seconds,
        processor: nanos / 1e9,
        peak_mib,
        bytes: 0,
    };
    Ok((measured, child.wait()?, output))
}

/// Starts a program with `input` on stdin, which it need not read.
pub(crate) fn start(command: &mut Command, input: &str) -> Result<Child> {
    let spawned = command.stdin(Stdio::piped()).spawn();
    let mut child = spawned.with_context(|| format!("cannot run {command:?}"))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes()).ok();
    }
    Ok(child)
}

/// Reads the memory of a process until it ends. Returns the peak, which Linux records, in MiB.
fn peak_mib(process: u32, pause: Duration) -> f64 {
    let mut peak = 0.0;
    while let Some(mib) = memory(process, "VmHWM:") {
        peak = mib;
        thread::sleep(pause);
    }
    peak
}

/// A field of a process's status in MiB; `None` if the process has ended.
pub(crate) fn memory(process: u32, field: &str) -> Option<f64> {
    let text = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = text.lines().find(|line| line.starts_with(field))?;
    let kib: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib / 1024.0)
}

/// A running program. Dropping it ends the program.
pub(crate) struct Running(Child);

impl Running {
    /// Starts a program and waits for a line on stderr that contains `ready`. Also returns that line.
    pub(crate) fn start(command: &mut Command, ready: &str) -> Result<(Self, String)> {
        let mut running = Self(start(command.stdout(Stdio::null()).stderr(Stdio::piped()), "")?);
        let stderr = running.0.stderr.take().context("no stderr")?;
        let mut lines = BufReader::new(stderr).lines().map_while(Result::ok);
        let line = lines
            .find(|line| line.contains(ready))
            .context("the program has ended")?;
        thread::spawn(move || lines.for_each(drop));
        Ok((running, line))
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
