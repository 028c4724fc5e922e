//! ADDs that need another block, in clusters with many blocks of Calico's default size.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use calipam_model::IpNet;
use calipam_model::cidr;
use calipam_testkit::cluster::rng::Rng;
use calipam_testkit::relay::Relay;

use crate::bench::Bench;
use crate::cluster::{BLOCK_SIZE, Cluster, POOL};
use crate::measured::Measured;
use crate::plugin::Plugin;
use crate::process::memory;

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
pub(in crate::parts) const TAKEN: usize = 50;
/// Time after which a plugin repeats a search that found no free address.
const SEARCH_AGAIN_AFTER: Duration = Duration::from_millis(5_200);

pub(in crate::parts) const TITLES: [&str; 2] = [
    "blocks | <call | wall | read | peak memory",
    "blocks | claims at once | wall | their writes alone | ratio | etcd's memory before | after",
];

/// Measures claims on a datastore that contains a number of blocks. With 10,000 blocks or more, also measures exhausted
/// pools.
pub(in crate::parts) fn measure(bench: &mut Bench<'_>) -> Result<()> {
    let blocks = bench.number()? as usize;
    claims(&Large::start(bench, &[LARGE])?, blocks, bench)?;
    if blocks >= MANY {
        other_sizes(&Large::start(bench, &[LARGE])?, blocks, bench)?;
        exhaustion(&Large::start(bench, &EXHAUSTED)?, bench)?;
    }
    Ok(())
}

/// The CIDRs of all blocks that a pool has room for.
fn places(pool: &str) -> Result<Vec<IpNet>> {
    Ok(pool.parse::<IpNet>()?.subnets(BLOCK_SIZE)?.collect())
}

/// Some CIDRs of the large pool, in pseudo-random order.
pub(in crate::parts) fn some_places(count: usize) -> Result<Vec<IpNet>> {
    let mut rng = Rng::new(1);
    let mut places = places(LARGE)?;
    places.sort_by_cached_key(|_| rng.next());
    places.truncate(count);
    Ok(places)
}

fn claims(large: &Large, blocks: usize, bench: &mut Bench<'_>) -> Result<()> {
    large.cluster.put_blocks(some_places(blocks)?, TAKEN)?;
    bench.row(0, &format!("claim | {}", large.claims("c")?));

    let nodes: Vec<_> = names("n", NODES).map(|node| (node.clone(), node)).collect();
    let before = large.memory()?;
    let own = large.plugin.at_once("ADD", &nodes)? * 1e3;
    let after = large.memory()?;
    let floor = Plugin::new(
        bench.sibling("cni_floor"),
        &large.cluster,
        large.cluster.port()?,
        &[],
    )?;
    let floor = floor.at_once("CLAIM", &nodes)? * 1e3;
    let ratio = own / floor;
    let memory = format!("{before:.0} MiB | {after:.0} MiB");
    bench.row(
        1,
        &format!("{NODES} | {own:.0} ms | {floor:.0} ms | {ratio:.2} | {memory}"),
    );
    Ok(())
}

/// Measures a pool whose block size was changed: smaller blocks are in a quarter of its places, larger ones cover
/// another quarter.
fn other_sizes(large: &Large, blocks: usize, bench: &mut Bench<'_>) -> Result<()> {
    let mut all = Vec::new();
    for (index, place) in places(LARGE)?
        .into_iter()
        .step_by(4)
        .enumerate()
        .take(blocks * 2 / 5)
    {
        // Smaller blocks start at the second quarter of a place, next to free space of the pool's block size.
        let (sizes, first): (&[u8], _) = if index % 2 == 0 {
            (&[24], 0)
        } else {
            (&[26, 28, 29, 30], 64)
        };
        for prefix in sizes {
            let address = cidr::address_at(place, if *prefix > BLOCK_SIZE { first } else { 0 });
            all.push(cidr::block_around(address, *prefix).context("no block")?);
        }
    }
    large.cluster.put_blocks(all, 4)?;
    bench.row(
        0,
        &format!("claim beside blocks of other sizes | {}", large.claims("c")?),
    );
    Ok(())
}

