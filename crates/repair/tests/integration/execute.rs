//! Steps are carried out under their guards. A step is abandoned if one of its guards is broken. Changes that break no
//! guard do no harm.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use calipam_datastore::Datastore;
use calipam_datastore::write::Precondition;
use calipam_model::IpNet;
use calipam_model::affinity::{AffinityKey, AffinityState, AffinityType};
use calipam_model::attributes::Attribute;
use calipam_model::block::{Block, BlockOwner};
use calipam_model::edit::{AllocationGuard, BlockEdit, Edit, HandleEdit, Part, Step, Unit};
use calipam_model::key::Key;
use calipam_model::snapshot::Snapshot;
use calipam_model::writable::Object;
use calipam_repair::{Execution, Options, RepairError, execute};
use calipam_testkit::servers::Etcd;

use crate::cluster::{Entries, consent, dump, guid, journal_path, new_journal, observe, start};

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
        let pods = block.allocations().filter(|a| a.attribute.owner().get("pod").is_some());
        pods.map(|a| a.ordinal).collect()
    };
    let sound = snapshot.blocks.iter().filter_map(|b| b.value.content.sound());
    sound.filter(|b| b.owner().is_some()).map(|b| (b, of_pod(b))).filter(|(_, o)| o.len() >= 2).collect()
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
        Part { unit: Unit::Handle(id), edits, evidence: evidence.clone() }
    };
    let parts = handles.into_iter().map(part).collect();
    Step { reason: format!("leaked-address in {}", block.cidr()), parts }
}

async fn run(store: &Datastore, steps: Vec<Step>) -> Execution {
    let folder = tempfile::tempdir().unwrap();
    let cluster = guid(store).await;
    let options = Options::new("a test", journal_path(folder.path(), "run"));
    execute(store, &cluster, steps, consent(&cluster), &options).await.unwrap()
}

/// The keys whose value or revision differs.
fn differing(a: &Entries, b: &Entries) -> BTreeSet<String> {
    let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    keys.into_iter().filter(|key| a.get(*key) != b.get(*key)).cloned().collect()
}

