//! The number of addresses that a request gets, and the messages if it gets fewer than it wants.

use calipam_assign::{Assigned, AutoAssign, Error, Family, Message};
use serde_json::json;

use super::{differs, rows};
use crate::cluster::{Cluster, all_in, net, nets, spellings, wants};

const POOL_V4: &str = "192.168.1.0/24";
const POOL_V6: &str = "fd80:24e2:f998:72d6::/120";
const DEFAULT: [(&str, u8); 2] = [(POOL_V4, 26), (POOL_V6, 122)];
const SMALL: [(&str, u8); 2] = [(POOL_V4, 30), (POOL_V6, 126)];
const SINGLE: [(&str, u8); 2] = [(POOL_V4, 32), (POOL_V6, 128)];
const LARGE: [(&str, u8); 2] = [("192.168.0.0/16", 20), ("fd80:24e2:f998:72d6::/110", 116)];

/// Requests addresses of both families with a block limit, and expects a number of addresses and messages for each
/// family.
fn given(
    pools: [(&str, u8); 2],
    wanted: [u32; 2],
    limit: u32,
    expected: [usize; 2],
    messages: [&[Message]; 2],
    error: Option<&str>,
) {
    let cluster = Cluster::with_blocks(&pools);
    let [v4, v6] = wanted;
    let request = AutoAssign {
        v6,
        max_blocks_per_host: limit,
        ..wants("host-a", v4)
    };
    let (done, found) = match cluster.auto(&request) {
        Ok(done) => (done, None),
        Err(partly) => (partly.done, Some(partly.error.to_string())),
    };
    assert_eq!(found.as_deref(), error);
    for (family, assigned) in [done.v4, done.v6].into_iter().enumerate() {
        let Some(assigned) = assigned else {
            assert_eq!(
                wanted[family], 0,
                "only a family that was not requested has no result"
            );
            continue;
        };
        assert_eq!(
            (assigned.addresses.len(), assigned.requested),
            (expected[family], wanted[family])
        );
        assert_eq!(assigned.messages, messages[family]);
        let addresses: Vec<_> = assigned.addresses.iter().map(|net| net.addr()).collect();
        assert!(all_in(&addresses, pools[family].0));
    }
}

const BLOCK_LIMIT: &str = "cannot allocate new block due to per host block limit";

rows! { given:
    one_of_each_family_from_blocks_of_single_addresses(SINGLE, [1, 1], 0, [1, 1], [&[], &[]], None);
    one_of_each_family_from_large_blocks(LARGE, [1, 1], 0, [1, 1], [&[], &[]], None);
    one_of_each_family_from_blocks_of_the_usual_size(DEFAULT, [1, 1], 0, [1, 1], [&[], &[]], None);
    all_of_both_pools(DEFAULT, [256, 256], 0, [256, 256], [&[], &[]], None);
    all_of_both_pools_in_small_blocks(SMALL, [256, 256], 256, [256, 256], [&[], &[]], None);
    one_block_is_the_limit(DEFAULT, [256, 0], 1, [64, 0], [&[Message::BlockLimit(1)], &[]], Some(BLOCK_LIMIT));
    two_blocks_are_the_limit(DEFAULT, [256, 0], 2, [128, 0], [&[Message::BlockLimit(2)], &[]], Some(BLOCK_LIMIT));
    one_ipv6_block_is_the_limit(DEFAULT, [0, 256], 1, [0, 64], [&[], &[Message::BlockLimit(1)]], Some(BLOCK_LIMIT));
    one_more_than_a_pool_has(DEFAULT, [257, 0], 0, [256, 0], [&[Message::Exhausted(spellings(&[POOL_V4]))], &[]], None);
    one_more_than_an_ipv6_pool_has(DEFAULT, [0, 257], 0, [0, 256], [&[], &[Message::Exhausted(spellings(&[POOL_V6]))]], None);
}

#[test]
fn a_host_takes_the_rest_from_the_block_of_another() {
    let cluster = Cluster::with_blocks(&[("10.0.0.0/25", 26)]);
    cluster.node("host-b", &[]);
    let [a, b] = ["host-a", "host-b"].map(|host| cluster.addresses(&wants(host, 1))[0]);
    let blocks = ["10.0.0.0/26", "10.0.0.64/26"].map(net);
    assert!(
        blocks
            .iter()
            .all(|block| block.contains(&a) != block.contains(&b)),
        "{a} and {b}"
    );

    let rest = cluster.addresses(&wants("host-a", 64));
    let of_b = blocks.iter().find(|block| block.contains(&b)).unwrap();
    assert_eq!(
        (
            rest.len(),
            rest.iter().filter(|address| of_b.contains(*address)).count()
        ),
        (64, 1)
    );
}

#[test]
fn only_the_requested_pool_is_used_under_strict_affinity() {
    let cluster = Cluster::with_blocks(&[("192.168.1.0/26", 26), ("192.168.1.64/26", 26)]);
    cluster.affinity_is_strict(true);
    let given = cluster.v4(&AutoAssign {
        pools_v4: nets(&["192.168.1.0/26"]),
        ..wants("host-a", 256)
    });
    assert_eq!(
        (given.addresses.len(), given.messages),
        (64, vec![Message::StrictAffinity])
    );
}

