//! The executor on real API servers, where it writes one object after another, in Calico's order.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use calipam_datastore::Datastore;
use calipam_datastore::settings::Overrides;
use calipam_datastore::write::Precondition;
use calipam_model::attributes::Attribute;
use calipam_model::edit::{BlockEdit, Edit, HandleEdit, Part, Step, Unit};
use calipam_model::key::Key;
use calipam_model::snapshot::Snapshot;
use calipam_repair::journal::Recorded;
use calipam_repair::{Event, Execution, Options, UndoPlan, execute, undo};
use calipam_testkit::kube::{Flavour, Kinds, create, lease};
use calipam_testkit::servers::KubeApiserver;
use serde_json::{Value, json};

use crate::cluster::{consent, journal_path, observe, open_by};
use crate::execute::release;

pub(crate) const GUID: &str = "0f0e1d2c";

fn resource(flavour: Flavour, kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": flavour.api_version(), "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// Creates two blocks, each with two pod addresses. The second block has no owner.
pub(crate) fn seed(server: &KubeApiserver, flavour: Flavour) {
    let add = |plural: &str, object: Value| create(server, &flavour.path(plural), &[object]).unwrap();
    let cluster = json!({"clusterGUID": GUID, "calicoVersion": "v3.32.1", "datastoreReady": true});
    add("clusterinformations", resource(flavour, "ClusterInformation", "default", cluster));
    for (number, owner) in [(0, Some("host:node-1")), (4, None)] {
        let cidr = format!("10.0.0.{number}/30");
        let record = |n: i32| {
            let id = format!("net.{number}-{n}");
            json!({"handle_id": id, "secondary": {"namespace": "default", "node": "node-1", "pod": id}})
        };
        let mut block = json!({
            "cidr": cidr, "allocations": [0, 1, null, null], "unallocated": [2, 3],
            "attributes": [record(0), record(1)], "sequenceNumber": 7,
            "sequenceNumberForAllocation": {"0": 5, "1": 6}, "deleted": false, "strictAffinity": false,
        });
        if let Some(owner) = owner {
            block["affinity"] = owner.into();
        }
        add("ipamblocks", resource(flavour, "IPAMBlock", &format!("10-0-0-{number}-30"), block));
        for n in 0..2 {
            let id = format!("net.{number}-{n}");
            let spec = json!({"handleID": id, "block": {cidr.as_str(): 1}, "deleted": false});
            add("ipamhandles", resource(flavour, "IPAMHandle", &id, spec));
        }
    }
}

pub(crate) async fn open(server: &KubeApiserver) -> Datastore {
    open_at(&server.kubeconfig()).await
}

pub(crate) async fn open_at(kubeconfig: &Path) -> Datastore {
    let overrides = Overrides {
        datastore: Some("kubernetes".into()),
        kubeconfig: Some(kubeconfig.display().to_string()),
        ..Overrides::default()
    };
    open_by(overrides).await
}

async fn run(store: &Datastore, steps: Vec<Step>, path: &Path, lock: bool) -> Execution {
    let options = Options { lock, ..Options::new("a test", path) };
    execute(store, GUID, steps, consent(GUID), &options).await.unwrap()
}

pub(crate) fn steps(snapshot: &Snapshot, ordinals: &[u32]) -> Vec<Step> {
    let absent = (Key::Pod { namespace: "default".into(), name: "gone".into() }, Precondition::Absent);
    let blocks = snapshot.blocks.iter().filter_map(|b| b.value.content.sound());
    blocks.map(|block| release(block, ordinals, vec![absent.clone()])).collect()
}

/// Values without sequence numbers and versions.
pub(crate) fn values(snapshot: &Snapshot) -> BTreeMap<String, Value> {
    let mut values = BTreeMap::new();
    for block in snapshot.blocks.iter().filter_map(|b| b.value.content.sound()) {
        let mut value = serde_json::to_value(block).unwrap();
        for field in ["sequenceNumber", "sequenceNumberForAllocation"] {
            value.as_object_mut().unwrap().remove(field);
        }
        values.insert(block.cidr().to_string(), value);
    }
    for affinity in &snapshot.affinities {
        values.insert(affinity.value.key.to_string(), serde_json::to_value(&affinity.value).unwrap());
    }
    for handle in &snapshot.handles {
        values.insert(handle.value.id().to_string(), serde_json::to_value(&handle.value).unwrap());
    }
    values
}

#[tokio::test(flavor = "multi_thread")]
async fn releases_are_made_in_order_and_undone() {
    for flavour in [Flavour::Classic, Flavour::Native] {
        let server = lease(Kinds::Calico(flavour)).unwrap();
        seed(&server, flavour);
        let store = open(&server).await;
        let folder = tempfile::tempdir().unwrap();
        let [first, second, third] = ["1", "2", "3"].map(|name| journal_path(folder.path(), name));
        let original = observe(&store).await;
        let execution = run(&store, steps(&original, &[0, 1]), &first, true).await;
        assert!(execution.is_complete(), "{flavour:?}: {execution:?}");
        let released = observe(&store).await;
        assert!(released.handles.is_empty());
        // The empty block without an owner was deleted, and the other block was kept.
        let cidrs: Vec<String> = released.blocks.iter().map(|b| b.value.key.to_string()).collect();
        assert_eq!(cidrs, ["10.0.0.0/30"]);
        assert_eq!(released.cluster.as_ref().unwrap().datastore_ready, Some(true));
        let recorded = Recorded::read(&first).unwrap();
        assert_eq!((recorded.header.datastore.as_str(), recorded.intents.len()), ("kubernetes", 6));
        for step in 0..2 {
            let of_step = recorded.intents.iter().filter(|i| i.step == step);
            let kinds: Vec<bool> = of_step.map(|i| i.changes[0].key.contains("/block/")).collect();
            assert_eq!(kinds, [true, false, false], "the block is written before its handles");
        }
        let plan = UndoPlan::new(&recorded).unwrap();
        let execution = undo(&store, &plan, consent(GUID), &Options::new("undo", &second)).await.unwrap();
        assert!(execution.is_complete(), "{flavour:?}: {execution:?}");
        let undone = observe(&store).await;
        assert_eq!(values(&undone), values(&original));
        assert!(undone.defects.is_empty(), "{:?}", undone.defects);
        // The plan of the first run is carried out again, after its addresses were assigned again.
        let execution = run(&store, steps(&original, &[0]), &third, false).await;
        assert_eq!(execution.conflicts.len(), 2, "{execution:?}");
        assert_eq!(values(&observe(&store).await), values(&original));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn others_who_write_at_the_same_time_are_not_overwritten() {
    let flavour = Flavour::Classic;
    let server = Arc::new(lease(Kinds::Calico(flavour)).unwrap());
    seed(&server, flavour);
    let store = open(&server).await;
    let folder = tempfile::tempdir().unwrap();
    let snapshot = observe(&store).await;
    let (other, path) = (Arc::clone(&server), format!("{}/10-0-0-0-30", flavour.path("ipamblocks")));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let note = Arc::clone(&seen);
    let options = Options {
        events: Arc::new(move |event| {
            let mut seen = note.lock().unwrap();
            // Another address is assigned between the intent and the first write.
            if matches!(event, Event::Intended { .. }) && !seen.iter().any(|e| e == event) {
                let response = other.request("GET", &path, "").unwrap();
                let mut block: Value = serde_json::from_str(&response.body).unwrap();
                block["spec"]["allocations"][2] = 1.into();
                block["spec"]["unallocated"] = json!([3]);
                assert_eq!(other.request("PUT", &path, &block.to_string()).unwrap().status, 200);
            }
            seen.push(event.clone());
        }),
        ..Options::new("a test", journal_path(folder.path(), "run"))
    };
    let plan = steps(&snapshot, &[0]).into_iter().take(1).collect();
    let execution = execute(&store, GUID, plan, consent(GUID), &options).await.unwrap();
    assert!(execution.is_complete(), "{execution:?}");
    assert!(seen.lock().unwrap().contains(&Event::Lost { step: 0 }));
    let snapshot = observe(&store).await;
    let block = snapshot.blocks[0].value.content.sound().unwrap();
    let taken: Vec<u32> = block.allocations().map(|a| a.ordinal).collect();
    assert_eq!((taken, block.free()), (vec![1, 2], [3, 0].as_slice()));
}

/// A handle's count is raised before its block is written. If the address is then omitted, the count is lowered again.
#[tokio::test(flavor = "multi_thread")]
async fn a_handles_count_is_lowered_if_its_address_is_omitted() {
    let flavour = Flavour::Classic;
    let server = Arc::new(lease(Kinds::Calico(flavour)).unwrap());
    seed(&server, flavour);
    let store = open(&server).await;
    let before = values(&observe(&store).await);
    let cidr = "10.0.0.0/30".parse().unwrap();
    let assign = |ordinal: u32, id: &str| {
        let record = Attribute { handle: Some(id.to_owned()), ..Attribute::default() };
        let edits = vec![
            Edit::Handle(id.into(), HandleEdit::Increment(cidr, 1)),
            Edit::Block(cidr, BlockEdit::Assign { records: vec![(ordinal, record)] }),
        ];
        let evidence = (Key::Handle(format!("marker.{ordinal}")), Precondition::Absent);
        Part { unit: Unit::Handle(id.into()), edits, evidence: vec![evidence] }
    };
    let mut step = Step::new("unallocated-in-use");
    step.parts = vec![assign(2, "net.two"), assign(3, "net.three")];

    let (other, marked) = (Arc::clone(&server), Arc::new(Mutex::new(false)));
    let options = Options {
        events: Arc::new(move |event| {
            let mut marked = marked.lock().unwrap();
            if matches!(event, Event::Written { .. }) && !*marked {
                // The owner of the second address appears after the first handle was written.
                *marked = true;
                let spec = json!({"handleID": "marker.3", "block": {}, "deleted": false});
                let marker = resource(flavour, "IPAMHandle", "marker.3", spec);
                create(&other, &flavour.path("ipamhandles"), &[marker]).unwrap();
            }
        }),
        ..Options::new("a test", journal_path(tempfile::tempdir().unwrap().path(), "run"))
    };
    std::fs::create_dir_all(options.journal.parent().unwrap()).unwrap();
    let execution = execute(&store, GUID, vec![step], consent(GUID), &options).await.unwrap();
    assert_eq!(execution.conflicts.len(), 1, "{execution:?}");
    assert_eq!(execution.conflicts[0].addresses, ["10.0.0.3".parse::<std::net::IpAddr>().unwrap()]);
    let after = values(&observe(&store).await);
    let new: Vec<&String> = after.keys().filter(|key| !before.contains_key(*key)).collect();
    assert_eq!(new, ["marker.3", "net.two"], "{execution:?}");
    assert_eq!(after["10.0.0.0/30"]["allocations"].as_array().unwrap()[3], Value::Null);
}
