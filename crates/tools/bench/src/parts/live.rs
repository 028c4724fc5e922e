//! `calipam serve` while an etcd changes: how long after a change its finding appears, and what that takes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use etcd_client::{Client, GetOptions, Txn, TxnOp, TxnOpResponse};
use rustix::param::clock_ticks_per_second;

use crate::child::peak;
use crate::{Failed, check};

/// Writes a second: of each workload that changes its endpoint, its handle and the block of its address.
const CHANGES: u32 = 50;
/// How long it is watched at rest, and while the cluster changes.
const REST: Duration = Duration::from_secs(20);
const BUSY: Duration = Duration::from_secs(30);
/// Findings that are waited for.
const FINDINGS: usize = 5;
/// How long a handle has to be missing before that is a finding.
const SETTLE: f64 = 1.0;
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(300);

const ENDPOINTS: &str = "/calico/resources/v3/projectcalico.org/workloadendpoints/";
const HANDLES: &str = "/calico/ipam/v2/handle/";
const BLOCKS: &str = "/calico/ipam/v2/assignment/";

struct Row {
    allocations: u64,
    check_mib: f64,
    /// From the start to the first report.
    first: f64,
    /// Shares of one core.
    at_rest: f64,
    busy: f64,
    written: usize,
    /// From the write to the finding, without [`SETTLE`].
    latencies: Vec<f64>,
    peak_mib: f64,
}

/// Measures each number of allocations and prints the table.
pub(super) fn run(program: &str, sizes: &[String]) -> Result<(), Failed> {
    check::rows(sizes, |allocations| measure(program, allocations), print)
}

fn measure(program: &str, allocations: u64) -> Result<Row, Failed> {
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
    let runtime = tokio::runtime::Runtime::new()?;
    let mut changing = runtime.block_on(Changing::new(&endpoint))?;
    let mut latencies = Vec::new();
    let busy = server.share(|| {
        let begin = Instant::now();
        while begin.elapsed() < BUSY || latencies.len() < FINDINGS {
            let finding = changing.begin_finding(&runtime)?;
            let written = Instant::now();
            loop {
                changing.change_for_a_while(&runtime)?;
                if server.get("/report.json")?.1.contains(&finding) {
                    break;
                }
                if written.elapsed() > PATIENCE {
                    return Err("a finding does not appear".into());
                }
            }
            latencies.push(written.elapsed().as_secs_f64() - SETTLE);
            changing.end_finding(&runtime)?;
        }
        Ok(())
    })?;
    let (written, peak_mib) = (changing.written, server.peak_mib());
    Ok(Row { allocations, check_mib, first, at_rest, busy, written, latencies, peak_mib })
}

