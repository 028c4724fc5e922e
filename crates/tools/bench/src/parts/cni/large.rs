//! ADDs that need another block, among many blocks of Calico's size.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use calipam_model::IpNet;
use calipam_model::cidr;
use calipam_testkit::blocks::TakenBlock;
use calipam_testkit::relay::Relay;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cluster::{BLOCK_SIZE, CAUGHT_UP, Cluster};
use crate::{Failed, child, plugin};

/// Number of nodes that claim at once.
const NODES: usize = 64;
/// Number of claims for each median.
const CLAIMS: usize = 15;
/// 16,384 places.
pub(in crate::parts) const LARGE: &str = "10.16.0.0/12";
/// 10,240 places.
const EXHAUSTED: [&str; 2] = ["10.128.0.0/13", "10.136.0.0/15"];
/// The error of an ADD without a free address.
const EXHAUSTED_SAYS: &str = "failed to request IPv4 addresses";
/// The smallest cluster for which pools are exhausted.
const MANY: usize = 10_000;
/// Addresses per block.
const SIZE: usize = 64;
/// Time after which a plugin searches again.
const FORGOTTEN: Duration = Duration::from_millis(5_200);

/// Measures claims among a number of blocks on a datastore, and from 10,000 on exhausted pools, too.
pub(in crate::parts) fn run(program: &str, datastore: &str, sizes: &[String]) -> Result<(), Failed> {
    let programs = Path::new(program).parent().unwrap_or(Path::new("."));
    for blocks in sizes {
        let blocks: usize = blocks.parse()?;
        println!("{datastore}, {blocks} blocks:");
        println!("{:<44} {:>10} {:>12} {:>10}", "", "wall", "read", "peak");
        claims(programs, datastore, blocks)?;
        if blocks >= MANY {
            other_sizes(programs, datastore, blocks)?;
            exhaustion(programs, datastore)?;
        }
    }
    Ok(())
}

/// The places for blocks of a pool.
fn places(pool: &str) -> Result<Vec<IpNet>, Failed> {
    Ok(pool.parse::<IpNet>()?.subnets(BLOCK_SIZE)?.collect())
}

/// Maps an index to a number that is far from those of its neighbours.
fn scattered(index: usize) -> u64 {
    (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31).wrapping_mul(0xbf58_476d_1ce4_e5b9)
        >> 20
}

/// Some places of the large pool, in no order.
pub(in crate::parts) fn some_places(count: usize) -> Result<Vec<IpNet>, Failed> {
    let mut places: Vec<(u64, IpNet)> =
        places(LARGE)?.into_iter().enumerate().map(|(index, place)| (scattered(index), place)).collect();
    places.sort();
    Ok(places.into_iter().take(count).map(|(_, place)| place).collect())
}

fn claims(programs: &Path, datastore: &str, blocks: usize) -> Result<(), Failed> {
    let large = Large::start(programs, datastore, &[LARGE])?;
    let blocks: Vec<TakenBlock> =
        some_places(blocks)?.into_iter().map(|cidr| TakenBlock { cidr, taken: 50 }).collect();
    large.cluster.put_blocks(&blocks)?;
    large.claims("claim", "c")?;

    let before = large.memory()?;
    let own = large.at_once("calico-ipam", "ADD")?;
    let after = large.memory()?;
    let floor = large.at_once("cni_floor", "CLAIM")?;
    println!(
        "{NODES} claims at once: {:.0} ms, their writes alone {:.0} ms, ratio {:.2}; etcd's memory {before:.0} to {after:.0} MiB",
        own * 1e3,
        floor * 1e3,
        own / floor
    );
    Ok(())
}

/// A pool whose block size was changed: smaller blocks in a quarter of its places, larger ones over another quarter.
fn other_sizes(programs: &Path, datastore: &str, blocks: usize) -> Result<(), Failed> {
    let large = Large::start(programs, datastore, &[LARGE])?;
    let mut all = Vec::new();
    for (index, place) in places(LARGE)?.into_iter().step_by(4).enumerate().take(blocks * 2 / 5) {
        // The smaller ones are in the second place, next to a block of the pool's size.
        let (sizes, first): (&[u8], _) = if index % 2 == 0 { (&[24], 0) } else { (&[26, 28, 29, 30], 64) };
        for prefix in sizes {
            let address = cidr::address_at(place, if *prefix > BLOCK_SIZE { first } else { 0 });
            let cidr = cidr::block_around(address, *prefix).ok_or("no block")?;
            all.push(TakenBlock { cidr, taken: 4 });
        }
    }
    large.cluster.put_blocks(&all)?;
    large.claims("claim beside blocks of other sizes", "c")
}

