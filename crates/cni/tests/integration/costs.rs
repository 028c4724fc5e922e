//! The amount of data that calls read on large clusters. Calls read keys, and only a few whole blocks.

use std::thread;
use std::time::{Duration, Instant};

use calipam_model::IpNet;
use calipam_testkit::blocks::TakenBlock;
use calipam_testkit::kube::Flavour;
use calipam_testkit::relay::Relay;
use calipam_testkit::servers::Asked;
use serde_json::json;

use crate::runtime::{Outcome, Runtime, addresses};
use crate::world::World;

const POD: &str = "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web-0";
/// A pool of 1,024 blocks, each with 64 addresses.
const POOL: &str = "10.8.0.0/16";
const TAKEN: usize = 64;

/// All blocks of the pool, each with `taken` allocated addresses.
fn blocks(taken: usize) -> Vec<TakenBlock> {
    let pool: IpNet = POOL.parse().unwrap();
    pool.subnets(26)
        .unwrap()
        .map(|cidr| TakenBlock { cidr, taken })
        .collect()
}

/// Adds the pool and `blocks` to a cluster. Also returns a runtime whose calls use only this pool, and a relay that
/// counts the bytes of these calls.
fn large(world: World, blocks: &[TakenBlock]) -> (World, Runtime, Relay) {
    world.put_pool("large", json!({"cidr": POOL, "blockSize": 26}));
    world.put_blocks(blocks);
    let (runtime, relay) = world.relayed();
    let runtime = runtime.with_ipam("ipv4_pools", json!(["large"]));
    // These calls do the work that is needed only once in the life of a node.
    runtime.call("ADD", "warm", POD);
    runtime.call("DEL", "warm", POD);
    relay.take_bytes();
    (world, runtime, relay)
}

fn on_both(test: impl Fn(World) + Sync) {
    thread::scope(|scope| {
        scope.spawn(|| test(World::etcd()));
        test(World::kubernetes(Flavour::Classic));
    });
}

/// Asserts that a call read at most `most` KB.
#[track_caller]
fn assert_read(relay: &Relay, most: usize, what: &str) {
    let read = relay.take_bytes() / 1_000;
    println!("{what}: {read} KB");
    assert!(read <= most, "{what}: {read} KB");
}

#[test]
fn a_claim_reads_keys() {
    on_both(|world| {
        let mut all = blocks(50);
        // Every tenth block does not exist.
        let mut number = 0;
        all.retain(|_| {
            number += 1;
            number % 10 != 0
        });
        let (world, runtime, relay) = large(world, &all);
        // Node `a` has owned a block since the first call, so another node claims one.
        runtime.with("nodename", "b").call("ADD", "c1", POD).success();
        assert_read(&relay, 60, "a claim");
        assert_eq!(world.observe().blocks.len(), all.len() + 2);
    });
}

/// etcd counts all keys of a range, whatever its limit. So no call may read one that grows with the cluster.
#[test]
fn calls_read_ranges_of_a_node_a_pool_or_a_network() {
    let world = World::etcd();
    world.put_pool("large", json!({"cidr": POOL, "blockSize": 26}));
    world.put_pool("full", json!({"cidr": "10.9.0.0/16", "blockSize": 26}));
    let mut all = blocks(50);
    let mut number = 0;
    all.retain(|_| {
        number += 1;
        number % 10 != 0
    });
    let full: IpNet = "10.9.0.0/16".parse().unwrap();
    all.extend(
        full.subnets(26)
            .unwrap()
            .map(|cidr| TakenBlock { cidr, taken: TAKEN }),
    );
    world.put_blocks(&all);
    let asked = Asked::of(world.keys()).unwrap();
    let on = |node: &str| Runtime::on_etcd(&asked.url()).with("nodename", node);
    let [a, b] = ["a", "b"].map(|node| on(node).with_ipam("ipv4_pools", json!(["large"])));
    let c = on("c").with_ipam("ipv4_pools", json!(["full"]));
    for (node, call, container, what) in [
        (&a, "ADD", "c1", "a claim"),
        (&a, "ADD", "c2", "an address of the node's own block"),
        (&a, "DEL", "c1", "a release"),
        (&b, "ADD", "c3", "a claim among others"),
        (&b, "DEL", "nobody", "a release of nothing"),
        (&c, "ADD", "c4", "a search of a full pool"),
        (&c, "ADD", "c5", "another search of a full pool"),
    ] {
        node.call(call, container, POD);
        let ranges = asked.take();
        let unbounded: Vec<_> = ranges.iter().filter(|range| !range.is_bounded()).collect();
        assert!(
            !ranges.is_empty() && unbounded.is_empty(),
            "{what}: {unbounded:#?}"
        );
    }
}

