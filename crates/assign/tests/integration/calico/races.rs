//! Clients that compete for the same blocks.

use std::pin::{Pin, pin};
use std::task::{Context, Waker};

use calipam_assign::{Allocator, AutoAssign, InUse, Release};
use calipam_model::affinity::{AffinityState, AffinityType};
use calipam_model::block::BlockOwner;
use calipam_testkit::cluster::rng::Rng;
use calipam_testkit::memory::{Fault, MemoryStore};
use calipam_testkit::operator::Operator as _;
use serde_json::json;

use super::cluster::{Cluster, net, owned_by, wants, wants_as};
use super::differs;

/// A cluster with a pool of sixteen blocks of four addresses, and a datastore at which requests of several clients can
/// interleave.
fn sixteen_blocks() -> Cluster {
    let Cluster { store } = Cluster::with_blocks(&[("10.0.0.0/26", 30)]);
    Cluster { store: store.interleaved() }
}

/// Expects that each affinity is confirmed and has its block.
fn assert_consistent(cluster: &Cluster) {
    let blocks = cluster.blocks();
    for affinity in cluster.affinities() {
        assert_eq!(affinity.state, AffinityState::Confirmed, "{:?}", affinity.key);
        let block = blocks.iter().find(|block| block.cidr() == affinity.key.cidr).expect("its block");
        assert_eq!(block.owner(), Some(&BlockOwner::Host(affinity.key.node.clone())));
    }
}

/// Runs clients to completion. Each step polls one client, chosen by the seed, up to its next request.
fn race<'s>(seed: u64, clients: impl IntoIterator<Item = Pin<Box<dyn Future<Output = ()> + 's>>>) {
    let mut clients: Vec<_> = clients.into_iter().collect();
    let (mut rng, mut context) = (Rng::new(seed), Context::from_waker(Waker::noop()));
    while !clients.is_empty() {
        let chosen = rng.below(clients.len() as u64) as usize;
        if clients[chosen].as_mut().poll(&mut context).is_ready() {
            drop(clients.swap_remove(chosen));
        }
    }
}

#[test]
fn twice_as_many_hosts_as_blocks_get_an_address_each() {
    for seed in 0..8 {
        let cluster = sixteen_blocks();
        let hosts: Vec<String> = (0..32).map(|number| format!("host-{number}")).collect();
        hosts.iter().for_each(|host| cluster.node(host, &[]));
        let client = |host: &String| -> Pin<Box<dyn Future<Output = ()>>> {
            let (allocator, request) = (Allocator::new(&cluster.store), wants_as(host, 1, host));
            Box::pin(async move {
                let assigned = allocator.auto_assign(&request).await.unwrap();
                assert_eq!(assigned.addresses().count(), 1, "{}", request.host);
            })
        };
        race(seed, hosts.iter().map(client));

        assert_eq!((cluster.blocks().len(), cluster.affinities().len()), (16, 16), "seed {seed}");
        assert_consistent(&cluster);
        for host in &hosts {
            let address = cluster.of_handle(host).unwrap()[0];
            let own = cluster.blocks_of(host);
            assert!(own.is_empty() || own.iter().any(|block| block.contains(&address)), "{host}: {address}");
        }
    }
}

#[test]
fn several_requests_of_one_host_at_once_are_all_met() {
    for seed in 0..8 {
        let cluster = sixteen_blocks();
        let handles: Vec<String> = (0..4).map(|number| format!("h{number}")).collect();
        let client = |handle: &String| -> Pin<Box<dyn Future<Output = ()>>> {
            let (allocator, request) = (Allocator::new(&cluster.store), wants_as("host-a", 1, handle));
            Box::pin(async move { drop(allocator.auto_assign(&request).await.unwrap()) })
        };
        race(seed, handles.iter().map(client));
        let given: Vec<_> = handles.iter().flat_map(|handle| cluster.of_handle(handle).unwrap()).collect();
        assert_eq!(given.len(), 4);
        assert_consistent(&cluster);
    }
}

