//! Steps are carried out under their guards. A step is abandoned if one of its guards is broken. Changes that break no
//! guard do no harm.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use calipam_datastore::write::Precondition;
use calipam_model::IpNet;
use calipam_model::affinity::{Affinity, AffinityKey, AffinityState, AffinityType};
use calipam_model::attributes::Attribute;
use calipam_model::block::{Block, BlockOwner};
use calipam_model::edit::{AllocationGuard, BlockEdit, Edit, HandleEdit, Part, Step, Unit};
use calipam_model::key::Key;
use calipam_model::snapshot::Snapshot;
use calipam_model::writable::Object;
use calipam_repair::{RepairError, execute};
use calipam_testkit::datastore::consent;
use calipam_testkit::servers::{Entries, Etcd};
use serde_json::{Value, json};

use crate::cluster::{dump, sound, start};

fn held(block: &Block, ordinal: u32) -> AllocationGuard {
    AllocationGuard::new(&block.allocation(ordinal).unwrap())
}

/// The handle of a record.
fn handle_of(held: &AllocationGuard) -> String {
    held.record.as_ref().handle().unwrap().to_string()
}

/// The blocks that belong to a node and contain at least two pod addresses, with the ordinals of these addresses.
fn pod_blocks(snapshot: &Snapshot) -> Vec<(&Block, Vec<u32>)> {
    let of_pod = |block: &Block| -> Vec<u32> {
        let pods = block
            .allocations()
            .filter(|a| a.attribute.owner().get("pod").is_some());
        pods.map(|a| a.ordinal).collect()
    };
    let owned = sound(snapshot).filter(|block| block.owner().is_some());
    owned
        .map(|block| (block, of_pod(block)))
        .filter(|(_, pods)| pods.len() >= 2)
        .collect()
}

/// Returns a step that releases addresses of a block with their handles, like a step of the planner.
pub(crate) fn release(block: &Block, ordinals: &[u32], evidence: Vec<(Key, Precondition)>) -> Step {
    let mut handles: BTreeMap<String, Vec<AllocationGuard>> = BTreeMap::new();
    for held in ordinals.iter().map(|ordinal| held(block, *ordinal)) {
        handles.entry(handle_of(&held)).or_default().push(held);
    }
    let part = |(id, held): (String, Vec<AllocationGuard>)| {
        let count = held.len() as i64;
        let edits = vec![
            Edit::Block(block.cidr(), BlockEdit::Release { held, cooldown: 0 }),
            Edit::Handle(id.clone(), HandleEdit::Decrement(block.cidr(), count)),
        ];
        Part {
            unit: Unit::Handle(id),
            edits,
            evidence: evidence.clone().into(),
        }
    };
    let parts = handles.into_iter().map(part).collect();
    Step {
        reason: format!("leaked-address in {}", block.cidr()),
        parts,
    }
}

/// The keys whose value or revision differs.
fn differing(a: &Entries, b: &Entries) -> BTreeSet<String> {
    let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    keys.into_iter()
        .filter(|key| a.get(*key) != b.get(*key))
        .cloned()
        .collect()
}