#[test]
fn borrowing_reads_a_few_blocks() {
    on_both(|world| {
        let (_world, runtime, relay) = large(world, &blocks(50));
        for container in ["c1", "c2"] {
            runtime.call("ADD", container, POD).success();
            assert_read(&relay, 750, "borrowing");
        }
    });
}

/// The maximum amount of data, in KB, that a search through blocks known to be full may read. The limit is high for two
/// reasons: on Kubernetes, keys with revisions are long, and a call after five seconds searches twice.
const MOST_OF_ALL: usize = 1_500;

#[test]
fn the_blocks_of_an_exhausted_pool_are_read_once() {
    on_both(|world| {
        let mut all = blocks(TAKEN);
        let (world, runtime, relay) = large(world, &all);
        // On a busy machine, a server may not answer a read of everything in time.
        let add = |container| loop {
            let call = runtime.call("ADD", container, POD);
            if call.code == Some(0) || call.error().0 != 11 {
                return call;
            }
            relay.take_bytes();
        };
        let assert_refused = |call: &Outcome| {
            let (code, text) = call.error();
            assert!(
                code == 999 && text.contains("No IPs available in pools"),
                "{text}"
            );
        };
        let refused = || assert_refused(&add("c1"));
        refused();
        relay.take_bytes();
        let begun = Instant::now();
        refused();
        // On a busy machine, the notes about full blocks may have expired by then.
        let most = if begun.elapsed() < Duration::from_secs(2) {
            20
        } else {
            MOST_OF_ALL
        };
        assert_read(&relay, most, "refused again at once");
        thread::sleep(Duration::from_millis(5_100));
        let searched = Instant::now();
        refused();
        assert_read(&relay, MOST_OF_ALL, "refused after a while");

        // Another node releases an address, of which this node is not informed.
        all[700].taken -= 1;
        world.put_blocks(&all[700..=700]);
        let uninformed = add("c1");
        if uninformed.code == Some(0) {
            // On a busy machine, the notes about full blocks may have expired by then.
            assert!(searched.elapsed() >= Duration::from_secs(5), "{uninformed:?}");
            runtime.call("DEL", "c1", POD).success();
        } else {
            assert_refused(&uninformed);
        }
        relay.take_bytes();
        thread::sleep(Duration::from_millis(5_100));
        let result = add("c2").success();
        assert_eq!(addresses(&result), [all[700].cidr.broadcast().to_string()]);
        assert_read(&relay, MOST_OF_ALL, "an address that was released");
        refused();
        // The node immediately finds an address that it has released itself.
        runtime.call("DEL", "c2", POD).success();
        assert_eq!(addresses(&add("c3").success()), addresses(&result));
    });
}

#[test]
fn affinities_are_labelled_once_in_the_life_of_a_node() {
    let world = World::kubernetes(Flavour::Classic);
    let runtime = world.runtime();
    let file = runtime.folder().join("lib/nodename");
    std::fs::create_dir(file.parent().unwrap()).unwrap();
    let runtime = runtime.with("nodename_file", file.display().to_string());
    let labels = |runtime: &Runtime, container: &str| {
        let call = runtime.call("ADD", container, POD);
        call.success();
        call.stderr.contains("all affinities of the node have labels")
    };
    assert!(labels(&runtime, "c1"));
    assert!(!labels(&runtime, "c2"));

    // After a reboot, the files next to the lock are gone.
    std::fs::remove_dir_all(runtime.folder().join("cni")).unwrap();
    assert!(!labels(&runtime, "c3"));
    // The marker of another node does not count.
    let other = runtime.with("nodename", "b");
    assert!(labels(&other, "c4"));
}