#[test]
fn one_host_claims_and_gives_up_the_same_blocks_many_times_at_once() {
    for seed in 0..4 {
        let cluster = sixteen_blocks();
        let pool = net("10.0.0.0/26");
        let claim = |_| -> Pin<Box<dyn Future<Output = ()>>> {
            let allocator = Allocator::new(&cluster.store);
            Box::pin(async move {
                allocator.claim_affinity(pool, AffinityType::Host, "host-a").await.unwrap();
            })
        };
        race(seed, (0..10).map(claim));
        assert_eq!((cluster.blocks().len(), cluster.affinities().len()), (16, 16));
        assert_consistent(&cluster);

        let give_up = |_| -> Pin<Box<dyn Future<Output = ()>>> {
            let allocator = Allocator::new(&cluster.store);
            Box::pin(async move { allocator.release_affinity(pool, "host-a", InUse::Release).await.unwrap() })
        };
        race(seed, (0..10).map(give_up));
        assert!(cluster.blocks().is_empty() && cluster.affinities().is_empty());
    }
}

/// Polls the first operation `steps` times, runs the other one to completion, and then the rest of the first. False if
/// the first operation ended earlier.
fn between(steps: usize, first: impl Future<Output = ()>, other: impl Future<Output = ()>) -> bool {
    let mut first = pin!(first);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..steps {
        if first.as_mut().poll(&mut context).is_ready() {
            return false;
        }
    }
    crate::run(other);
    crate::run(first);
    true
}

async fn claim(store: &MemoryStore, host: &str) {
    // The claim may fail if another process of the host gives the block up meanwhile.
    drop(Allocator::new(store).claim_affinity(net("10.0.0.0/30"), AffinityType::Host, host).await);
}

async fn give_up(store: &MemoryStore, host: &str) {
    drop(Allocator::new(store).release_affinity(net("10.0.0.0/30"), host, InUse::Release).await);
}

/// Expects that no affinity is confirmed for a block of another host. A confirmed affinity may lack its block: as with
/// Calico, the host creates the block again with its next request.
fn assert_no_false_claim(cluster: &Cluster, when: &str) {
    for affinity in cluster.affinities().iter().filter(|found| found.state == AffinityState::Confirmed) {
        let block = cluster.blocks().into_iter().find(|block| block.cidr() == affinity.key.cidr);
        if let Some(block) = block {
            assert_eq!(block.owner().cloned(), owned_by(&affinity.key.node), "{when}");
        }
    }
}

/// Expects that both hosts get an address, and that no half-done operation is left after that.
fn assert_usable(cluster: &Cluster, when: &str) {
    assert_no_false_claim(cluster, when);
    cluster.node("host-b", &[]);
    for host in ["host-a", "host-b"] {
        assert_eq!(cluster.addresses(&wants(host, 1)).len(), 1, "{when}");
    }
    assert_consistent(cluster);
}

#[test]
fn a_block_is_given_up_at_any_moment_of_its_claim() {
    for steps in 1.. {
        let cluster = sixteen_blocks();
        if !between(steps, claim(&cluster.store, "host-a"), give_up(&cluster.store, "host-a")) {
            assert!(steps > 4);
            break;
        }
        assert_usable(&cluster, &format!("given up after {steps} steps of the claim"));
    }
}

#[test]
fn a_block_is_claimed_at_any_moment_while_it_is_given_up() {
    for claimed_by in ["host-a", "host-b"] {
        for steps in 1.. {
            let cluster = sixteen_blocks();
            crate::run(claim(&cluster.store, "host-a"));
            if !between(steps, give_up(&cluster.store, "host-a"), claim(&cluster.store, claimed_by)) {
                assert!(steps > 4);
                break;
            }
            assert_usable(&cluster, &format!("claimed by {claimed_by} after {steps} steps"));
        }
    }
}

