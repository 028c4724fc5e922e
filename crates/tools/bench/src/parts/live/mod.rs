//! `calipam serve` on a changing cluster: the time from a change to its finding, and the cost.

mod on_etcd;
mod on_kubernetes;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::num::ParseIntError;
use std::process::Command;
use std::str::FromStr;
use std::time::{Duration, Instant};

use crate::child::Running;
use crate::cluster::Cluster;
use crate::{Failed, check, requests};

/// Pods that go or come per second.
const CHANGES: u32 = 50;
/// Pause between two looks for a finding, and pods that are replaced meanwhile.
const LOOK: Duration = Duration::from_millis(200);
const AT_A_TIME: u32 = CHANGES / 2 / 5;
/// Durations of watching at rest, and while the cluster changes.
const REST: Duration = Duration::from_secs(20);
const BUSY: Duration = Duration::from_secs(30);
/// Number of findings.
const FINDINGS: usize = 5;
/// Seconds until a missing handle becomes a finding.
const SETTLE: f64 = 1.0;
/// Time limit of everything.
const PATIENCE: Duration = Duration::from_secs(300);

struct Row {
    size: u64,
    check_mib: f64,
    /// Seconds from the start to the first report.
    first: f64,
    /// Requests at rest, without watches.
    requests: u64,
    /// Share of one core.
    at_rest: f64,
    busy: f64,
    written: u64,
    /// Seconds from the write to the finding, without [`SETTLE`].
    latencies: Vec<f64>,
    peak_mib: f64,
}

/// The size of a measurement.
#[derive(Clone, Copy)]
struct Size {
    /// Allocations or pods.
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

/// A changing cluster.
trait Changing {
    /// Stops a pod and starts another one in its place.
    fn replace(&mut self) -> Result<(), Failed>;

    /// Removes a handle; returns its name in the report.
    fn begin_finding(&mut self) -> Result<String, Failed>;

    /// Restores the handle.
    fn end_finding(&mut self) -> Result<(), Failed>;

    /// Number of objects written for pods.
    fn written(&self) -> u64;
}

/// Measures on etcd; sizes are allocations. `SIZE+CHANGES` adds a number of fast changes.
pub(super) fn run_on_etcd(program: &str, sizes: &[String]) -> Result<(), Failed> {
    check::rows(sizes, |size| on_etcd::measure(program, size), |rows| print(rows, "allocations"))
}

/// Measures on the Kubernetes datastore; sizes are pods.
pub(super) fn run_on_kubernetes(program: &str, sizes: &[String]) -> Result<(), Failed> {
    check::rows(sizes, |size| on_kubernetes::measure(program, size), |rows| print(rows, "pods"))
}

/// Measures a filled server; `changes` returns the changing cluster.
fn measure<C: Changing>(
    program: &str,
    connection: &[&str],
    cluster: &Cluster,
    size: Size,
    changes: impl FnOnce() -> Result<C, Failed>,
) -> Result<Row, Failed> {
    let check_mib = check::check(program, connection)?.peak_mib;
    let begin = Instant::now();
    let server = Server::start(program, connection)?;
    server.wait(|status, _| status == 200)?;
    let first = begin.elapsed().as_secs_f64();

    let before = requests::done(cluster)?;
    let at_rest = server.share(|| {
        std::thread::sleep(REST);
        Ok(())
    })?;
    let requests = requests::done(cluster)?.since(&before).done;
    let mut cluster = changes()?;
    let mut latencies = Vec::new();
    let busy = server.share(|| {
        let begin = Instant::now();
        while begin.elapsed() < BUSY || latencies.len() < FINDINGS {
            latencies.push(server.find(&mut cluster)?);
        }
        Ok(())
    })?;
    let (written, peak_mib) = (cluster.written(), server.running.peak_mib());
    server.rush(&mut cluster, size.rush)?;
    let size = size.objects;
    Ok(Row { size, check_mib, first, requests, at_rest, busy, written, latencies, peak_mib })
}

/// A running `calipam serve`, whose own interval is an hour.
struct Server {
    running: Running,
    address: String,
}

impl Server {
    fn start(program: &str, connection: &[&str]) -> Result<Self, Failed> {
        let mut command = Command::new(program);
        command.args(["serve", "--listen", "127.0.0.1:0", "--interval", "1h"]);
        command.args(["--settle", &format!("{SETTLE}s")]).args(connection);
        let (running, line) = Running::start(&mut command, |line| line.contains("http://"))?;
        let address = line.rsplit("http://").next().unwrap_or_default().trim_end_matches('/').to_owned();
        Ok(Self { running, address })
    }

