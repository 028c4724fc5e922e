//! Measures the CNI plugin against a raw client that sends the same requests: `bench_cni CALIPAM etcd|kubernetes RUNS…`. The
//! plugin and the raw client lie beside `calipam`. `cargo xtask bench` builds them in release mode and runs it.

mod call;
mod world;

use std::path::Path;
use std::process::ExitCode;

use self::call::{Calls, Sample, at_once};
use self::world::World;

/// What can fail.
pub type Failed = Box<dyn std::error::Error + Send + Sync>;

/// Calls that are started at once.
const AT_ONCE: usize = 64;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (Some(program), Some(datastore)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: bench_cni CALIPAM etcd|kubernetes RUNS…");
        return ExitCode::from(2);
    };
    let folder = Path::new(&program).parent().unwrap_or(Path::new("."));
    let measured = arguments.map(|runs| measure(folder, &datastore, runs.parse()?));
    match measured.collect::<Result<Vec<()>, Failed>>() {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(programs: &Path, datastore: &str, runs: usize) -> Result<(), Failed> {
    let world = World::start(datastore)?;
    let plugin = Calls::plugin(&programs.join("calico-ipam"), &world)?;
    // The first address of a node claims a block; what is measured is the steady state.
    plugin.add("warm").run()?;
    println!("{datastore}, {runs} calls each, medians:");
    println!("{:<10} {:>10} {:>14} {:>10}", "", "wall", "processor", "peak");
    let (add, del) = series(&plugin, runs)?;
    print_line("ADD", &add);
    print_line("DEL", &del);
    let many = at_once(&plugin, AT_ONCE)?;
    println!("{AT_ONCE} ADD at once: {:.1} ms", many * 1_000.0);

    if datastore == "etcd" {
        let floor = Calls::floor(&programs.join("bench_cni_floor"), &world)?;
        let (add_floor, del_floor) = series(&floor, runs)?;
        print_line("floor ADD", &add_floor);
        print_line("floor DEL", &del_floor);
        let many_floor = at_once(&floor, AT_ONCE)?;
        println!("{AT_ONCE} at once, floor: {:.1} ms", many_floor * 1_000.0);
        let ratio = |own: &[Sample], floor: &[Sample]| median(own, |s| s.wall) / median(floor, |s| s.wall);
        println!(
            "ratios: ADD {:.2}, DEL {:.2}, at once {:.2}",
            ratio(&add, &add_floor),
            ratio(&del, &del_floor),
            many / many_floor
        );
    }
    Ok(())
}

/// ADD and DEL of one container after the other.
fn series(calls: &Calls, runs: usize) -> Result<(Vec<Sample>, Vec<Sample>), Failed> {
    let (mut add, mut del) = (Vec::new(), Vec::new());
    for number in 0..runs {
        let container = format!("c{number}");
        add.push(calls.add(&container).run()?);
        del.push(calls.del(&container).run()?);
    }
    // Looking for the peak of memory takes processor time, so that these calls are not timed.
    for number in 0..20 {
        let container = format!("m{number}");
        add.push(calls.add(&container).run_for_memory()?);
        del.push(calls.del(&container).run_for_memory()?);
    }
    Ok((add, del))
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

/// The median of what was measured; what was not is 0 and left out.
fn median(samples: &[Sample], of: impl Fn(&Sample) -> f64) -> f64 {
    let mut values: Vec<f64> = samples.iter().map(of).filter(|value| *value > 0.0).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