#[test]
fn a_block_in_which_an_address_is_assigned_while_it_is_given_up_is_not_deleted() {
    for steps in 1.. {
        let cluster = sixteen_blocks();
        crate::run(claim(&cluster.store, "host-a"));
        let assign = async {
            let assigned = Allocator::new(&cluster.store).auto_assign(&wants_as("host-a", 1, "h")).await;
            assert_eq!(assigned.unwrap().addresses().count(), 1);
        };
        if !between(steps, give_up(&cluster.store, "host-a"), assign) {
            assert!(steps > 4);
            break;
        }
        let held = cluster.of_handle("h").unwrap();
        assert_eq!(held.len(), 1, "given up after {steps} steps: the address is lost");
        assert_no_false_claim(&cluster, &format!("after {steps} steps"));
    }
}

#[test]
fn a_host_that_lost_a_block_to_another_takes_the_next_and_cleans_up() {
    let cluster = sixteen_blocks();
    // `host-a` has lost the race for this block, and could not delete its pending affinity.
    crate::run(claim(&cluster.store, "host-b"));
    cluster.store.put("/calico/ipam/v2/host/host-a/ipv4/block/10.0.0.0-30", r#"{"state":"pending"}"#);
    assert_eq!(cluster.addresses(&wants("host-a", 1)).len(), 1);
    let own = cluster.blocks_of("host-a");
    assert!(own.len() == 1 && own[0] != net("10.0.0.0/30"), "{own:?}");
    assert_eq!(cluster.blocks_of("host-b"), [net("10.0.0.0/30")]);
    assert_consistent(&cluster);
}

/// A cluster with strict affinity, and a pool whose only block belongs to `host-b`.
fn taken(in_use: bool, age: i64) -> Cluster {
    let cluster = Cluster::with_blocks(&[("10.0.0.0/30", 30)]);
    cluster.affinity_is_strict(true);
    cluster.node("host-b", &[]);
    let given = cluster.addresses(&wants("host-b", 1));
    if !in_use {
        cluster.release(&[Release::any(given[0])]).unwrap();
    }
    cluster.advance(age);
    cluster
}

/// Requests an address for `host-a` while the only block belongs to `host-b`.
fn reclaimed(in_use: bool, age: i64, is_given: bool) {
    let cluster = taken(in_use, age);
    assert_eq!(cluster.addresses(&wants("host-a", 1)).len(), usize::from(is_given));
    let owner = if is_given { "host-a" } else { "host-b" };
    assert_eq!(cluster.block().owner().cloned(), owned_by(owner));
    assert_eq!(cluster.affinities().len(), 1);
}

super::rows! { reclaimed:
    a_block_in_use_is_not_taken_from_its_owner(true, 120, false);
    an_empty_block_that_was_just_claimed_is_not_taken_from_its_owner(false, 30, false);
    an_empty_block_that_was_claimed_a_minute_ago_is_taken_from_its_owner(false, 61, true);
}

#[test]
fn a_datastore_that_does_not_answer_ends_the_attempt_to_take_a_block() {
    let cluster = taken(false, 120);
    cluster.store.set_fault(|| Fault::Lost);
    let partly = cluster.auto(&wants("host-a", 1)).unwrap_err();
    assert!(partly.error.is_unavailable() && partly.done.addresses().count() == 0);
    cluster.store.set_fault(|| Fault::None);
    assert_eq!(cluster.addresses(&wants("host-a", 1)).len(), 1);
    assert_consistent(&cluster);
}

#[test]
fn a_block_that_is_used_again_while_it_is_taken_stays_with_its_owner() {
    for steps in 1.. {
        let Cluster { store } = taken(false, 120);
        let cluster = Cluster { store: store.interleaved() };
        let taking = async {
            let assigned = Allocator::new(&cluster.store).auto_assign(&wants("host-a", 1)).await;
            drop(assigned.unwrap());
        };
        let using = async {
            drop(Allocator::new(&cluster.store).auto_assign(&wants_as("host-b", 1, "used")).await.unwrap());
        };
        if !between(steps, taking, using) {
            assert!(steps > 4);
            break;
        }
        assert_no_false_claim(&cluster, &format!("after {steps} steps"));
    }
}

#[test]
fn a_requested_address_is_assigned_in_a_block_that_another_host_claims_meanwhile() {
    differs("Another node claims the block first while a given address is assigned");
    for steps in 1.. {
        let cluster = sixteen_blocks();
        let assign = async {
            let assigned = Allocator::new(&cluster.store).assign_ip(&super::cluster::given("10.0.0.1")).await;
            assigned.unwrap();
        };
        if !between(steps, assign, claim(&cluster.store, "host-b")) {
            break;
        }
        assert_eq!(cluster.block().allocated(), 1, "after {steps} steps");
    }
}

#[test]
fn an_attempt_that_is_lost_is_not_counted_in_the_handle() {
    differs("Assignment of a given address loses a race");
    for steps in 1.. {
        let cluster = sixteen_blocks();
        let request =
            calipam_assign::AssignIp { handle: Some("h".into()), ..super::cluster::given("10.0.0.1") };
        let assign = async { Allocator::new(&cluster.store).assign_ip(&request).await.unwrap() };
        let other = async {
            drop(Allocator::new(&cluster.store).assign_ip(&super::cluster::given("10.0.0.2")).await);
        };
        if !between(steps, assign, other) {
            break;
        }
        let handle = cluster.store.value("/calico/ipam/v2/handle/h").unwrap();
        let handle: serde_json::Value = serde_json::from_slice(&handle).unwrap();
        assert_eq!(handle["block"], json!({"10.0.0.0/30": 1}), "after {steps} steps");
    }
}

#[test]
fn two_requests_of_one_handle_both_count() {
    for steps in 1.. {
        let cluster = sixteen_blocks();
        cluster.node("host-b", &[]);
        let request = |host: &'static str| {
            let store = &cluster.store;
            async move { drop(Allocator::new(store).auto_assign(&wants_as(host, 1, "h")).await.unwrap()) }
        };
        if !between(steps, request("host-a"), request("host-b")) {
            break;
        }
        assert_eq!(cluster.of_handle("h").map(|found| found.len()), Some(2), "after {steps} steps");
    }
}

