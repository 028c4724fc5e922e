//! The contents of blocks: addresses, owner records and sequence numbers.

use std::collections::BTreeMap;
use std::net::IpAddr;

use calipam_assign::{AssignIp, Release};
use calipam_model::block::Block;
use calipam_model::cidr;
use serde_json::{Value, json};

use super::{differs, rows};
use crate::cluster::{Cluster, given, ip, wants, wants_as};
use crate::run;

/// Assigns these addresses in 10.0.0.0/26, each with a handle and an attribute.
fn cluster(assigned: &[(&str, &str, &str)]) -> Cluster {
    let cluster = Cluster::new(&["10.0.0.0/26"]);
    for (address, handle, attribute) in assigned {
        let attributes = Some(BTreeMap::from([("color".to_owned(), (*attribute).to_owned())]));
        let request = AssignIp {
            handle: Some((*handle).into()),
            attributes,
            ..given(address)
        };
        cluster.assign(&request).unwrap();
    }
    cluster
}

fn allocated(block: &Block) -> Vec<String> {
    block.allocations().map(|held| held.address.to_string()).collect()
}

const ONE: &[(&str, &str, &str)] = &[("10.0.0.1", "h", "red")];
const OF_TWO_HANDLES: &[(&str, &str, &str)] = &[("10.0.0.1", "h", "red"), ("10.0.0.2", "i", "red")];
const ALIKE: &[(&str, &str, &str)] = &[
    ("10.0.0.1", "h", "red"),
    ("10.0.0.2", "h", "red"),
    ("10.0.0.3", "i", "red"),
];
const UNLIKE: &[(&str, &str, &str)] = &[
    ("10.0.0.1", "h", "red"),
    ("10.0.0.2", "h", "blue"),
    ("10.0.0.3", "i", "red"),
];

