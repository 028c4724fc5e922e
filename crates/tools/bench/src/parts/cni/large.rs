//! ADDs that need another block, in clusters with many blocks of Calico's default size.

use std::path::{Path, PathBuf};
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use calipam_model::IpNet;
use calipam_model::cidr;
use calipam_testkit::relay::Relay;
use serde_json::json;
use tempfile::TempDir;

use super::call::VERSION;
use crate::cluster::{BLOCK_SIZE, CAUGHT_UP, Cluster, POOL};
use crate::measured::{Measured, median};
use crate::table::{self, Table};
use crate::{Failed, child, plugin};

/// Number of nodes that claim a block at the same time.
const NODES: usize = 64;
/// Number of claims for each median.
const CLAIMS: usize = 15;
/// A pool with room for 16,384 blocks.
pub(in crate::parts) const LARGE: &str = "10.16.0.0/12";
/// Pools with room for 10,240 blocks.
const EXHAUSTED: [&str; 2] = ["10.128.0.0/13", "10.136.0.0/15"];
/// The error of an ADD that finds no free address.
const EXHAUSTED_ERROR: &str = "failed to request IPv4 addresses";
/// The minimum number of blocks for which exhausted pools are also measured.
const MANY: usize = 10_000;
/// Number of addresses per block, and number of assigned addresses in most blocks.
const SIZE: usize = 64;
const TAKEN: usize = 50;
/// Time after which a plugin repeats a search that found no free address.
const SEARCH_AGAIN_AFTER: Duration = Duration::from_millis(5_200);

const TITLES: [&str; 2] = [
    "blocks | <call | wall | read | peak memory",
    "blocks | claims at once | wall | their writes alone | ratio | etcd's memory before | after",
];

/// Measures claims on a datastore that contains a number of blocks. With 10,000 blocks or more, also measures exhausted
/// pools.
pub(in crate::parts) fn run(program: &str, datastore: &str, sizes: &[String]) -> Result<(), Failed> {
    let programs = Path::new(program).parent().unwrap_or(Path::new("."));
    println!("{datastore}:");
    table::of_sizes(sizes, TITLES, |blocks, [calls, at_once]| {
        claims(&Large::start(programs, datastore, &[LARGE])?, blocks, calls, at_once)?;
        if blocks >= MANY {
            other_sizes(&Large::start(programs, datastore, &[LARGE])?, blocks, calls)?;
            exhaustion(&Large::start(programs, datastore, &EXHAUSTED)?, blocks, calls)?;
        }
        Ok(())
    })
}

/// The CIDRs of all blocks that a pool has room for.
fn places(pool: &str) -> Result<Vec<IpNet>, Failed> {
    Ok(pool.parse::<IpNet>()?.subnets(BLOCK_SIZE)?.collect())
}

/// Maps an index to a pseudo-random number, far from those of neighboring indexes.
fn scattered(index: usize) -> u64 {
    (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31).wrapping_mul(0xbf58_476d_1ce4_e5b9)
        >> 20
}

/// Some CIDRs of the large pool, in pseudo-random order.
pub(in crate::parts) fn some_places(count: usize) -> Result<Vec<IpNet>, Failed> {
    let mut places: Vec<(usize, IpNet)> = places(LARGE)?.into_iter().enumerate().collect();
    places.sort_by_key(|(index, _)| scattered(*index));
    Ok(places.into_iter().take(count).map(|(_, place)| place).collect())
}

fn claims(large: &Large, blocks: usize, calls: &mut Table, at_once: &mut Table) -> Result<(), Failed> {
    large.cluster.put_blocks(some_places(blocks)?, TAKEN)?;
    calls.row(format!("{blocks} | claim | {}", large.claims("c")?));

    let before = large.memory()?;
    let own = large.at_once("calico-ipam", "ADD")? * 1e3;
    let after = large.memory()?;
    let floor = large.at_once("cni_floor", "CLAIM")? * 1e3;
    at_once.row(format!(
        "{blocks} | {NODES} | {own:.0} ms | {floor:.0} ms | {:.2} | {before:.0} MiB | {after:.0} MiB",
        own / floor
    ));
    Ok(())
}

/// Measures a pool whose block size was changed: smaller blocks are in a quarter of its places, larger ones cover
/// another quarter.
fn other_sizes(large: &Large, blocks: usize, calls: &mut Table) -> Result<(), Failed> {
    let mut all = Vec::new();
    for (index, place) in places(LARGE)?.into_iter().step_by(4).enumerate().take(blocks * 2 / 5) {
        // Smaller blocks start at the second quarter of a place, next to free space of the pool's block size.
        let (sizes, first): (&[u8], _) = if index % 2 == 0 { (&[24], 0) } else { (&[26, 28, 29, 30], 64) };
        for prefix in sizes {
            let address = cidr::address_at(place, if *prefix > BLOCK_SIZE { first } else { 0 });
            all.push(cidr::block_around(address, *prefix).ok_or("no block")?);
        }
    }
    large.cluster.put_blocks(all, 4)?;
    calls.row(format!("{blocks} | claim beside blocks of other sizes | {}", large.claims("c")?));
    Ok(())
}

