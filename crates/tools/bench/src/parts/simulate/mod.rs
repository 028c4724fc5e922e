//! Simulations compared with reality. Pods arrive on a number of nodes, once with plugin processes and a real server,
//! and once in a simulation whose costs were measured with single calls. In a burst, all pods arrive at once, and
//! threads replace the processes. The plugin is in the folder of `calipam`.

mod calibrate;

use std::sync::{Arc, Barrier, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use calipam_model::node::Node;
use calipam_model::snapshot::DatastoreKind;
use calipam_simulate::answer::{self, Run};
use calipam_simulate::{Costs, Micros, Rate, Scenario, Start};
use calipam_testkit::cluster::rng::Rng;
use calipam_testkit::datastore::observe;
use tokio::runtime::Runtime;

use crate::bench::Bench;
use crate::cluster::{Cluster, POOL};
use crate::parts::cni::large::{LARGE, TAKEN, some_places};
use crate::plugin::Plugin;

/// Pods per node.
const PODS: u32 = 4;
/// Minimum time between two arrivals.
const BETWEEN: Duration = Duration::from_millis(125);
/// Minimum time between two arrivals, as a multiple of the time of a single ADD. If processes had to wait for
/// processors, their times would say little about the datastore, and more nodes would search for blocks at the same
/// time.
const SINGLE_ADDS: f64 = 3.0;

/// The prefix of a size whose pods arrive at once.
const BURST: &str = "burst:";

/// p is predicted, m is measured.
pub(super) const TITLES: &str = "nodes | requests p | requests m | median p | median m | % | 90 % p | 90 % m | % | \
                                 99 % p | 99 % m | % | worst p | worst m | % | a pod every | <by --latency";

/// Compares reality and simulation for a number of nodes. `50+1000` means 50 nodes among 1,000 blocks of other nodes;
/// `burst:50` means 50 nodes whose pods arrive at once.
pub(super) fn measure(bench: &mut Bench<'_>) -> Result<()> {
    let plain = bench.size.trim_start_matches(BURST);
    let (nodes, others) = plain.split_once('+').unwrap_or((plain, "0"));
    let (nodes, others): (usize, usize) = (nodes.parse()?, others.parse()?);
    let pool = if others == 0 { POOL } else { LARGE };
    let names: Vec<_> = (1..=nodes + 2 * calibrate::CALLS)
        .map(|number| format!("node-{number}"))
        .collect();
    let cluster = Cluster::of_nodes(bench.datastore, pool, names.iter().cloned());
    cluster.put_blocks(some_places(others)?, TAKEN)?;
    let begin = Begin::of(&cluster)?;
    let mut plugin = Plugin::new(bench.sibling("calico-ipam"), &cluster, cluster.port()?, &[])?;
    plugin.on_threads = bench.size.starts_with(BURST);

    let (names, of_calls) = names.split_at(nodes);
    let of_calls = of_calls.split_at(calibrate::CALLS);
    let (latency, add) = calibrate::costs(&plugin, &cluster, &begin, of_calls.into())?;
    let between = if plugin.on_threads {
        Duration::ZERO
    } else {
        BETWEEN.max(Duration::from_secs_f64(add * SINGLE_ADDS))
    };
    let predicted = begin.predict(names, &latency, between)?.adds;
    let before = cluster.requests()?;
    let measured = arrive(&plugin, names, between)?;
    let requests = (cluster.requests()? - before) as f64 / measured.len() as f64;

    // The time that so many thousandths of the calls did not exceed.
    let rank = |permille: usize| measured[(measured.len() * permille).div_ceil(1_000) - 1];
    let time = &predicted.time;
    let ranks = [
        (500, time.median),
        (900, time.p90),
        (990, time.p99),
        (1_000, time.worst),
    ];
    let ranks = ranks.map(|(permille, predicted)| {
        let predicted = predicted.0 as f64 / 1e3;
        let measured = rank(permille).as_secs_f64() * 1e3;
        format!(
            "{predicted:.1} ms | {measured:.1} ms | {:+.0}",
            (predicted / measured - 1.0) * 100.0
        )
    });
    let between = between.as_millis();
    let of_requests = predicted.requests.mean;
    let ranks = ranks.join(" | ");
    bench.row(
        0,
        &format!("{of_requests:.2} | {requests:.2} | {ranks} | {between} ms | {latency}"),
    );
    Ok(())
}

/// The initial state of simulations.
struct Begin {
    start: Start,
    datastore: DatastoreKind,
}

impl Begin {
    /// The state of a cluster before the pods arrive.
    fn of(cluster: &Cluster) -> Result<Self> {
        let snapshot = Runtime::new()?.block_on(async { observe(&cluster.open().await).await });
        // Addresses in the blocks of other nodes stay.
        let start = Start {
            nodes: Vec::new(),
            pods: Vec::new(),
            ..Start::from_snapshot(&snapshot)
        };
        Ok(Self {
            start,
            datastore: cluster.pick(DatastoreKind::Etcd, DatastoreKind::Kubernetes),
        })
    }

    /// The costs that simulations assume if nothing was measured.
    fn assumed(&self) -> Costs {
        Costs::assumed(self.datastore)
    }

    fn predict(&self, nodes: &[String], latency: &str, between: Duration) -> Result<Run> {
        let named = |name: String| Node {
            kubernetes_name: Some(name.clone()),
            name,
            ..Node::default()
        };
        let start = Start {
            nodes: nodes.iter().cloned().map(named).collect(),
            ..self.start.clone()
        };
        let micros = u64::try_from(between.as_micros())?.max(1);
        let scenario = Scenario {
            datastore: self.datastore,
            pods_per_node: PODS,
            start: Some(Arc::new(start)),
            // A rate is a number of arrivals in a whole number of seconds.
            arrival: Some(Rate::per(1_000_000, Micros::from_secs(micros))),
            latency: latency.to_owned(),
            grace: None,
            ..Scenario::default()
        };
        Ok(answer::run(&scenario)?)
    }
}

/// Arrivals of pods, distributed as in simulations: gaps vary between zero and twice their mean, and a pod is placed on
/// the one of two random nodes that has fewer pods.
fn arrivals(nodes: &[String], between: Duration) -> Vec<(Duration, &str)> {
    let mut rng = Rng::new(1);
    let mut due = Duration::ZERO;
    let mut pods_of = vec![0; nodes.len()];
    let mut arrive = || {
        due += Duration::from_micros(rng.below(between.as_micros() as u64 * 2 + 1));
        let chosen = [0; 2].map(|_| rng.below(nodes.len() as u64) as usize);
        let node = chosen.into_iter().min_by_key(|node| pods_of[*node]).unwrap_or(0);
        pods_of[node] += 1;
        (due, &*nodes[node])
    };
    (0..nodes.len() * PODS as usize).map(|_| arrive()).collect()
}

/// Calls ADD for each pod when it arrives. Returns the times of the calls in ascending order.
fn arrive(plugin: &Plugin, nodes: &[String], between: Duration) -> Result<Vec<Duration>> {
    let arrivals = arrivals(nodes, between);
    // Many threads take a while to start, so a burst begins when all of them are ready.
    let together = Barrier::new(arrivals.len());
    let released = OnceLock::new();
    let begin = Instant::now();
    let mut times = thread::scope(|scope| {
        let call = |(pod, (due, node)): (usize, (Duration, _))| {
            thread::sleep(due.saturating_sub(begin.elapsed()));
            let together = &together;
            let released = &released;
            scope.spawn(move || {
                let at_once = between.is_zero().then(|| {
                    together.wait();
                    *released.get_or_init(Instant::now)
                });
                let taken = plugin.call("ADD", node, &format!("{node}-c{pod}"))?.seconds;
                Ok(
                    at_once.map_or(Duration::from_secs_f64(taken), |released: Instant| {
                        released.elapsed()
                    }),
                )
            })
        };
        let calls: Vec<_> = arrivals.into_iter().enumerate().map(call).collect();
        let ended = calls
            .into_iter()
            .map(|call| call.join().expect("a call does not panic"));
        ended.collect::<Result<Vec<Duration>>>()
    })?;
    times.sort();
    Ok(times)
}
