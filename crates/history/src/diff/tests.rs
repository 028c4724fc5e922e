//! Pairs of small clusters with one difference each.

use std::collections::BTreeSet;

use calipam_check::{Code, Options, Report, check};
use calipam_model::handle::Handle;
use calipam_model::snapshot::{Coverage, ETCD_SOURCES, Snapshot, Source, WhySkipped};
use calipam_testkit::values;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Change, Difference, Scope, Side, Uncompared, align};

const BLOCK: &str = "/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-29";
const INNER: &str = "/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-30";
const POOL: &str = "/calico/resources/v3/projectcalico.org/ippools/main";

/// The record of an address and its sequence number; `None` if the address is free.
type State = Option<(Value, u64)>;

fn record(handle: &str, node: &str, pod: &str) -> Value {
    let at = "2026-05-01 10:00:00 +0000 UTC";
    json!({"handle_id": handle, "secondary": {"namespace": "ns", "node": node, "pod": pod, "timestamp": at}})
}

/// Builds a block of eight addresses. `held` has the ordinal, record and sequence number of each address that is not
/// free.
fn block(owner: &str, held: &[(usize, Value, u64)]) -> Value {
    let records = held.iter().map(|(ordinal, record, _)| (*ordinal, record.clone()));
    let mut block = values::block("10.0.0.0/29", owner, values::sparse(records));
    let sequences = held
        .iter()
        .map(|(ordinal, _, sequence)| (ordinal.to_string(), (*sequence).into()));
    block["sequenceNumberForAllocation"] = Value::Object(sequences.collect());
    block["sequenceNumber"] = 100.into();
    block
}

fn cluster(entries: &[(&str, Value)]) -> Snapshot {
    let mut snapshot = Snapshot {
        taken_at: "2026-05-02T10:00:00Z".parse().unwrap(),
        ..Snapshot::default()
    };
    let pool = json!({"metadata": {"name": "main"}, "spec": {"cidr": "10.0.0.0/24", "blockSize": 29}});
    if entries.iter().all(|(key, _)| *key != POOL) {
        snapshot.add_entry(POOL.as_bytes(), pool.to_string().as_bytes(), 1);
    }
    for (key, value) in entries {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        snapshot.add_entry(key.as_bytes(), value.as_bytes(), 2);
    }
    snapshot.mark_read(ETCD_SOURCES);
    snapshot
}