/// Assigns addresses and releases some of them. Expects the remaining addresses and the remaining number of owner
/// records.
fn by_address(assigned: &[(&str, &str, &str)], released: &[&str], left: &[&str], records: usize) {
    let cluster = cluster(assigned);
    let requests: Vec<Release> = released.iter().map(|address| Release::any(ip(address))).collect();
    cluster.release(&requests).unwrap();
    assert_eq!(
        (allocated(&cluster.block()), cluster.block().attributes().len()),
        (strings(left), records)
    );
    let free = cluster.block().free().len();
    assert_eq!(free, 64 - left.len());
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

rows! { by_address:
    an_address_goes_with_its_record(ONE, &["10.0.0.1"], &[], 0);
    one_of_two_addresses_of_a_record_leaves_it(ALIKE, &["10.0.0.1"], &["10.0.0.2", "10.0.0.3"], 2);
    all_addresses_of_a_record_go_with_it(ALIKE, &["10.0.0.1", "10.0.0.2"], &["10.0.0.3"], 1);
    an_address_that_is_free_changes_nothing(ONE, &["10.0.0.9"], &["10.0.0.1"], 1);
    an_address_with_a_record_of_its_own_goes_alone(OF_TWO_HANDLES, &["10.0.0.2"], &["10.0.0.1"], 1);
}

/// Assigns addresses and releases a handle. Expects the remaining addresses and the remaining number of owner records.
fn by_handle(assigned: &[(&str, &str, &str)], handle: &str, left: &[&str], records: usize) {
    let cluster = cluster(assigned);
    assert_eq!(
        cluster.release_handle(handle).is_ok(),
        assigned.iter().any(|(_, of, _)| *of == handle)
    );
    assert_eq!(
        (allocated(&cluster.block()), cluster.block().attributes().len()),
        (strings(left), records)
    );
}

rows! { by_handle:
    a_handle_without_addresses_changes_nothing(ONE, "other", &["10.0.0.1"], 1);
    the_address_of_a_handle_goes(ONE, "h", &[], 0);
    addresses_of_a_handle_with_other_attributes_go(UNLIKE, "h", &["10.0.0.3"], 1);
    addresses_of_a_handle_with_the_same_attributes_go(ALIKE, "h", &["10.0.0.3"], 1);
}

/// Expects these addresses to be recorded under a handle.
fn recorded(assigned: &[(&str, &str, &str)], handle: &str, expected: &[&str]) {
    let found = run(cluster(assigned).allocator().search_handle(handle, "host-a")).unwrap();
    assert_eq!(
        found,
        expected
            .iter()
            .map(|address| ip(address))
            .collect::<Vec<IpAddr>>()
    );
}

rows! { recorded:
    no_address_is_recorded_under_a_handle(ALIKE, "other", &[]);
    one_address_is_recorded_under_a_handle(ALIKE, "i", &["10.0.0.3"]);
    several_addresses_are_recorded_under_a_handle(UNLIKE, "h", &["10.0.0.1", "10.0.0.2"]);
}

#[test]
fn reserved_addresses_of_a_block_in_use_are_not_assigned() {
    for (reserved, expected) in [(&[][..], 63), (&["10.0.0.32/27"], 31), (&["10.0.0.0/26"], 0)] {
        let cluster = cluster(ONE);
        cluster.reserve("r", reserved);
        assert_eq!(
            cluster.addresses(&wants("host-a", 64)).len(),
            expected,
            "{reserved:?}"
        );
    }
}

#[test]
fn addresses_cool_down_and_are_collected_by_the_next_write() {
    let cluster = cluster(ALIKE);
    cluster.configure(json!({"ipCooldownSeconds": 60}));
    cluster.release_handle("h").unwrap();
    cluster.advance(59);
    cluster.release_handle("i").unwrap();
    let cooling = |block: &Block| {
        block
            .allocations()
            .filter(|held| held.attribute.is_cooling())
            .count()
    };
    assert_eq!(cooling(&cluster.block()), 3, "each has its time");

    cluster.advance(2);
    cluster.addresses(&wants_as("host-a", 1, "late"));
    assert_eq!((cooling(&cluster.block()), cluster.block().allocated()), (1, 2));
    cluster.advance(60);
    cluster.release_handle("late").unwrap();
    assert_eq!(
        cooling(&cluster.block()),
        1,
        "cooled-down addresses are collected"
    );
}

#[test]
fn nothing_is_written_if_nothing_is_released() {
    let cluster = cluster(ONE);
    cluster.store.take_changes();
    cluster.release(&[Release::any(ip("10.0.0.9"))]).unwrap();
    assert!(cluster.store.take_changes().is_empty() && !cluster.block().is_empty());
    cluster.release_handle("h").unwrap();
    assert!(cluster.block().is_empty());
}

#[test]
fn a_cooling_address_is_not_assigned() {
    let cluster = Cluster::with_blocks(&[("10.0.0.0/30", 30)]);
    cluster.configure(json!({"ipCooldownSeconds": 60}));
    let given = cluster.addresses(&wants("host-a", 4));
    cluster.release_all(&given);
    assert!(cluster.addresses(&wants("host-a", 1)).is_empty());
    cluster.advance(61);
    assert_eq!(cluster.addresses(&wants("host-a", 4)).len(), 4);
}

#[test]
fn the_sequence_number_of_an_address_is_that_of_the_write_that_assigned_it() {
    let cluster = cluster(ONE);
    let before = cluster.block();
    let second = AssignIp {
        handle: Some("h".into()),
        ..given("10.0.0.2")
    };
    cluster.assign(&second).unwrap();
    let after = cluster.block();
    let number = |address: &str| after.sequence_of(cidr::ordinal_of(after.cidr(), ip(address)).unwrap());
    assert_eq!(
        (number("10.0.0.2"), after.sequence()),
        (before.sequence(), before.sequence() + 1)
    );
    assert_ne!(number("10.0.0.1"), number("10.0.0.2"));
}

#[test]
fn unknown_fields_are_kept() {
    differs("A block has fields that the version does not know, such as `strictAffinity` of old ones");
    let cluster = cluster(ONE);
    let (path, value, _) = cluster.store.values("/calico/ipam/v2/assignment/").remove(0);
    let mut value: Value = serde_json::from_slice(&value).unwrap();
    value["strictAffinity"] = true.into();
    cluster.store.put(&path, value.to_string());
    cluster.addresses(&wants("host-a", 1));
    let value: Value = serde_json::from_slice(&cluster.store.value(&path).unwrap()).unwrap();
    assert_eq!(value["strictAffinity"], json!(true));
}

#[test]
fn a_block_whose_affinity_is_missing_is_used_once_no_new_one_can_be_made() {
    differs("A block of the node whose affinity object is missing");
    let cluster = Cluster::with_blocks(&[("10.0.0.0/29", 30)]);
    let first = cluster.block_after(&wants("host-a", 1));
    let affinity = cluster.store.values("/calico/ipam/v2/host/").remove(0).0;
    cluster.store.remove(&affinity);
    assert_ne!(cluster.block_after(&wants("host-a", 1)), first);
    assert_eq!(cluster.addresses(&wants("host-a", 6)).len(), 6);
    assert_eq!(cluster.blocks_of("host-a").len(), 2);
}