    /// Requests a path; returns status and body.
    fn get(&self, path: &str) -> Result<(u16, String), Failed> {
        let mut stream = TcpStream::connect(&self.address)?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.address)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").ok_or("no answer")?;
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        Ok((status.ok_or("no status")?, body.to_owned()))
    }

    fn wait(&self, wanted: impl Fn(u16, &str) -> bool) -> Result<(), Failed> {
        let begin = Instant::now();
        loop {
            let (status, body) = self.get("/report.json")?;
            if wanted(status, &body) {
                return Ok(());
            }
            if begin.elapsed() > PATIENCE {
                return Err(format!("it does not answer: {body}").into());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// The share of one core that it uses during `work`.
    fn share(&self, work: impl FnOnce() -> Result<(), Failed>) -> Result<f64, Failed> {
        let (begin, before) = (Instant::now(), self.running.processor_seconds());
        work()?;
        Ok((self.running.processor_seconds() - before) / begin.elapsed().as_secs_f64())
    }

    /// The time until a finding appears, without [`SETTLE`], while pods come and go.
    fn find(&self, cluster: &mut impl Changing) -> Result<f64, Failed> {
        let finding = cluster.begin_finding()?;
        let written = Instant::now();
        loop {
            let begin = Instant::now();
            (0..AT_A_TIME).try_for_each(|_| cluster.replace())?;
            if self.get("/report.json")?.1.contains(&finding) {
                break;
            }
            if written.elapsed() > PATIENCE {
                return Err("a finding does not appear".into());
            }
            std::thread::sleep(LOOK.saturating_sub(begin.elapsed()));
        }
        let latency = written.elapsed().as_secs_f64() - SETTLE;
        cluster.end_finding()?;
        Ok(latency)
    }

    /// Makes a number of changes as fast as the server accepts them, and prints a line after each tenth.
    fn rush(&self, cluster: &mut impl Changing, changes: u64) -> Result<(), Failed> {
        if changes == 0 {
            return Ok(());
        }
        let (begin, before) = (Instant::now(), cluster.written());
        println!("| objects written | a second | resident memory | peak |\n|---:|---:|---:|---:|");
        for tenth in 0..=10 {
            while cluster.written() < before + changes / 10 * tenth {
                cluster.replace()?;
            }
            let written = cluster.written();
            println!(
                "| {written} | {:.0} | {:.0} MiB | {:.0} MiB |",
                (written - before) as f64 / begin.elapsed().as_secs_f64(),
                self.running.mib(),
                self.running.peak_mib(),
            );
        }
        println!();
        Ok(())
    }
}

fn print(rows: &[Row], size: &str) {
    println!(
        "| {size} | check | first report | requests at rest | at rest | with {CHANGES} pods a second | objects written | to a finding: median | longest | memory | ratio |"
    );
    println!("|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    for row in rows {
        let mut latencies = row.latencies.clone();
        latencies.sort_by(f64::total_cmp);
        println!(
            "| {} | {:.0} MiB | {:.2} s | {} | {:.1} % | {:.1} % | {} | {:.2} s | {:.2} s | {:.0} MiB | {:.2} |",
            row.size,
            row.check_mib,
            row.first,
            row.requests,
            row.at_rest * 100.0,
            row.busy * 100.0,
            row.written,
            latencies[latencies.len() / 2],
            latencies[latencies.len() - 1],
            row.peak_mib,
            row.peak_mib / row.check_mib,
        );
    }
}
