//! The executor on real API servers, where it writes one object after another, in Calico's order.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use calipam_datastore::write::Precondition;
use calipam_model::attributes::Attribute;
use calipam_model::edit::{BlockEdit, Edit, HandleEdit, Part, Step, Unit};
use calipam_model::key::Key;
use calipam_model::snapshot::{DatastoreKind, Snapshot};
use calipam_repair::{Event, Options, UndoPlan};
use calipam_testkit::World;
use calipam_testkit::kube::Flavour;
use calipam_testkit::values::block;
use serde_json::{Value, json};

use crate::cluster::{Site, sound, without_numbers};
use crate::execute::release;

pub(crate) const GUID: &str = "0f0e1d2c";

/// Creates the cluster information, with which the cluster can be repaired.
pub(crate) fn put_information(world: &World) {
    let spec = json!({"clusterGUID": GUID, "calicoVersion": "v3.32.1", "datastoreReady": true});
    world.create(&Key::ClusterInformation("default".into()), &json!({"spec": spec}));
}

/// Creates a block with two addresses, and the handle of each. `record` is the record of an address.
pub(crate) fn put_block(world: &World, cidr: &str, owner: Option<&str>, record: impl Fn(usize) -> Value) {
    let records = [0, 1].map(record);
    let mut value = block(cidr, owner, records.clone());
    value["sequenceNumber"] = 7.into();
    value["sequenceNumberForAllocation"] = json!({"0": 5, "1": 6});
    world.create(&Key::Block(cidr.parse().unwrap()), &value);
    for record in records {
        let id = record["handle_id"].as_str().unwrap();
        world.create(
            &Key::Handle(id.into()),
            &json!({"block": {cidr: 1}, "deleted": false}),
        );
    }
}

/// An API server with two blocks, each with two pod addresses. The second block has no owner.
pub(crate) fn world(flavour: Flavour) -> World {
    let world = World::kubernetes(flavour);
    put_information(&world);
    for (number, owner) in [(0, Some("host:node-1")), (4, None)] {
        put_block(&world, &format!("10.0.0.{number}/30"), owner, |n| {
            let id = format!("net.{number}-{n}");
            json!({"handle_id": id, "secondary": {"namespace": "default", "node": "node-1", "pod": id}})
        });
    }
    world
}

pub(crate) fn steps(snapshot: &Snapshot, ordinals: &[u32]) -> Vec<Step> {
    let absent = (
        Key::Pod {
            namespace: "default".into(),
            name: "gone".into(),
        },
        Precondition::Absent,
    );
    sound(snapshot)
        .map(|block| release(block, ordinals, vec![absent.clone()]))
        .collect()
}

