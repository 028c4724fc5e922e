//! Claiming blocks and giving them up.

use calipam_assign::{AssignIp, AutoAssign, InUse};
use calipam_model::affinity::AffinityType;
use calipam_model::block::BlockOwner;
use calipam_model::pool::PoolUse;
use calipam_testkit::operator::{Claimed, claim_affinity, release_pool_affinities, remove_host};
use serde_json::json;

use super::{differs, rows};
use crate::cluster::{Cluster, ip, net, owned_by, wants, wants_as};
use crate::run;

fn claim(cluster: &Cluster, cidr: &str, host: &str) -> Result<Claimed, String> {
    let claimed = run(claim_affinity(
        &cluster.allocator(),
        net(cidr),
        AffinityType::Host,
        host,
    ));
    claimed.map_err(|partly| partly.error.to_string())
}

/// Claims `cidr` for `host-b`, after `host-a` has claimed `of_other`. Expects an error, or the numbers of blocks that
/// were claimed and of blocks that belong to `host-a`.
fn claimed(of_other: Option<&str>, cidr: &str, expected: Result<(usize, usize), &str>) {
    let cluster = Cluster::new(&["10.0.0.0/24", "fd80:24e2:f998:72d6::/120"]);
    cluster.node("host-b", &[]);
    if let Some(cidr) = of_other {
        claim(&cluster, cidr, "host-a").unwrap();
    }
    let counts = claim(&cluster, cidr, "host-b").map(|done| (done.claimed.len(), done.of_others.len()));
    assert_eq!(counts, expected.map_err(str::to_owned));
    let (claimed, _) = counts.unwrap_or_default();
    assert_eq!(cluster.blocks_of("host-b").len(), claimed);
    let found = cluster
        .blocks()
        .iter()
        .filter(|block| block.owner() == owned_by("host-b").as_ref())
        .count();
    assert_eq!(found, claimed);
}

rows! { claimed:
    an_unowned_block_is_claimed(None, "10.0.0.0/26", Ok((1, 0)));
    all_blocks_of_a_pool_are_claimed(None, "10.0.0.0/24", Ok((4, 0)));
    all_blocks_of_an_ipv6_pool_are_claimed(None, "fd80:24e2:f998:72d6::/120", Ok((4, 0)));
    a_part_of_a_block_cannot_be_claimed(None, "10.0.0.0/27", Err("The requested CIDR (10.0.0.0/27) is smaller than the minimum."));
    a_cidr_outside_of_pools_cannot_be_claimed(None, "11.0.0.0/24", Err("The requested CIDR (11.0.0.0/24) is not within any configured pools."));
    blocks_of_another_host_are_not_claimed(Some("10.0.0.0/24"), "10.0.0.0/24", Ok((0, 4)));
    the_blocks_beside_that_of_another_host_are_claimed(Some("10.0.0.64/26"), "10.0.0.0/24", Ok((3, 1)));
}

#[test]
fn the_block_of_an_address_that_another_host_has_is_not_claimed() {
    let cluster = Cluster::new(&["10.0.0.0/24"]);
    cluster.assign(&AssignIp::new("host-a", ip("10.0.0.1"))).unwrap();
    let done = claim(&cluster, "10.0.0.0/24", "host-b").unwrap();
    assert_eq!(
        (done.claimed.len(), done.of_others),
        (3, vec![net("10.0.0.0/26")])
    );
}

#[test]
fn a_host_can_claim_its_blocks_again_by_a_cidr_that_may_be_larger_than_the_pool() {
    let cluster = Cluster::new(&["10.0.0.0/24"]);
    for _ in 0..2 {
        assert_eq!(claim(&cluster, "10.0.0.0/24", "host-a").unwrap().claimed.len(), 4);
    }
    assert_eq!(cluster.affinities().len(), 4);
    differs("A CIDR that is larger than its pool is claimed");
    assert_eq!(claim(&cluster, "10.0.0.0/16", "host-a").unwrap().claimed.len(), 4);
}

