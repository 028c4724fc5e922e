//! Reserved addresses.

use std::sync::{Arc, Mutex};

use calipam_assign::{Event, Passed};

use crate::run;

use super::{differs, rows};
use crate::cluster::{Cluster, all_in, given, ip, net, wants};

/// Requests all 64 addresses of a pool, some of which are reserved. Expects the number of assigned addresses.
fn reserved(reservations: &[&[&str]], expected: usize) {
    let cluster = Cluster::new(&["10.0.0.0/26"]);
    for (number, cidrs) in reservations.iter().enumerate() {
        cluster.reserve(&format!("r{number}"), cidrs);
    }
    let given = cluster.addresses(&wants("host-a", 64));
    assert_eq!(given.len(), expected);
    let is_reserved = |address| {
        reservations
            .iter()
            .copied()
            .flatten()
            .any(|cidr| net(cidr).contains(address))
    };
    assert!(!given.iter().any(is_reserved), "{given:?}");
}

rows! { reserved:
    without_reservations_all_addresses_are_given(&[], 64);
    reserved_addresses_are_not_given(&[&["10.0.0.1/32", "10.0.0.32/30"], &["11.0.0.0/30", "10.0.0.17/32"]], 58);
    reservations_that_overlap_count_once(&[&["10.0.0.0/30"], &["10.0.0.2/31", "10.0.0.0/29"]], 56);
    half_of_a_block_is_reserved(&[&["10.0.0.0/27"]], 32);
    a_whole_block_is_reserved(&[&["10.0.0.0/26"]], 0);
    more_than_the_pool_is_reserved(&[&["10.0.0.0/8"]], 0);
    other_addresses_are_reserved(&[&["10.0.1.0/24", "fd00::/64"]], 64);
}

#[test]
fn a_search_counts_the_blocks_that_it_passes_over() {
    let cluster = Cluster::with_blocks(&[("10.0.0.0/28", 30)]);
    cluster.reserve("r", &["10.0.0.12/30"]);
    for host in ["host-b", "host-c", "host-a"] {
        cluster.node(host, &[]);
        assert_eq!(cluster.addresses(&wants(host, 4)).len(), 4);
    }
    let searched: Arc<Mutex<Vec<Passed>>> = Arc::default();
    let note = Arc::clone(&searched);
    let observed = cluster.allocator().observed_by(Arc::new(move |event| {
        if let Event::Searched { passed, .. } = event {
            note.lock().unwrap().push(passed);
        }
    }));
    assert_eq!(
        run(observed.auto_assign(&wants("host-a", 1)))
            .unwrap()
            .addresses()
            .count(),
        0
    );
    assert_eq!(
        *searched.lock().unwrap(),
        [Passed {
            reserved: 1,
            full: 3,
            ..Passed::default()
        }]
    );
}

/// A cluster in which `host-a` has two blocks of four addresses.
fn two_blocks() -> Cluster {
    let cluster = Cluster::with_blocks(&[("10.0.0.0/24", 30)]);
    for address in ["10.0.0.3", "10.0.0.7"] {
        cluster.assign(&given(address)).unwrap();
    }
    cluster
}

#[test]
fn a_block_that_is_reserved_or_full_is_passed_over() {
    let cluster = two_blocks();
    cluster.reserve("first", &["10.0.0.0/30"]);
    assert!(all_in(&cluster.addresses(&wants("host-a", 3)), "10.0.0.4/30"));
    assert_eq!(cluster.blocks().len(), 2);

    let cluster = two_blocks();
    ["10.0.0.0", "10.0.0.1", "10.0.0.2"]
        .iter()
        .for_each(|address| cluster.assign(&given(address)).unwrap());
    assert!(all_in(&cluster.addresses(&wants("host-a", 1)), "10.0.0.4/30"));
}

#[test]
fn blocks_are_used_one_after_the_other_and_then_another_is_claimed() {
    let cluster = two_blocks();
    assert!(all_in(&cluster.addresses(&wants("host-a", 3)), "10.0.0.0/30"));
    assert!(all_in(&cluster.addresses(&wants("host-a", 3)), "10.0.0.4/30"));
    assert_eq!(cluster.addresses(&wants("host-a", 1)).len(), 1);
    assert_eq!(cluster.blocks_of("host-a").len(), 3);
}

#[test]
fn no_reserved_block_is_claimed() {
    let cluster = Cluster::with_blocks(&[("10.0.0.0/28", 30)]);
    cluster.reserve("most", &["10.0.0.0/29", "10.0.0.8/30"]);
    let given = cluster.addresses(&wants("host-a", 16));
    assert!(given.len() == 4 && all_in(&given, "10.0.0.12/30"));
    assert_eq!(cluster.blocks().len(), 1);
}

#[test]
fn a_reservation_of_most_of_a_large_ipv6_pool_is_passed_over_at_once() {
    differs("A reservation covers most of a large IPv6 pool");
    let cluster = Cluster::new(&["fd00::/32"]);
    cluster.reserve("most", &["fd00::/33"]);
    let request = calipam_assign::AutoAssign {
        v6: 1,
        ..wants("host-a", 0)
    };
    let given: Vec<_> = cluster.auto(&request).unwrap().addresses().collect();
    assert!(
        all_in(&given, "fd00:0:8000::/33") && given.len() == 1,
        "{given:?}"
    );
}

#[test]
fn a_reserved_address_is_assigned_if_requested() {
    let cluster = Cluster::new(&["10.0.0.0/26"]);
    cluster.reserve("all", &["10.0.0.0/26"]);
    cluster.assign(&given("10.0.0.9")).unwrap();
    assert!(cluster.block().allocation_of(ip("10.0.0.9")).is_some());
}