#[test]
fn addresses_of_one_block_are_released_at_any_moment() {
    for steps in 1.. {
        let cluster = sixteen_blocks();
        let given = cluster.addresses(&wants("host-a", 2));
        let release = |index: usize| {
            let (store, requests) = (&cluster.store, [Release::any(given[index])]);
            async move { drop(Allocator::new(store).release_ips(&requests).await.unwrap()) }
        };
        if !between(steps, release(0), release(1)) {
            break;
        }
        assert!(cluster.blocks().iter().all(|block| block.is_empty()), "after {steps} steps");
    }
}

#[test]
fn a_block_that_is_written_while_it_is_given_up_is_given_up_after_that() {
    const BLOCK: &str = "/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-30";
    for steps in 1.. {
        let cluster = Cluster::with_blocks(&[("10.0.0.0/30", 30), ("10.1.0.0/30", 30)]);
        let given =
            cluster.addresses(&AutoAssign { pools_v4: vec![net("10.0.0.0/30")], ..wants("host-a", 1) });
        cluster.release_all(&given);
        cluster.pool("10.0.0.0/30", json!({"blockSize": 30, "nodeSelector": "!all()"}));
        let cluster = Cluster { store: cluster.store.interleaved() };
        let assign = async {
            drop(Allocator::new(&cluster.store).auto_assign(&wants("host-a", 1)).await.unwrap());
        };
        let write = async {
            if let Some(same) = cluster.store.value(BLOCK) {
                cluster.store.put(BLOCK, same);
            }
        };
        if !between(steps, assign, write) {
            break;
        }
        assert_eq!(cluster.blocks_of("host-a"), [net("10.1.0.0/30")], "after {steps} steps");
    }
}