/// A cluster in which `host-a` has one address, in a block of four.
fn with_one_address() -> Cluster {
    let cluster = Cluster::with_blocks(&[("10.0.0.0/24", 30)]);
    cluster.addresses(&wants_as("host-a", 1, "h"));
    assert_eq!(cluster.block().owner().cloned(), owned_by("host-a"));
    cluster
}

#[test]
fn a_block_in_use_is_not_given_up_if_it_must_be_empty() {
    let cluster = with_one_address();
    let cidr = cluster.block().cidr();
    let error = cluster
        .give_up(cidr, "host-a", InUse::Refuse)
        .unwrap_err()
        .to_string();
    assert_eq!(error, format!("block '{cidr}' is not empty"));
    assert_eq!(cluster.block().owner().cloned(), owned_by("host-a"));

    cluster.release_handle("h").unwrap();
    cluster.give_up(cidr, "host-a", InUse::Refuse).unwrap();
    assert!(cluster.blocks().is_empty() && cluster.affinities().is_empty());
}

#[test]
fn a_block_in_use_that_need_not_be_empty_is_left_without_owner() {
    let cluster = with_one_address();
    cluster
        .give_up(cluster.block().cidr(), "host-a", InUse::Release)
        .unwrap();
    assert_eq!(cluster.block().owner(), None);
    assert!(cluster.affinities().is_empty());
    cluster.release_handle("h").unwrap();
    assert!(cluster.blocks().is_empty(), "it went with its last address");
}

#[test]
fn a_block_of_another_host_is_not_given_up() {
    let cluster = with_one_address();
    cluster.node("host-b", &[]);
    cluster
        .give_up(net("10.0.0.0/24"), "host-b", InUse::Release)
        .unwrap();
    assert_eq!(cluster.block().owner().cloned(), owned_by("host-a"));
}

/// Tries to give up the blocks in a CIDR, and expects an error.
fn not_given_up(cidr: &str, expected: &str) {
    let error = with_one_address()
        .give_up(net(cidr), "host-a", InUse::Release)
        .unwrap_err()
        .to_string();
    assert_eq!(error, expected);
}

rows! { not_given_up:
    a_part_of_a_block_cannot_be_given_up("10.0.0.0/31", "The requested CIDR (10.0.0.0/31) is smaller than the minimum.");
    a_cidr_outside_of_pools_cannot_be_given_up("11.0.0.0/24", "The requested CIDR (11.0.0.0/24) is not within any configured pools.");
}

/// A cluster in which `host-a` has twelve addresses in three blocks.
fn with_three_blocks() -> Cluster {
    let cluster = Cluster::with_blocks(&[("10.0.0.0/24", 30)]);
    for _ in 0..12 {
        cluster.addresses(&wants_as("host-a", 1, "h"));
    }
    assert_eq!(cluster.blocks().len(), 3);
    cluster
}

#[test]
fn all_blocks_but_those_in_use_are_given_up() {
    let cluster = with_three_blocks();
    cluster.release_handle("h").unwrap();
    assert_eq!(cluster.blocks().len(), 3, "they stay with their owner");
    cluster.addresses(&wants("host-a", 1));
    assert!(
        cluster
            .give_up_all("host-a", InUse::Refuse)
            .unwrap_err()
            .to_string()
            .ends_with("is not empty")
    );
    assert_eq!((cluster.block().allocated(), cluster.affinities().len()), (1, 1));
}

#[test]
fn blocks_of_a_deleted_pool_are_given_up_with_their_host() {
    let cluster = with_three_blocks();
    cluster.remove_pool("10.0.0.0/24");
    cluster.give_up_all("host-a", InUse::Release).unwrap();
    assert!(cluster.affinities().is_empty());
    assert_eq!(cluster.blocks().len(), 3, "their addresses are allocated");
    cluster.release_handle("h").unwrap();
    assert!(cluster.blocks().is_empty());
}

#[test]
fn blocks_of_other_hosts_stay_when_a_host_gives_up_its_own() {
    let cluster = with_one_address();
    cluster.node("host-b", &[]);
    cluster.addresses(&wants("host-b", 1));
    cluster.give_up_all("host-a", InUse::Release).unwrap();
    assert_eq!(
        (cluster.affinities().len(), cluster.blocks_of("host-b").len()),
        (1, 1)
    );
}

