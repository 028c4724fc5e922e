//! `calipam serve` on a changing cluster: the time from a change to its finding, and the cost.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use calipam_model::key::HANDLE_PREFIX;
use calipam_testkit::allocator::Churn;

use crate::bench::Bench;
use crate::cluster::{Cluster, get};
use crate::kubernetes;
use crate::process::{CHECK, Running, calipam};

/// Longest pause after a write on etcd, with which the workers start or stop about 50 pods a second. On Kubernetes,
/// writes take long enough without it.
const PAUSE: Duration = Duration::from_millis(70);
/// Pause between two requests for the report.
const LOOK: Duration = Duration::from_millis(200);
/// Durations of the measurements while the cluster is at rest, and while it changes.
const REST: Duration = Duration::from_secs(20);
const BUSY: Duration = Duration::from_secs(30);
/// One of so many addresses is leaked from the start: a cluster in trouble, whose report is long.
const LEAKS: usize = 100;
/// Minimum number of findings to measure.
const FINDINGS: usize = 5;
/// Seconds until a missing handle becomes a finding.
const SETTLE: f64 = 1.0;
/// Time limit of every wait.
const PATIENCE: Duration = Duration::from_secs(300);

pub(super) const TITLES: &str = "size | leaked | check | first report | at rest | while pods come and go | pods a second | \
                                 to a finding: median | longest | memory | ratio";

/// Measures a cluster with a number of allocations on etcd, or of pods on Kubernetes.
pub(super) fn measure(bench: &mut Bench<'_>) -> Result<()> {
    let cluster = bench.cluster()?;
    let leaked = cluster.leak(LEAKS)?;
    cluster.api_server().map_or(Ok(()), kubernetes::collect_garbage)?;
    let check_mib = calipam(bench.program, CHECK, &cluster.connection(), 1)?.peak_mib;
    let begin = Instant::now();
    let server = Server::start(bench.program, &cluster.connection())?;
    server.wait_until("there is no report", |status, _| status == 200)?;
    let first = begin.elapsed().as_secs_f64();

    let (at_rest, ()) = server.share(|| {
        thread::sleep(REST);
        Ok(())
    })?;
    let churn = Churn {
        operations: usize::MAX,
        pause: cluster.pick(PAUSE, Duration::ZERO),
        ..Churn::default()
    };
    let activity = churn.activity.clone();
    let begin = Instant::now();
    let (busy, log) = thread::scope(|scope| {
        let changes = scope.spawn(|| cluster.churn(churn));
        let busy = server.share(|| server.find_several(&cluster));
        activity.stop();
        (busy, changes.join().expect("the workers do not panic"))
    });
    let pods = log?.operations() as f64 / begin.elapsed().as_secs_f64();
    let ((busy, mut latencies), peak_mib) = (busy?, server.running.peak_mib());
    latencies.sort_by(f64::total_cmp);
    let cells = format!(
        "{leaked} | {check_mib:.0} MiB | {first:.2} s | {:.1} % | {:.1} % | {pods:.0} | {:.2} s | {:.2} s | {peak_mib:.0} MiB | {:.2}",
        at_rest * 100.0,
        busy * 100.0,
        latencies[latencies.len() / 2],
        latencies[latencies.len() - 1],
        peak_mib / check_mib,
    );
    bench.row(0, &cells);
    Ok(())
}

/// A running `calipam serve`. Its regular checks are an hour apart.
struct Server {
    running: Running,
    address: String,
}

impl Server {
    fn start(program: &str, connection: &[String]) -> Result<Self> {
        let mut command = Command::new(program);
        command.args(["serve", "--listen", "127.0.0.1:0", "--interval", "1h"]);
        command.args(["--settle", &format!("{SETTLE}s")]).args(connection);
        let (running, line) = Running::start(&mut command, "http://")?;
        let address = line
            .rsplit("http://")
            .next()
            .unwrap_or_default()
            .trim_end_matches('/')
            .to_owned();
        Ok(Self { running, address })
    }

    /// Requests the report until its status and text are as expected.
    fn wait_until(&self, failure: &str, is_there: impl Fn(u16, &str) -> bool) -> Result<()> {
        let begin = Instant::now();
        loop {
            let (status, report) = get(&self.address, "/report.json")?;
            if is_there(status, &report) {
                return Ok(());
            }
            ensure!(begin.elapsed() < PATIENCE, "{failure}");
            thread::sleep(LOOK);
        }
    }

    /// The share of one core that the server uses during `work`, and the result.
    fn share<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<(f64, T)> {
        let begin = Instant::now();
        let before = self.running.processor_seconds();
        let result = work()?;
        Ok((
            (self.running.processor_seconds() - before) / begin.elapsed().as_secs_f64(),
            result,
        ))
    }

    /// Removes handles of tunnels, which the pods do not need, for a while. Returns the times until their findings
    /// appear, minus [`SETTLE`].
    fn find_several(&self, cluster: &Cluster) -> Result<Vec<f64>> {
        let prefix = cluster.pick(HANDLE_PREFIX, "/registry/crd.projectcalico.org/ipamhandles/");
        let handles = cluster.etcd().entries_below(&format!("{prefix}ipip-"))?;
        let begin = Instant::now();
        let mut latencies = Vec::new();
        for (key, (value, _)) in handles.iter().cycle() {
            if begin.elapsed() > BUSY && latencies.len() >= FINDINGS {
                break;
            }
            cluster.etcd().delete(key)?;
            let written = Instant::now();
            self.wait_until("a finding does not appear", |_, report| {
                report.contains(&key[prefix.len()..])
            })?;
            latencies.push(written.elapsed().as_secs_f64() - SETTLE);
            cluster.etcd().put(key, value.clone())?;
        }
        Ok(latencies)
    }
}