/// Expects this message about a shortage if a request wants `wanted` addresses and gets `given`.
fn shortage(wanted: u32, given: u32, windows: bool, messages: &[Message], expected: Option<&str>) {
    let addresses = net("10.0.0.0/16")
        .subnets(32)
        .unwrap()
        .take(given as usize)
        .collect();
    let messages = messages.to_vec();
    let assigned = Assigned {
        family: Family::V4,
        requested: wanted,
        addresses,
        messages,
        windows,
    };
    assert_eq!(assigned.shortage().as_deref(), expected);
}

rows! { shortage:
    one_address_has_no_message(1, 1, false, &[], None);
    all_of_256_addresses_have_no_message(256, 256, false, &[], None);
    strict_affinity_is_a_reason(1, 0, false, &[Message::StrictAffinity],
        Some("Assigned 0 out of 1 requested IPv4 addresses; No more free affine blocks and strict affinity enabled"));
    the_block_limit_is_a_reason(10, 5, false, &[Message::BlockLimit(2)],
        Some("Assigned 5 out of 10 requested IPv4 addresses; Need to allocate an IPAM block but could not - limit of 2 blocks reached for this node"));
    exhausted_pools_are_a_reason(10, 5, false, &[Message::Exhausted(spellings(&["10.0.0.0/24", "11.0.0.0/24"]))],
        Some("Assigned 5 out of 10 requested IPv4 addresses; No IPs available in pools: [10.0.0.0/24 11.0.0.0/24]"));
    windows_is_mentioned(10, 5, true, &[],
        Some("Assigned 5 out of 10 requested IPv4 addresses; HostReservedAttr: windows-reserved-ipam-handle"));
    several_reasons_are_joined(10, 5, false, &[Message::BlockFailed, Message::StrictAffinity],
        Some("Assigned 5 out of 10 requested IPv4 addresses; Failed to assign IPs in newly allocated block; No more free affine blocks and strict affinity enabled"));
}

#[test]
fn all_addresses_of_a_block_are_used_before_one_is_reused() {
    let cluster = Cluster::with_blocks(&[("10.0.0.0/24", 30)]);
    let mut given = Vec::new();
    for _ in 0..4 {
        let address = cluster.addresses(&wants("host-a", 1))[0];
        assert!(!given.contains(&address), "{address} comes too early");
        cluster.release_all(&[address]);
        given.push(address);
    }
    assert_eq!(cluster.addresses(&wants("host-a", 1)), given[..1]);
}

#[test]
fn a_node_whose_name_is_as_long_as_possible_gets_addresses() {
    let cluster = Cluster::new(&["10.0.0.0/24", "fe80:ba:ad:beef::/120"]);
    let long = "long--hostna".repeat(21);
    let similar = format!("{}-two", &long[..248]);
    for (number, host) in [&long, &similar].into_iter().enumerate() {
        cluster.node(host, &[]);
        let assigned = cluster
            .auto(&AutoAssign {
                v6: 1,
                ..wants(host, 1)
            })
            .unwrap();
        assert_eq!(assigned.addresses().count(), 2);
        assert_eq!(cluster.blocks_of(host).len(), 2);
        assert_eq!(cluster.affinities().len(), 2 * (number + 1));
    }
}

#[test]
fn a_node_keeps_using_its_block() {
    let cluster = Cluster::new(&["10.0.0.0/24", "20.0.0.0/24"]);
    let first = cluster.addresses(&wants("host-a", 1));
    let second = cluster.addresses(&wants("host-a", 1));
    assert!(first != second && cluster.block().cidr().contains(&second[0]));
}

/// Replaces the pool from which `host-a` has addresses, and expects `host` to get an address from the new pool.
fn after_the_pool_was_deleted(host: &str) {
    let cluster = Cluster::new(&["10.0.0.0/24"]);
    cluster.node("host-b", &[]);
    let first = cluster.addresses(&wants("host-a", 1));
    let second = cluster.addresses(&wants("host-a", 1));
    assert!(all_in(
        &[first[0], second[0]],
        &cluster.block().cidr().to_string()
    ));
    cluster.remove_pool("10.0.0.0/24");
    cluster.pool("20.0.0.0/24", json!({}));
    assert!(all_in(&cluster.addresses(&wants(host, 1)), "20.0.0.0/24"));
}

rows! { after_the_pool_was_deleted:
    another_host_gets_addresses_of_the_new_pool("host-b");
    the_host_of_the_old_block_gets_addresses_of_the_new_pool("host-a");
}

#[test]
fn without_any_pool_nothing_is_assigned() {
    let partly = Cluster::new(&[]).auto(&wants("host-a", 1)).unwrap_err();
    assert!(matches!(partly.error, Error::NoQualifiedPool), "{partly}");
    assert_eq!(partly.done.addresses().count(), 0);
}

#[test]
fn addresses_of_a_block_made_before_the_size_changed_are_not_given_again() {
    differs("A pool's block size was changed, and an address is in a block of the old size");
    let cluster = Cluster::with_blocks(&[("10.0.0.0/26", 26)]);
    let first = cluster.addresses(&wants("host-a", 60));
    cluster.pool("10.0.0.0/26", json!({"blockSize": 28}));
    cluster.node("host-b", &[]);
    let second = cluster.v4(&wants("host-b", 16));
    assert!(
        second.addresses.iter().all(|net| !first.contains(&net.addr())),
        "{second:?}"
    );
    assert_eq!(cluster.blocks().len(), 1, "no block is made inside another");
}
