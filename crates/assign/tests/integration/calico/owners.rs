//! The owners of assigned addresses: reading and changing them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use calipam_assign::{AutoAssign, Error, Expected, NewOwner, OwnerAttributes, PodName};

use super::rows;
use crate::cluster::{Cluster, ip, wants, wants_as};
use crate::run;

const HANDLE: &str = "vmi-handle";

/// The attributes of a pod `pod-NAME` in the namespace `ns-NAME`.
fn attributes(name: &str) -> OwnerAttributes {
    let entries = [
        ("pod", format!("pod-{name}")),
        ("namespace", format!("ns-{name}")),
    ];
    entries.map(|(key, value)| (key.to_owned(), value)).into()
}

fn set(name: &str) -> NewOwner {
    NewOwner::Set(attributes(name))
}

fn pod(name: &str) -> Expected {
    Expected::Pod(PodName {
        namespace: format!("ns-{name}"),
        name: format!("pod-{name}"),
    })
}

/// Assigns an address to a handle, and sets its active and alternate owners.
fn owned(before: [Option<&str>; 2]) -> (Cluster, IpAddr) {
    let cluster = Cluster::new(&["10.0.0.0/24"]);
    let address = cluster.addresses(&wants_as("host-a", 1, HANDLE))[0];
    let owners = before.map(|name| name.map_or(NewOwner::Keep, set));
    cluster.set_owners(address, HANDLE, owners, [Any, Any]).unwrap();
    (cluster, address)
}

/// The active and alternate owners of an address, which have no attributes if there are none.
fn owners(cluster: &Cluster, address: IpAddr) -> [OwnerAttributes; 2] {
    let record = run(cluster.allocator().assignment_attributes(address)).unwrap();
    [record.owner, record.alternate].map(Option::unwrap_or_default)
}

/// Changes an address's owners under conditions. Expects the new owners, or an error and the old owners if a condition
/// is not met.
fn changed(
    before: [Option<&str>; 2],
    owners_set: [NewOwner; 2],
    conditions: [Expected; 2],
    after: Result<[Option<&str>; 2], ()>,
) {
    let (cluster, address) = owned(before);
    let result = cluster.set_owners(address, HANDLE, owners_set, conditions);
    match (&result, after) {
        (Ok(()), Ok(_)) | (Err(Error::Changed(_)), Err(())) => {}
        _ => panic!("{result:?}"),
    }
    let expected = after
        .unwrap_or(before)
        .map(|name| name.map(attributes).unwrap_or_default());
    assert_eq!(owners(&cluster, address), expected);
    assert_eq!(cluster.of_handle(HANDLE), Some(vec![address]));
}

use Expected::{Any, None as Nobody};
use NewOwner::{Clear, Keep};

const NONE: [Option<&str>; 2] = [None, None];
const A: [Option<&str>; 2] = [Some("a"), None];
const B: [Option<&str>; 2] = [None, Some("b")];
const BOTH: [Option<&str>; 2] = [Some("a"), Some("b")];

rows! { changed:
    the_active_owner_is_set(NONE, [set("a"), Keep], [Any, Any], Ok(A));
    the_alternate_owner_is_set(NONE, [Keep, set("b")], [Any, Any], Ok(B));
    both_owners_are_set_at_once(NONE, [set("a"), set("b")], [Any, Any], Ok(BOTH));
    the_active_owner_is_cleared(A, [Clear, Keep], [Any, Any], Ok(NONE));
    the_alternate_owner_is_cleared(B, [Keep, Clear], [Any, Any], Ok(NONE));
    both_owners_are_cleared_at_once(BOTH, [Clear, Clear], [Any, Any], Ok(NONE));
    the_active_owner_is_replaced(A, [set("c"), Keep], [Any, Any], Ok([Some("c"), None]));
    the_alternate_owner_stays_if_the_active_one_is_replaced(BOTH, [set("c"), Keep], [Any, Any], Ok([Some("c"), Some("b")]));
    the_active_owner_stays_if_the_alternate_one_is_replaced(BOTH, [Keep, set("c")], [Any, Any], Ok([Some("a"), Some("c")]));
    the_active_owner_is_the_expected_one(A, [Clear, Keep], [pod("a"), Any], Ok(NONE));
    the_active_owner_is_another_one(A, [Clear, Keep], [pod("c"), Any], Err(()));
    the_alternate_owner_is_the_expected_one(B, [Keep, Clear], [Any, pod("b")], Ok(NONE));
    the_alternate_owner_is_another_one(B, [Keep, Clear], [Any, pod("c")], Err(()));
    there_is_no_active_owner_as_expected(NONE, [set("a"), Keep], [Nobody, Any], Ok(A));
    there_is_an_active_owner_unexpectedly(A, [set("c"), Keep], [Nobody, Any], Err(()));
    there_is_no_alternate_owner_as_expected(NONE, [Keep, set("b")], [Any, Nobody], Ok(B));
    there_is_an_alternate_owner_unexpectedly(B, [Keep, set("c")], [Any, Nobody], Err(()));
    both_owners_are_the_expected_ones(BOTH, [Clear, Clear], [pod("a"), pod("b")], Ok(NONE));
    one_of_both_owners_is_another_one_and_neither_changes(BOTH, [Clear, Clear], [pod("a"), pod("c")], Err(()));
    nothing_is_changed_if_both_are_kept(A, [Keep, Keep], [Any, Any], Ok(A));
    the_condition_of_an_owner_that_is_kept_is_ignored(BOTH, [Keep, Clear], [pod("c"), pod("b")], Ok(A));
}

