//! Calico's operations change one key after another (facts 3.14). No finding about a state between two writes is left
//! once the next write is seen.

use std::collections::BTreeMap;

use calipam_model::key::{ENDPOINT_PREFIX, RESOURCE_PREFIX};
use calipam_model::snapshot::{ETCD_SOURCES, Snapshot};
use calipam_testkit::values;
use serde_json::{Value, json};

use crate::test_cluster::pod;
use crate::{Options, check, drop_changed};

const BLOCK: &str = "/calico/ipam/v2/assignment/ipv4/block/10.244.1.0-30";
const AFFINITY: &str = "/calico/ipam/v2/host/node-1/ipv4/block/10.244.1.0-30";
const HANDLE: &str = "/calico/ipam/v2/handle/k8s-pod-network.web-0";

/// A datastore in which every write has a revision.
#[derive(Clone, Default)]
struct Store {
    entries: BTreeMap<String, (Value, i64)>,
    revision: i64,
}

impl Store {
    fn new() -> Self {
        let mut store = Self::default();
        let pool = json!({"spec": {"cidr": "10.244.0.0/16", "blockSize": 30}});
        store.put(&format!("{RESOURCE_PREFIX}ippools/default"), pool);
        store.put(&format!("{RESOURCE_PREFIX}nodes/node-1"), json!({}));
        let information = json!({"spec": {"datastoreReady": true}});
        store.put(
            &format!("{RESOURCE_PREFIX}clusterinformations/default"),
            information,
        );
        store
    }

    fn put(&mut self, path: &str, value: Value) {
        self.revision += 1;
        self.entries.insert(path.to_owned(), (value, self.revision));
    }

    fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot {
            taken_at: "2026-05-01T12:00:00Z".parse().unwrap(),
            ..Snapshot::default()
        };
        snapshot.mark_read(ETCD_SOURCES);
        for (path, (value, revision)) in &self.entries {
            snapshot.add_entry(path.as_bytes(), value.to_string().as_bytes(), *revision);
        }
        snapshot
    }
}

/// A block with this owner, in which the pod web-0 has `taken` addresses.
fn block(owner: Value, taken: usize, sequence: u64) -> Value {
    let mut block = values::block("10.244.1.0/30", owner, vec![pod("node-1", "web-0"); taken]);
    block["sequenceNumber"] = sequence.into();
    block
}

/// All writes from the creation of a pod and its block to their deletion. A null value deletes the key.
fn life() -> Vec<(String, Value)> {
    let endpoint = format!("{ENDPOINT_PREFIX}default/node--1-k8s-web--0-eth0");
    let pod = json!({"spec": {"node": "node-1", "orchestrator": "k8s", "pod": "web-0", "endpoint": "eth0",
        "ipNetworks": ["10.244.1.0/32"]}});
    let own = || json!("host:node-1");
    let handle = |count: u32| json!({"block": {"10.244.1.0/30": count}});
    let writes: Vec<(&str, Value)> = vec![
        // Claim a block.
        (AFFINITY, json!({"state": "pending"})),
        (BLOCK, block(own(), 0, 1)),
        (AFFINITY, json!({"state": "confirmed"})),
        // Allocate; a second address is taken and released again.
        (HANDLE, handle(1)),
        (BLOCK, block(own(), 1, 2)),
        (&endpoint, pod),
        (HANDLE, handle(2)),
        (BLOCK, block(own(), 2, 3)),
        (BLOCK, block(own(), 1, 4)),
        (HANDLE, handle(1)),
        // Release the block while it still has an address, and claim it again.
        (AFFINITY, json!({"state": "pendingDeletion"})),
        (BLOCK, block(Value::Null, 1, 5)),
        (AFFINITY, Value::Null),
        (AFFINITY, json!({"state": "pending"})),
        (BLOCK, block(own(), 1, 6)),
        (AFFINITY, json!({"state": "confirmed"})),
        // Delete the pod.
        (&endpoint, Value::Null),
        (BLOCK, block(own(), 0, 7)),
        (HANDLE, Value::Null),
        // Release the empty block.
        (AFFINITY, json!({"state": "pendingDeletion"})),
        (BLOCK, Value::Null),
        (AFFINITY, Value::Null),
    ];
    writes
        .into_iter()
        .map(|(path, value)| (path.to_owned(), value))
        .collect()
}

#[test]
fn no_state_between_two_writes_leaves_a_finding() {
    let mut store = Store::new();
    let mut suspected = 0;
    for (step, (path, value)) in life().into_iter().enumerate() {
        let before = store.snapshot();
        match value {
            Value::Null => drop(store.entries.remove(&path)),
            value => store.put(&path, value),
        }
        let after = store.snapshot();
        let mut report = check(&before, &Options::default());
        suspected += report.findings.len();
        drop_changed(&mut report, &before, &after);
        assert_eq!(report.findings, [], "before step {step}, {path}");
    }
    assert!(suspected >= 12, "the states between are suspicious: {suspected}");
    assert_eq!(check(&store.snapshot(), &Options::default()).findings, []);
}

#[test]
fn findings_about_unchanged_objects_stay() {
    let mut store = Store::new();
    store.put(AFFINITY, json!({"state": "pending"}));
    store.put(HANDLE, json!({"block": {"10.244.1.0/30": 1}}));
    let first = store.snapshot();
    // An unrelated object changes in the meantime.
    store.put(&format!("{RESOURCE_PREFIX}nodes/node-2"), json!({}));
    let mut report = check(&first, &Options::default());
    drop_changed(&mut report, &first, &store.snapshot());
    let found: Vec<String> = report
        .findings
        .iter()
        .map(|f| format!("{} {}", f.code, f.subject))
        .collect();
    assert_eq!(
        found,
        [
            "unsettled-affinity node-1/10.244.1.0/30",
            "orphan-handle k8s-pod-network.web-0"
        ]
    );
}