#[test]
fn an_affinity_without_a_kind_is_given_up_with_its_pool() {
    // Affinities had no kind in early versions. On etcd, such affinities have the same paths as those of hosts.
    let cluster = Cluster::new(&["10.0.0.0/24"]);
    claim(&cluster, "10.0.0.0/26", "host-a").unwrap();
    let (path, block, _) = cluster.store.values("/calico/ipam/v2/assignment/").remove(0);
    let mut block: serde_json::Value = serde_json::from_slice(&block).unwrap();
    block.as_object_mut().unwrap().remove("affinity");
    cluster.store.put(&path, block.to_string());
    run(release_pool_affinities(&cluster.allocator(), net("10.0.0.0/16"))).unwrap();
    assert!(cluster.blocks().is_empty() && cluster.affinities().is_empty());
}

#[test]
fn all_blocks_of_a_pool_are_given_up_whoever_has_them() {
    let cluster = Cluster::with_blocks(&[("10.0.0.0/24", 30), ("20.0.0.0/24", 30)]);
    cluster.node("host-b", &[]);
    claim(&cluster, "10.0.0.0/29", "host-a").unwrap();
    claim(&cluster, "10.0.0.8/30", "host-b").unwrap();
    claim(&cluster, "20.0.0.0/30", "host-b").unwrap();
    run(release_pool_affinities(&cluster.allocator(), net("10.0.0.0/24"))).unwrap();
    assert_eq!(cluster.block().cidr(), net("20.0.0.0/30"));
    assert_eq!(cluster.affinities().len(), 1);
}

#[test]
fn both_affinities_for_one_block_are_given_up_with_the_pool() {
    differs("Two nodes have an affinity for one block of a pool whose affinities are released");
    let cluster = with_one_address();
    let path = cluster.store.values("/calico/ipam/v2/host/host-a/").remove(0).0;
    cluster
        .store
        .put(&path.replace("host-a", "host-b"), r#"{"state":"confirmed"}"#);
    run(release_pool_affinities(&cluster.allocator(), net("10.0.0.0/24"))).unwrap();
    assert!(cluster.affinities().is_empty() && cluster.block().owner().is_none());
}

#[test]
fn a_host_that_is_removed_leaves_its_addresses_allocated_and_may_be_missing() {
    let cluster = with_one_address();
    cluster.store.put("/calico/ipam/v2/host/host-a", "{}");
    run(remove_host(&cluster.allocator(), AffinityType::Host, "host-a")).unwrap();
    assert!(cluster.store.values("/calico/ipam/v2/host/").is_empty());
    assert_eq!((cluster.block().allocated(), cluster.block().owner()), (1, None));
    run(remove_host(
        &cluster.allocator(),
        AffinityType::Host,
        "randomhost",
    ))
    .unwrap();
}

#[test]
fn blocks_of_a_virtual_holder_are_claimed_and_given_up_like_those_of_hosts() {
    let cluster = Cluster::new(&[]);
    cluster.pool("10.0.0.0/24", json!({"allowedUses": ["LoadBalancer"]}));
    let (kind, holder) = (AffinityType::Virtual, "load-balancer");
    let done = run(claim_affinity(
        &cluster.allocator(),
        net("10.0.0.0/26"),
        kind.clone(),
        holder,
    ))
    .unwrap();
    assert_eq!(done.claimed.len(), 1);
    assert!(
        cluster
            .store
            .values("/calico/ipam/v2/virtual/load-balancer/")
            .len()
            == 1
    );
    run(cluster
        .allocator()
        .release_host_affinities(kind, holder, InUse::Refuse))
    .unwrap();
    assert!(cluster.blocks().is_empty() && cluster.store.values("/calico/ipam/v2/virtual/").is_empty());

    cluster.node(holder, &[]);
    let request = AutoAssign {
        intended_use: Some(PoolUse::LoadBalancer),
        ..wants(holder, 1)
    };
    assert_eq!(cluster.addresses(&request).len(), 1);
    assert_eq!(
        cluster.block().owner(),
        Some(&BlockOwner::Virtual(holder.to_owned()))
    );
}
