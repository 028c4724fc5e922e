//! The parts of the benchmark.

mod cni;
mod completion;
mod etcd;
mod fleet;
mod history;
mod kubernetes;
mod live;
mod page;
mod record;
mod release;
mod reports;
mod simulate;

use crate::Failed;

/// Parts that can measure either datastore.
const ON_BOTH: [&str; 5] = ["cni", "cni-large", "live", "release", "simulate"];

/// Measures a part for each size on the command line, and prints the results. `name` is the name of a part in `cargo
/// xtask bench`, some with a datastore as the suffix.
pub(crate) fn run(name: &str, program: &str, sizes: &[String]) -> Result<(), Failed> {
    let (part, datastore) = match name.rsplit_once('-') {
        Some((part, datastore @ ("etcd" | "kubernetes"))) if ON_BOTH.contains(&part) => (part, datastore),
        _ => (name, "etcd"),
    };
    match part {
        "etcd" => etcd::run(program, sizes),
        "kubernetes" => kubernetes::run(program, sizes),
        "release" => release::run(program, datastore, sizes),
        "reports" => reports::run(program, sizes),
        "fleet" => fleet::run(program, sizes),
        "live" => live::run(program, datastore, sizes),
        "record" => record::run(program, sizes),
        "history" => history::run(program, sizes),
        "completion" => completion::run(program, sizes),
        "cni" => cni::run(program, datastore, sizes),
        "cni-large" => cni::large::run(program, datastore, sizes),
        "simulate" => simulate::run(program, datastore, sizes),
        _ => Err(format!("{name} is not a part of the benchmark").into()),
    }
}