#[test]
fn the_owners_of_an_address_change_in_a_live_migration() {
    let (cluster, address) = owned(A);
    let steps = [
        ([Keep, set("b")], [Any, Nobody], BOTH),
        ([set("b"), Clear], [pod("a"), pod("b")], [Some("b"), None]),
        ([Clear, Keep], [pod("b"), Any], NONE),
    ];
    for (set, conditions, after) in steps {
        cluster.set_owners(address, HANDLE, set, conditions).unwrap();
        let expected = after.map(|name| name.map(attributes).unwrap_or_default());
        assert_eq!(owners(&cluster, address), expected);
    }
}

/// Tries to change the owners of an address, and expects an error.
fn refused(address: Option<&str>, handle: &str, expected: &str) {
    let (cluster, held) = owned(NONE);
    let address = address.map_or(held, ip);
    let error = cluster
        .set_owners(address, handle, [set("a"), Keep], [Any, Any])
        .unwrap_err()
        .to_string();
    assert_eq!(error, expected.replace("HELD", &held.to_string()));
}

rows! { refused:
    the_address_is_of_another_handle(None, "other", "IP HELD is not assigned to handle other");
    the_address_is_in_no_pool(Some("192.168.99.99"), HANDLE, "the provided IP address 192.168.99.99 is not in a configured pool");
}

#[test]
fn an_address_that_is_not_allocated_has_no_owners_to_change() {
    let (cluster, held) = owned(NONE);
    cluster.release_all(&[held]);
    let error = cluster
        .set_owners(held, HANDLE, [set("a"), Keep], [Any, Any])
        .unwrap_err();
    assert!(matches!(error, Error::NotAssigned(_)), "{error}");
}

#[test]
fn the_handle_and_attributes_of_an_address_are_read() {
    let cluster = Cluster::new(&["10.0.0.0/24"]);
    let owner = BTreeMap::from([
        ("pod".to_owned(), "p".to_owned()),
        ("note".to_owned(), "x".to_owned()),
    ]);
    let request = AutoAssign {
        attributes: Some(owner.clone()),
        ..wants_as("host-a", 1, "h")
    };
    let address = cluster.addresses(&request)[0];
    let record = run(cluster.allocator().assignment_attributes(address)).unwrap();
    assert_eq!((record.handle.as_deref(), record.owner), (Some("h"), Some(owner)));
    let without = cluster.addresses(&wants("host-a", 1))[0];
    assert_eq!(
        run(cluster.allocator().assignment_attributes(without))
            .unwrap()
            .handle,
        None
    );
}

/// Tries to read the record of an address, and expects an error.
fn not_recorded(has_pool: bool, has_block: bool, expected: &str) {
    let cluster = Cluster::new(if has_pool { &["10.0.0.0/24"] } else { &[] });
    if has_block {
        cluster.assign(&crate::cluster::given("10.0.0.9")).unwrap();
    }
    let error = run(cluster.allocator().assignment_attributes(ip("10.0.0.1")))
        .unwrap_err()
        .to_string();
    assert_eq!(error, expected);
}

rows! { not_recorded:
    an_address_in_no_pool_has_no_record(false, false, "resource does not exist: 10.0.0.1 with error: No valid IPPool");
    an_address_in_no_block_has_no_record(true, false, "resource does not exist: BlockKey(cidr=10.0.0.0/26) with error: <nil>");
    an_address_that_is_free_has_no_record(true, true, "resource does not exist: 10.0.0.1 with error: IP is unassigned");
}
