//! The CNI plugin compared with a raw client that sends the same requests. Both programs are in the folder of
//! `calipam`.

mod call;
pub(super) mod large;

use std::path::Path;
use std::thread;
use std::time::Duration;

use self::call::{Calls, NODE, medians};
use crate::Failed;
use crate::cluster::{CAUGHT_UP, Cluster, POOL};
use crate::measured::Measured;
use crate::table::{self, Table};

/// Number of calls that start at once.
const AT_ONCE: usize = 64;
/// Number of calls whose memory is measured.
const FOR_MEMORY: usize = 20;
/// The commands that are called alternately.
const COMMANDS: [&str; 2] = ["ADD", "DEL"];
/// The variable with the path of a third program to measure, such as Calico's own plugin. Its name has to be
/// `calico-ipam`.
const OTHER: &str = "CALIPAM_BENCH_PLUGIN";

/// Each row's ratio is the plugin's time divided by that of the row's program.
const TITLES: &str = "calls | <medians | wall | processor | peak memory | ratio";

/// Measures a number of calls on a datastore, `etcd` or `kubernetes`.
pub(super) fn run(program: &str, datastore: &str, sizes: &[String]) -> Result<(), Failed> {
    let folder = Path::new(program).parent().unwrap_or(Path::new("."));
    println!("{datastore}:");
    table::of_sizes(sizes, [TITLES], |calls, [table]| measure(folder, datastore, calls, table))
}

fn measure(programs: &Path, datastore: &str, runs: usize, table: &mut Table) -> Result<(), Failed> {
    let cluster = Cluster::start(datastore, POOL, [NODE.to_owned()])?;
    let mut plugins = vec![
        Contender::new("plugin", &programs.join("calico-ipam"), &cluster)?,
        Contender::new("floor", &programs.join("cni_floor"), &cluster)?,
    ];
    if let Some(program) = std::env::var_os(OTHER) {
        plugins.push(Contender::new("other", Path::new(&program), &cluster)?);
    }
    // The first ADD of a node claims a block. It is not measured, since the steady state is of interest.
    plugins[0].calls.run("ADD", "warm")?;
    let pause = match cluster {
        Cluster::Etcd(_) => Duration::ZERO,
        Cluster::Kubernetes(_) => CAUGHT_UP,
    };
    series(&mut plugins, runs, pause)?;

    for (place, command) in COMMANDS.iter().enumerate() {
        let own = medians(&plugins[0].samples[place]).seconds;
        for plugin in &plugins {
            let Measured { seconds, processor, peak_mib, .. } = medians(&plugin.samples[place]);
            let (name, wall, processor) = (plugin.name, seconds * 1e3, processor * 1e3);
            table.row(format!(
                "{runs} | {name} {command} | {wall:.2} ms | {processor:.2} ms | {peak_mib:.1} MiB | {:.2}",
                own / seconds
            ));
        }
    }
    let mut own = 0.0;
    let at_once = plugins.iter().map(|plugin| (plugin, "ADD", ""));
    let locked = (&plugins[1], "LOCKED", " that holds the node's lock as the plugin does");
    for (plugin, add, note) in at_once.chain([locked]) {
        let seconds = plugin.calls.at_once(add, AT_ONCE)?;
        own = if own == 0.0 { seconds } else { own };
        let (name, wall, ratio) = (plugin.name, seconds * 1e3, own / seconds);
        table.row(format!("{runs} | {AT_ONCE} ADD at once, {name}{note} | {wall:.1} ms | | | {ratio:.2}"));
    }
    Ok(())
}

/// A measured program.
struct Contender {
    name: &'static str,
    calls: Calls,
    /// The measurements of each command.
    samples: [Vec<Measured>; COMMANDS.len()],
}

impl Contender {
    fn new(name: &'static str, program: &Path, cluster: &Cluster) -> Result<Self, Failed> {
        Ok(Self { name, calls: Calls::new(program, cluster)?, samples: Default::default() })
    }
}

/// Runs ADD and DEL for one container after another. The programs take turns, so that all run under the same
/// conditions.
fn series(plugins: &mut [Contender], runs: usize, pause: Duration) -> Result<(), Failed> {
    // Reading the peak of memory takes processor time, so the last calls are not timed.
    for number in 0..runs + FOR_MEMORY {
        for plugin in &mut *plugins {
            for (command, samples) in COMMANDS.into_iter().zip(&mut plugin.samples) {
                let container = format!("c{number}");
                samples.push(if number < runs {
                    thread::sleep(pause);
                    plugin.calls.run(command, &container)?
                } else {
                    plugin.calls.run_for_memory(command, &container)?
                });
            }
        }
    }
    Ok(())
}
