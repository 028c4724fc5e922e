//! Releasing addresses.

use calipam_assign::{AutoAssign, InUse, Release, Released};
use calipam_model::cidr;
use calipam_model::pool::PoolUse;
use serde_json::json;

use super::{differs, rows};
use crate::cluster::{Cluster, given, ip, wants, wants_as};
use crate::run;

const HANDLE: &str = "testnode-ipip-tunnel-address";

/// A request to release an address only if it still has this sequence number.
fn guarded(address: &str, sequence: u64) -> Release {
    Release {
        address: ip(address),
        handle: Some(HANDLE.into()),
        sequence: Some(sequence),
    }
}

/// The sequence number of an address's allocation.
fn sequence_of(cluster: &Cluster, address: &str) -> u64 {
    let block = cluster.block();
    block.sequence_of(cidr::ordinal_of(block.cidr(), ip(address)).unwrap())
}

fn tunnel() -> AutoAssign {
    AutoAssign {
        intended_use: Some(PoolUse::Tunnel),
        ..wants_as("host-a", 1, HANDLE)
    }
}

fn again(cluster: &Cluster, address: &str) {
    let request = calipam_assign::AssignIp {
        handle: Some(HANDLE.into()),
        ..given(address)
    };
    cluster.assign(&request).unwrap();
}

#[test]
fn an_address_that_was_assigned_again_to_its_handle_is_not_released_by_an_old_request() {
    let cluster = Cluster::with_blocks(&[("10.0.0.0/24", 30)]);
    let mut expected = None;
    for _ in 0..10 {
        let address = cluster.addresses(&tunnel())[0].to_string();
        let seen = sequence_of(&cluster, &address);
        assert_eq!(*expected.get_or_insert(seen), seen);

        cluster.release_handle(HANDLE).unwrap();
        again(&cluster, &address);
        let partly = cluster.release(&[guarded(&address, seen)]).unwrap_err();
        assert_eq!(partly.error.to_string(), format!("update conflict: {address}"));
        assert_eq!(partly.done, Released::default());

        let now = sequence_of(&cluster, &address);
        assert_eq!(now, seen + 2);
        let released = cluster.release(&[guarded(&address, now)]).unwrap();
        assert_eq!(
            (released.not_allocated.len(), released.without_error.len()),
            (0, 1)
        );
        expected = Some(seen + 4);
    }
}

#[test]
fn an_address_whose_block_was_created_again_is_not_released_by_an_old_request() {
    let cluster = Cluster::with_blocks(&[("10.0.0.0/24", 30)]);
    let address = cluster.addresses(&tunnel())[0].to_string();
    cluster.give_up_all("host-a", InUse::Release).unwrap();
    let seen = sequence_of(&cluster, &address);
    cluster.release_handle(HANDLE).unwrap();
    assert!(cluster.blocks().is_empty(), "the block had no owner");
    again(&cluster, &address);

    let partly = cluster.release(&[guarded(&address, seen)]).unwrap_err();
    assert_eq!(partly.done, Released::default());
    let now = sequence_of(&cluster, &address);
    assert_eq!(
        cluster
            .release(&[guarded(&address, now)])
            .unwrap()
            .without_error
            .len(),
        1
    );
}

#[test]
fn a_hundred_addresses_in_many_blocks_are_released_at_once() {
    let cluster = Cluster::new(&["fe80:ba:ad:beef::/120"]);
    let selecting = |nodes: &str| json!({"blockSize": 30, "nodeSelector": format!("name in {{{nodes}}}")});
    cluster.pool("10.0.0.0/24", selecting("'node1', 'node2'"));
    cluster.pool("11.0.0.0/24", selecting("'node3', 'node4'"));
    let mut all = Vec::new();
    for node in ["node1", "node2", "node3", "node4"] {
        cluster.node(node, &[("name", node)]);
        for _ in 0..6 {
            all.extend(
                cluster
                    .auto(&AutoAssign {
                        v6: 1,
                        ..wants(node, 1)
                    })
                    .unwrap()
                    .addresses(),
            );
        }
        all.extend(cluster.addresses(&wants(node, 13)));
    }
    assert_eq!(all.len(), 100);
    // Addresses in a disabled pool can be released, too.
    cluster.pool("11.0.0.0/24", json!({"blockSize": 30, "disabled": true}));
    cluster.release_all(&all);
    assert!(cluster.blocks().iter().all(|block| block.is_empty()));
}

