//! Requests that name their pools.

use calipam_assign::{AutoAssign, Message};
use serde_json::json;

use crate::cluster::{Cluster, all_in, nets, spellings, wants};

const FIRST: &str = "10.0.0.0/24";
const SECOND: &str = "20.0.0.0/24";
const DISABLED: &str = "30.0.0.0/24";
const NOT_THERE: &str = "40.0.0.0/24";
const OF_IPV6: &str = "fe80::/120";

fn cluster() -> Cluster {
    let cluster = Cluster::new(&[FIRST, SECOND, OF_IPV6]);
    cluster.pool(DISABLED, json!({"disabled": true}));
    cluster
}

fn wants_of(pools: &[&str], count: u32) -> AutoAssign {
    AutoAssign {
        pools_v4: nets(pools),
        ..wants("host-a", count)
    }
}

#[test]
fn a_pool_that_is_disabled_missing_or_of_the_other_family_is_an_error_and_nothing_is_assigned() {
    let cluster = cluster();
    for (pools, text) in [
        (
            [FIRST, DISABLED],
            "the given pool (30.0.0.0/24) does not exist, or is not enabled",
        ),
        (
            [FIRST, NOT_THERE],
            "the given pool (40.0.0.0/24) does not exist, or is not enabled",
        ),
        (
            [OF_IPV6, FIRST],
            "provided IPv4 IPPools list contains one or more IPv6 IPPools",
        ),
    ] {
        assert_eq!(cluster.refusal(&wants_of(&pools, 1)), text);
    }
    let ipv6 = AutoAssign {
        v6: 1,
        pools_v6: nets(&[OF_IPV6, FIRST]),
        ..wants("host-a", 0)
    };
    assert_eq!(
        cluster.refusal(&ipv6),
        "provided IPv6 IPPools list contains one or more IPv4 IPPools"
    );
    assert!(cluster.blocks().is_empty());
}

#[test]
fn the_first_of_two_pools_comes_first() {
    assert!(all_in(
        &cluster().addresses(&wants_of(&[FIRST, SECOND], 1)),
        FIRST
    ));
    assert!(all_in(
        &cluster().addresses(&wants_of(&[SECOND, FIRST], 1)),
        SECOND
    ));
}

#[test]
fn two_pools_give_all_their_addresses() {
    let cluster = cluster();
    cluster.addresses(&wants_of(&[FIRST, SECOND], 1));
    assert_eq!(cluster.addresses(&wants_of(&[FIRST, SECOND], 300)).len(), 300);
    let rest = cluster.v4(&wants_of(&[FIRST, SECOND], 300));
    assert_eq!(rest.addresses.len(), 211);
    assert_eq!(rest.messages, [Message::Exhausted(spellings(&[FIRST, SECOND]))]);
}

#[test]
fn a_node_keeps_using_its_block_in_each_pool() {
    let cluster = cluster();
    let mut blocks = Vec::new();
    for pool in [FIRST, SECOND] {
        assert!(all_in(&cluster.addresses(&wants_of(&[pool], 1)), pool));
        let known = blocks.clone();
        blocks.extend(
            cluster
                .blocks_of("host-a")
                .into_iter()
                .filter(|block| !known.contains(block)),
        );
    }
    assert_eq!(blocks.len(), 2);
    for (pool, block) in [FIRST, SECOND].into_iter().zip(&blocks) {
        assert!(all_in(
            &cluster.addresses(&wants_of(&[pool], 1)),
            &block.to_string()
        ));
    }
    assert_eq!(cluster.blocks().len(), 2);
}

#[test]
fn nothing_comes_from_a_pool_that_was_not_requested() {
    let cluster = cluster();
    let all = cluster.addresses(&wants_of(&[SECOND], 256));
    assert!(all.len() == 256 && all_in(&all, SECOND));
    let late = cluster.v4(&wants_of(&[SECOND], 1));
    assert_eq!(
        (late.addresses.len(), late.messages),
        (0, vec![Message::Exhausted(spellings(&[SECOND]))])
    );
}

#[test]
fn a_pool_can_be_named_by_any_address_in_it() {
    assert!(all_in(
        &cluster().addresses(&wants_of(&["20.0.0.7/24"], 1)),
        SECOND
    ));
}