/// Compares two snapshots, and passes the difference to `look`.
fn compare<T>(old: &Snapshot, new: &Snapshot, scope: &Scope, look: impl FnOnce(&Difference<'_>) -> T) -> T {
    let report = |snapshot: &Snapshot| -> Report { check(snapshot, &Options::default()) };
    look(&super::compare(old, new, scope).checked(report(old), report(new), scope))
}

fn everything<T>(old: &Snapshot, new: &Snapshot, look: impl FnOnce(&Difference<'_>) -> T) -> T {
    compare(old, new, &Scope::default(), look)
}

/// The order of the attributes of a record depends on its writer, and says nothing.
#[test]
fn the_order_of_attributes_is_no_change() {
    let held = [(3, record("net.aaaa", "node-1", "a"), 7)];
    let text = block("host:node-1", &held).to_string();
    let pod = r#""pod":"a","#;
    let moved = text
        .replace(pod, "")
        .replace(r#""namespace":"#, &format!(r#"{pod}"namespace":"#));
    assert_ne!(moved, text);
    let of = |text: &str| cluster(&[(BLOCK, Value::String(text.to_owned()))]);
    assert_eq!(everything(&of(&text), &of(&moved), changes), []);
}

fn changes(difference: &Difference<'_>) -> Vec<(String, Change)> {
    difference
        .addresses
        .iter()
        .map(|change| (change.address.to_string(), change.change))
        .collect()
}

#[test]
fn each_change_of_an_address() {
    use Change::{Assigned, Attributes, Cooled, Moved, Passed, Released, Renewed};
    let pod = || record("net.aaaa", "node-1", "a");
    let other = || record("net.bbbb", "node-2", "b");
    let cooling = |at: &str| json!({"releasedAt": at});
    let mut migrated = pod();
    migrated["secondary"]["pod"] = "a-moved".into();
    let reserved =
        || json!({"handle_id": "windows-reserved-ipam-handle", "secondary": {"note": "windows host rsvd"}});
    let cases: [(State, State, Option<Change>); 13] = [
        (None, Some((pod(), 7)), Some(Assigned)),
        (Some((pod(), 7)), None, Some(Released)),
        (
            Some((pod(), 7)),
            Some((cooling("2026-05-01T10:00:00Z"), 8)),
            Some(Released),
        ),
        (
            Some((cooling("2026-05-01T10:00:00Z"), 8)),
            Some((pod(), 9)),
            Some(Assigned),
        ),
        (Some((pod(), 7)), Some((other(), 9)), Some(Moved)),
        (Some((pod(), 7)), Some((pod(), 9)), Some(Renewed)),
        (Some((pod(), 7)), Some((migrated, 7)), Some(Attributes)),
        (Some((pod(), 7)), Some((pod(), 7)), None),
        (None, Some((cooling("2026-05-01T10:00:00Z"), 8)), Some(Passed)),
        (Some((cooling("2026-05-01T10:00:00Z"), 8)), None, Some(Cooled)),
        // Windows reservations are created and deleted with the block.
        (None, Some((reserved(), 7)), None),
        (Some((reserved(), 7)), None, None),
        // A missing sequence number, as written by an old Calico version, is not a change.
        (Some((pod(), 0)), Some((pod(), 9)), None),
    ];
    for (before, after, expected) in cases {
        let of = |state: &State| {
            let held: Vec<_> = state
                .iter()
                .map(|(record, number)| (3, record.clone(), *number))
                .collect();
            cluster(&[(BLOCK, block("host:node-1", &held))])
        };
        let found = everything(&of(&before), &of(&after), changes);
        let expected: Vec<_> = expected
            .into_iter()
            .map(|kind| ("10.0.0.3".to_owned(), kind))
            .collect();
        assert_eq!(found, expected, "{before:?} {after:?}");
    }
}

#[test]
fn sums_count_both_nodes_of_an_address_that_moved() {
    let old = cluster(&[(
        BLOCK,
        block("host:node-1", &[(1, record("net.aaaa", "node-1", "a"), 7)]),
    )]);
    let held = [
        (1, record("net.bbbb", "node-2", "b"), 9),
        (2, record("net.cccc", "node-2", "c"), 10),
    ];
    let new = cluster(&[(BLOCK, block("host:node-1", &held))]);
    everything(&old, &new, |found| {
        let total = found.sums.total;
        assert_eq!(
            (total.before, total.after, total.assigned, total.moved),
            (1, 2, 1, 1)
        );
        let nodes = found.sums.by_node.iter();
        let nodes = nodes.map(|of| (of.name.as_str(), of.sum.before, of.sum.after, of.sum.moved));
        assert_eq!(
            nodes.collect::<Vec<_>>(),
            [("node-1", 1, 0, 1), ("node-2", 0, 2, 1)]
        );
        assert_eq!(
            (found.sums.by_pool.len(), found.sums.by_pool[0].sum.moved),
            (1, 1)
        );
    });
}

/// A record without a node counts for the owner of its block.
#[test]
fn an_address_that_moves_within_a_node_counts_once() {
    let of_node = record("net.a", "n1", "a");
    let mut of_block = record("net.b", "", "b");
    of_block["secondary"].as_object_mut().unwrap().remove("node");
    let old = cluster(&[(BLOCK, block("host:n1", &[(1, of_node, 1)]))]);
    let new = cluster(&[(BLOCK, block("host:n1", &[(1, of_block, 2)]))]);
    everything(&old, &new, |found| {
        let [node] = found.sums.by_node.as_slice() else {
            panic!("{:?}", found.sums.by_node);
        };
        assert_eq!((node.name.as_str(), node.sum.moved), ("n1", 1));
    });
}

#[test]
fn blocks_claimed_released_and_of_another_owner_or_size() {
    use Change::{Claimed, ClaimedAgain, Owner, Released, Size};
    let of = |value: Option<Value>| match value {
        Some(value) => cluster(&[(BLOCK, value)]),
        None => cluster(&[]),
    };
    let plain = || Some(block("host:node-1", &[]));
    let claimed_at = |at: &str| {
        let mut value = block("host:node-1", &[]);
        value["affinity_claim_time"] = at.into();
        Some(value)
    };
    for (before, after, expected) in [
        (None, plain(), Some(Claimed)),
        (plain(), None, Some(Released)),
        (plain(), Some(block("host:node-2", &[])), Some(Owner)),
        (
            claimed_at("2026-05-01T10:00:00Z"),
            claimed_at("2026-05-01T11:00:00Z"),
            Some(ClaimedAgain),
        ),
        (plain(), claimed_at("2026-05-01T11:00:00Z"), None),
    ] {
        let found = everything(&of(before), &of(after), |found| {
            found
                .blocks
                .iter()
                .map(|change| change.change)
                .collect::<Vec<_>>()
        });
        assert_eq!(found, expected.into_iter().collect::<Vec<_>>());
    }

    let smaller = values::block(
        "10.0.0.0/30",
        "host:node-1",
        [Value::Null, record("net.aaaa", "node-1", "a")],
    );
    let new = cluster(&[(INNER, smaller)]);
    let old = cluster(&[(
        BLOCK,
        block("host:node-1", &[(1, record("net.aaaa", "node-1", "a"), 7)]),
    )]);
    everything(&old, &new, |found| {
        assert_eq!(
            found
                .blocks
                .iter()
                .map(|change| change.change)
                .collect::<Vec<_>>(),
            [Size]
        );
        assert_eq!(
            (found.blocks[0].before.len(), found.blocks[0].after.len()),
            (1, 1)
        );
        assert!(
            found.addresses.is_empty(),
            "the address stays with its owner: {:?}",
            found.addresses
        );
    });
}

#[test]
fn undecodable_objects_are_neither_gone_nor_the_same() {
    let held = [(1, record("net.aaaa", "node-1", "a"), 7)];
    let handle = "/calico/ipam/v2/handle/net.aaaa";
    let sound = cluster(&[
        (BLOCK, block("host:node-1", &held)),
        (handle, json!({"block": {"10.0.0.0/29": 1}, "deleted": false})),
    ]);
    let mut short = block("host:node-1", &held);
    short["allocations"] = json!([0]);
    let broken = cluster(&[(BLOCK, short), (handle, "{".into())]);
    for (old, new, side) in [
        (&sound, &broken, Side::New),
        (&broken, &sound, Side::Old),
        (&broken, &broken.clone(), Side::Both),
    ] {
        everything(old, new, |found| {
            assert!(
                !found.same && found.addresses.is_empty() && found.handles.is_empty(),
                "{found:?}"
            );
            let listed = |kind: Uncompared, name: &str| {
                let mut of_kind = found.not_compared.iter().filter(|left| left.kind == kind);
                of_kind.find(|left| left.name == name).map(|left| left.side)
            };
            assert_eq!(listed(Uncompared::Object, handle), Some(side));
            // A corrupt block with the same value is unchanged.
            let block = listed(Uncompared::Block, "10.0.0.0/29");
            assert_eq!(block, (side != Side::Both).then_some(side));
        });
    }
}

#[test]
fn a_source_that_one_side_lacks_is_not_compared() {
    let handle = (
        "/calico/ipam/v2/handle/net.aaaa",
        json!({"block": {"10.0.0.0/29": 1}}),
    );
    let with = cluster(&[handle, (BLOCK, block("host:node-1", &[]))]);
    let mut without = cluster(&[(BLOCK, block("host:node-1", &[]))]);
    without
        .coverage
        .insert(Source::Handles, Coverage::Skipped(WhySkipped::NotInFile));
    everything(&with, &without, |found| {
        assert!(found.handles.is_empty());
        let left_out = &found.not_compared[0];
        let handles = (Uncompared::Source, Source::Handles.to_string(), Side::New);
        assert_eq!((left_out.kind, left_out.name.clone(), left_out.side), handles);
    });
    everything(&with, &cluster(&[(BLOCK, block("host:node-1", &[]))]), |found| {
        assert_eq!((found.handles.len(), found.handles[0].change), (1, Change::Gone));
    });
}

#[test]
fn equal_clusters_are_the_same_and_align_makes_findings_comparable() {
    let held = [(1, record("net.aaaaaaaaaaaaaaaa", "node-1", "a"), 7)];
    let mut old = cluster(&[(BLOCK, block("host:node-1", &held))]);
    let mut new = old.clone();
    everything(&old, &new, |found| {
        assert!(found.same, "{found:?}");
        assert_eq!((found.sums.total.before, found.sums.total.after), (1, 1));
        assert!(found.sums.by_node.is_empty() && found.sums.by_pool.is_empty());
    });
    // Without endpoints, no leaks are found. If only one snapshot lacks endpoints, the missing leaks must not count as
    // a difference.
    new.coverage
        .insert(Source::Endpoints, Coverage::Skipped(WhySkipped::NotInFile));
    everything(&old, &new, |found| {
        assert!(!found.findings.gone.is_empty(), "{found:?}")
    });
    align(&mut old, &mut new);
    everything(&old, &new, |found| {
        assert!(found.findings.gone.is_empty(), "{found:?}")
    });
}

#[test]
fn affinities_pools_nodes_and_settings() {
    let affinity = "/calico/ipam/v2/host/node-1/ipv4/block/10.0.0.0-29";
    let node = "/calico/resources/v3/projectcalico.org/nodes/node-1";
    let settings = "/calico/ipam/v2/config";
    let pool = |disabled: bool| json!({"metadata": {"name": "main"}, "spec": {"cidr": "10.0.0.0/24", "blockSize": 29, "disabled": disabled}});
    let old = cluster(&[
        (affinity, json!({"state": "pending"})),
        (
            node,
            json!({"metadata": {"name": "node-1"}, "spec": {"bgp": {"ipv4IPIPTunnelAddr": "10.0.0.1"}}}),
        ),
        (settings, json!({"auto_allocate_blocks": true})),
        (POOL, pool(false)),
    ]);
    let new = cluster(&[
        (affinity, json!({"state": "confirmed"})),
        (
            node,
            json!({"metadata": {"name": "node-1"}, "spec": {"bgp": {"ipv4IPIPTunnelAddr": "10.0.0.2"}}}),
        ),
        (
            settings,
            json!({"auto_allocate_blocks": true, "strict_affinity": true}),
        ),
        (POOL, pool(true)),
    ]);
    everything(&old, &new, |found| {
        let affinity = &found.affinities[0];
        let expected = (Some("pending"), Some("confirmed"));
        assert_eq!((affinity.before.as_deref(), affinity.after.as_deref()), expected);
        let field = |changes: &[super::ObjectChange]| {
            let field = &changes[0].fields[0];
            let [before, after] = [&field.before, &field.after].map(|side| side.as_deref().unwrap_or(""));
            format!("{} {before} {after}", field.field)
        };
        assert_eq!(field(&found.pools), "disabled false true");
        assert_eq!(
            field(&found.nodes),
            "spec.bgp.ipv4IPIPTunnelAddr 10.0.0.1 10.0.0.2"
        );
        assert_eq!(field(&found.configuration), "StrictAffinity false true");
    });
    let of_another = Scope::of_networks(["10.9.0.0/16".parse().unwrap()]);
    compare(&old, &new, &of_another, |found| {
        assert!(found.affinities.is_empty() && found.pools.is_empty())
    });
    let of_node = Scope::of_nodes(["node-1".to_owned()]);
    compare(&old, &new, &of_node, |found| {
        assert_eq!(
            (
                found.affinities.len(),
                found.nodes.len(),
                found.configuration.len()
            ),
            (1, 1, 0)
        );
    });
}

#[test]
fn a_scope_leaves_the_rest_out() {
    let old = cluster(&[(BLOCK, block("host:node-1", &[]))]);
    let held = [
        (1, record("net.aaaa", "node-1", "a"), 7),
        (2, record("net.bbbb", "node-2", "b"), 8),
    ];
    let handle = |id: &str| {
        (
            format!("/calico/ipam/v2/handle/{id}"),
            json!({"block": {"10.0.0.0/29": 1}}),
        )
    };
    let (one, other) = (handle("net.aaaa"), handle("net.bbbb"));
    let new = cluster(&[
        (BLOCK, block("host:node-1", &held)),
        (&one.0, one.1),
        (&other.0, other.1),
    ]);
    let shown = |scope: &Scope| {
        compare(&old, &new, scope, |found| {
            (
                changes(found).len(),
                found.handles.len(),
                found.sums.total.assigned,
            )
        })
    };
    assert_eq!(shown(&Scope::default()), (2, 2, 2));
    let of_node = Scope::of_nodes(["node-2".to_owned()]);
    assert_eq!(shown(&of_node), (1, 1, 1));
    let of_address = Scope::of_networks(["10.0.0.1/32".parse().unwrap()]);
    assert_eq!(shown(&of_address), (1, 1, 1));
}

#[test]
fn overlapping_blocks_are_compared_address_by_address() {
    let inner = values::block(
        "10.0.0.0/30",
        "host:node-2",
        [Value::Null, record("net.bbbb", "node-2", "b")],
    );
    let outer = || block("host:node-1", &[(1, record("net.aaaa", "node-1", "a"), 7)]);
    let old = cluster(&[(BLOCK, outer())]);
    let new = cluster(&[(BLOCK, outer()), (INNER, inner)]);
    let expected = vec![("10.0.0.1".to_owned(), Change::Assigned)];
    assert_eq!(everything(&old, &new, changes), expected);
    everything(&old, &new, |found| {
        assert_eq!(found.blocks.len(), 1);
        assert_eq!(
            (found.blocks[0].change, found.blocks[0].cidr.prefix_len()),
            (Change::Claimed, 30)
        );
        let codes: Vec<Code> = found.findings.new.iter().map(|finding| finding.code).collect();
        assert!(codes.contains(&Code::OverlappingBlocks), "{codes:?}");
    });
}

proptest! {
    /// Handles with the same ID are compared, whatever the order of the handles in the two snapshots.
    #[test]
    fn handles_are_matched_by_id(
        old in proptest::collection::vec((0u8..12, 1u8..3), 0..12),
        new in proptest::collection::vec((0u8..12, 1u8..3), 0..12),
    ) {
        let handles = |of: &[(u8, u8)]| {
            let mut seen = BTreeSet::new();
            let handles = of.iter().filter(|(id, _)| seen.insert(*id));
            let value = |count: &u8| json!({"block": {"10.0.0.0/29": count}});
            let entries: Vec<(String, Value)> =
                handles.map(|(id, count)| (format!("/calico/ipam/v2/handle/h{id}"), value(count))).collect();
            cluster(&entries.iter().map(|(key, value)| (key.as_str(), value.clone())).collect::<Vec<_>>())
        };
        let (old, new) = (handles(&old), handles(&new));
        let ids = |of: &Snapshot| -> Vec<(String, Handle)> {
            of.handles.iter().map(|handle| (handle.value.id().to_string(), handle.value.clone())).collect()
        };
        let (before, after) = (ids(&old), ids(&new));
        let find = |of: &[(String, Handle)], id: &str| of.iter().find(|(own, _)| own == id).map(|(_, handle)| handle.clone());
        let gone = before.iter().filter(|(id, _)| find(&after, id).is_none()).map(|(id, _)| (id.clone(), Change::Gone));
        let changed = after.iter().filter(|(id, handle)| find(&before, id).is_some_and(|before| before != *handle));
        let changed = changed.map(|(id, _)| (id.clone(), Change::Changed));
        let added = after.iter().filter(|(id, _)| find(&before, id).is_none()).map(|(id, _)| (id.clone(), Change::New));
        let expected: Vec<(String, Change)> = gone.chain(changed).chain(added).collect();
        let found = everything(&old, &new, |found| {
            found.handles.iter().map(|handle| (handle.id.to_string(), handle.change)).collect::<Vec<_>>()
        });
        prop_assert_eq!(found, expected);
    }
}