fn json(entries: &Entries, key: &Key) -> serde_json::Value {
    serde_json::from_slice(&entries[&key.to_string()].0).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_and_its_handles_change_and_nothing_else() {
    let (etcd, store) = start(1500).await;
    let snapshot = observe(&store).await;
    let blocks = pod_blocks(&snapshot);
    let steps: Vec<Step> =
        blocks.iter().map(|(block, pods)| release(block, &pods[..2], Vec::new())).collect();
    let expected: BTreeSet<String> =
        steps.iter().flat_map(|s| s.edits()).map(|edit| edit.key().to_string()).collect();
    let before = dump(&etcd).await;
    let count = steps.len();
    assert!(count > 10);
    let execution = run(&store, steps.clone()).await;
    assert!(execution.is_complete() && execution.written == count, "{execution:?}");
    let after = dump(&etcd).await;
    assert_eq!(differing(&before, &after), expected);
    for (block, pods) in &blocks {
        let value = json(&after, &Key::Block(block.cidr()));
        assert_eq!(value["sequenceNumber"], block.sequence() + 1);
        let free: Vec<u64> =
            value["unallocated"].as_array().unwrap().iter().map(|o| o.as_u64().unwrap()).collect();
        assert!(free.ends_with(&[u64::from(pods[0]), u64::from(pods[1])]), "freed ones are at the tail");
    }
    // A second run of the same plan finds addresses that are free already.
    let execution = run(&store, steps).await;
    // There is one conflict for each address, because each has its own handle.
    assert_eq!((execution.written, execution.conflicts.len()), (0, 2 * count));
    assert!(execution.conflicts[0].reason.contains("is already free"), "{:?}", execution.conflicts[0]);
    assert_eq!(dump(&etcd).await, after);
}

/// A change between plan and execution, and whether it breaks the guards of the release. The module `meanwhile` tests
/// more changes, on every datastore.
struct Meanwhile {
    what: &'static str,
    breaks: bool,
}

async fn put(etcd: &Etcd, key: &Key, value: String) {
    etcd.client().await.unwrap().put(key.to_string(), value, None).await.unwrap();
}

/// Performs the change of a case. Returns `None` after the last case.
async fn meanwhile(case: usize, etcd: &Etcd, block: &Block, pods: &[u32], node: &Key) -> Option<Meanwhile> {
    let key = Key::Block(block.cidr());
    let edited = |edit: &dyn Fn(&mut Block)| {
        let mut block = block.clone();
        edit(&mut block);
        serde_json::to_string(&block).unwrap()
    };
    let record = |ordinal: u32| held(block, ordinal).record.as_ref().to_attribute();
    let handle = Key::Handle(record(pods[0]).handle.unwrap());
    let (what, breaks) = match case {
        0 => {
            let other = Attribute::new(Some("k8s-pod-network.other"), [("pod", "other")]);
            put(etcd, &key, edited(&|b| b.update(|e| e.set_attribute(pods[0], &other)).unwrap())).await;
            ("the address has another record", true)
        }
        1 => {
            put(etcd, &key, edited(&|b| drop(b.update(|e| e.release(&pods[1..2]))))).await;
            ("another address of the block was freed", false)
        }
        2 => {
            put(etcd, &key, r#"{"cidr":"10.0.0.0/26","allocations":[1]}"#.into()).await;
            ("the block is corrupt", true)
        }
        3 => {
            let value = format!(r#"{{"block":{{"{}":1,"10.99.0.0/26":3}},"deleted":false}}"#, block.cidr());
            put(etcd, &handle, value).await;
            ("the handle counts another block as well", false)
        }
        4 => {
            put(etcd, node, r#"{"kind":"Node","metadata":{"name":"x"},"spec":{}}"#.into()).await;
            ("the node of the evidence was written", true)
        }
        5 => {
            etcd.client().await.unwrap().delete(node.to_string(), None).await.unwrap();
            ("the node of the evidence is gone", true)
        }
        _ => return None,
    };
    Some(Meanwhile { what, breaks })
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_between_plan_and_execution() {
    for case in 0.. {
        let (etcd, store) = start(300).await;
        let snapshot = observe(&store).await;
        let blocks = pod_blocks(&snapshot);
        let (block, pods) = &blocks[0];
        let node = &snapshot.nodes[0];
        let node_key = Key::Node(node.value.name.clone());
        let endpoint = Key::Endpoint { namespace: "ns".into(), name: "node-k8s-pod-eth0".into() };
        let evidence = vec![
            (node_key.clone(), Precondition::At(node.revision.clone())),
            (endpoint.clone(), Precondition::Absent),
        ];
        let (other, other_pods) = &blocks[1];
        let steps = vec![release(block, &pods[..1], evidence), release(other, &other_pods[..1], Vec::new())];
        let Some(Meanwhile { what, breaks }) = meanwhile(case, &etcd, block, pods, &node_key).await else {
            assert_eq!(case, 6);
            return;
        };
        let before = dump(&etcd).await;
        let execution = run(&store, steps.clone()).await;
        let after = dump(&etcd).await;
        let changed = differing(&before, &after);
        // The other step is carried out in any case.
        assert!(changed.contains(&Key::Block(other.cidr()).to_string()), "{what}");
        let touched = steps[0].edits().any(|edit| changed.contains(&edit.key().to_string()));
        assert_eq!(touched, !breaks, "{what}: {changed:?}");
        assert_eq!(execution.conflicts.len(), usize::from(breaks), "{what}: {execution:?}");
        if !breaks {
            let value = json(&after, &Key::Block(block.cidr()));
            assert_eq!(value["allocations"][pods[0] as usize], serde_json::Value::Null, "{what}");
        }
        if case == 3 {
            let handle = handle_of(&held(block, pods[0]));
            assert_eq!(json(&after, &Key::Handle(handle))["block"], serde_json::json!({"10.99.0.0/26": 3}));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_step_is_split_into_several_transactions() {
    let (etcd, store) = start(300).await;
    let cidr: IpNet = "10.250.0.0/23".parse().unwrap();
    let mut block =
        Block::new(cidr, Some(BlockOwner::Host("node-1".into())), "2026-05-01T10:00:00Z".parse().unwrap())
            .unwrap();
    let ordinals: Vec<u32> = (0..400).collect();
    let record = |o: u32| Attribute::new(Some(&format!("net.{o}")), [("pod", "x")]);
    block.update(|edit| ordinals.iter().for_each(|o| edit.assign(*o, &record(*o)).unwrap()));
    put(&etcd, &Key::Block(cidr), serde_json::to_string(&block).unwrap()).await;
    for o in &ordinals {
        let value = format!(r#"{{"block":{{"{cidr}":1}},"deleted":false}}"#);
        put(&etcd, &Key::Handle(format!("net.{o}")), value).await;
    }
    let evidence = (0..100).map(|n| (Key::Node(format!("gone-{n}")), Precondition::Absent)).collect();
    let before = dump(&etcd).await;
    let execution = run(&store, vec![release(&block, &ordinals, evidence)]).await;
    assert!(execution.is_complete(), "{execution:?}");
    let after = dump(&etcd).await;
    assert_eq!(before.len() - after.len(), 400, "all handles are deleted");
    let value = json(&after, &Key::Block(cidr));
    assert_eq!((value["attributes"].as_array().unwrap().len(), differing(&before, &after).len()), (0, 401));
    // 28 changes fit next to 100 pieces of evidence: the block and 27 handles.
    assert_eq!(value["sequenceNumber"], block.sequence() + 400u64.div_ceil(27));
}

#[tokio::test(flavor = "multi_thread")]
async fn affinities_and_owners_change_together() {
    let (etcd, store) = start(300).await;
    let snapshot = observe(&store).await;
    let affinity = snapshot
        .affinities
        .iter()
        .find(|a| a.value.key.kind == AffinityType::Host && a.value.state == AffinityState::Confirmed)
        .unwrap();
    let block = snapshot
        .blocks
        .iter()
        .filter_map(|b| b.value.content.sound())
        .find(|b| b.cidr() == affinity.value.key.cidr)
        .unwrap();
    let owner = Some(BlockOwner::Host(affinity.value.key.node.clone()));
    let moved = AffinityKey { node: "node-new".into(), ..affinity.value.key.clone() };
    let created = calipam_model::affinity::Affinity::new(moved.clone(), AffinityState::Confirmed);
    let step = |from: Option<BlockOwner>| {
        let mut step = Step::new("a move");
        step.whole().edits = vec![
            Edit::Affinity(
                affinity.value.key.clone().into(),
                affinity.revision.clone(),
                AffinityState::PendingDeletion,
            ),
            Edit::Block(block.cidr(), BlockEdit::Owner { from, to: None }),
            Edit::Delete(Key::Affinity(affinity.value.key.clone()), affinity.revision.clone()),
            Edit::Block(
                block.cidr(),
                BlockEdit::Owner { from: None, to: Some(BlockOwner::Host("node-new".into())) },
            ),
            Edit::Create(Key::Affinity(moved.clone()), Box::new(Object::Affinity(created.clone()))),
        ];
        step
    };
    let before = dump(&etcd).await;
    let execution = run(&store, vec![step(Some(BlockOwner::Host("somebody".into())))]).await;
    assert_eq!(execution.conflicts.len(), 1, "{execution:?}");
    assert_eq!(dump(&etcd).await, before);
    let execution = run(&store, vec![step(owner)]).await;
    assert!(execution.is_complete(), "{execution:?}");
    let after = dump(&etcd).await;
    assert_eq!(differing(&before, &after).len(), 3);
    assert!(!after.contains_key(&Key::Affinity(affinity.value.key.clone()).to_string()));
    assert_eq!(json(&after, &Key::Block(block.cidr()))["affinity"], "host:node-new");
    assert_eq!(json(&after, &Key::Affinity(moved))["state"], "confirmed");
}

#[tokio::test]
async fn steps_for_another_cluster_are_refused() {
    let (etcd, store) = start(300).await;
    let before = dump(&etcd).await;
    let snapshot = observe(&store).await;
    let blocks = pod_blocks(&snapshot);
    let steps = vec![release(blocks[0].0, &blocks[0].1[..1], Vec::new())];
    let (_folder, path) = new_journal("run");
    let options = Options::new("a test", &path);
    let error = execute(&store, "another", steps, consent("another"), &options).await.unwrap_err();
    assert!(matches!(error, RepairError::OtherCluster { what: "plan", .. }), "{error}");
    assert!(!path.exists());
    assert_eq!(dump(&etcd).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handle_with_addresses_in_two_blocks_is_released_completely_or_not_at_all() {
    for (second_changed, freed) in [(false, true), (true, false)] {
        let (etcd, store) = start(300).await;
        let snapshot = observe(&store).await;
        let blocks = pod_blocks(&snapshot);
        let [(a, of_a), (b, of_b)] = &blocks[..2] else { panic!() };
        // The first address of the second block gets the handle of the first address of the first block.
        let record = held(a, of_a[0]).record.as_ref().to_attribute();
        let mut second = (*b).clone();
        second.update(|edit| edit.set_attribute(of_b[0], &record)).unwrap();
        put(&etcd, &Key::Block(second.cidr()), serde_json::to_string(&second).unwrap()).await;
        let id = record.handle.clone().unwrap();
        let counts = format!(r#"{{"block":{{"{}":1,"{}":1}},"deleted":false}}"#, a.cidr(), b.cidr());
        put(&etcd, &Key::Handle(id.clone()), counts).await;
        let steps = vec![release(a, &of_a[..2], Vec::new()), release(&second, &of_b[..2], Vec::new())];
        if second_changed {
            let mut anew = second.clone();
            anew.update(|edit| edit.release(&of_b[..1]));
            anew.update(|edit| edit.assign(of_b[0], &record)).unwrap();
            put(&etcd, &Key::Block(anew.cidr()), serde_json::to_string(&anew).unwrap()).await;
        }
        let execution = run(&store, steps).await;
        assert_eq!(execution.is_complete(), freed, "{execution:?}");
        assert_eq!(execution.conflicts.len(), if freed { 0 } else { 2 }, "{execution:?}");
        let after = dump(&etcd).await;
        for (block, ordinals) in [(*a, of_a), (*b, of_b)] {
            let value = json(&after, &Key::Block(block.cidr()));
            let is_free = |ordinal: u32| value["allocations"][ordinal as usize].is_null();
            assert_eq!((is_free(ordinals[0]), is_free(ordinals[1])), (freed, true), "{execution:?}");
        }
        assert_eq!(after.contains_key(&Key::Handle(id).to_string()), !freed);
    }
}

/// A slow CNI ADD has written its handle, which looks like an orphan. The ADD writes the block before the repair
/// deletes the handle.
#[tokio::test]
async fn a_handle_whose_block_records_it_meanwhile_stays() {
    let (etcd, store) = start(300).await;
    let snapshot = observe(&store).await;
    let (block, ordinals) = pod_blocks(&snapshot)[0].clone();
    let id = block.handles().find(|(ordinal, _)| *ordinal == ordinals[0]).unwrap().1.to_string();
    let handle = snapshot.handles.iter().find(|handle| handle.value.id().to_string() == id).unwrap();
    let step = |wanted: RangeInclusive<usize>, edit: Edit| {
        let mut step = Step::new("orphan-handle");
        step.whole().edits.push(edit);
        step.whole().evidence = vec![(Key::Block(block.cidr()), Precondition::Records(id.clone(), wanted))];
        step
    };
    let before = dump(&etcd).await;
    let delete = || Edit::Delete(Key::Handle(id.clone()), handle.revision.clone());
    let execution = run(&store, vec![step(0..=0, delete())]).await;
    assert_eq!((execution.written, execution.conflicts.len()), (0, 1), "{execution:?}");
    let says = "records more addresses under the handle";
    assert!(execution.conflicts[0].reason.contains(says), "{execution:?}");
    assert_eq!(dump(&etcd).await, before);
    // A write of the block that keeps the handle's records does no harm. A deleted block records nothing, so the guard
    // is broken.
    let key = Key::Block(block.cidr()).to_string();
    let mut client = etcd.client().await.unwrap();
    client.put(key.as_str(), before[&key].0.clone(), None).await.unwrap();
    let execution = run(&store, vec![step(1..=1, delete())]).await;
    assert!(execution.is_complete(), "{execution:?}");
    client.delete(key.as_str(), None).await.unwrap();
    let create = Edit::Create(Key::Handle(id.clone()), Box::new(Object::Handle(handle.value.clone())));
    let execution = run(&store, vec![step(1..=1, create)]).await;
    assert_eq!(execution.conflicts.len(), 1, "{execution:?}");
}
