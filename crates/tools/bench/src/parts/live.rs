//! `calipam serve` on a changing cluster: the time from a change to its finding, and the cost.

use std::process::Command;
use std::time::{Duration, Instant};

use calipam_testkit::servers::{Etcd, EtcdOptions};

use crate::bench::Bench;
use crate::child::{CHECK, Running, run as run_program};
use crate::churn::Churn;
use crate::cluster::Cluster;
use crate::measured::sorted;
use crate::{Failed, kubernetes, requests};

/// Number of pods that stop or start per second. A replacement counts as two.
const CHANGES: u32 = 50;
/// Pause between two requests for the report, and the number of pods to replace in that time.
const LOOK: Duration = Duration::from_millis(200);
const AT_A_TIME: u32 = CHANGES / 2 / 5;
/// Durations of the measurements while the cluster is at rest, and while it changes.
const REST: Duration = Duration::from_secs(20);
const BUSY: Duration = Duration::from_secs(30);
/// Minimum number of findings to measure.
const FINDINGS: usize = 5;
/// Seconds until a missing handle becomes a finding.
const SETTLE: f64 = 1.0;
/// Time limit of every wait.
const PATIENCE: Duration = Duration::from_secs(300);

pub(super) const TITLES: &str = "size | check | first report | at rest | with 50 pods a second | \
                                 to a finding: median | longest | memory | ratio";

/// Measures a cluster with a number of allocations on etcd, or of pods on Kubernetes.
pub(super) fn measure(bench: &mut Bench<'_>) -> Result<(), Failed> {
    let cluster = Cluster::seeded(bench.datastore, bench.number()?, EtcdOptions::new())?;
    if let Cluster::Kubernetes(server) = &cluster {
        kubernetes::collect_garbage(server)?;
    }
    let check_mib = run_program(bench.program, CHECK, &cluster.connection())?.peak_mib;
    let begin = Instant::now();
    let server = Server::start(bench.program, &cluster.connection())?;
    server.wait_for_report()?;
    let first = begin.elapsed().as_secs_f64();

    let at_rest = server.share(|| {
        std::thread::sleep(REST);
        Ok(())
    })?;
    let mut changing = Changing::new(&cluster)?;
    let mut latencies = Vec::new();
    let busy = server.share(|| {
        let begin = Instant::now();
        while begin.elapsed() < BUSY || latencies.len() < FINDINGS {
            latencies.push(server.find(&mut changing)?);
        }
        Ok(())
    })?;
    let (latencies, peak_mib) = (sorted(latencies), server.running.peak_mib());
    let cells = format!(
        "{check_mib:.0} MiB | {first:.2} s | {:.1} % | {:.1} % | {:.2} s | {:.2} s | {peak_mib:.0} MiB | {:.2}",
        at_rest * 100.0,
        busy * 100.0,
        latencies[latencies.len() / 2],
        latencies[latencies.len() - 1],
        peak_mib / check_mib,
    );
    bench.row(0, &cells);
    Ok(())
}

/// A changing cluster.
struct Changing<'c> {
    etcd: &'c Etcd,
    churn: Churn,
    /// The handles of tunnels, with their values. They are removed and restored to cause findings. Replacing pods does
    /// not change them.
    handles: Vec<(String, Vec<u8>)>,
    /// Length of the prefix of the handles' keys.
    prefix: usize,
}

impl<'c> Changing<'c> {
    fn new(cluster: &'c Cluster) -> Result<Self, Failed> {
        let (etcd, prefix) = (cluster.etcd(), cluster.form().handles);
        let handles = etcd.entries_below(&format!("{prefix}ipip-"))?.into_iter();
        let handles = handles.map(|(key, (value, _))| (key, value)).collect();
        Ok(Self { etcd, churn: Churn::new(cluster)?, handles, prefix: prefix.len() })
    }
}

/// A running `calipam serve`. Its regular checks are an hour apart.
struct Server {
    running: Running,
    address: String,
}

impl Server {
    fn start(program: &str, connection: &[String]) -> Result<Self, Failed> {
        let mut command = Command::new(program);
        command.args(["serve", "--listen", "127.0.0.1:0", "--interval", "1h"]);
        command.args(["--settle", &format!("{SETTLE}s")]).args(connection);
        let (running, line) = Running::start(&mut command, |line| line.contains("http://"))?;
        let address = line.rsplit("http://").next().unwrap_or_default().trim_end_matches('/').to_owned();
        Ok(Self { running, address })
    }

    /// Requests the report. Returns the status and the body.
    fn report(&self) -> Result<(u16, String), Failed> {
        requests::get(&self.address, "/report.json")
    }

    fn wait_for_report(&self) -> Result<(), Failed> {
        let begin = Instant::now();
        while self.report()?.0 != 200 {
            if begin.elapsed() > PATIENCE {
                return Err("there is no report".into());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// The share of one core that the server uses during `work`.
    fn share(&self, work: impl FnOnce() -> Result<(), Failed>) -> Result<f64, Failed> {
        let (begin, before) = (Instant::now(), self.running.processor_seconds());
        work()?;
        Ok((self.running.processor_seconds() - before) / begin.elapsed().as_secs_f64())
    }

    /// The time until a finding appears while pods are replaced, minus [`SETTLE`].
    fn find(&self, cluster: &mut Changing<'_>) -> Result<f64, Failed> {
        cluster.handles.rotate_left(1);
        let (key, value) = cluster.handles[0].clone();
        cluster.etcd.delete(&key)?;
        let written = Instant::now();
        loop {
            let begin = Instant::now();
            (0..AT_A_TIME).try_for_each(|_| cluster.churn.replace())?;
            if self.report()?.1.contains(&key[cluster.prefix..]) {
                break;
            }
            if written.elapsed() > PATIENCE {
                return Err("a finding does not appear".into());
            }
            std::thread::sleep(LOOK.saturating_sub(begin.elapsed()));
        }
        let latency = written.elapsed().as_secs_f64() - SETTLE;
        cluster.etcd.put(&key, value)?;
        Ok(latency)
    }
}
