//! ADDs that need another block, in clusters with many blocks of Calico's default size.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use calipam_model::IpNet;
use calipam_model::cidr;
use calipam_testkit::cluster::rng::Rng;
use calipam_testkit::relay::Relay;
use serde_json::json;
use tempfile::TempDir;

use crate::bench::Bench;
use crate::cluster::{BLOCK_SIZE, CAUGHT_UP, Cluster, POOL};
use crate::measured::{Measured, median};
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

pub(in crate::parts) const TITLES: [&str; 2] = [
    "blocks | <call | wall | read | peak memory",
    "blocks | claims at once | wall | their writes alone | ratio | etcd's memory before | after",
];

/// Measures claims on a datastore that contains a number of blocks. With 10,000 blocks or more, also measures exhausted
/// pools.
pub(in crate::parts) fn measure(bench: &mut Bench<'_>) -> Result<(), Failed> {
    let blocks = bench.number()? as usize;
    claims(&Large::start(bench, &[LARGE])?, blocks, bench)?;
    if blocks >= MANY {
        other_sizes(&Large::start(bench, &[LARGE])?, blocks, bench)?;
        exhaustion(&Large::start(bench, &EXHAUSTED)?, bench)?;
    }
    Ok(())
}

/// The CIDRs of all blocks that a pool has room for.
fn places(pool: &str) -> Result<Vec<IpNet>, Failed> {
    Ok(pool.parse::<IpNet>()?.subnets(BLOCK_SIZE)?.collect())
}

/// Some CIDRs of the large pool, in pseudo-random order.
pub(in crate::parts) fn some_places(count: usize) -> Result<Vec<IpNet>, Failed> {
    let (mut rng, mut places) = (Rng::new(1), places(LARGE)?);
    places.sort_by_cached_key(|_| rng.next());
    places.truncate(count);
    Ok(places)
}

fn claims(large: &Large, blocks: usize, bench: &mut Bench<'_>) -> Result<(), Failed> {
    large.cluster.put_blocks(some_places(blocks)?, TAKEN)?;
    bench.row(0, &format!("claim | {}", large.claims("c")?));

    let before = large.memory()?;
    let own = large.at_once(&large.programs[0], "ADD")? * 1e3;
    let after = large.memory()?;
    let floor = large.at_once(&large.programs[1], "CLAIM")? * 1e3;
    let ratio = own / floor;
    let memory = format!("{before:.0} MiB | {after:.0} MiB");
    bench.row(1, &format!("{NODES} | {own:.0} ms | {floor:.0} ms | {ratio:.2} | {memory}"));
    Ok(())
}

/// Measures a pool whose block size was changed: smaller blocks are in a quarter of its places, larger ones cover
/// another quarter.
fn other_sizes(large: &Large, blocks: usize, bench: &mut Bench<'_>) -> Result<(), Failed> {
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
    bench.row(0, &format!("claim beside blocks of other sizes | {}", large.claims("c")?));
    Ok(())
}

fn exhaustion(large: &Large, bench: &mut Bench<'_>) -> Result<(), Failed> {
    let places: Vec<IpNet> = [places(EXHAUSTED[0])?, places(EXHAUSTED[1])?].concat();
    let most = places.iter().enumerate().filter(|(index, _)| index % 128 >= 3);
    large.cluster.put_blocks(most.map(|(_, place)| *place), TAKEN)?;
    bench.row(0, &format!("claim, 10,000 of 10,240 places taken | {}", large.claims("c")?));
    large.cluster.put_blocks(places.iter().copied(), TAKEN)?;
    // The API server takes some time to see so many writes, and serves no list requests in the meantime.
    thread::sleep(SEARCH_AGAIN_AFTER);
    bench.row(0, &format!("borrow from 10,240 blocks | {}", large.claims("n")?));

    large.cluster.put_blocks(places, SIZE)?;
    thread::sleep(SEARCH_AGAIN_AFTER);
    for (when, pause) in [
        ("10,240 full blocks, first", Duration::ZERO),
        ("again at once", SEARCH_AGAIN_AFTER),
        ("again after some seconds", Duration::ZERO),
    ] {
        let call = large.add("n0", true, true, false)?;
        bench.row(0, &format!("refused, {when} | {}", cells(&call)));
        thread::sleep(pause);
    }
    Ok(())
}

/// A cluster with a relay in front of its server.
struct Large {
    cluster: Cluster,
    /// The plugin and its floor.
    programs: [PathBuf; 2],
    pools: Vec<String>,
    relay: Relay,
    folder: TempDir,
}

impl Large {
    fn start(bench: &Bench<'_>, pools: &[&str]) -> Result<Self, Failed> {
        let names = (0..NODES).map(|number| format!("n{number}"));
        let names = names.chain((0..CLAIMS * 3).map(|number| format!("c{number}")));
        let cluster = Cluster::start(bench.datastore, POOL, names)?;
        for (number, cidr) in pools.iter().enumerate() {
            cluster.put_pool(&format!("large-{number}"), cidr)?;
        }
        let port = match &cluster {
            Cluster::Etcd(etcd) => etcd.port,
            Cluster::Kubernetes(server) => server.url().rsplit(':').next().unwrap_or_default().parse()?,
        };
        Ok(Self {
            relay: Relay::to(port),
            programs: [bench.sibling("calico-ipam"), bench.sibling("cni_floor")],
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
        let mut configuration = self.cluster.configuration(node, &lock);
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
        let (measured, result) = plugin::run(&self.programs[0], "ADD", node, &configuration, is_watched)?;
        match result {
            Err(said) if succeeds || !said.contains(EXHAUSTED_ERROR) => {
                Err(format!("an ADD on {node}: {said}").into())
            }
            Ok(()) if !succeeds => Err(format!("an ADD on {node} finds an address").into()),
            _ => Ok(Measured { bytes: self.relay.take_bytes() as u64, ..measured }),
        }
    }

    /// Runs one call on each node at the same time. Returns the seconds until all have ended.
    fn at_once(&self, program: &Path, command: &str) -> Result<f64, Failed> {
        let nodes = (0..NODES).map(|number| format!("n{number}"));
        let calls = nodes.map(|node| Ok((node.clone(), self.configuration(&node, false)?)));
        plugin::at_once(program, command, &calls.collect::<Result<Vec<_>, Failed>>()?)
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
