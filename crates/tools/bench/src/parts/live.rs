//! `calipam serve` on a changing cluster: the time from a change to its finding, and the cost.

use std::num::ParseIntError;
use std::process::Command;
use std::str::FromStr;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use crate::child::{CHECK, Running, run as run_program};
use crate::churn::{Churn, Handles};
use crate::cluster::Cluster;
use crate::measured::sorted;
use crate::table::{self, Table};
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

/// Number of revisions that a compaction keeps. Without compactions, etcd's storage would run full.
const KEPT: u64 = 5_000;

/// The size of a measurement.
#[derive(Clone, Copy)]
struct Size {
    /// Number of allocations or pods.
    objects: u64,
    /// Number of further changes, as fast as the server accepts them.
    rush: u64,
}

impl FromStr for Size {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        let (objects, rush) = text.split_once('+').unwrap_or((text, "0"));
        Ok(Self { objects: objects.parse()?, rush: rush.parse()? })
    }
}

/// Measures on a datastore. Sizes are allocations on `etcd` and pods on `kubernetes`. `SIZE+CHANGES` adds a number of
/// fast changes.
pub(super) fn run(program: &str, datastore: &str, sizes: &[String]) -> Result<(), Failed> {
    let objects = if datastore == "etcd" { "allocations" } else { "pods" };
    let titles = format!(
        "{objects} | check | first report | requests at rest | at rest | with {CHANGES} pods a second | \
         objects written | to a finding: median | longest | memory | ratio"
    );
    table::rows(sizes, &titles, |size| measure(program, datastore, size))
}

/// Measures a size and returns its row.
fn measure(program: &str, datastore: &str, Size { objects, rush }: Size) -> Result<String, Failed> {
    let cluster = Cluster::seeded(datastore, objects)?;
    if let Cluster::Kubernetes(server) = &cluster {
        kubernetes::collect_garbage(server)?;
    }
    let check_mib = run_program(program, CHECK, &cluster.connection())?.peak_mib;
    let begin = Instant::now();
    let server = Server::start(program, &cluster.connection())?;
    server.wait(|status, _| status == 200)?;
    let first = begin.elapsed().as_secs_f64();

    let before = requests::done(&cluster)?;
    let at_rest = server.share(|| {
        std::thread::sleep(REST);
        Ok(())
    })?;
    let requests = requests::done(&cluster)?.since(&before).done;
    let mut changing = Changing::new(&cluster)?;
    let mut latencies = Vec::new();
    let busy = server.share(|| {
        let begin = Instant::now();
        while begin.elapsed() < BUSY || latencies.len() < FINDINGS {
            latencies.push(server.find(&mut changing)?);
        }
        Ok(())
    })?;
    let (written, peak_mib) = (changing.churn.written(), server.running.peak_mib());
    server.rush(&mut changing, rush)?;
    let latencies = sorted(latencies);
    Ok(format!(
        "{objects} | {check_mib:.0} MiB | {first:.2} s | {requests} | {:.1} % | {:.1} % | {written} | {:.2} s | \
         {:.2} s | {peak_mib:.0} MiB | {:.2}",
        at_rest * 100.0,
        busy * 100.0,
        latencies[latencies.len() / 2],
        latencies[latencies.len() - 1],
        peak_mib / check_mib,
    ))
}

/// A changing cluster.
struct Changing {
    runtime: Runtime,
    churn: Churn,
    handles: Handles,
    /// Number of replaced pods at the last compaction.
    compacted: u64,
}

impl Changing {
    fn new(cluster: &Cluster) -> Result<Self, Failed> {
        let runtime = Runtime::new()?;
        let (churn, handles) = (Churn::new(cluster), Handles::new(cluster));
        let (churn, handles) = (runtime.block_on(churn)?, runtime.block_on(handles)?);
        Ok(Self { runtime, churn, handles, compacted: 0 })
    }

    /// Stops a pod and starts another one in its place.
    fn replace(&mut self) -> Result<(), Failed> {
        self.runtime.block_on(async {
            if self.churn.replaced - self.compacted >= 2 * KEPT {
                self.compacted = self.churn.replaced;
                self.handles.compact(KEPT).await?;
            }
            self.churn.replace().await
        })
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

    fn wait(&self, wanted: impl Fn(u16, &str) -> bool) -> Result<(), Failed> {
        let begin = Instant::now();
        loop {
            let (status, body) = self.report()?;
            if wanted(status, &body) {
                return Ok(());
            }
            if begin.elapsed() > PATIENCE {
                return Err(format!("it does not answer: {body}").into());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// The share of one core that the server uses during `work`.
    fn share(&self, work: impl FnOnce() -> Result<(), Failed>) -> Result<f64, Failed> {
        let (begin, before) = (Instant::now(), self.running.processor_seconds());
        work()?;
        Ok((self.running.processor_seconds() - before) / begin.elapsed().as_secs_f64())
    }

    /// The time until a finding appears while pods are replaced, minus [`SETTLE`].
    fn find(&self, cluster: &mut Changing) -> Result<f64, Failed> {
        let finding = cluster.runtime.block_on(cluster.handles.begin_finding())?;
        let written = Instant::now();
        loop {
            let begin = Instant::now();
            (0..AT_A_TIME).try_for_each(|_| cluster.replace())?;
            if self.report()?.1.contains(&finding) {
                break;
            }
            if written.elapsed() > PATIENCE {
                return Err("a finding does not appear".into());
            }
            std::thread::sleep(LOOK.saturating_sub(begin.elapsed()));
        }
        let latency = written.elapsed().as_secs_f64() - SETTLE;
        cluster.runtime.block_on(cluster.handles.end_finding())?;
        Ok(latency)
    }

    /// Performs a number of changes as fast as the server accepts them, and prints a row after each tenth of them.
    fn rush(&self, cluster: &mut Changing, changes: u64) -> Result<(), Failed> {
        if changes == 0 {
            return Ok(());
        }
        let (begin, before) = (Instant::now(), cluster.churn.written());
        let mut table = Table::new("objects written | a second | resident memory | peak");
        for tenth in 0..=10 {
            while cluster.churn.written() < before + changes / 10 * tenth {
                cluster.replace()?;
            }
            let (written, memory, peak) =
                (cluster.churn.written(), self.running.mib(), self.running.peak_mib());
            let a_second = (written - before) as f64 / begin.elapsed().as_secs_f64();
            table.row(format!("{written} | {a_second:.0} | {memory:.0} MiB | {peak:.0} MiB"));
            eprintln!("{written} written");
        }
        table.print();
        println!();
        Ok(())
    }
}
