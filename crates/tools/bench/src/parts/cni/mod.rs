//! The CNI plugin compared with a raw client that sends the same requests. Both are beside `calipam`.

mod call;
pub(super) mod large;

use std::path::Path;
use std::thread;
use std::time::Duration;

use self::call::{Calls, NODE, Sample, at_once};
use crate::Failed;
use crate::cluster::{CAUGHT_UP, Cluster};

/// Number of calls that start at once.
const AT_ONCE: usize = 64;
/// The variable with the path of a third program to measure, such as Calico's own plugin. Its name has to be
/// `calico-ipam`.
const OTHER: &str = "CALIPAM_BENCH_PLUGIN";

/// Measures a number of calls on a datastore, `etcd` or `kubernetes`, and prints each measurement.
pub(super) fn run(program: &str, datastore: &str, sizes: &[String]) -> Result<(), Failed> {
    let folder = Path::new(program).parent().unwrap_or(Path::new("."));
    sizes.iter().try_for_each(|calls| measure(folder, datastore, calls.parse()?))
}

fn measure(programs: &Path, datastore: &str, runs: usize) -> Result<(), Failed> {
    let cluster = Cluster::start(datastore, [NODE.to_owned()])?;
    let mut plugins = vec![
        Contender::new("plugin", Calls::new(&programs.join("calico-ipam"), &cluster)?),
        Contender::new("floor", Calls::new(&programs.join("cni_floor"), &cluster)?),
    ];
    if let Some(program) = std::env::var_os(OTHER) {
        plugins.push(Contender::new("other", Calls::new(Path::new(&program), &cluster)?));
    }
    // The first ADD of a node claims a block; the steady state is measured.
    plugins[0].calls.add("warm").run()?;
    let pause = match cluster {
        Cluster::Etcd(_) => Duration::ZERO,
        Cluster::Kubernetes(_) => CAUGHT_UP,
    };
    series(&mut plugins, runs, pause)?;

    println!("{datastore}, {runs} calls each, medians:");
    println!("{:<10} {:>10} {:>14} {:>10}", "", "wall", "processor", "peak");
    for plugin in &plugins {
        print_line(&format!("{} ADD", plugin.name), &plugin.add);
        print_line(&format!("{} DEL", plugin.name), &plugin.del);
    }
    for plugin in &mut plugins {
        plugin.many = at_once(&plugin.calls, "ADD", AT_ONCE)?;
        println!("{AT_ONCE} ADD at once, {}: {:.1} ms", plugin.name, plugin.many * 1_000.0);
    }
    let locked = at_once(&plugins[1].calls, "LOCKED", AT_ONCE)?;
    println!(
        "{AT_ONCE} ADD at once, floor that holds the node's lock as the plugin does: {:.1} ms",
        locked * 1_000.0
    );
    println!("ratio to that floor: at once {:.2}", plugins[0].many / locked);
    let (own, others) = plugins.split_first().ok_or("no plugin")?;
    for other in others {
        let ratio = |own: &[Sample], other: &[Sample]| median(own, |s| s.wall) / median(other, |s| s.wall);
        println!(
            "ratio to {}: ADD {:.2}, DEL {:.2}, at once {:.2}",
            other.name,
            ratio(&own.add, &other.add),
            ratio(&own.del, &other.del),
            own.many / other.many
        );
    }
    Ok(())
}

/// A measured program with its samples.
struct Contender {
    name: &'static str,
    calls: Calls,
    add: Vec<Sample>,
    del: Vec<Sample>,
    /// Seconds of many calls at once.
    many: f64,
}

impl Contender {
    fn new(name: &'static str, calls: Calls) -> Self {
        Self { name, calls, add: Vec::new(), del: Vec::new(), many: 0.0 }
    }
}

/// Runs ADD and DEL for one container after another. The programs take turns, so that all see the same machine.
fn series(plugins: &mut [Contender], runs: usize, pause: Duration) -> Result<(), Failed> {
    for number in 0..runs {
        let container = format!("c{number}");
        for plugin in &mut *plugins {
            thread::sleep(pause);
            plugin.add.push(plugin.calls.add(&container).run()?);
            thread::sleep(pause);
            plugin.del.push(plugin.calls.del(&container).run()?);
        }
    }
    // Reading the peak of memory takes processor time, so these calls are not timed.
    for number in 0..20 {
        let container = format!("m{number}");
        for plugin in &mut *plugins {
            plugin.add.push(plugin.calls.add(&container).run_for_memory()?);
            plugin.del.push(plugin.calls.del(&container).run_for_memory()?);
        }
    }
    Ok(())
}

fn print_line(name: &str, samples: &[Sample]) {
    let peak = samples.iter().map(|sample| sample.peak_mib).fold(0.0, f64::max);
    println!(
        "{name:<10} {:>7.2} ms {:>11.2} ms {:>6.1} MiB",
        median(samples, |sample| sample.wall) * 1_000.0,
        median(samples, |sample| sample.processor) * 1_000.0,
        peak
    );
}

/// The median of the measured values; 0 means not measured.
fn median(samples: &[Sample], of: impl Fn(&Sample) -> f64) -> f64 {
    let mut values: Vec<f64> = samples.iter().map(of).filter(|value| *value > 0.0).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
