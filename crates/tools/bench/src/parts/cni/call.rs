//! Calls of the plugin, and their measurement.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use tempfile::TempDir;

use crate::cluster::Cluster;
use crate::{Failed, child, plugin};

/// The node of all calls.
pub(super) const NODE: &str = "a";
/// The CNI version of the calls, which Calico's plugin supports, too.
const VERSION: &str = "1.0.0";

/// The measurements of one call; 0 if not measured.
#[derive(Default)]
pub(super) struct Sample {
    /// Seconds from start to end.
    pub wall: f64,
    /// Seconds of processor time.
    pub processor: f64,
    pub peak_mib: f64,
}

/// A program that is called like a plugin.
pub(super) struct Calls {
    program: PathBuf,
    configuration: String,
    _folder: TempDir,
}

pub(super) struct Call {
    command: Command,
    stdin: String,
}

impl Calls {
    /// Prepares calls of a program, with a lock of its own.
    pub(super) fn new(program: &Path, cluster: &Cluster) -> Result<Self, Failed> {
        let folder = tempfile::tempdir()?;
        let lock = folder.path().join("ipam.lock").display().to_string();
        let configuration = cluster.configuration(VERSION, NODE, &lock).to_string();
        Ok(Self { program: program.to_owned(), configuration, _folder: folder })
    }

    pub(super) fn add(&self, container: &str) -> Call {
        self.call("ADD", container)
    }

    pub(super) fn del(&self, container: &str) -> Call {
        self.call("DEL", container)
    }

    fn call(&self, name: &str, container: &str) -> Call {
        let command = plugin::command(&self.program, name, container);
        Call { command, stdin: self.configuration.clone() }
    }
}

impl Call {
    fn start(&mut self) -> Result<Child, Failed> {
        let mut child = self.command.spawn()?;
        child.stdin.take().ok_or("no pipe")?.write_all(self.stdin.as_bytes())?;
        Ok(child)
    }

    /// Runs the call to its end.
    pub(super) fn run(mut self) -> Result<Sample, Failed> {
        let start = Instant::now();
        let mut child = self.start()?;
        // The process is not reaped yet, since its processor time is read from it.
        let pid = Pid::from_raw(child.id().try_into()?).ok_or("no process")?;
        waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)?;
        let wall = start.elapsed().as_secs_f64();
        let times = fs::read_to_string(format!("/proc/{}/schedstat", child.id()))?;
        let nanos: f64 = times.split_whitespace().next().ok_or("no times")?.parse()?;
        succeeded(&mut child)?;
        Ok(Sample { wall, processor: nanos / 1e9, peak_mib: 0.0 })
    }

    /// Runs the call to its end and reads its memory all the time.
    pub(super) fn run_for_memory(mut self) -> Result<Sample, Failed> {
        let mut child = self.start()?;
        let peak_mib = child::watch(&mut child, Duration::ZERO)?;
        succeeded(&mut child)?;
        Ok(Sample { peak_mib, ..Sample::default() })
    }
}

/// Starts many ADDs at once with a command; returns the seconds until all have ended. They are deleted afterwards.
pub(super) fn at_once(calls: &Calls, add: &str, count: usize) -> Result<f64, Failed> {
    // Blocks of the floor stay.
    let container = |number: usize| format!("{}{number}", add.to_lowercase());
    let start = Instant::now();
    let mut running: Vec<Child> =
        (0..count).map(|number| calls.call(add, &container(number)).start()).collect::<Result<_, _>>()?;
    running.iter_mut().try_for_each(succeeded)?;
    let seconds = start.elapsed().as_secs_f64();
    (0..count).try_for_each(|number| calls.del(&container(number)).run().map(drop))?;
    Ok(seconds)
}

fn succeeded(child: &mut Child) -> Result<(), Failed> {
    let ended = child.wait()?;
    if ended.success() { Ok(()) } else { Err(format!("a call failed: {ended}").into()) }
}
