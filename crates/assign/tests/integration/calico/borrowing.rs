//! Addresses borrowed from other hosts' blocks, strict affinity, and the block limit of hosts.

use calipam_assign::{AutoAssign, Message};
use serde_json::json;

use super::{differs, rows};
use crate::cluster::{Cluster, wants, wants_as};

/// Two hosts, and a pool that selects both and has room for one block.
fn one_block() -> Cluster {
    let cluster = Cluster::new(&[]);
    for host in ["host-a", "host-b"] {
        cluster.node(host, &[("foo", "bar")]);
    }
    cluster.pool(
        "10.0.0.0/28",
        json!({"blockSize": 28, "nodeSelector": r#"foo == "bar""#}),
    );
    cluster
}

#[test]
fn a_change_of_strict_affinity_counts_from_the_next_request() {
    let cluster = one_block();
    for (is_strict, of_second) in [(false, 1), (true, 0), (false, 1)] {
        cluster.affinity_is_strict(is_strict);
        assert_eq!(cluster.addresses(&wants("host-a", 1)).len(), 1);
        let second = cluster.v4(&wants("host-b", 1));
        assert_eq!(second.addresses.len(), of_second);
        let messages = if is_strict {
            vec![Message::StrictAffinity]
        } else {
            Vec::new()
        };
        assert_eq!(second.messages, messages);
    }
}

#[test]
fn borrowed_addresses_are_released_like_others() {
    let cluster = one_block();
    cluster.addresses(&wants_as("host-a", 1, "own"));
    cluster.addresses(&wants_as("host-b", 1, "borrowed"));
    assert!(cluster.blocks_of("host-b").is_empty());
    cluster.release_handle("borrowed").unwrap();
    cluster.release_handle("own").unwrap();
    assert!(cluster.block().is_empty());
    assert_eq!(cluster.blocks_of("host-a").len(), 1);
}

/// A pool of four blocks of four addresses. `host-a` may hold two blocks, and has filled both.
fn at_the_limit() -> Cluster {
    let cluster = Cluster::with_blocks(&[("10.0.0.0/28", 30)]);
    cluster.node("host-b", &[]);
    cluster.configure(json!({"strict_affinity": true, "maxBlocksPerHost": 2}));
    for _ in 0..8 {
        assert_eq!(cluster.addresses(&wants_as("host-a", 1, "host-a")).len(), 1);
    }
    assert_eq!(cluster.blocks_of("host-a").len(), 2);
    cluster
}

const BLOCK_LIMIT: &str = "cannot allocate new block due to per host block limit";

#[test]
fn a_host_that_holds_as_many_blocks_as_it_may_gets_no_more() {
    let cluster = at_the_limit();
    let partly = cluster.auto(&wants("host-a", 1)).unwrap_err();
    assert_eq!(partly.error.to_string(), BLOCK_LIMIT);
    assert!(partly.done.v4.unwrap().addresses.is_empty());

    // `host-a` cannot use addresses in the block of `host-b`.
    assert_eq!(cluster.addresses(&wants("host-b", 1)).len(), 1);
    assert_eq!(cluster.refusal(&wants("host-a", 1)), BLOCK_LIMIT);
}

/// Requests an address for `host-a`, which has filled two blocks, with these limits in the configuration and the
/// request.
fn limited(configured: u32, of_request: u32, is_given: bool) {
    let cluster = at_the_limit();
    cluster.configure(json!({"strict_affinity": true, "maxBlocksPerHost": configured}));
    let request = AutoAssign {
        max_blocks_per_host: of_request,
        ..wants("host-a", 1)
    };
    if is_given {
        assert_eq!(cluster.addresses(&request).len(), 1);
    } else {
        assert_eq!(cluster.refusal(&request), BLOCK_LIMIT);
    }
}

rows! { limited:
    a_request_cannot_raise_the_configured_limit(2, 3, false);
    a_request_can_lower_the_configured_limit(3, 2, false);
    without_a_limit_of_the_request_the_configured_one_counts(3, 0, true);
    without_a_configured_limit_that_of_the_request_counts(0, 2, false);
    both_limits_leave_room(4, 3, true);
}

#[test]
fn a_negative_limit_of_blocks_is_the_usual_one() {
    differs("`maxBlocksPerHost` is negative");
    let cluster = Cluster::with_blocks(&[("10.0.0.0/24", 30)]);
    cluster.configure(json!({"strict_affinity": true, "maxBlocksPerHost": -1}));
    assert_eq!(cluster.refusal(&wants("host-a", 81)), BLOCK_LIMIT);
    assert_eq!(cluster.blocks_of("host-a").len(), 20);
}

#[test]
fn a_node_without_blocks_gets_nothing_if_nodes_claim_no_blocks() {
    let cluster = one_block();
    let config = json!({"strict_affinity": true, "auto_allocate_blocks": false}).to_string();
    cluster.store.put("/calico/ipam/v2/config", config);
    assert_eq!(
        cluster.refusal(&wants("host-a", 1)),
        "failed to find or claim a block"
    );
}

#[test]
fn a_block_that_cannot_be_decoded_is_neither_claimed_nor_borrowed_from() {
    differs("A block cannot be decoded, or its free list and records contradict each other");
    let cluster = one_block();
    cluster
        .store
        .put("/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-28", "{");
    let given = cluster.v4(&wants("host-a", 1));
    assert!(
        given.addresses.is_empty() && given.messages.len() == 1,
        "{given:?}"
    );
    assert!(cluster.affinities().is_empty());
}
