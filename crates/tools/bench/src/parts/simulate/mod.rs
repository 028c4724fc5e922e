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
/// The least time between two pods that arrive.
const BETWEEN: Duration = Duration::from_millis(125);
/// Pods arrive at least so many times as far apart as a single ADD takes: where processes wait for processors, a datastore
/// has no part in their time, and nodes look for blocks at the same time that would not otherwise.
const SINGLE_ADDS: u32 = 3;

/// Compares so many nodes on a datastore, `etcd` or `kubernetes`, and prints a line of each.
pub(super) fn run(program: &str, datastore: &str, sizes: &[String]) -> Result<(), Failed> {
    let plugin = Path::new(program).parent().unwrap_or(Path::new(".")).join("calico-ipam");
    println!("{datastore}: {PODS} pods on each node; p is predicted, m is measured");
    println!(
        "{:>5}  {:>9} {:>9}  {:>6} {:>6}  {:>9} {:>9} {:>5}  {:>9} {:>9} {:>5}",
        "nodes", "req. p", "req. m", "lost p", "lost m", "median p", "median m", "%", "99 % p", "99 % m", "%"
    );
    sizes.iter().try_for_each(|nodes| compare(&plugin, datastore, nodes.parse()?))
}

fn compare(plugin: &Path, datastore: &str, nodes: u32) -> Result<(), Failed> {
    let cluster = Cluster::start(datastore, (0..nodes + calibrate::CALLS).map(node_name))?;
    let for_single_calls: Vec<String> = (nodes..nodes + calibrate::CALLS).map(node_name).collect();
    let costs = calibrate::costs(plugin, &cluster, &for_single_calls)?;
    let between = BETWEEN.max(costs.add * SINGLE_ADDS);
    let predicted = predict(&cluster, nodes, &costs.latency, between)?;
    let real = reality::run(plugin, &cluster, nodes, between)?;
    print_row(nodes, &predicted, &real);
    println!("       a pod every {} ms, by --latency {}", between.as_millis(), costs.latency);
    Ok(())
}

/// The name of a node, counted from 0, as in simulations.
fn node_name(index: u32) -> String {
    format!("node-{}", index + 1)
}

fn predict(cluster: &Cluster, nodes: u32, latency: &str, between: Duration) -> Result<Run, Failed> {
    let pool = PoolSpec { block_size: Some(BLOCK_SIZE), ..PoolSpec::new(POOL.parse()?) };
    let scenario = Scenario {
        datastore: cluster.kind(),
        nodes,
        pods_per_node: PODS,
        pools: vec![pool],
        // A rate is so many in whole seconds.
        arrival: Some(Rate::per(1_000_000, Micros::from_secs(u64::try_from(between.as_micros())?))),
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
    // Of etcd no metric tells how many of its transactions found another revision.
    let lost = real.lost_writes().map_or_else(|| "?".to_owned(), |lost| lost.to_string());
    println!(
        "{nodes:>5}  {:>9.2} {:>9.2}  {:>6} {lost:>6}  {median:>6.1} ms {real_median:>6.1} ms {:>+5.0}  {p99:>6.1} ms {real_p99:>6.1} ms {:>+5.0}",
        predicted.adds.requests.mean,
        real.requests_per_add(),
        predicted.adds.conflicts,
        off(median, real_median),
        off(p99, real_p99),
    );
}
