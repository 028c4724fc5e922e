//! Simulations against reality. The plugin lies beside `calipam`. Pods arrive on so many nodes, as processes of the plugin
//! against a real server and in a simulation whose costs were measured with single calls.

mod calibrate;
mod reality;
mod requests;

use std::path::Path;
use std::time::Duration;

use calipam_simulate::answer::{self, Run};
use calipam_simulate::{Micros, PoolSpec, Rate, Scenario};

use self::reality::Real;
use crate::Failed;
use crate::cluster::{BLOCK_SIZE, Cluster, POOL};

/// Pods of each node.
const PODS: u32 = 4;
/// Pods that arrive in a second. Less than the machine can do: where processes wait for processors, a datastore has no part
/// in it.
const PER_SECOND: u64 = 8;

/// Compares so many nodes on a datastore, `etcd` or `kubernetes`, and prints a line of each.
pub fn run(program: &str, datastore: &str, sizes: &[String]) -> Result<(), Failed> {
    let plugin = Path::new(program).parent().unwrap_or(Path::new(".")).join("calico-ipam");
    println!(
        "{datastore}: {PODS} pods on each node, {PER_SECOND} arrive in a second; p is predicted, m is measured"
    );
    println!(
        "{:>5}  {:>9} {:>9}  {:>9} {:>9} {:>5}  {:>9} {:>9} {:>5}",
        "nodes", "req. p", "req. m", "median p", "median m", "%", "99 % p", "99 % m", "%"
    );
    sizes.iter().try_for_each(|nodes| compare(&plugin, datastore, nodes.parse()?))
}

fn compare(plugin: &Path, datastore: &str, nodes: u32) -> Result<(), Failed> {
    // One more, for single calls.
    let cluster = Cluster::start(datastore, (0..=nodes).map(node_name))?;
    let latency = calibrate::latency(plugin, &cluster, &node_name(nodes))?;
    let predicted = predict(&cluster, nodes, &latency)?;
    let real = reality::run(plugin, &cluster, nodes)?;
    print_row(nodes, &predicted, &real);
    println!("       by --latency {latency}");
    Ok(())
}

/// The name of a node, counted from 0, as in simulations.
fn node_name(index: u32) -> String {
    format!("node-{}", index + 1)
}

fn predict(cluster: &Cluster, nodes: u32, latency: &str) -> Result<Run, Failed> {
    let pool = PoolSpec { block_size: Some(BLOCK_SIZE), ..PoolSpec::new(POOL.parse()?) };
    let scenario = Scenario {
        datastore: cluster.kind(),
        nodes,
        pods_per_node: PODS,
        pools: vec![pool],
        arrival: Some(Rate::per(PER_SECOND, Micros::from_secs(1))),
        latency: latency.to_owned(),
        collector: None,
        ..Scenario::default()
    };
    Ok(answer::run(&scenario)?)
}

fn print_row(nodes: u32, predicted: &Run, real: &Real) {
    let micros = |time: Micros| time.0 as f64 / 1_000.0;
    let millis = |time: Duration| time.as_secs_f64() * 1_000.0;
    let (median, p99) = (micros(predicted.adds.time.median), micros(predicted.adds.time.p99));
    let (real_median, real_p99) = (millis(real.median()), millis(real.p99()));
    let off = |predicted: f64, real: f64| (predicted / real - 1.0) * 100.0;
    println!(
        "{nodes:>5}  {:>9.2} {:>9.2}  {median:>6.1} ms {real_median:>6.1} ms {:>+5.0}  {p99:>6.1} ms {real_p99:>6.1} ms {:>+5.0}",
        predicted.adds.requests.mean,
        real.requests_per_add(),
        off(median, real_median),
        off(p99, real_p99),
    );
}