/// Assigns 192.168.0.1 in a new block, and releases it on the condition that it has this handle or sequence number.
fn on_condition(handle: Option<&str>, sequence_is_right: Option<bool>, is_released: bool) {
    let cluster = Cluster::new(&["192.168.0.0/16"]);
    cluster.assign(&given("192.168.0.1")).unwrap();
    let sequence = sequence_of(&cluster, "192.168.0.1");
    let sequence = sequence_is_right.map(|right| if right { sequence } else { sequence + 1 });
    let request = Release {
        address: ip("192.168.0.1"),
        handle: handle.map(str::to_owned),
        sequence,
    };
    assert_eq!(cluster.release(&[request]).is_ok(), is_released);
    assert_eq!(cluster.block().is_empty(), is_released);
}

rows! { on_condition:
    without_a_condition_an_address_is_released(None, None, true);
    with_its_sequence_number_an_address_is_released(None, Some(true), true);
    with_another_sequence_number_it_is_not(None, Some(false), false);
    with_another_handle_it_is_not(Some("fakehandle"), None, false);
    with_an_empty_handle_it_is_released(Some(""), None, true);
}

/// Assigns and releases addresses. Expects the released addresses that were not allocated.
fn not_allocated(assigned: &[&str], released: &[&str], expected: &[&str]) {
    let cluster = Cluster::new(&["192.168.1.0/24", "fd80:24e2:f998:72d6::/120"]);
    assigned
        .iter()
        .for_each(|address| cluster.assign(&given(address)).unwrap());
    let requests: Vec<Release> = released.iter().map(|address| Release::any(ip(address))).collect();
    let found = cluster.release(&requests).unwrap();
    let expected: Vec<_> = expected.iter().map(|address| ip(address)).collect();
    assert_eq!(found.not_allocated, expected);
}

rows! { not_allocated:
    an_address_outside_of_all_pools_is_not_allocated(&[], &["1.1.1.1"], &["1.1.1.1"]);
    an_address_of_a_pool_without_blocks_is_not_allocated(&[], &["192.168.1.0"], &["192.168.1.0"]);
    an_assigned_address_is_released(&["192.168.1.0"], &["192.168.1.0"], &[]);
    another_address_of_the_block_is_not_allocated(&["192.168.1.0"], &["192.168.1.1"], &["192.168.1.1"]);
    one_of_two_addresses_is_not_allocated(&["192.168.1.0"], &["192.168.1.0", "192.168.1.1"], &["192.168.1.1"]);
    an_ipv6_address_is_released(&["fd80:24e2:f998:72d6::9"], &["fd80:24e2:f998:72d6::9"], &[]);
}

#[test]
fn addresses_across_two_blocks_are_released() {
    let cluster = Cluster::new(&["192.168.1.0/24"]);
    let given = cluster.addresses(&wants("host-a", 66));
    assert_eq!(cluster.blocks().len(), 2);
    cluster.release_all(&given);
}

#[test]
fn an_address_that_is_named_twice_is_released_once() {
    differs("An address is released twice in one request, in two spellings");
    let cluster = Cluster::new(&["10.0.0.0/26"]);
    assert_eq!(cluster.addresses(&wants("host-a", 64)).len(), 64);
    let twice = [Release::any(ip("10.0.0.1")), Release::any(ip("10.0.0.1"))];
    cluster.release(&twice).unwrap();

    cluster.assign(&given("10.0.0.1")).unwrap();
    let record = run(cluster.allocator().assignment_attributes(ip("10.0.0.1"))).unwrap();
    assert!(record.handle.is_none() && record.owner.unwrap_or_default().is_empty());
    assert!(
        cluster.addresses(&wants("host-a", 1)).is_empty(),
        "an address is given twice"
    );
}

#[test]
fn the_handle_of_a_released_address_no_longer_counts_it() {
    let cluster = Cluster::new(&["10.0.0.0/26"]);
    let given = cluster.addresses(&wants_as("host-a", 3, "h"));
    cluster.release_all(&given[..2]);
    assert_eq!(cluster.of_handle("h"), Some(given[2..].to_vec()));
    cluster.remove_pool("10.0.0.0/26");
    cluster.release_all(&given[2..]);
    assert_eq!(
        cluster.of_handle("h"),
        None,
        "addresses of a deleted pool are released, too"
    );
}
