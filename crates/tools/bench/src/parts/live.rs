//! `calipam serve` while an etcd changes: how long after a change its finding appears, and what that takes.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use etcd_client::{Client, GetOptions};
use tokio::runtime::Runtime;

use crate::child::Running;
use crate::churn::{Churn, KEYS};
use crate::{Failed, check};

/// Pods that go or come in a second.
const CHANGES: u32 = 50;
/// How often it is looked for a finding; meanwhile so many pods are replaced.
const LOOK: Duration = Duration::from_millis(200);
const AT_A_TIME: u32 = CHANGES / 2 / 5;
/// How long it is watched at rest, and while the cluster changes.
const REST: Duration = Duration::from_secs(20);
const BUSY: Duration = Duration::from_secs(30);
/// Findings that are waited for.
const FINDINGS: usize = 5;
/// How long a handle has to be missing before that is a finding.
const SETTLE: f64 = 1.0;
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(300);

/// Handles of tunnels, which stay while pods come and go.
const HANDLES: &str = "/calico/ipam/v2/handle/";
const OF_TUNNELS: &str = "/calico/ipam/v2/handle/ipip-";

struct Row {
    allocations: u64,
    check_mib: f64,
    /// From the start to the first report.
    first: f64,
    /// Shares of one core.
    at_rest: f64,
    busy: f64,
    written: u64,
    /// From the write to the finding, without [`SETTLE`].
    latencies: Vec<f64>,
    peak_mib: f64,
    /// Keys that were written in all, and resident memory then.
    later: Vec<(u64, f64)>,
}

/// Measures each number of allocations and prints the table. `SIZE+SECONDS` goes on for so long, with as many changes as etcd takes.
pub(super) fn run(program: &str, sizes: &[String]) -> Result<(), Failed> {
    let measure = |size: String| {
        let (allocations, seconds) = size.split_once('+').unwrap_or((&size, "0"));
        measure(program, allocations.parse()?, Duration::from_secs(seconds.parse()?))
    };
    check::rows(sizes, measure, print)
}

fn measure(program: &str, allocations: u64, rush: Duration) -> Result<Row, Failed> {
    let etcd = check::seeded(allocations)?;
    let endpoint = etcd.endpoint();
    let check_mib = check::check(program, &["--etcd-endpoints", &endpoint])?.peak_mib;
    let begin = Instant::now();
    let server = Server::start(program, &endpoint)?;
    server.wait(|status, _| status == 200)?;
    let first = begin.elapsed().as_secs_f64();

    let at_rest = server.share(|| {
        std::thread::sleep(REST);
        Ok(())
    })?;
    let runtime = Runtime::new()?;
    let mut churn = runtime.block_on(Churn::new(&endpoint))?;
    let mut handles = runtime.block_on(Handles::new(&endpoint))?;
    let mut latencies = Vec::new();
    let busy = server.share(|| {
        let begin = Instant::now();
        while begin.elapsed() < BUSY || latencies.len() < FINDINGS {
            let finding = runtime.block_on(handles.begin_finding())?;
            let written = Instant::now();
            loop {
                let begin = Instant::now();
                (0..AT_A_TIME).try_for_each(|_| runtime.block_on(churn.replace()))?;
                if server.get("/report.json")?.1.contains(&finding) {
                    break;
                }
                if written.elapsed() > PATIENCE {
                    return Err("a finding does not appear".into());
                }
                std::thread::sleep(LOOK.saturating_sub(begin.elapsed()));
            }
            latencies.push(written.elapsed().as_secs_f64() - SETTLE);
            runtime.block_on(handles.end_finding())?;
        }
        Ok(())
    })?;
    let written = churn.replaced * 2 * KEYS;
    let peak_mib = server.running.peak_mib();
    let later = server.rush(&runtime, &mut churn, rush)?;
    Ok(Row { allocations, check_mib, first, at_rest, busy, written, latencies, peak_mib, later })
}

/// `calipam serve`, which would look by itself after an hour.
struct Server {
    running: Running,
    address: String,
}

