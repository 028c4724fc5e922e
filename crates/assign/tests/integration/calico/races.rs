//! Clients that compete for the same blocks.

use std::pin::pin;
use std::task::{Context, Waker};

use calipam_assign::{AssignIp, AutoAssign, InUse, Release};
use calipam_model::affinity::{AffinityState, AffinityType};
use calipam_model::block::BlockOwner;
use calipam_testkit::cluster::rng::Rng;
use calipam_testkit::memory::Fault;
use calipam_testkit::operator::claim_affinity;
use serde_json::json;

use super::differs;
use crate::cluster::{Cluster, given, net, owned_by, wants, wants_as};
use crate::run;

/// Lets the requests of several clients interleave.
fn interleaved(Cluster { store }: Cluster) -> Cluster {
    Cluster {
        store: store.interleaved(),
    }
}

/// A cluster with a pool of sixteen blocks of four addresses, at which requests of several clients can interleave.
fn sixteen_blocks() -> Cluster {
    interleaved(Cluster::with_blocks(&[("10.0.0.0/26", 30)]))
}

/// Expects that each affinity is confirmed and has its block.
fn assert_consistent(cluster: &Cluster) {
    let blocks = cluster.blocks();
    for affinity in cluster.affinities() {
        assert_eq!(affinity.state, AffinityState::Confirmed, "{:?}", affinity.key);
        let block = blocks
            .iter()
            .find(|block| block.cidr() == affinity.key.cidr)
            .expect("its block");
        assert_eq!(block.owner(), Some(&BlockOwner::Host(affinity.key.node.clone())));
    }
}

/// Runs clients to completion. Each step polls one client, chosen by the seed, up to its next request.
fn race(seed: u64, clients: impl IntoIterator<Item = impl Future<Output = ()>>) {
    let mut clients: Vec<_> = clients.into_iter().map(Box::pin).collect();
    let (mut rng, mut context) = (Rng::new(seed), Context::from_waker(Waker::noop()));
    while !clients.is_empty() {
        let chosen = rng.below(clients.len() as u64) as usize;
        if clients[chosen].as_mut().poll(&mut context).is_ready() {
            drop(clients.swap_remove(chosen));
        }
    }
}

/// Requests addresses, and returns how many were given.
async fn auto(cluster: &Cluster, request: AutoAssign) -> usize {
    cluster
        .allocator()
        .auto_assign(&request)
        .await
        .unwrap()
        .addresses()
        .count()
}

/// Requests addresses, which may all be taken.
async fn ask(cluster: &Cluster, request: AutoAssign) {
    drop(cluster.allocator().auto_assign(&request).await.unwrap());
}

#[test]
fn twice_as_many_hosts_as_blocks_get_an_address_each() {
    for seed in 0..8 {
        let cluster = &sixteen_blocks();
        let hosts: Vec<String> = (0..32).map(|number| format!("host-{number}")).collect();
        hosts.iter().for_each(|host| cluster.node(host, &[]));
        let client =
            |host| async move { assert_eq!(auto(cluster, wants_as(host, 1, host)).await, 1, "{host}") };
        race(seed, hosts.iter().map(String::as_str).map(client));

        assert_eq!(
            (cluster.blocks().len(), cluster.affinities().len()),
            (16, 16),
            "seed {seed}"
        );
        assert_consistent(cluster);
        for host in &hosts {
            let address = cluster.of_handle(host).unwrap()[0];
            let own = cluster.blocks_of(host);
            assert!(
                own.is_empty() || own.iter().any(|block| block.contains(&address)),
                "{host}: {address}"
            );
        }
    }
}

#[test]
fn several_requests_of_one_host_at_once_are_all_met() {
    for seed in 0..8 {
        let cluster = &sixteen_blocks();
        let client =
            |handle| async move { assert_eq!(auto(cluster, wants_as("host-a", 1, handle)).await, 1) };
        race(seed, ["h0", "h1", "h2", "h3"].map(client));
        let given = ["h0", "h1", "h2", "h3"]
            .map(|handle| cluster.of_handle(handle).unwrap())
            .concat();
        assert_eq!(given.len(), 4);
        assert_consistent(cluster);
    }
}

