//! The basic operations of a node and its pods.

use std::pin::pin;
use std::task::{Context, Waker};

use calipam_assign::{AutoAssign, Error, InUse};
use calipam_testkit::memory::Change;
use jiff::SignedDuration;
use serde_json::json;

use crate::cluster::{Cluster, given, net, wants_as};
use crate::run;

fn cluster() -> Cluster {
    Cluster::with_blocks(&[("10.0.0.0/28", 30), ("fd00::/124", 126)])
}

fn request(handle: &str) -> AutoAssign {
    wants_as("host-a", 1, handle)
}

/// The paths of the writes since the last call.
fn written(cluster: &Cluster) -> Vec<String> {
    cluster
        .store
        .take_changes()
        .into_iter()
        .map(|change| change.path)
        .collect()
}

#[test]
fn the_second_pod_of_a_node_costs_two_writes() {
    let cluster = cluster();
    cluster.addresses(&request("first"));
    written(&cluster);
    cluster.addresses(&request("second"));
    let paths = written(&cluster);
    assert_eq!(paths.len(), 2, "{paths:?}");
    assert!(paths[0].ends_with("handle/second") && paths[1].contains("/assignment/"));
}

/// The node has an affinity from the time when blocks had another size.
#[test]
fn a_missing_block_of_the_node_is_not_created_over_another() {
    let cluster = cluster();
    cluster.node("host-b", &[]);
    let other = cluster.addresses(&wants_as("host-b", 1, "other"))[0];
    let (path, block, _) = cluster.store.values("/calico/ipam/v2/assignment/ipv4/").remove(0);
    let half = path.rsplit_once('/').unwrap().1.replace("-30", "-31");
    let affinity = format!("/calico/ipam/v2/host/host-a/ipv4/block/{half}");
    cluster.store.put(&affinity, r#"{"state":"confirmed"}"#);

    let given = cluster.addresses(&request("mine"));
    assert_ne!(given, [other]);
    let blocks = cluster.store.values("/calico/ipam/v2/assignment/ipv4/");
    assert!(blocks.len() == 2 && blocks.iter().all(|(path, ..)| path.ends_with("-30")));
    assert_eq!(cluster.store.value(&path), Some(block), "it stays as it was");
}

/// A handle has addresses in two blocks. The first block is damaged in ways that occur in real clusters.
#[test]
fn a_block_that_cannot_be_decoded_is_passed_over_in_a_release() {
    for damage in [r#""unallocated":[0,1,2,3]"#, r#""unallocated":"none""#] {
        let cluster = cluster();
        let (store, allocator) = (&cluster.store, cluster.allocator());
        cluster
            .auto(&AutoAssign {
                v6: 1,
                ..request("h")
            })
            .unwrap();
        let (path, value, _) = store.values("/calico/ipam/v2/assignment/ipv4/").remove(0);
        let value = String::from_utf8(value).unwrap();
        let (before, after) = value.split_once(r#""unallocated":["#).unwrap();
        let after = after.split_once(']').unwrap().1;
        let broken = format!("{before}{damage}{after}");
        store.put(&path, broken.clone());

        assert!(matches!(
            run(allocator.ips_by_handle("h")),
            Err(Error::Undecodable { .. })
        ));
        let readable = run(allocator.readable_ips_by_handle("h")).unwrap();
        assert!(readable.len() == 1 && readable[0].is_ipv6(), "{readable:?}");
        assert_eq!(run(allocator.search_handle("h", "host-a")).unwrap(), readable);
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
fn blocks_that_others_claimed_after_early_inputs_are_used() {
    let cluster = cluster();
    cluster.addresses(&request("p0"));
    let inputs = run(cluster.allocator().read_inputs(&request("late"))).unwrap();
    // Other calls fill the node's block and claim the next one.
    (1..=4).for_each(|number| drop(cluster.addresses(&request(&format!("p{number}")))));
    written(&cluster);
    let assigned = run(cluster.allocator().auto_assign_after(inputs, &request("late"))).unwrap();
    assert_eq!(assigned.addresses().count(), 1);
    let changes = written(&cluster);
    assert!(
        changes.len() == 2 && changes.iter().all(|path| !path.contains("/host/")),
        "{changes:?}"
    );
}

#[test]
fn early_inputs_are_used_for_five_seconds() {
    for (seconds, is_used) in [(0, true), (4, true), (6, false), (-1, false)] {
        let cluster = cluster();
        cluster.addresses(&request("first"));
        let inputs = run(cluster.allocator().read_inputs(&request("late"))).unwrap();
        cluster.pool("10.0.0.0/28", json!({"blockSize": 30, "disabled": true}));
        cluster.advance(seconds);
        let assigned = run(cluster.allocator().auto_assign_after(inputs, &request("late")));
        match (is_used, assigned) {
            (true, Ok(assigned)) => assert_eq!(assigned.addresses().count(), 1, "{seconds} s"),
            (false, Err(partly)) => assert!(matches!(partly.error, Error::NoQualifiedPool), "{seconds} s"),
            (_, assigned) => panic!("{seconds} s: {assigned:?}"),
        }
    }
}

/// The writes of a claim, in order. A write of the affinity is shown as its new state, a write of the block as `block`.
fn claim_of(cluster: &Cluster, address: &str) -> Vec<String> {
    let path = "/calico/ipam/v2/host/host-a/ipv4/block/10.0.0.4-30";
    cluster.store.put(path, r#"{"state":"","deleted":false}"#);
    cluster.store.take_changes();
    cluster.assign(&given(address)).unwrap();
    let write = |change: Change| {
        if change.path != path {
            return "block".to_owned();
        }
        let affinity: serde_json::Value = serde_json::from_slice(&change.value.unwrap()).unwrap();
        affinity["state"].as_str().unwrap().to_owned()
    };
    cluster.store.take_changes().into_iter().map(write).collect()
}

#[test]
fn an_affinity_without_a_state_is_marked_as_pending_before_its_block_is_created() {
    // If a client crashes between the two writes, the affinity must show other clients that a claim is under way.
    assert_eq!(
        claim_of(&cluster(), "10.0.0.5"),
        ["pending", "block", "confirmed", "block"]
    );
}

#[test]
fn a_block_that_is_given_up_while_its_addresses_cool_down_is_not_left_empty() {
    // The cooldown of 30 s ends before, during or after the operation. Each request of the operation takes a second.
    for waited in 20..=31 {
        let cluster = cluster();
        cluster.configure(json!({"ipCooldownSeconds": 30}));
        cluster.addresses(&request("h"));
        cluster.release_handle("h").unwrap();
        cluster.advance(waited);

        let cluster = Cluster {
            store: cluster.store.interleaved(),
        };
        let (store, allocator) = (&cluster.store, cluster.allocator());
        let mut operation = pin!(allocator.release_affinity(net("10.0.0.0/28"), "host-a", InUse::Release));
        let mut context = Context::from_waker(Waker::noop());
        while operation
            .as_mut()
            .poll(&mut context)
            .map(Result::unwrap)
            .is_pending()
        {
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
    let store = cluster().store;
    (0..2).for_each(|_| store.put("a", "1"));
    assert_eq!(store.value_at("a").map(|(_, revision)| revision), Some(2));
    let change = |path: &str| (path.to_owned(), Some(b"2".to_vec()));
    assert_eq!(store.change_together(&[change("a"), change("b")]), 3);
    let expected = [Some((b"2".to_vec(), 3)), Some((b"2".to_vec(), 3))];
    assert_eq!(["a", "b"].map(|path| store.value_at(path)), expected);
}