fn exhaustion(large: &Large, blocks: usize, calls: &mut Table) -> Result<(), Failed> {
    let places: Vec<IpNet> = [places(EXHAUSTED[0])?, places(EXHAUSTED[1])?].concat();
    let most = places.iter().enumerate().filter(|(index, _)| index % 128 >= 3);
    large.cluster.put_blocks(most.map(|(_, place)| *place), TAKEN)?;
    let claims = large.claims("c")?;
    calls.row(format!("{blocks} | claim, 10,000 of 10,240 places taken | {claims}"));
    large.cluster.put_blocks(places.iter().copied(), TAKEN)?;
    // The API server takes some time to see so many writes, and serves no list requests in the meantime.
    thread::sleep(SEARCH_AGAIN_AFTER);
    calls.row(format!("{blocks} | borrow from 10,240 blocks | {}", large.claims("n")?));

    large.cluster.put_blocks(places, SIZE)?;
    thread::sleep(SEARCH_AGAIN_AFTER);
    for (when, pause) in [
        ("10,240 full blocks, first", Duration::ZERO),
        ("again at once", SEARCH_AGAIN_AFTER),
        ("again after some seconds", Duration::ZERO),
    ] {
        let call = large.add("n0", true, true, false)?;
        calls.row(format!("{blocks} | refused, {when} | {}", cells(&call)));
        thread::sleep(pause);
    }
    Ok(())
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
        let names = names.chain((0..CLAIMS * 3).map(|number| format!("c{number}")));
        let cluster = Cluster::start(datastore, POOL, names)?;
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

    /// The configuration that the program of a node reads from stdin, with or without the relay.
    fn configuration(&self, node: &str, is_relayed: bool) -> Result<String, Failed> {
        let lock = self.folder.path().join(node).join("ipam.lock");
        std::fs::create_dir_all(lock.with_file_name("cni"))?;
        // Marks the affinities of this node as upgraded, since they already have labels.
        std::fs::write(lock.with_file_name("cni/ipam_upgraded"), "")?;
        let mut configuration = self.cluster.configuration(VERSION, node, &lock.display().to_string());
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
        Ok(configuration.to_string())
    }

    /// Runs ADDs on nodes without a block, one after another. Returns the table cells. They contain the times of a
    /// third of the calls, the bytes read by another third, and the memory of the last third.
    fn claims(&self, nodes: &str) -> Result<String, Failed> {
        let mut thirds = [Vec::new(), Vec::new(), Vec::new()];
        for number in 0..CLAIMS * 3 {
            if matches!(self.cluster, Cluster::Kubernetes(_)) {
                thread::sleep(CAUGHT_UP);
            }
            // The relay and memory readings slow calls down, so calls with either are not timed.
            let third = number % 3;
            thirds[third].push(self.add(&format!("{nodes}{number}"), third == 1, third == 2, true)?);
        }
        let [times, bytes, memory] = &thirds;
        Ok(cells(&Measured {
            seconds: median(times.iter().map(|call| call.seconds)),
            bytes: median(bytes.iter().map(|call| call.bytes)),
            peak_mib: memory.iter().map(|call| call.peak_mib).fold(0.0, f64::max),
            ..Measured::default()
        }))
    }

    /// Runs one ADD. It must succeed if `succeeds` is true, and otherwise fail because no address is free. Measures its
    /// time, the bytes that it reads if it is relayed, and its memory if it is watched.
    fn add(
        &self,
        node: &str,
        is_relayed: bool,
        is_watched: bool,
        succeeds: bool,
    ) -> Result<Measured, Failed> {
        let configuration = self.configuration(node, is_relayed)?;
        self.relay.take_bytes();
        let start = Instant::now();
        let mut child = plugin::start(&self.programs.join("calico-ipam"), "ADD", node, &configuration)?;
        let peak_mib = if is_watched { child::watch(&mut child, Duration::ZERO)? } else { 0.0 };
        let (is_done, said) = plugin::ended(child)?;
        let (seconds, bytes) = (start.elapsed().as_secs_f64(), self.relay.take_bytes() as u64);
        if is_done == succeeds && (succeeds || said.contains(EXHAUSTED_ERROR)) {
            return Ok(Measured { seconds, bytes, peak_mib, ..Measured::default() });
        }
        Err(format!("an ADD on {node}: {said}").into())
    }

    /// Runs one call on each node at the same time. Returns the seconds until all have ended.
    fn at_once(&self, program: &str, command: &str) -> Result<f64, Failed> {
        let nodes = (0..NODES).map(|number| format!("n{number}"));
        let nodes = nodes.map(|node| Ok((self.configuration(&node, false)?, node)));
        let nodes = nodes.collect::<Result<Vec<_>, Failed>>()?;
        let program = self.programs.join(program);
        let all = Measured::of(|| {
            let start = |(configuration, node): &(String, String)| {
                plugin::start(&program, command, node, configuration)
            };
            let running: Vec<Child> = nodes.iter().map(start).collect::<Result<_, _>>()?;
            running.into_iter().try_for_each(plugin::succeeded)
        })?;
        Ok(all.seconds)
    }

    /// The resident memory of etcd in MiB.
    fn memory(&self) -> Result<f64, Failed> {
        let etcd = self.cluster.etcd().process_id().ok_or("etcd does not run")?;
        Ok(child::resident(etcd).ok_or("no memory")?)
    }
}

/// The table cells of an ADD.
fn cells(call: &Measured) -> String {
    let (wall, read) = (call.seconds * 1e3, call.bytes as f64 / 1e3);
    format!("{wall:.1} ms | {read:.1} KB | {:.1} MiB", call.peak_mib)
}