/// `calipam serve`, which would look by itself after an hour.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(program: &str, endpoint: &str) -> Result<Self, Failed> {
        let mut command = Command::new(program);
        command.args(["serve", "--listen", "127.0.0.1:0", "--interval", "1h"]);
        command.args(["--settle", &format!("{SETTLE}s"), "--etcd-endpoints", endpoint]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let stderr = child.stderr.take().ok_or("no stderr")?;
        let mut lines = BufReader::new(stderr).lines();
        let line = lines.next().ok_or("it does not serve")??;
        std::thread::spawn(move || lines.for_each(drop));
        let address = line.rsplit("http://").next().unwrap_or_default().trim_end_matches('/').to_owned();
        Ok(Self { child, address })
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
        let (begin, before) = (Instant::now(), self.processor_time()?);
        work()?;
        Ok((self.processor_time()? - before) / begin.elapsed().as_secs_f64())
    }

    /// Seconds.
    fn processor_time(&self) -> Result<f64, Failed> {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let fields = text.rsplit_once(')').ok_or("no fields")?.1;
        let ticks: Vec<f64> = fields.split_whitespace().skip(11).take(2).flat_map(str::parse).collect();
        Ok(ticks.iter().sum::<f64>() / clock_ticks_per_second() as f64)
    }

    fn peak_mib(&self) -> f64 {
        peak(&format!("/proc/{}/status", self.child.id())).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A cluster whose workloads change.
struct Changing {
    client: Client,
    endpoints: Vec<Vec<u8>>,
    handles: Vec<Vec<u8>>,
    blocks: Vec<Vec<u8>>,
    /// What was taken away.
    missing: Option<(Vec<u8>, Vec<u8>)>,
    next: usize,
    written: usize,
}

impl Changing {
    async fn new(endpoint: &str) -> Result<Self, Failed> {
        let client = Client::connect([endpoint], None).await?;
        let mut reader = client.kv_client().max_decoding_message_size(usize::MAX);
        let mut keys: [Vec<Vec<u8>>; 3] = Default::default();
        for (keys, prefix) in keys.iter_mut().zip([ENDPOINTS, HANDLES, BLOCKS]) {
            let all = reader.get(prefix, Some(GetOptions::new().with_prefix().with_keys_only())).await?;
            keys.extend(all.kvs().iter().map(|kv| kv.key().to_vec()));
        }
        let [endpoints, handles, blocks] = keys;
        Ok(Self { client, endpoints, handles, blocks, missing: None, next: 0, written: 0 })
    }

    /// Takes a handle away; gives what the report says of it.
    fn begin_finding(&mut self, runtime: &tokio::runtime::Runtime) -> Result<String, Failed> {
        let key = self.handles[self.next * 7_919 % self.handles.len()].clone();
        let id = String::from_utf8_lossy(&key[HANDLES.len()..]).into_owned();
        runtime.block_on(async {
            let stored = self.client.get(key.as_slice(), None).await?;
            let value = stored.kvs().first().ok_or("a handle is not there")?.value().to_vec();
            self.client.delete(key.as_slice(), None).await?;
            self.missing = Some((key, value));
            Ok(id)
        })
    }

    fn end_finding(&mut self, runtime: &tokio::runtime::Runtime) -> Result<(), Failed> {
        let Some((key, value)) = self.missing.take() else { return Ok(()) };
        runtime.block_on(self.client.put(key, value, None))?;
        Ok(())
    }

    /// A tenth of a second of changes: the values stay, so that the cluster is healthy.
    fn change_for_a_while(&mut self, runtime: &tokio::runtime::Runtime) -> Result<(), Failed> {
        let (begin, while_) = (Instant::now(), Duration::from_millis(100));
        for _ in 0..CHANGES / 10 {
            runtime.block_on(self.change())?;
        }
        std::thread::sleep(while_.saturating_sub(begin.elapsed()));
        Ok(())
    }

    async fn change(&mut self) -> Result<(), Failed> {
        self.next += 1;
        let index = self.next;
        let block = &self.blocks[index * 7_919 % self.blocks.len()];
        let endpoint = &self.endpoints[index % self.endpoints.len()];
        let handle = &self.handles[index % self.handles.len()];
        let is_missing = self.missing.as_ref().is_some_and(|(key, _)| key == handle);
        let keys = [Some(endpoint), Some(block), (!is_missing).then_some(handle)];
        let reads: Vec<TxnOp> =
            keys.into_iter().flatten().map(|key| TxnOp::get(key.as_slice(), None)).collect();
        let answer = self.client.txn(Txn::new().and_then(reads)).await?;
        let read = answer.op_responses().into_iter().filter_map(|read| match read {
            TxnOpResponse::Get(read) => Some(read),
            _ => None,
        });
        let kvs: Vec<_> = read.flat_map(|mut read| read.take_kvs()).collect();
        let puts: Vec<TxnOp> = kvs.iter().map(|kv| TxnOp::put(kv.key(), kv.value(), None)).collect();
        self.written += puts.len();
        self.client.txn(Txn::new().and_then(puts)).await?;
        Ok(())
    }
}

fn print(rows: &[Row]) {
    println!(
        "| allocations | check | first report | at rest | with {CHANGES} changes a second | keys written | to a finding: median | longest | memory | ratio |"
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
}