fn value(entries: &Entries, key: &Key) -> Value {
    serde_json::from_slice(&entries[&key.to_string()].0).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_and_its_handles_change_and_nothing_else() {
    let (etcd, site) = start(1500).await;
    let snapshot = site.observe().await;
    let blocks = pod_blocks(&snapshot);
    let steps: Vec<Step> = blocks
        .iter()
        .map(|(block, pods)| release(block, &pods[..2], Vec::new()))
        .collect();
    let expected: BTreeSet<String> = steps
        .iter()
        .flat_map(|s| s.edits())
        .map(|edit| edit.key().to_string())
        .collect();
    let before = dump(&etcd);
    let count = steps.len();
    assert!(count > 10);
    let execution = site.run_as("first", steps.clone()).await;
    assert!(
        execution.is_complete() && execution.written == count,
        "{execution:?}"
    );
    let after = dump(&etcd);
    assert_eq!(differing(&before, &after), expected);
    for (block, pods) in &blocks {
        let value = value(&after, &Key::Block(block.cidr()));
        assert_eq!(value["sequenceNumber"], block.sequence() + 1);
        let free: Vec<u64> = value["unallocated"]
            .as_array()
            .unwrap()
            .iter()
            .map(|o| o.as_u64().unwrap())
            .collect();
        assert!(
            free.ends_with(&[u64::from(pods[0]), u64::from(pods[1])]),
            "freed ones are at the tail"
        );
    }
    // A second run of the same plan finds addresses that are free already.
    let execution = site.run_as("second", steps).await;
    // There is one conflict for each address, because each has its own handle.
    assert_eq!((execution.written, execution.conflicts.len()), (0, 2 * count));
    assert!(
        execution.conflicts[0].reason.contains("is already free"),
        "{:?}",
        execution.conflicts[0]
    );
    assert_eq!(dump(&etcd), after);
}

fn put(etcd: &Etcd, key: &Key, value: impl serde::Serialize) {
    etcd.put(&key.to_string(), serde_json::to_vec(&value).unwrap())
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_outside_of_the_plan_that_was_freed_does_no_harm() {
    let (etcd, site) = start(300).await;
    let snapshot = site.observe().await;
    let (block, pods) = pod_blocks(&snapshot)[0].clone();
    let key = Key::Block(block.cidr());
    let steps = vec![release(block, &pods[..1], Vec::new())];
    let mut meanwhile = block.clone();
    meanwhile.update(|edit| edit.release(&pods[1..2]));
    put(&etcd, &key, &meanwhile);
    let execution = site.run_as("run", steps).await;
    assert!(execution.is_complete() && execution.written == 1, "{execution:?}");
    let value = value(&dump(&etcd), &key);
    assert!(
        pods[..2]
            .iter()
            .all(|ordinal| value["allocations"][*ordinal as usize].is_null()),
        "{value}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_step_is_split_into_several_transactions() {
    let (etcd, site) = start(300).await;
    let cidr: IpNet = "10.250.0.0/23".parse().unwrap();
    let mut block = Block::new(
        cidr,
        Some(BlockOwner::Host("node-1".into())),
        "2026-05-01T10:00:00Z".parse().unwrap(),
    )
    .unwrap();
    let ordinals: Vec<u32> = (0..400).collect();
    let record = |o: u32| Attribute::new(Some(&format!("net.{o}")), [("pod", "x")]);
    block.update(|edit| {
        ordinals
            .iter()
            .for_each(|o| edit.assign(*o, &record(*o)).unwrap())
    });
    put(&etcd, &Key::Block(cidr), &block);
    let counts = json!({"block": {cidr.to_string(): 1}, "deleted": false})
        .to_string()
        .into_bytes();
    let handle = |o: &u32| (Key::Handle(format!("net.{o}")).to_string(), counts.clone());
    etcd.put_all(&ordinals.iter().map(handle).collect::<Vec<_>>())
        .unwrap();
    let evidence = (0..100)
        .map(|n| (Key::Node(format!("gone-{n}")), Precondition::Absent))
        .collect();
    let before = dump(&etcd);
    let execution = site
        .run_as("run", vec![release(&block, &ordinals, evidence)])
        .await;
    assert!(execution.is_complete(), "{execution:?}");
    let after = dump(&etcd);
    assert_eq!(before.len() - after.len(), 400, "all handles are deleted");
    let value = value(&after, &Key::Block(cidr));
    assert_eq!(
        (
            value["attributes"].as_array().unwrap().len(),
            differing(&before, &after).len()
        ),
        (0, 401)
    );
    // 28 changes fit next to 100 pieces of evidence: the block and 27 handles.
    assert_eq!(value["sequenceNumber"], block.sequence() + 400u64.div_ceil(27));
}

#[tokio::test(flavor = "multi_thread")]
async fn affinities_and_owners_change_together() {
    let (etcd, site) = start(300).await;
    let snapshot = site.observe().await;
    let is_settled = |a: &Affinity| a.key.kind == AffinityType::Host && a.state == AffinityState::Confirmed;
    let affinity = snapshot.affinities.iter().find(|a| is_settled(&a.value)).unwrap();
    let (key, revision) = (&affinity.value.key, &affinity.revision);
    let block = sound(&snapshot).find(|block| block.cidr() == key.cidr).unwrap();
    let host = |node: &str| Some(BlockOwner::Host(node.into()));
    let moved = AffinityKey {
        node: "node-new".into(),
        ..key.clone()
    };
    let created = Affinity::new(moved.clone(), AffinityState::Confirmed);
    let step = |from: Option<BlockOwner>| {
        let mut step = Step::new("a move");
        let owner = |from, to| Edit::Block(block.cidr(), BlockEdit::Owner { from, to });
        step.whole().edits = vec![
            Edit::Affinity(
                key.clone().into(),
                revision.clone(),
                AffinityState::PendingDeletion,
            ),
            owner(from, None),
            Edit::Delete(Key::Affinity(key.clone()), revision.clone()),
            owner(None, host("node-new")),
            Edit::Create(
                Key::Affinity(moved.clone()),
                Box::new(Object::Affinity(created.clone())),
            ),
        ];
        step
    };
    let before = dump(&etcd);
    let execution = site.run_as("first", vec![step(host("somebody"))]).await;
    assert_eq!(execution.conflicts.len(), 1, "{execution:?}");
    assert_eq!(dump(&etcd), before);
    let execution = site.run_as("second", vec![step(host(&key.node))]).await;
    assert!(execution.is_complete(), "{execution:?}");
    let after = dump(&etcd);
    assert_eq!(differing(&before, &after).len(), 3);
    assert!(!after.contains_key(&Key::Affinity(key.clone()).to_string()));
    assert_eq!(
        value(&after, &Key::Block(block.cidr()))["affinity"],
        "host:node-new"
    );
    assert_eq!(value(&after, &Key::Affinity(moved))["state"], "confirmed");
}

#[tokio::test]
async fn steps_for_another_cluster_are_refused() {
    let (etcd, site) = start(300).await;
    let before = dump(&etcd);
    let snapshot = site.observe().await;
    let blocks = pod_blocks(&snapshot);
    let steps = vec![release(blocks[0].0, &blocks[0].1[..1], Vec::new())];
    let options = site.options("run");
    let error = execute(&site.store, "another", steps, consent("another"), &options)
        .await
        .unwrap_err();
    assert!(
        matches!(error, RepairError::OtherCluster { what: "plan", .. }),
        "{error}"
    );
    assert!(!options.journal.exists());
    assert_eq!(dump(&etcd), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handle_with_addresses_in_two_blocks_is_released_completely_or_not_at_all() {
    for (second_changed, freed) in [(false, true), (true, false)] {
        let (etcd, site) = start(300).await;
        let snapshot = site.observe().await;
        let blocks = pod_blocks(&snapshot);
        let [(a, of_a), (b, of_b)] = &blocks[..2] else {
            panic!()
        };
        // The first address of the second block gets the handle of the first address of the first block.
        let record = held(a, of_a[0]).record.as_ref().to_attribute();
        let mut second = (*b).clone();
        second
            .update(|edit| edit.set_attribute(of_b[0], &record))
            .unwrap();
        put(&etcd, &Key::Block(second.cidr()), &second);
        let id = record.handle.clone().unwrap();
        let counts = json!({a.cidr().to_string(): 1, b.cidr().to_string(): 1});
        put(
            &etcd,
            &Key::Handle(id.clone()),
            json!({"block": counts, "deleted": false}),
        );
        let steps = vec![
            release(a, &of_a[..2], Vec::new()),
            release(&second, &of_b[..2], Vec::new()),
        ];
        if second_changed {
            let mut reassigned = second.clone();
            reassigned.update(|edit| edit.release(&of_b[..1]));
            reassigned.update(|edit| edit.assign(of_b[0], &record)).unwrap();
            put(&etcd, &Key::Block(reassigned.cidr()), &reassigned);
        }
        let execution = site.run_as("run", steps).await;
        assert_eq!(execution.is_complete(), freed, "{execution:?}");
        assert_eq!(
            execution.conflicts.len(),
            if freed { 0 } else { 2 },
            "{execution:?}"
        );
        let after = dump(&etcd);
        for (block, ordinals) in [(*a, of_a), (*b, of_b)] {
            let value = value(&after, &Key::Block(block.cidr()));
            let is_free = |ordinal: u32| value["allocations"][ordinal as usize].is_null();
            assert_eq!(
                (is_free(ordinals[0]), is_free(ordinals[1])),
                (freed, true),
                "{execution:?}"
            );
        }
        assert_eq!(after.contains_key(&Key::Handle(id).to_string()), !freed);
    }
}

/// A slow CNI ADD has written its handle, which looks like an orphan. The ADD writes the block before the repair
/// deletes the handle.
#[tokio::test]
async fn a_handle_whose_block_records_it_meanwhile_stays() {
    let (etcd, site) = start(300).await;
    let snapshot = site.observe().await;
    let (block, ordinals) = pod_blocks(&snapshot)[0].clone();
    let id = block
        .handles()
        .find(|(ordinal, _)| *ordinal == ordinals[0])
        .unwrap()
        .1
        .to_string();
    let handle = snapshot
        .handles
        .iter()
        .find(|handle| handle.value.id().to_string() == id)
        .unwrap();
    let step = |wanted: RangeInclusive<usize>, edit: Edit| {
        let mut step = Step::new("orphan-handle");
        step.whole().edits.push(edit);
        step.whole().evidence = vec![(
            Key::Block(block.cidr()),
            Precondition::Records(id.clone(), wanted),
        )]
        .into();
        step
    };
    let before = dump(&etcd);
    let delete = || Edit::Delete(Key::Handle(id.clone()), handle.revision.clone());
    let execution = site.run_as("first", vec![step(0..=0, delete())]).await;
    assert_eq!(
        (execution.written, execution.conflicts.len()),
        (0, 1),
        "{execution:?}"
    );
    let says = "records more addresses under the handle";
    assert!(execution.conflicts[0].reason.contains(says), "{execution:?}");
    assert_eq!(dump(&etcd), before);
    // A write of the block that keeps the handle's records does no harm. A deleted block records nothing, so the guard
    // is broken.
    let key = Key::Block(block.cidr()).to_string();
    etcd.put(&key, before[&key].0.clone()).unwrap();
    let execution = site.run_as("second", vec![step(1..=1, delete())]).await;
    assert!(execution.is_complete(), "{execution:?}");
    etcd.delete(&key).unwrap();
    let create = Edit::Create(
        Key::Handle(id.clone()),
        Box::new(Object::Handle(handle.value.clone())),
    );
    let execution = site.run_as("third", vec![step(1..=1, create)]).await;
    assert_eq!(execution.conflicts.len(), 1, "{execution:?}");
}