impl Server {
    fn start(program: &str, endpoint: &str) -> Result<Self, Failed> {
        let mut command = Command::new(program);
        command.args(["serve", "--listen", "127.0.0.1:0", "--interval", "1h"]);
        command.args(["--settle", &format!("{SETTLE}s"), "--etcd-endpoints", endpoint]);
        let (running, line) = Running::start(&mut command, |line| line.contains("http://"))?;
        let address = line.rsplit("http://").next().unwrap_or_default().trim_end_matches('/').to_owned();
        Ok(Self { running, address })
    }

    /// Status and body.
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

    /// How much of one core it takes while `work` is done.
    fn share(&self, work: impl FnOnce() -> Result<(), Failed>) -> Result<f64, Failed> {
        let (begin, before) = (Instant::now(), self.running.processor_time()?);
        work()?;
        Ok((self.running.processor_time()? - before) / begin.elapsed().as_secs_f64())
    }

    /// As many changes as etcd takes: keys that were written, and resident memory, ten times on the way.
    fn rush(&self, runtime: &Runtime, churn: &mut Churn, most: Duration) -> Result<Vec<(u64, f64)>, Failed> {
        let mut seen = Vec::new();
        for _ in 0..if most.is_zero() { 0 } else { 10 } {
            seen.push((churn.replaced * 2 * KEYS, self.running.mib()));
            let begin = Instant::now();
            while begin.elapsed() < most / 10 {
                runtime.block_on(churn.replace())?;
            }
        }
        seen.push((churn.replaced * 2 * KEYS, self.running.mib()));
        Ok(seen)
    }
}

/// Handles that are taken away and put back.
struct Handles {
    client: Client,
    keys: Vec<String>,
    missing: Option<(String, Vec<u8>)>,
    next: usize,
}

impl Handles {
    async fn new(endpoint: &str) -> Result<Self, Failed> {
        let client = Client::connect([endpoint], None).await?;
        let keys_only = GetOptions::new().with_prefix().with_keys_only();
        let all = client.kv_client().get(OF_TUNNELS, Some(keys_only)).await?;
        let keys = all.kvs().iter().map(|kv| Ok(kv.key_str()?.to_owned()));
        Ok(Self { client, keys: keys.collect::<Result<_, Failed>>()?, missing: None, next: 0 })
    }

    /// Takes a handle away; gives what the report says of it.
    async fn begin_finding(&mut self) -> Result<String, Failed> {
        self.next += 1;
        let key = self.keys[self.next * 7_919 % self.keys.len()].clone();
        let id = key[HANDLES.len()..].to_owned();
        let stored = self.client.get(key.as_str(), None).await?;
        let value = stored.kvs().first().ok_or("a handle is not there")?.value().to_vec();
        self.client.delete(key.as_str(), None).await?;
        self.missing = Some((key, value));
        Ok(id)
    }

    async fn end_finding(&mut self) -> Result<(), Failed> {
        if let Some((key, value)) = self.missing.take() {
            self.client.put(key, value, None).await?;
        }
        Ok(())
    }
}

fn print(rows: &[Row]) {
    println!(
        "| allocations | check | first report | at rest | with {CHANGES} pods a second | keys written | to a finding: median | longest | memory | ratio |"
    );
    println!("|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    for row in rows {
        let mut latencies = row.latencies.clone();
        latencies.sort_by(f64::total_cmp);
        println!(
            "| {} | {:.0} MiB | {:.2} s | {:.1} % | {:.1} % | {} | {:.2} s | {:.2} s | {:.0} MiB | {:.2} |",
            row.allocations,
            row.check_mib,
            row.first,
            row.at_rest * 100.0,
            row.busy * 100.0,
            row.written,
            latencies[latencies.len() / 2],
            latencies[latencies.len() - 1],
            row.peak_mib,
            row.peak_mib / row.check_mib,
        );
    }
    for row in rows.iter().filter(|row| !row.later.is_empty()) {
        println!("\n| allocations | keys written | resident memory |\n|---:|---:|---:|");
        for (written, mib) in &row.later {
            println!("| {} | {written} | {mib:.0} MiB |", row.allocations);
        }
    }
}
