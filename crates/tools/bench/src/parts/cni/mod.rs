//! The CNI plugin compared with a raw client that sends the same requests. Both programs are in the folder of
//! `calipam`.

pub(super) mod large;

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use crate::bench::Bench;
use crate::cluster::{CAUGHT_UP, Cluster, POOL};
use crate::measured::{Measured, median};
use crate::{Failed, plugin};

/// The node on which all calls run.
const NODE: &str = "a";
/// Number of calls that start at once.
const AT_ONCE: usize = 64;
/// Number of calls whose memory is measured.
const FOR_MEMORY: u64 = 20;
/// The commands that are called alternately.
const COMMANDS: [&str; 2] = ["ADD", "DEL"];
/// The variable with the path of a third program to measure, such as Calico's own plugin. Its name has to be
/// `calico-ipam`.
const OTHER: &str = "CALIPAM_BENCH_PLUGIN";

/// Each row's ratio is the plugin's time divided by that of the row's program.
pub(super) const TITLES: &str = "calls | <medians | wall | processor | peak memory | ratio";

/// Measures a number of calls.
pub(super) fn measure(bench: &mut Bench<'_>) -> Result<(), Failed> {
    let cluster = Cluster::start(bench.datastore, POOL, [NODE.to_owned()])?;
    let mut plugins = vec![
        Contender::new("plugin", bench.sibling("calico-ipam"), &cluster)?,
        Contender::new("floor", bench.sibling("cni_floor"), &cluster)?,
    ];
    if let Some(program) = std::env::var_os(OTHER) {
        plugins.push(Contender::new("other", program.into(), &cluster)?);
    }
    // The first ADD of a node claims a block. It is not measured, since the steady state is of interest.
    plugins[0].call("ADD", "warm", false)?;
    let pause = match cluster {
        Cluster::Etcd(_) => Duration::ZERO,
        Cluster::Kubernetes(_) => CAUGHT_UP,
    };
    series(&mut plugins, bench.number()?, pause)?;

    for (place, command) in COMMANDS.iter().enumerate() {
        let own = medians(&plugins[0].samples[place]).seconds;
        for plugin in &plugins {
            let Measured { seconds, processor, peak_mib, .. } = medians(&plugin.samples[place]);
            let (name, wall, processor) = (plugin.name, seconds * 1e3, processor * 1e3);
            let ratio = own / seconds;
            let cells = format!("{wall:.2} ms | {processor:.2} ms | {peak_mib:.1} MiB | {ratio:.2}");
            bench.row(0, &format!("{name} {command} | {cells}"));
        }
    }
    let mut own = 0.0;
    let at_once = plugins.iter().map(|plugin| (plugin, "ADD", ""));
    let locked = (&plugins[1], "LOCKED", " that holds the node's lock as the plugin does");
    for (plugin, add, note) in at_once.chain([locked]) {
        let seconds = plugin.at_once(add)?;
        own = if own == 0.0 { seconds } else { own };
        let (name, wall, ratio) = (plugin.name, seconds * 1e3, own / seconds);
        bench.row(0, &format!("{AT_ONCE} ADD at once, {name}{note} | {wall:.1} ms | | | {ratio:.2}"));
    }
    Ok(())
}

/// A measured program.
struct Contender {
    name: &'static str,
    program: PathBuf,
    configuration: String,
    /// The folder of its lock file.
    _folder: TempDir,
    /// The measurements of each command.
    samples: [Vec<Measured>; COMMANDS.len()],
}

impl Contender {
    fn new(name: &'static str, program: PathBuf, cluster: &Cluster) -> Result<Self, Failed> {
        let folder = tempfile::tempdir()?;
        let configuration = cluster.configuration(NODE, &folder.path().join("ipam.lock")).to_string();
        Ok(Self { name, program, configuration, _folder: folder, samples: Default::default() })
    }

    /// Runs a call, which must succeed.
    fn call(&self, command: &str, container: &str, is_watched: bool) -> Result<Measured, Failed> {
        let (measured, result) =
            plugin::run(&self.program, command, container, &self.configuration, is_watched)?;
        result?;
        Ok(measured)
    }

    /// Starts many ADDs at once. Returns the seconds until all have ended. Afterwards, runs DEL for all containers.
    fn at_once(&self, add: &str) -> Result<f64, Failed> {
        // The floor keeps its blocks, so its containers need names that differ by command.
        let container = |number| (format!("{}{number}", add.to_lowercase()), self.configuration.clone());
        let calls: Vec<_> = (0..AT_ONCE).map(container).collect();
        let seconds = plugin::at_once(&self.program, add, &calls)?;
        calls.iter().try_for_each(|(container, _)| self.call("DEL", container, false).map(drop))?;
        Ok(seconds)
    }
}

/// Runs ADD and DEL for one container after another. The programs take turns, so that all run under the same
/// conditions.
fn series(plugins: &mut [Contender], runs: u64, pause: Duration) -> Result<(), Failed> {
    // Reading the peak of memory takes processor time, so the last calls are not timed.
    for number in 0..runs + FOR_MEMORY {
        for plugin in &mut *plugins {
            for (place, command) in COMMANDS.into_iter().enumerate() {
                thread::sleep(pause);
                let call = plugin.call(command, &format!("c{number}"), number >= runs)?;
                plugin.samples[place].push(call);
            }
        }
    }
    Ok(())
}

/// The medians of the timed calls, and the highest memory peak.
fn medians(calls: &[Measured]) -> Measured {
    let timed = || calls.iter().filter(|call| call.peak_mib == 0.0);
    Measured {
        seconds: median(timed().map(|call| call.seconds)),
        processor: median(timed().map(|call| call.processor)),
        peak_mib: calls.iter().map(|call| call.peak_mib).fold(0.0, f64::max),
        ..Measured::default()
    }
}
