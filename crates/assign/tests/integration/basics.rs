//! The basic operations of a node and its pods.

use std::net::IpAddr;
use std::pin::pin;
use std::task::{Context, Waker};

use calipam_assign::{Allocator, AssignIp, AutoAssign, Error, Family, InUse, Release};
use calipam_testkit::memory::{Change, MemoryStore};
use jiff::{SignedDuration, Timestamp};

use crate::run;

const RESOURCES: &str = "/calico/resources/v3/projectcalico.org";

fn cluster() -> MemoryStore {
    let store = MemoryStore::new("2026-05-01T10:00:00Z".parse::<Timestamp>().unwrap());
    for (name, cidr, size) in [("v4", "10.0.0.0/28", 30), ("v6", "fd00::/124", 126)] {
        let pool = format!(r#"{{"spec":{{"cidr":"{cidr}","blockSize":{size}}}}}"#);
        store.put(&format!("{RESOURCES}/ippools/{name}"), pool);
    }
    store.put(&format!("{RESOURCES}/nodes/a"), r#"{"metadata":{"labels":{"zone":"x"}}}"#);
    store
}

fn request(handle: &str) -> AutoAssign {
    crate::request("a", handle)
}

#[test]
fn the_second_pod_of_a_node_costs_two_writes() {
    let store = cluster();
    let allocator = Allocator::new(&store);
    run(allocator.auto_assign(&request("first"))).unwrap();
    store.take_changes();
    run(allocator.auto_assign(&request("second"))).unwrap();
    let paths: Vec<String> = store.take_changes().into_iter().map(|change| change.path).collect();
    assert_eq!(paths.len(), 2, "{paths:?}");
    assert!(paths[0].ends_with("handle/second") && paths[1].contains("/assignment/"));
}

#[test]
fn both_families_under_one_handle_come_and_go() {
    let store = cluster();
    let allocator = Allocator::new(&store);
    let assigned = run(allocator.auto_assign(&AutoAssign { v6: 2, ..request("h") })).unwrap();
    let addresses: Vec<IpAddr> = assigned.addresses().collect();
    assert_eq!(addresses.len(), 3);
    assert_eq!(assigned.v6.as_ref().map(|v6| (v6.family, v6.missing())), Some((Family::V6, 0)));
    assert_eq!(run(allocator.ips_by_handle("h")).unwrap(), addresses);
    assert_eq!(run(allocator.search_handle("h", "a")).unwrap(), addresses);

    run(allocator.release_by_handle("h")).unwrap();
    assert!(matches!(run(allocator.ips_by_handle("h")), Err(Error::NoHandle(_))));
    assert!(run(allocator.search_handle("h", "a")).unwrap().is_empty());
}

/// A handle has addresses in two blocks. The first block is damaged in ways that occur in real clusters.
#[test]
fn a_block_that_cannot_be_decoded_is_passed_over_in_a_release() {
    for damage in [r#""unallocated":[0,1,2,3]"#, r#""unallocated":"none""#] {
        let store = cluster();
        let allocator = Allocator::new(&store);
        run(allocator.auto_assign(&AutoAssign { v6: 1, ..request("h") })).unwrap();
        let (path, value, _) = store.values("/calico/ipam/v2/assignment/ipv4/").remove(0);
        let value = String::from_utf8(value).unwrap();
        let (before, after) = value.split_once(r#""unallocated":["#).unwrap();
        let after = after.split_once(']').unwrap().1;
        let broken = format!("{before}{damage}{after}");
        store.put(&path, broken.clone());

        assert!(matches!(run(allocator.ips_by_handle("h")), Err(Error::Undecodable { .. })));
        let readable = run(allocator.readable_ips_by_handle("h")).unwrap();
        assert!(readable.len() == 1 && readable[0].is_ipv6(), "{readable:?}");
        assert_eq!(run(allocator.search_handle("h", "a")).unwrap(), readable);
        for _ in 0..2 {
            run(allocator.release_by_handle_fully("h")).unwrap();
        }

        assert_eq!(store.value(&path), Some(broken.into_bytes()));
        let v6 = store.values("/calico/ipam/v2/assignment/ipv6/").remove(0).1;
        assert!(!String::from_utf8(v6).unwrap().contains(r#""handle_id":"h""#));
        // The handle keeps its count for the damaged block, whose addresses may still be allocated.
        let handle = String::from_utf8(store.value("/calico/ipam/v2/handle/h").unwrap()).unwrap();
        assert!(handle.contains("10.0.0.") && !handle.contains("fd00"), "{handle}");
    }
}

#[test]
fn an_address_is_given_once() {
    let store = cluster();
    let allocator = Allocator::new(&store);
    let address: IpAddr = "10.0.0.5".parse().unwrap();
    let wanted = AssignIp { handle: Some("h".into()), ..AssignIp::new("a", address) };
    run(allocator.assign_ip(&wanted)).unwrap();
    assert!(matches!(run(allocator.assign_ip(&wanted)), Err(Error::AlreadyAssigned(_))));
    let released = run(allocator.release_ips(&[Release::any(address)])).unwrap();
    assert!(released.not_allocated.is_empty());
    run(allocator.assign_ip(&wanted)).unwrap();
}

#[test]
fn blocks_that_others_claimed_after_early_inputs_are_used() {
    let store = cluster();
    let allocator = Allocator::new(&store);
    run(allocator.auto_assign(&request("p0"))).unwrap();
    let inputs = run(allocator.read_inputs(&request("late"))).unwrap();
    // Other calls fill the node's block and claim the next one.
    for number in 1..=4 {
        run(allocator.auto_assign(&request(&format!("p{number}")))).unwrap();
    }
    store.take_changes();
    let assigned = run(allocator.auto_assign_after(inputs, &request("late"))).unwrap();
    assert_eq!(assigned.addresses().count(), 1);
    let changes: Vec<String> = store.take_changes().into_iter().map(|change| change.path).collect();
    assert!(changes.len() == 2 && changes.iter().all(|path| !path.contains("/host/")), "{changes:?}");
}

#[test]
fn early_inputs_are_used_for_five_seconds() {
    for (seconds, is_used) in [(0, true), (4, true), (6, false), (-1, false)] {
        let store = cluster();
        let allocator = Allocator::new(&store);
        run(allocator.auto_assign(&request("first"))).unwrap();
        let inputs = run(allocator.read_inputs(&request("late"))).unwrap();
        let disabled = r#"{"spec":{"cidr":"10.0.0.0/28","blockSize":30,"disabled":true}}"#;
        store.put(&format!("{RESOURCES}/ippools/v4"), disabled);
        store.advance(SignedDuration::from_secs(seconds));
        let assigned = run(allocator.auto_assign_after(inputs, &request("late")));
        match (is_used, assigned) {
            (true, Ok(assigned)) => assert_eq!(assigned.addresses().count(), 1, "{seconds} s"),
            (false, Err(partly)) => assert!(matches!(partly.error, Error::NoQualifiedPool), "{seconds} s"),
            (_, assigned) => panic!("{seconds} s: {assigned:?}"),
        }
    }
}

/// The writes of a claim, in order. A write of the affinity is shown as its new state, a write of the block as `block`.
fn claim_of(store: &MemoryStore, address: &str) -> Vec<String> {
    let path = "/calico/ipam/v2/host/a/ipv4/block/10.0.0.4-30";
    store.put(path, r#"{"state":"","deleted":false}"#);
    store.take_changes();
    let wanted = AssignIp::new("a", address.parse().unwrap());
    run(Allocator::new(store).assign_ip(&wanted)).unwrap();
    let write = |change: Change| {
        if change.path != path {
            return "block".to_owned();
        }
        let affinity: serde_json::Value = serde_json::from_slice(&change.value.unwrap()).unwrap();
        affinity["state"].as_str().unwrap().to_owned()
    };
    store.take_changes().into_iter().map(write).collect()
}

#[test]
fn an_affinity_without_a_state_is_marked_as_pending_before_its_block_is_created() {
    // If a client crashes between the two writes, the affinity must show other clients that a claim is under way.
    assert_eq!(claim_of(&cluster(), "10.0.0.5"), ["pending", "block", "confirmed", "block"]);
}

#[test]
fn a_block_that_is_given_up_while_its_addresses_cool_down_is_not_left_empty() {
    // The cooldown of 30 s ends before, during or after the operation. Each request of the operation takes a second.
    for waited in 20..=31 {
        let store = cluster();
        store.put("/calico/ipam/v2/config", r#"{"auto_allocate_blocks":true,"ipCooldownSeconds":30}"#);
        run(Allocator::new(&store).auto_assign(&request("h"))).unwrap();
        run(Allocator::new(&store).release_by_handle("h")).unwrap();
        store.advance(SignedDuration::from_secs(waited));

        let store = store.interleaved();
        let allocator = Allocator::new(&store);
        let mut operation =
            pin!(allocator.release_affinity("10.0.0.0/28".parse().unwrap(), "a", InUse::Release));
        let mut context = Context::from_waker(Waker::noop());
        while operation.as_mut().poll(&mut context).map(Result::unwrap).is_pending() {
            store.advance(SignedDuration::from_secs(1));
        }
        for (path, block, _) in store.values("/calico/ipam/v2/assignment/") {
            let text = String::from_utf8(block).unwrap();
            assert!(text.contains("releasedAt"), "{waited} s: {path} {text}");
        }
        assert!(store.values("/calico/ipam/v2/host/").is_empty());
    }
}

#[test]
fn changes_in_one_transaction_have_one_new_revision() {
    let store = cluster();
    for _ in 0..2 {
        store.put("a", "1");
    }
    assert_eq!(store.value_at("a").map(|(_, revision)| revision), Some(2));
    let change = |path: &str| (path.to_owned(), Some(b"2".to_vec()));
    assert_eq!(store.change_together(&[change("a"), change("b")]), 3);
    let expected = [Some((b"2".to_vec(), 3)), Some((b"2".to_vec(), 3))];
    assert_eq!(["a", "b"].map(|path| store.value_at(path)), expected);
}
