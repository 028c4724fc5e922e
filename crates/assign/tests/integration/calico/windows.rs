//! Windows nodes: the first three addresses of a block and the last one are reserved, and nothing is borrowed.

use std::net::IpAddr;

use calipam_assign::{AssignIp, AutoAssign, InUse, Message};
use serde_json::json;

use super::{differs, rows};
use crate::cluster::{Cluster, given, nets, wants};

/// A cluster with strict affinity, as Windows needs it.
fn cluster(pools: &[(&str, u8)]) -> Cluster {
    let cluster = Cluster::with_blocks(pools);
    cluster.affinity_is_strict(true);
    cluster
}

fn windows(host: &str, v4: u32, v6: u32) -> AutoAssign {
    AutoAssign {
        v6,
        windows: true,
        ..wants(host, v4)
    }
}

const POOL: (&str, u8) = ("100.0.0.0/24", 26);
const POOL_V6: (&str, u8) = ("fd80:24e2:f998:72d6::/120", 122);

/// Requests addresses of both families, and expects their numbers and messages.
fn assigned(wanted: [u32; 2], expected: [usize; 2], expected_messages: &[Message]) {
    let cluster = cluster(&[POOL, POOL_V6]);
    let done = cluster.auto(&windows("host-a", wanted[0], wanted[1])).unwrap();
    let (v4, v6): (Vec<IpAddr>, Vec<IpAddr>) = done.addresses().partition(IpAddr::is_ipv4);
    assert_eq!([v4.len(), v6.len()], expected);
    let messages: Vec<Message> = done
        .v4
        .into_iter()
        .chain(done.v6)
        .flat_map(|family| family.messages)
        .collect();
    assert_eq!(messages, expected_messages);
    for block in cluster
        .blocks()
        .iter()
        .filter(|block| block.cidr().addr().is_ipv4())
    {
        let reserved = block
            .allocations()
            .filter(|held| held.attribute.is_windows_reserved());
        let ordinals: Vec<u32> = reserved.map(|held| held.ordinal).collect();
        assert_eq!(ordinals, [0, 1, 2, 63], "{}", block.cidr());
    }
}

rows! { assigned:
    one_address([1, 0], [1, 0], &[]);
    all_addresses_that_are_not_reserved([240, 0], [240, 0], &[]);
    more_than_are_not_reserved([256, 0], [240, 0], &[Message::StrictAffinity]);
    ipv6_blocks_reserve_nothing([240, 256], [240, 256], &[]);
    more_than_an_ipv6_pool_has([0, 257], [0, 256], &[Message::StrictAffinity]);
}

#[test]
fn without_strict_affinity_nothing_is_assigned() {
    let cluster = Cluster::with_blocks(&[POOL]);
    let text = "global strict affinity should not be false for Windows node";
    assert_eq!(cluster.refusal(&windows("host-a", 1, 0)), text);
    let error = cluster
        .assign(&AssignIp {
            windows: true,
            ..given("100.0.0.9")
        })
        .unwrap_err()
        .to_string();
    assert_eq!(error, text);
    assert!(cluster.blocks().is_empty());
}

#[test]
fn nothing_is_borrowed_from_other_nodes() {
    let cluster = cluster(&[POOL]);
    let hosts = ["windows-1", "windows-2", "linux-1", "linux-2"];
    hosts.iter().for_each(|host| cluster.node(host, &[]));
    let wants = |host: &str, v4| AutoAssign {
        windows: host.starts_with("windows"),
        ..wants(host, v4)
    };
    for host in hosts {
        assert_eq!(cluster.addresses(&wants(host, 1)).len(), 1);
    }
    assert_eq!(cluster.blocks().len(), 4);
    for (host, expected) in [
        ("windows-1", 59),
        ("windows-2", 59),
        ("linux-1", 63),
        ("linux-2", 63),
    ] {
        assert_eq!(cluster.addresses(&wants(host, 100)).len(), expected, "{host}");
    }
}

#[test]
fn blocks_without_unreserved_addresses_do_not_serve_windows() {
    let text = "cannot find a qualified ippool";
    assert_eq!(
        cluster(&[("10.0.0.0/24", 30)]).refusal(&windows("host-a", 1, 0)),
        text
    );
    differs("A Windows node, and a pool whose blocks have fewer than four addresses");
    assert_eq!(
        cluster(&[("10.0.0.0/24", 31)]).refusal(&windows("host-a", 1, 0)),
        text
    );

    let cluster = cluster(&[POOL, ("90.0.0.0/24", 31)]);
    let request = AutoAssign {
        pools_v4: nets(&["90.0.0.0/24", POOL.0]),
        ..windows("host-a", 1, 0)
    };
    assert_eq!(
        cluster.refusal(&request),
        "the given pool (90.0.0.0/24) does not exist, or is not enabled"
    );
}

#[test]
fn a_requested_pool_gives_its_addresses_from_one_block() {
    let cluster = cluster(&[POOL, ("20.0.0.0/24", 26)]);
    for pool in [POOL.0, "20.0.0.0/24", POOL.0, "20.0.0.0/24"] {
        let request = AutoAssign {
            pools_v4: nets(&[pool]),
            ..windows("host-a", 1, 0)
        };
        let given = cluster.addresses(&request);
        assert!(nets(&[pool])[0].contains(&given[0]), "{given:?}");
    }
    assert_eq!(cluster.blocks().len(), 2);
}

#[test]
fn reservations_come_on_top_of_addresses_that_windows_reserves() {
    let cluster = cluster(&[("10.0.0.0/26", 26)]);
    cluster.reserve("one", &["10.0.0.1/32", "10.0.0.32/30"]);
    cluster.reserve("two", &["11.0.0.0/30", "10.0.0.17/32"]);
    // Windows also reserves 10.0.0.1, which counts only once.
    assert_eq!(cluster.addresses(&windows("host-a", 64, 0)).len(), 64 - 4 - 5);
}

#[test]
fn addresses_that_windows_reserves_cannot_be_requested_and_leave_a_block_empty() {
    let cluster = cluster(&[POOL]);
    let held = cluster.addresses(&windows("host-a", 1, 0));
    let first = cluster.block().cidr().addr().to_string();
    let error = cluster
        .assign(&AssignIp {
            windows: true,
            ..given(&first)
        })
        .unwrap_err();
    assert!(
        error.to_string().ends_with("Address already assigned in block"),
        "{error}"
    );

    cluster.release_all(&held);
    assert!(cluster.block().is_empty());
    cluster.give_up_all("host-a", InUse::Refuse).unwrap();
    assert!(cluster.blocks().is_empty());
}

#[test]
fn a_pool_that_is_large_enough_serves_beside_one_that_is_not() {
    let cluster = cluster(&[]);
    cluster.pool("10.0.0.0/24", json!({"blockSize": 32}));
    cluster.pool("20.0.0.0/24", json!({"blockSize": 26}));
    let given = cluster.addresses(&windows("host-a", 1, 0));
    assert!(nets(&["20.0.0.0/24"])[0].contains(&given[0]), "{given:?}");
}
