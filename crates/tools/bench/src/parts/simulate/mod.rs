//! Simulations compared with reality. Pods arrive on a number of nodes, once with plugin processes and a real server,
//! and once in a simulation whose costs were measured with single calls. In a burst, all pods arrive at once, and
//! threads replace the processes. The plugin is in the folder of `calipam`.

mod calibrate;
mod reality;

use std::sync::Arc;
use std::time::Duration;

use calipam_model::node::Node;
use calipam_model::snapshot::DatastoreKind;
use calipam_simulate::answer::{self, Run};
use calipam_simulate::{Micros, Rate, Scenario, Start};

use self::reality::Caller;
use crate::bench::Bench;
use crate::cluster::{Cluster, POOL};
use crate::parts::cni::large::{LARGE, some_places};
use crate::{Failed, observe};

/// Pods per node.
const PODS: u32 = 4;
/// Minimum time between two arrivals.
const BETWEEN: Duration = Duration::from_millis(125);
/// Minimum time between two arrivals, as a multiple of the time of a single ADD. If processes had to wait for
/// processors, their times would say little about the datastore, and more nodes would search for blocks at the same
/// time.
const SINGLE_ADDS: u32 = 3;

/// The quantiles of the times of ADDs, in thousandths.
const RANKS: [usize; 4] = [500, 900, 990, 1_000];

/// Number of assigned addresses in each block of other nodes.
const TAKEN: usize = 50;

/// The prefix of a size whose pods arrive at once.
const BURST: &str = "burst:";

/// p is predicted, m is measured.
pub(super) const TITLES: &str = "nodes | requests p | requests m | lost p | lost m | median p | median m | % | \
                                 90 % p | 90 % m | % | 99 % p | 99 % m | % | worst p | worst m | % | \
                                 a pod every | processors busy | <by --latency";

/// Compares reality and simulation for a number of nodes. `50+1000` means 50 nodes among 1,000 blocks of other nodes;
/// `burst:50` means 50 nodes whose pods arrive at once.
pub(super) fn measure(bench: &mut Bench<'_>) -> Result<(), Failed> {
    let (caller, plain) = match bench.size.strip_prefix(BURST) {
        Some(plain) => (Caller::Thread, plain),
        None => (Caller::Process(bench.sibling("calico-ipam")), bench.size),
    };
    let (nodes, others) = plain.split_once('+').unwrap_or((plain, "0"));
    let (nodes, others): (u32, usize) = (nodes.parse()?, others.parse()?);
    let pool = if others == 0 { POOL } else { LARGE };
    let cluster = Cluster::start(bench.datastore, pool, (0..nodes + 2 * calibrate::CALLS).map(node_name))?;
    cluster.put_blocks(some_places(others)?, TAKEN)?;
    let begin = Begin { start: start(&cluster)?, datastore: cluster.form().datastore };
    let others_from = |first: u32| (first..first + calibrate::CALLS).map(node_name).collect::<Vec<_>>();
    let (single, together) = (others_from(nodes), others_from(nodes + calibrate::CALLS));
    let costs = calibrate::costs(&caller, &cluster, &begin, [&single, &together])?;
    let between = match caller {
        Caller::Process(_) => BETWEEN.max(costs.add * SINGLE_ADDS),
        Caller::Thread => Duration::ZERO,
    };
    let predicted = begin.predict(nodes, &costs.latency, between)?;
    let real = reality::run(&caller, &cluster, nodes, between)?;
    let (adds, times) = (&predicted.adds, &predicted.adds.time);
    let ranks = RANKS.iter().zip([times.median, times.p90, times.p99, times.worst]);
    let ranks = ranks.map(|(rank, predicted)| {
        let (predicted, measured) = (predicted.0 as f64 / 1e3, real.rank(*rank).as_secs_f64() * 1e3);
        format!("{predicted:.1} ms | {measured:.1} ms | {:+.0}", (predicted / measured - 1.0) * 100.0)
    });
    let cells = format!(
        "{:.2} | {:.2} | {} | {} | {} | {} ms | {:.2} | {}",
        adds.requests.mean,
        real.requests_per_add(),
        adds.conflicts,
        // etcd has no metric for transactions that failed because a revision had changed.
        real.requests.lost.map_or_else(|| "?".to_owned(), |lost| lost.to_string()),
        ranks.collect::<Vec<_>>().join(" | "),
        between.as_millis(),
        real.busy,
        costs.latency,
    );
    bench.row(0, &cells);
    Ok(())
}

/// The name of a node, counted from 0, as in simulations.
fn node_name(index: u32) -> String {
    format!("node-{}", index + 1)
}

/// The state of a cluster before the pods arrive.
fn start(cluster: &Cluster) -> Result<Start, Failed> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let snapshot = runtime.block_on(observe::observe(&cluster.overrides(), None))?;
    // Addresses in the blocks of other nodes stay.
    Ok(Start { nodes: Vec::new(), pods: Vec::new(), ..Start::of(&snapshot) })
}

/// The initial state of simulations.
struct Begin {
    start: Start,
    datastore: DatastoreKind,
}

impl Begin {
    fn predict(&self, nodes: u32, latency: &str, between: Duration) -> Result<Run, Failed> {
        let node = |index| {
            let name = node_name(index);
            Node { kubernetes_name: Some(name.clone()), name, ..Node::default() }
        };
        let start = Start { nodes: (0..nodes).map(node).collect(), ..self.start.clone() };
        let scenario = Scenario {
            datastore: self.datastore,
            nodes,
            pods_per_node: PODS,
            start: Some(Arc::new(start)),
            // A rate is a number of arrivals in a whole number of seconds.
            arrival: Some(Rate::per(
                1_000_000,
                Micros::from_secs(u64::try_from(between.as_micros())?.max(1)),
            )),
            latency: latency.to_owned(),
            grace: None,
            ..Scenario::default()
        };
        Ok(answer::run(&scenario)?)
    }
}
