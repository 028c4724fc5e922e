//! The parts of the benchmark.

mod cni;
mod completion;
mod etcd;
mod fleet;
mod history;
mod kubernetes;
mod live;
mod record;
mod release;
mod reports;
mod simulate;

use crate::Failed;

/// Measures a program for each size on the command line, and prints the results.
pub(crate) type Measure = fn(&str, &[String]) -> Result<(), Failed>;

/// The part with a name, as in `cargo xtask bench`.
pub(crate) fn named(name: &str) -> Option<Measure> {
    let measure: Measure = match name {
        "etcd" => etcd::run,
        "kubernetes" => kubernetes::run,
        "release-etcd" => release::run_on_etcd,
        "release-kubernetes" => release::run_on_kubernetes,
        "reports" => reports::run,
        "fleet" => fleet::run,
        "live" => live::run_on_etcd,
        "live-kubernetes" => live::run_on_kubernetes,
        "record" => record::run,
        "history" => history::run,
        "completion" => completion::run,
        "cni" => |program, calls| cni::run(program, "etcd", calls),
        "cni-kubernetes" => |program, calls| cni::run(program, "kubernetes", calls),
        "cni-large" => |program, blocks| cni::large::run(program, "etcd", blocks),
        "cni-large-kubernetes" => |program, blocks| cni::large::run(program, "kubernetes", blocks),
        "simulate" => |program, nodes| simulate::run(program, "etcd", nodes),
        "simulate-kubernetes" => |program, nodes| simulate::run(program, "kubernetes", nodes),
        _ => return None,
    };
    Some(measure)
}