/// Values without sequence numbers and versions.
pub(crate) fn values(snapshot: &Snapshot) -> BTreeMap<String, Value> {
    let blocks = sound(snapshot).map(|block| (block.cidr().to_string(), without_numbers(json!(block))));
    let affinities = snapshot
        .affinities
        .iter()
        .map(|a| (a.value.key.to_string(), json!(a.value)));
    let handles = snapshot
        .handles
        .iter()
        .map(|h| (h.value.id().to_string(), json!(h.value)));
    blocks.chain(affinities).chain(handles).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn releases_are_made_in_order_and_undone() {
    for flavour in [Flavour::Classic, Flavour::Native] {
        let world = world(flavour);
        let site = Site::open(world.overrides()).await;
        let original = site.observe().await;
        let locking = Options {
            lock: true,
            ..site.options("1")
        };
        let execution = site.run(steps(&original, &[0, 1]), &locking).await;
        assert!(execution.is_complete(), "{flavour:?}: {execution:?}");
        let released = site.observe().await;
        assert!(released.handles.is_empty());
        // The empty block without an owner was deleted, and the other block was kept.
        let cidrs: Vec<String> = released.blocks.iter().map(|b| b.value.key.to_string()).collect();
        assert_eq!(cidrs, ["10.0.0.0/30"]);
        assert_eq!(released.cluster.as_ref().unwrap().datastore_ready, Some(true));
        let recorded = site.recorded("1");
        assert_eq!(
            (recorded.header.datastore, recorded.intents.len()),
            (DatastoreKind::Kubernetes, 6)
        );
        for step in 0..2 {
            let of_step = recorded.intents.iter().filter(|i| i.step == step);
            let kinds: Vec<bool> = of_step.map(|i| i.changes[0].key.contains("/block/")).collect();
            assert_eq!(
                kinds,
                [true, false, false],
                "the block is written before its handles"
            );
        }
        let plan = UndoPlan::new(&recorded).unwrap();
        let execution = site.undo(&plan, &site.options("2")).await;
        assert!(execution.is_complete(), "{flavour:?}: {execution:?}");
        let undone = site.observe().await;
        assert_eq!(values(&undone), values(&original));
        assert!(undone.defects.is_empty(), "{:?}", undone.defects);
        // The plan of the first run is carried out again, after its addresses were assigned again.
        let execution = site.run_as("3", steps(&original, &[0])).await;
        assert_eq!(execution.conflicts.len(), 2, "{execution:?}");
        assert_eq!(values(&site.observe().await), values(&original));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn others_who_write_at_the_same_time_are_not_overwritten() {
    let world = Arc::new(world(Flavour::Classic));
    let site = Site::open(world.overrides()).await;
    let snapshot = site.observe().await;
    let (other, key) = (Arc::clone(&world), Key::Block("10.0.0.0/30".parse().unwrap()));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let note = Arc::clone(&seen);
    let options = Options {
        events: Arc::new(move |event| {
            let mut seen = note.lock().unwrap();
            // Another address is assigned between the intent and the first write.
            if matches!(event, Event::Intended { .. }) && !seen.iter().any(|e| e == event) {
                other.edit(&key, |block| {
                    block["allocations"][2] = 1.into();
                    block["unallocated"] = json!([3]);
                });
            }
            seen.push(event.clone());
        }),
        ..site.options("run")
    };
    let plan = steps(&snapshot, &[0]).into_iter().take(1).collect();
    let execution = site.run(plan, &options).await;
    assert!(execution.is_complete(), "{execution:?}");
    assert!(seen.lock().unwrap().contains(&Event::Lost { step: 0 }));
    let snapshot = site.observe().await;
    let block = snapshot.blocks[0].value.content.sound().unwrap();
    let taken: Vec<u32> = block.allocations().map(|a| a.ordinal).collect();
    assert_eq!((taken, block.free()), (vec![1, 2], [3, 0].as_slice()));
}

/// A handle's count is raised before its block is written. If the address is then omitted, the count is lowered again.
#[tokio::test(flavor = "multi_thread")]
async fn a_handles_count_is_lowered_if_its_address_is_omitted() {
    let world = Arc::new(world(Flavour::Classic));
    let site = Site::open(world.overrides()).await;
    let before = values(&site.observe().await);
    let cidr = "10.0.0.0/30".parse().unwrap();
    let assign = |ordinal: u32, id: &str| {
        let record = Attribute {
            handle: Some(id.to_owned()),
            ..Attribute::default()
        };
        let edits = vec![
            Edit::Handle(id.into(), HandleEdit::Increment(cidr, 1)),
            Edit::Block(
                cidr,
                BlockEdit::Assign {
                    records: vec![(ordinal, record)],
                },
            ),
        ];
        let evidence = (Key::Handle(format!("marker.{ordinal}")), Precondition::Absent);
        Part {
            unit: Unit::Handle(id.into()),
            edits,
            evidence: vec![evidence].into(),
        }
    };
    let mut step = Step::new("unallocated-in-use");
    step.parts = vec![assign(2, "net.two"), assign(3, "net.three")];

    let (other, marked) = (Arc::clone(&world), Arc::new(Mutex::new(false)));
    let options = Options {
        events: Arc::new(move |event| {
            let mut marked = marked.lock().unwrap();
            if matches!(event, Event::Written { .. }) && !*marked {
                // The owner of the second address appears after the first handle was written.
                *marked = true;
                other.create(
                    &Key::Handle("marker.3".into()),
                    &json!({"block": {}, "deleted": false}),
                );
            }
        }),
        ..site.options("run")
    };
    let execution = site.run(vec![step], &options).await;
    assert_eq!(execution.conflicts.len(), 1, "{execution:?}");
    assert_eq!(
        execution.conflicts[0].addresses,
        ["10.0.0.3".parse::<std::net::IpAddr>().unwrap()]
    );
    let after = values(&site.observe().await);
    let new: Vec<&String> = after.keys().filter(|key| !before.contains_key(*key)).collect();
    assert_eq!(new, ["marker.3", "net.two"], "{execution:?}");
    assert_eq!(
        after["10.0.0.0/30"]["allocations"].as_array().unwrap()[3],
        Value::Null
    );
}
