//! Calls of the plugin, and their measurement.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use tempfile::TempDir;

use crate::cluster::Cluster;
use crate::measured::{Measured, median};
use crate::{Failed, child, plugin};

/// The node on which all calls run.
pub(super) const NODE: &str = "a";
/// The CNI version of the calls. Calico's plugin also supports this version.
pub(super) const VERSION: &str = "1.0.0";

/// A program that is called like a plugin.
pub(super) struct Calls {
    program: PathBuf,
    configuration: String,
    _folder: TempDir,
}

impl Calls {
    /// Prepares calls of a program, with a separate lock file.
    pub(super) fn new(program: &Path, cluster: &Cluster) -> Result<Self, Failed> {
        let folder = tempfile::tempdir()?;
        let lock = folder.path().join("ipam.lock").display().to_string();
        let configuration = cluster.configuration(VERSION, NODE, &lock).to_string();
        Ok(Self { program: program.to_owned(), configuration, _folder: folder })
    }

    fn start(&self, command: &str, container: &str) -> Result<Child, Failed> {
        plugin::start(&self.program, command, container, &self.configuration)
    }

    /// Runs a call to its end.
    pub(super) fn run(&self, command: &str, container: &str) -> Result<Measured, Failed> {
        let start = Instant::now();
        let child = self.start(command, container)?;
        // The process is not reaped yet, so that its processor time can still be read from `/proc`.
        let pid = Pid::from_raw(child.id().try_into()?).ok_or("no process")?;
        waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)?;
        let seconds = start.elapsed().as_secs_f64();
        let times = fs::read_to_string(format!("/proc/{}/schedstat", child.id()))?;
        let nanos: f64 = times.split_whitespace().next().ok_or("no times")?.parse()?;
        plugin::succeeded(child)?;
        Ok(Measured { seconds, processor: nanos / 1e9, ..Measured::default() })
    }

    /// Runs a call to its end and polls its memory without a pause.
    pub(super) fn run_for_memory(&self, command: &str, container: &str) -> Result<Measured, Failed> {
        let mut child = self.start(command, container)?;
        let peak_mib = child::watch(&mut child, Duration::ZERO)?;
        plugin::succeeded(child)?;
        Ok(Measured { peak_mib, ..Measured::default() })
    }

    /// Starts many ADDs or claims at once. Returns the seconds until all have ended. Afterwards, runs DEL for all
    /// containers.
    pub(super) fn at_once(&self, add: &str, count: usize) -> Result<f64, Failed> {
        // The floor keeps its blocks, so its containers need names that differ by command.
        let container = |number: usize| format!("{}{number}", add.to_lowercase());
        let taken = Measured::of(|| {
            let started = (0..count).map(|number| self.start(add, &container(number)));
            started.collect::<Result<Vec<_>, _>>()?.into_iter().try_for_each(plugin::succeeded)
        })?;
        (0..count).try_for_each(|number| self.run("DEL", &container(number)).map(drop))?;
        Ok(taken.seconds)
    }
}

/// The medians of the measured times, and the highest memory peak.
pub(super) fn medians(calls: &[Measured]) -> Measured {
    let median = |of: fn(&Measured) -> f64| median(calls.iter().map(of).filter(|value| *value > 0.0));
    let peak_mib = calls.iter().map(|call| call.peak_mib).fold(0.0, f64::max);
    let (seconds, processor) = (median(|call| call.seconds), median(|call| call.processor));
    Measured { seconds, processor, peak_mib, ..Measured::default() }
}