#[test]
fn one_host_claims_and_gives_up_the_same_blocks_many_times_at_once() {
    for seed in 0..4 {
        let cluster = &sixteen_blocks();
        let pool = net("10.0.0.0/26");
        let claim = |_| async move {
            claim_affinity(&cluster.allocator(), pool, AffinityType::Host, "host-a")
                .await
                .unwrap();
        };
        race(seed, (0..10).map(claim));
        assert_eq!((cluster.blocks().len(), cluster.affinities().len()), (16, 16));
        assert_consistent(cluster);

        let give_up = |_| async move {
            cluster
                .allocator()
                .release_affinity(pool, "host-a", InUse::Release)
                .await
                .unwrap();
        };
        race(seed, (0..10).map(give_up));
        assert!(cluster.blocks().is_empty() && cluster.affinities().is_empty());
    }
}

/// Runs another operation between two steps of the first, in a new cluster for each of the first one's steps.
fn at_any_moment(
    new: impl Fn() -> Cluster,
    first: impl AsyncFn(&Cluster),
    other: impl AsyncFn(&Cluster),
    assert: impl Fn(&Cluster, &str),
) {
    let mut context = Context::from_waker(Waker::noop());
    for steps in 1.. {
        let cluster = new();
        let mut first = pin!(first(&cluster));
        if (0..steps).any(|_| first.as_mut().poll(&mut context).is_ready()) {
            assert!(steps > 4, "it ended after {steps} steps");
            break;
        }
        run(other(&cluster));
        run(first);
        assert(&cluster, &format!("after {steps} steps"));
    }
}

async fn claim(cluster: &Cluster, host: &str) {
    // The claim may fail if another process of the host gives the block up meanwhile.
    drop(claim_affinity(&cluster.allocator(), net("10.0.0.0/30"), AffinityType::Host, host).await);
}

async fn give_up(cluster: &Cluster) {
    drop(
        cluster
            .allocator()
            .release_affinity(net("10.0.0.0/30"), "host-a", InUse::Release)
            .await,
    );
}

fn claimed() -> Cluster {
    let cluster = sixteen_blocks();
    run(claim(&cluster, "host-a"));
    cluster
}

