//! Handles: their addresses and limits.

use calipam_assign::{AssignIp, AutoAssign, Family};

use super::differs;
use crate::cluster::{Cluster, given, ip, wants_as};
use crate::run;

#[test]
fn a_handle_has_its_address_until_it_is_released() {
    let cluster = Cluster::new(&["10.0.0.0/24"]);
    assert_eq!(cluster.of_handle("h"), None);
    let address = cluster.addresses(&wants_as("host-a", 1, "h"));
    assert_eq!(cluster.of_handle("h"), Some(address));
    cluster.release_handle("h").unwrap();
    assert_eq!(cluster.of_handle("h"), None);
    let error = cluster.release_handle("h").unwrap_err().to_string();
    assert_eq!(
        error,
        "resource does not exist: IPAMHandleKey(id=h) with error: <nil>"
    );
}

#[test]
fn a_handle_has_addresses_of_both_families_and_of_several_requests() {
    let cluster = Cluster::new(&["10.0.0.0/24", "fd00::/120"]);
    for _ in 0..2 {
        let given = cluster
            .auto(&AutoAssign {
                v6: 2,
                ..wants_as("host-a", 1, "h")
            })
            .unwrap();
        assert_eq!(
            given.v6.map(|v6| (v6.family, v6.missing())),
            Some((Family::V6, 0))
        );
    }
    let search = || run(cluster.allocator().search_handle("h", "host-a")).unwrap();
    let held = cluster.of_handle("h").unwrap();
    assert_eq!((held.len(), search()), (6, held));
    cluster.release_handle("h").unwrap();
    assert!(cluster.blocks().iter().all(|block| block.is_empty()) && search().is_empty());
}

/// A request for one address of each family. The handle may have at most `most` addresses of each family.
fn limited(most: u32) -> AutoAssign {
    AutoAssign {
        v6: 1,
        max_per_handle: most,
        ..wants_as("host-a", 1, "h")
    }
}

#[test]
fn a_handle_with_a_limit_of_one_gets_the_addresses_that_it_has() {
    let cluster = Cluster::new(&["10.0.0.0/24", "fd00::/120"]);
    let first: Vec<_> = cluster.auto(&limited(1)).unwrap().addresses().collect();
    assert_eq!(cluster.of_handle("h"), Some(first.clone()));
    let second: Vec<_> = cluster.auto(&limited(1)).unwrap().addresses().collect();
    assert_eq!((second.clone(), cluster.of_handle("h")), (first, Some(second)));
    cluster.release_handle("h").unwrap();
    assert_eq!(cluster.of_handle("h"), None);
}

#[test]
fn a_handle_with_a_limit_of_two_gets_two_addresses_and_then_one_of_them() {
    let cluster = Cluster::new(&["10.0.0.0/24"]);
    let request = AutoAssign { v6: 0, ..limited(2) };
    let [first, second] = [0, 1].map(|_| cluster.addresses(&request)[0]);
    assert_ne!(first, second);
    let third = cluster.addresses(&request);
    assert!(
        third.len() == 1 && [first, second].contains(&third[0]),
        "{third:?}"
    );
    assert_eq!(cluster.of_handle("h").unwrap().len(), 2);
}

fn given_limited(address: &str) -> AssignIp {
    AssignIp {
        handle: Some("h".into()),
        max_per_handle: 1,
        ..given(address)
    }
}

#[test]
fn a_handle_at_its_limit_gets_only_the_address_again_that_it_has_in_a_family() {
    let cluster = Cluster::new(&["10.0.0.0/24", "fd00::/120"]);
    for _ in 0..2 {
        cluster.assign(&given_limited("10.0.0.5")).unwrap();
        assert_eq!(cluster.of_handle("h"), Some(vec![ip("10.0.0.5")]));
    }
    let error = cluster
        .assign(&given_limited("10.0.0.6"))
        .unwrap_err()
        .to_string();
    assert!(error.contains("already has IP(s) allocated"), "{error}");
    assert_eq!(cluster.of_handle("h"), Some(vec![ip("10.0.0.5")]));
    cluster.assign(&given_limited("fd00::5")).unwrap();
    assert_eq!(cluster.of_handle("h").unwrap().len(), 2);
}

#[test]
fn a_handle_that_counts_addresses_that_are_not_there_yet_is_refused_after_a_wait() {
    differs(
        "A handle may have no more addresses, those that it counts are not there yet, and any address is asked for",
    );
    for count in [1, i64::MAX] {
        let cluster = Cluster::new(&["10.0.0.0/24"]);
        let counted = format!(r#"{{"handleID":"h","block":{{"10.0.0.0/26":{count}}},"deleted":false}}"#);
        cluster.store.put("/calico/ipam/v2/handle/h", counted);
        let error = cluster.refusal(&AutoAssign { v6: 0, ..limited(1) });
        assert!(
            error.contains("(concurrent operation in progress)"),
            "{count}: {error}"
        );
    }
}

#[test]
fn a_handle_that_counts_too_much_stays_with_what_is_left_over() {
    let cluster = Cluster::new(&["10.0.0.0/24"]);
    cluster.addresses(&wants_as("host-a", 1, "h"));
    let counted = format!(
        r#"{{"handleID":"h","block":{{"{}":3}},"deleted":false}}"#,
        cluster.block().cidr()
    );
    cluster.store.put("/calico/ipam/v2/handle/h", counted);
    cluster.release_handle("h").unwrap();
    assert_eq!(cluster.of_handle("h"), Some(Vec::new()), "as with Calico");

    differs("DEL, and the handle counts more than the blocks have");
    run(cluster.allocator().release_by_handle_fully("h")).unwrap();
    assert_eq!(cluster.of_handle("h"), None);
}