fn exhaustion(programs: &Path, datastore: &str) -> Result<(), Failed> {
    let large = Large::start(programs, datastore, &EXHAUSTED)?;
    let places: Vec<IpNet> = [places(EXHAUSTED[0])?, places(EXHAUSTED[1])?].concat();
    let put = |taken: usize, is_wanted: &dyn Fn(usize) -> bool| {
        let blocks = places.iter().enumerate().filter(|(index, _)| is_wanted(*index));
        let blocks: Vec<TakenBlock> = blocks.map(|(_, cidr)| TakenBlock { cidr: *cidr, taken }).collect();
        large.cluster.put_blocks(&blocks)
    };
    let is_taken = |index: usize| index % 128 >= 3;
    put(50, &is_taken)?;
    large.claims("claim, 10,000 of 10,240 places taken", "c")?;
    put(50, &|_| true)?;
    // The API server takes some time to see so many writes, and answers no lists meanwhile.
    thread::sleep(FORGOTTEN);
    large.claims("borrow from 10,240 blocks", "n")?;

    put(SIZE, &|_| true)?;
    thread::sleep(FORGOTTEN);
    large.call("n0", "refused, 10,240 full blocks, first", false)?;
    large.call("n0", "refused, again at once", false)?;
    thread::sleep(FORGOTTEN);
    large.call("n0", "refused, again after some seconds", false)
}

/// A cluster with a relay in front of its server.
struct Large {
    cluster: Cluster,
    programs: PathBuf,
    pools: Vec<String>,
    relay: Relay,
    folder: TempDir,
}

impl Large {
    fn start(programs: &Path, datastore: &str, pools: &[&str]) -> Result<Self, Failed> {
        let names = (0..NODES).map(|number| format!("n{number}"));
        let cluster =
            Cluster::start(datastore, names.chain((0..CLAIMS * 3).map(|number| format!("c{number}"))))?;
        for (number, cidr) in pools.iter().enumerate() {
            cluster.put_pool(&format!("large-{number}"), cidr)?;
        }
        let port = match &cluster {
            Cluster::Etcd(etcd) => etcd.port(),
            Cluster::Kubernetes(server) => server.url().rsplit(':').next().unwrap_or_default().parse()?,
        };
        Ok(Self {
            relay: Relay::to(port),
            programs: programs.to_owned(),
            pools: pools.iter().map(|pool| (*pool).to_owned()).collect(),
            folder: tempfile::tempdir()?,
            cluster,
        })
    }

    /// The configuration on stdin for the program of a node, with or without the relay.
    fn configuration(&self, node: &str, is_relayed: bool) -> Result<Value, Failed> {
        let lock = self.folder.path().join(node).join("ipam.lock");
        std::fs::create_dir_all(lock.with_file_name("cni"))?;
        // The affinities of these nodes have labels.
        std::fs::write(lock.with_file_name("cni/ipam_upgraded"), "")?;
        let mut configuration = self.cluster.configuration("1.0.0", node, &lock.display().to_string());
        configuration["ipam"]["ipv4_pools"] = json!(self.pools);
        if is_relayed {
            match &self.cluster {
                Cluster::Etcd(_) => {
                    configuration["etcd_endpoints"] = format!("http://127.0.0.1:{}", self.relay.port).into();
                }
                Cluster::Kubernetes(server) => {
                    let text = std::fs::read_to_string(server.kubeconfig())?;
                    let through = format!("https://127.0.0.1:{}", self.relay.port);
                    let kubeconfig = self.folder.path().join("kubeconfig");
                    std::fs::write(&kubeconfig, text.replace(&server.url(), &through))?;
                    configuration["kubernetes"] = json!({"kubeconfig": kubeconfig});
                }
            }
        }
        Ok(configuration)
    }