/// Expects that no affinity is confirmed for a block of another host. A confirmed affinity may lack its block: as with
/// Calico, the host creates the block again with its next request.
fn assert_no_false_claim(cluster: &Cluster, when: &str) {
    for affinity in cluster
        .affinities()
        .iter()
        .filter(|found| found.state == AffinityState::Confirmed)
    {
        let block = cluster
            .blocks()
            .into_iter()
            .find(|block| block.cidr() == affinity.key.cidr);
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
    at_any_moment(
        sixteen_blocks,
        async |cluster| claim(cluster, "host-a").await,
        give_up,
        assert_usable,
    );
}

#[test]
fn a_block_is_claimed_at_any_moment_while_it_is_given_up() {
    for host in ["host-a", "host-b"] {
        at_any_moment(
            claimed,
            give_up,
            async |cluster| claim(cluster, host).await,
            assert_usable,
        );
    }
}

#[test]
fn a_block_in_which_an_address_is_assigned_while_it_is_given_up_is_not_deleted() {
    let assign = async |cluster: &Cluster| assert_eq!(auto(cluster, wants_as("host-a", 1, "h")).await, 1);
    at_any_moment(claimed, give_up, assign, |cluster, when| {
        assert_eq!(
            cluster.of_handle("h").unwrap().len(),
            1,
            "given up {when}: the address is lost"
        );
        assert_no_false_claim(cluster, when);
    });
}

#[test]
fn a_host_that_lost_a_block_to_another_takes_the_next_and_cleans_up() {
    let cluster = sixteen_blocks();
    // `host-a` has lost the race for this block, and could not delete its pending affinity.
    run(claim(&cluster, "host-b"));
    cluster.store.put(
        "/calico/ipam/v2/host/host-a/ipv4/block/10.0.0.0-30",
        r#"{"state":"pending"}"#,
    );
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
    assert_eq!(
        cluster.addresses(&wants("host-a", 1)).len(),
        usize::from(is_given)
    );
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
    let take = async |cluster: &Cluster| ask(cluster, wants("host-a", 1)).await;
    let reuse = async |cluster: &Cluster| ask(cluster, wants_as("host-b", 1, "used")).await;
    at_any_moment(
        || interleaved(taken(false, 120)),
        take,
        reuse,
        assert_no_false_claim,
    );
}

#[test]
fn a_requested_address_is_assigned_in_a_block_that_another_host_claims_meanwhile() {
    differs("Another node claims the block first while a given address is assigned");
    let assign = async |cluster: &Cluster| cluster.allocator().assign_ip(&given("10.0.0.1")).await.unwrap();
    let claim = async |cluster: &Cluster| claim(cluster, "host-b").await;
    at_any_moment(sixteen_blocks, assign, claim, |cluster, when| {
        assert_eq!(cluster.block().allocated(), 1, "{when}");
    });
}

#[test]
fn an_attempt_that_is_lost_is_not_counted_in_the_handle() {
    differs("Assignment of a given address loses a race");
    let request = AssignIp {
        handle: Some("h".into()),
        ..given("10.0.0.1")
    };
    let assign = async |cluster: &Cluster| cluster.allocator().assign_ip(&request).await.unwrap();
    let other = async |cluster: &Cluster| drop(cluster.allocator().assign_ip(&given("10.0.0.2")).await);
    at_any_moment(sixteen_blocks, assign, other, |cluster, when| {
        let handle = cluster.store.value("/calico/ipam/v2/handle/h").unwrap();
        let handle: serde_json::Value = serde_json::from_slice(&handle).unwrap();
        assert_eq!(handle["block"], json!({"10.0.0.0/30": 1}), "{when}");
    });
}

#[test]
fn two_requests_of_one_handle_both_count() {
    let hosts = || {
        let cluster = sixteen_blocks();
        cluster.node("host-b", &[]);
        cluster
    };
    let first = async |cluster: &Cluster| ask(cluster, wants_as("host-a", 1, "h")).await;
    let other = async |cluster: &Cluster| ask(cluster, wants_as("host-b", 1, "h")).await;
    at_any_moment(hosts, first, other, |cluster, when| {
        assert_eq!(cluster.of_handle("h").map(|found| found.len()), Some(2), "{when}");
    });
}

#[test]
fn addresses_of_one_block_are_released_at_any_moment() {
    let two_addresses = || {
        let cluster = sixteen_blocks();
        for handle in ["h0", "h1"] {
            cluster.addresses(&wants_as("host-a", 1, handle));
        }
        cluster
    };
    let release = async |cluster: &Cluster, handle: &str| {
        let requests = [Release::any(cluster.of_handle(handle).unwrap()[0])];
        drop(cluster.allocator().release_ips(&requests).await.unwrap());
    };
    let first = async |cluster: &Cluster| release(cluster, "h0").await;
    let other = async |cluster: &Cluster| release(cluster, "h1").await;
    at_any_moment(two_addresses, first, other, |cluster, when| {
        assert!(cluster.blocks().iter().all(|block| block.is_empty()), "{when}");
    });
}

#[test]
fn a_block_that_is_written_while_it_is_given_up_is_given_up_after_that() {
    const BLOCK: &str = "/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-30";
    let unselected = || {
        let cluster = Cluster::with_blocks(&[("10.0.0.0/30", 30), ("10.1.0.0/30", 30)]);
        let request = AutoAssign {
            pools_v4: vec![net("10.0.0.0/30")],
            ..wants("host-a", 1)
        };
        cluster.release_all(&cluster.addresses(&request));
        cluster.pool("10.0.0.0/30", json!({"blockSize": 30, "nodeSelector": "!all()"}));
        interleaved(cluster)
    };
    let assign = async |cluster: &Cluster| ask(cluster, wants("host-a", 1)).await;
    let write = async |cluster: &Cluster| {
        if let Some(same) = cluster.store.value(BLOCK) {
            cluster.store.put(BLOCK, same);
        }
    };
    at_any_moment(unselected, assign, write, |cluster, when| {
        assert_eq!(cluster.blocks_of("host-a"), [net("10.1.0.0/30")], "{when}");
    });
}
