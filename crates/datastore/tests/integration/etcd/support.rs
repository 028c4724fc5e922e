//! A small cluster of Calico objects in etcd.

use calipam_datastore::Datastore;
use calipam_datastore::settings::{Overrides, Settings};
use calipam_files::raw::is_read;
use calipam_model::snapshot::{ETCD_SOURCES, Snapshot};
use calipam_testkit::datastore;
use calipam_testkit::servers::{self, Etcd};
use calipam_testkit::values::{affinity_key, block, block_key};
use serde_json::{Value, json};

use crate::support::resolve;

const RESOURCES: &str = "/calico/resources/v3/projectcalico.org";

/// Keys and values.
pub(super) type Entries = Vec<(String, Vec<u8>)>;

/// A cluster with `blocks` blocks of 16 addresses, 14 of them allocated to pods.
pub(super) fn entries(blocks: usize) -> Entries {
    let mut all = Entries::new();
    let mut add = |key: String, value: Value| all.push((key, value.to_string().into_bytes()));
    let cluster = json!({"clusterGUID": "0f0e1d2c", "calicoVersion": "v3.32.1", "datastoreReady": true});
    let cluster = json!({"kind": "ClusterInformation", "spec": cluster});
    add(format!("{RESOURCES}/clusterinformations/default"), cluster);
    let pool = json!({"kind": "IPPool", "spec": {"cidr": "10.0.0.0/8", "blockSize": 28}});
    add(format!("{RESOURCES}/ippools/default"), pool);
    add(
        "/calico/ipam/v2/config".into(),
        json!({"auto_allocate_blocks": true}),
    );
    add(
        format!("{RESOURCES}/profiles/kns.default"),
        json!({"kind": "Profile"}),
    );
    for b in 0..blocks {
        let node = format!("node-{}", b * 7919 % 1000);
        let net = |ordinal: usize| format!("10.{}.{}.{}", b / 4096, b / 16 % 256, b % 16 * 16 + ordinal);
        let cidr = format!("{}/28", net(0));
        let object = json!({"kind": "Node", "metadata": {"name": node}, "spec": {}});
        add(format!("{RESOURCES}/nodes/{node}"), object);
        add(
            affinity_key(&format!("host/{node}"), &cidr),
            json!({"state": "confirmed"}),
        );
        let mut records = Vec::new();
        for ordinal in 0..14 {
            let i = b * 14 + ordinal;
            let number = (i as u128).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835);
            let handle = format!("k8s-pod-network.{number:032x}");
            let (namespace, pod) = (format!("team-{}", i % 9), format!("web-{i}"));
            let owner = json!({"namespace": namespace, "node": node, "pod": pod});
            records.push(json!({"handle_id": handle, "secondary": owner}));
            let counts = json!({"block": {cidr.as_str(): 1}, "deleted": false});
            add(format!("/calico/ipam/v2/handle/{handle}"), counts);
            let name = format!("{}-k8s-web--{i}-eth0", node.replace('-', "--"));
            let spec = json!({"orchestrator": "k8s", "node": node, "pod": pod, "endpoint": "eth0",
                "containerID": format!("x{i}"), "ipNetworks": [format!("{}/32", net(ordinal))]});
            let endpoint = json!({"kind": "WorkloadEndpoint", "spec": spec});
            add(
                format!("{RESOURCES}/workloadendpoints/{namespace}/{name}"),
                endpoint,
            );
        }
        let mut value = block(&cidr, format!("host:{node}"), records);
        value["sequenceNumber"] = 1_777_630_272_123_456_794_u64.into();
        add(block_key(&cidr), value);
    }
    all.sort();
    all.dedup_by(|a, b| a.0 == b.0);
    all
}

/// Starts an etcd with these entries.
pub(super) fn start(entries: &Entries) -> Etcd {
    let etcd = Etcd::start().unwrap();
    etcd.put_all(entries).unwrap();
    etcd
}

/// A snapshot of entries, added one by one in the order of the keys.
pub(super) fn one_by_one(entries: &servers::Entries) -> Snapshot {
    let mut snapshot = Snapshot::default();
    for (key, (value, revision)) in entries.iter().filter(|(key, _)| is_read(key.as_bytes())) {
        snapshot.add_entry(key.as_bytes(), value, *revision);
    }
    snapshot.defects.sort_by(|a, b| a.path.cmp(&b.path));
    snapshot.revision = entries
        .values()
        .map(|(_, revision)| *revision)
        .max()
        .unwrap_or_default()
        .to_string();
    snapshot.mark_read(ETCD_SOURCES);
    snapshot
}

/// Settings from endpoints and environment variables.
pub(super) fn settings(endpoints: &str, environment: &[(&str, &str)]) -> Settings {
    let connect_timeout = Some(std::time::Duration::from_secs(3));
    resolve(
        &Overrides {
            connect_timeout,
            ..datastore::etcd(endpoints)
        },
        environment,
    )
}

/// Opens an etcd that uses neither TLS nor authentication.
pub(super) async fn open(etcd: &Etcd) -> Datastore {
    Datastore::open(&settings(&etcd.endpoint(), &[])).await.unwrap()
}

/// Asserts that two snapshots have the same objects in the same order.
pub(super) fn assert_same(mut a: Snapshot, b: &Snapshot) {
    a.location.clone_from(&b.location);
    a.revision.clone_from(&b.revision);
    a.taken_at = b.taken_at;
    let count = |s: &Snapshot| {
        let Snapshot {
            blocks,
            affinities,
            handles,
            endpoints,
            nodes,
            pools,
            defects,
            ..
        } = s;
        let records = [blocks.len(), affinities.len(), handles.len()];
        (
            records,
            [endpoints.len(), nodes.len(), pools.len(), defects.len()],
        )
    };
    assert_eq!(count(&a), count(b));
    assert!(a == *b, "the objects or their order differ");
}