    fn begin(
        &self,
        program: &str,
        command: &str,
        node: &str,
        configuration: &Value,
    ) -> Result<Child, Failed> {
        let mut call = plugin::command(&self.programs.join(program), command, node);
        let mut child = call.stdout(Stdio::piped()).spawn()?;
        child.stdin.take().ok_or("no pipe")?.write_all(configuration.to_string().as_bytes())?;
        Ok(child)
    }

    /// Runs ADDs on nodes without a block, one after another, and prints the times of one third, the bytes read by
    /// another, and the memory of the last.
    fn claims(&self, what: &str, nodes: &str) -> Result<(), Failed> {
        let mut times = Vec::new();
        let mut bytes = Vec::new();
        let mut peak: f64 = 0.0;
        for number in 0..CLAIMS * 3 {
            if matches!(self.cluster, Cluster::Kubernetes(_)) {
                thread::sleep(CAUGHT_UP);
            }
            // Relays and reads of the memory take time, so those calls are not timed.
            let node = format!("{nodes}{number}");
            let configuration = self.configuration(&node, number % 3 == 1)?;
            self.relay.take_bytes();
            let start = Instant::now();
            let mut child = self.begin("calico-ipam", "ADD", &node, &configuration)?;
            if number % 3 == 2 {
                peak = peak.max(child::watch(&mut child, Duration::ZERO)?);
            }
            ended(what, &mut child, true)?;
            match number % 3 {
                0 => times.push(start.elapsed().as_secs_f64()),
                1 => bytes.push(self.relay.take_bytes() as f64),
                _ => {}
            }
        }
        println!(
            "{what:<44} {:>7.1} ms {:>9.1} KB {peak:>6.1} MiB",
            median(&mut times) * 1e3,
            median(&mut bytes) / 1e3
        );
        Ok(())
    }

    /// Runs one ADD and measures its time, bytes and memory.
    fn call(&self, node: &str, what: &str, succeeds: bool) -> Result<(), Failed> {
        let configuration = self.configuration(node, true)?;
        self.relay.take_bytes();
        let start = Instant::now();
        let mut child = self.begin("calico-ipam", "ADD", node, &configuration)?;
        let peak = child::watch(&mut child, Duration::ZERO)?;
        ended(what, &mut child, succeeds)?;
        let (seconds, bytes) = (start.elapsed().as_secs_f64(), self.relay.take_bytes());
        println!("{what:<44} {:>7.1} ms {:>9.1} KB {peak:>6.1} MiB", seconds * 1e3, bytes as f64 / 1e3);
        Ok(())
    }

    /// Runs one call on each node at the same time.
    fn at_once(&self, program: &str, command: &str) -> Result<f64, Failed> {
        let nodes: Vec<String> = (0..NODES).map(|number| format!("n{number}")).collect();
        let configurations: Vec<Value> =
            nodes.iter().map(|node| self.configuration(node, false)).collect::<Result<_, _>>()?;
        let start = Instant::now();
        let calls = nodes.iter().zip(&configurations);
        let mut running: Vec<Child> = calls
            .map(|(node, configuration)| self.begin(program, command, node, configuration))
            .collect::<Result<_, _>>()?;
        for child in &mut running {
            ended(&format!("{program} {command}"), child, true)?;
        }
        Ok(start.elapsed().as_secs_f64())
    }

    /// The resident memory of etcd in MiB.
    fn memory(&self) -> Result<f64, Failed> {
        let etcd = self.cluster.etcd().process_id().ok_or("etcd does not run")?;
        Ok(child::resident(etcd).ok_or("no memory")?)
    }
}

/// Waits for a call, which has to succeed or to report that there is no address.
fn ended(what: &str, child: &mut Child, succeeds: bool) -> Result<(), Failed> {
    let status = child.wait()?;
    let mut said = String::new();
    if let Some(mut output) = child.stdout.take() {
        output.read_to_string(&mut said)?;
    }
    if status.success() == succeeds && (succeeds || said.contains(EXHAUSTED_SAYS)) {
        return Ok(());
    }
    Err(format!("{what}: {said}").into())
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