fn exhaustion(large: &Large, bench: &mut Bench<'_>) -> Result<()> {
    let places: Vec<IpNet> = [places(EXHAUSTED[0])?, places(EXHAUSTED[1])?].concat();
    let most = places.iter().enumerate().filter(|(index, _)| index % 128 >= 3);
    large.cluster.put_blocks(most.map(|(_, place)| *place), TAKEN)?;
    bench.row(
        0,
        &format!("claim, 10,000 of 10,240 places taken | {}", large.claims("c")?),
    );
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
        let (measured, result) = large.add_through_relay("n0")?;
        match result {
            Err(said) if said.contains(EXHAUSTED_ERROR) => {}
            other => bail!("an ADD without a free address: {other:?}"),
        }
        bench.row(0, &format!("refused, {when} | {}", cells(&measured)));
        thread::sleep(pause);
    }
    Ok(())
}

/// The names of nodes or containers.
fn names(prefix: &str, count: usize) -> impl Iterator<Item = String> {
    (0..count).map(move |number| format!("{prefix}{number}"))
}

/// A cluster with a relay in front of its server.
struct Large {
    cluster: Cluster,
    plugin: Plugin,
    relay: Relay,
    /// The plugin, whose requests go through the relay.
    through_relay: Plugin,
}

impl Large {
    fn start(bench: &Bench<'_>, pools: &[&str]) -> Result<Self> {
        let nodes = names("n", NODES).chain(names("c", CLAIMS * 2));
        let cluster = Cluster::of_nodes(bench.datastore, POOL, nodes);
        for (number, cidr) in pools.iter().enumerate() {
            cluster.put_pool(&format!("large-{number}"), cidr);
        }
        let relay = Relay::to(cluster.port()?);
        let plugin = |port| {
            let mut plugin = Plugin::new(bench.sibling("calico-ipam"), &cluster, port, pools)?;
            plugin.is_labelled = true;
            anyhow::Ok(plugin)
        };
        let (plugin, mut through_relay) = (plugin(cluster.port()?)?, plugin(relay.port)?);
        through_relay.reads_memory = true;
        Ok(Self {
            cluster,
            plugin,
            relay,
            through_relay,
        })
    }

    /// Runs ADDs on nodes without a block, one after another. Returns the table cells. Every second call goes through
    /// the relay, which slows the call down, so only its memory and the bytes that it reads count.
    fn claims(&self, prefix: &str) -> Result<String> {
        let mut direct = Vec::new();
        let mut relayed = Vec::new();
        for (number, node) in names(prefix, CLAIMS * 2).enumerate() {
            thread::sleep(self.cluster.pause());
            if number % 2 == 0 {
                direct.push(self.plugin.call("ADD", &node, &node)?);
            } else {
                let (measured, result) = self.add_through_relay(&node)?;
                result.map_err(|answer| anyhow!("an ADD on {node}: {answer}"))?;
                relayed.push(measured);
            }
        }
        let seconds = Measured::medians(&direct).seconds;
        Ok(cells(&Measured {
            seconds,
            ..Measured::medians(&relayed)
        }))
    }

    /// Runs an ADD through the relay, and measures also the bytes that it reads.
    fn add_through_relay(&self, node: &str) -> Result<(Measured, Result<(), String>)> {
        self.relay.take_bytes();
        let (measured, result) = self.through_relay.try_call("ADD", node, node)?;
        Ok((
            Measured {
                bytes: self.relay.take_bytes() as u64,
                ..measured
            },
            result,
        ))
    }

    /// The resident memory of etcd in MiB.
    fn memory(&self) -> Result<f64> {
        let etcd = self.cluster.etcd().process_id().context("etcd does not run")?;
        memory(etcd, "VmRSS:").context("no memory")
    }
}

/// The table cells of an ADD.
fn cells(call: &Measured) -> String {
    let wall = call.seconds * 1e3;
    let read = call.bytes as f64 / 1e3;
    format!("{wall:.1} ms | {read:.1} KB | {:.1} MiB", call.peak_mib)
}
