//! A small cluster of Calico objects in etcd.

use calipam_datastore::Datastore;
use calipam_datastore::settings::{Overrides, Settings};
use calipam_files::raw::{RawKv, is_read};
use calipam_model::snapshot::{ETCD_SOURCES, Snapshot};
use calipam_testkit::servers::Etcd;
use etcd_client::{Client, Txn, TxnOp};

use crate::support::resolve;

const RESOURCES: &str = "/calico/resources/v3/projectcalico.org";

/// Keys and values.
pub(super) type Entries = Vec<(String, Vec<u8>)>;

/// A cluster with `blocks` blocks of 16 addresses, 14 of them allocated to pods.
pub(super) fn entries(blocks: usize) -> Entries {
    let mut all = Entries::new();
    let mut add = |key: String, value: String| all.push((key, value.into_bytes()));
    add(
        format!("{RESOURCES}/clusterinformations/default"),
        r#"{"kind":"ClusterInformation","spec":{"clusterGUID":"0f0e1d2c","calicoVersion":"v3.32.1","datastoreReady":true}}"#.into(),
    );
    add(
        format!("{RESOURCES}/ippools/default"),
        r#"{"kind":"IPPool","spec":{"cidr":"10.0.0.0/8","blockSize":28}}"#.into(),
    );
    add("/calico/ipam/v2/config".into(), r#"{"auto_allocate_blocks":true}"#.into());
    add(format!("{RESOURCES}/profiles/kns.default"), r#"{"kind":"Profile"}"#.into());
    for b in 0..blocks {
        let node = format!("node-{}", b * 7919 % 1000);
        let net = |ordinal: usize| format!("10.{}.{}.{}", b / 4096, b / 16 % 256, b % 16 * 16 + ordinal);
        let cidr = net(0);
        add(
            format!("{RESOURCES}/nodes/{node}"),
            format!(r#"{{"kind":"Node","metadata":{{"name":"{node}"}},"spec":{{}}}}"#),
        );
        add(format!("/calico/ipam/v2/host/{node}/ipv4/block/{cidr}-28"), r#"{"state":"confirmed"}"#.into());
        let mut records = Vec::new();
        for ordinal in 0..14 {
            let i = b * 14 + ordinal;
            let handle = format!(
                "k8s-pod-network.{:032x}",
                (i as u128).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835)
            );
            let (namespace, pod) = (format!("team-{}", i % 9), format!("web-{i}"));
            records.push(format!(
                r#"{{"handle_id":"{handle}","secondary":{{"namespace":"{namespace}","node":"{node}","pod":"{pod}"}}}}"#
            ));
            add(
                format!("/calico/ipam/v2/handle/{handle}"),
                format!(r#"{{"block":{{"{cidr}/28":1}},"deleted":false}}"#),
            );
            let name = format!("{}-k8s-web--{i}-eth0", node.replace('-', "--"));
            add(
                format!("{RESOURCES}/workloadendpoints/{namespace}/{name}"),
                format!(
                    r#"{{"kind":"WorkloadEndpoint","spec":{{"orchestrator":"k8s","node":"{node}","pod":"{pod}","endpoint":"eth0","containerID":"x{i}","ipNetworks":["{}/32"]}}}}"#,
                    net(ordinal)
                ),
            );
        }
        let indexes: Vec<String> = (0..14).map(|i| i.to_string()).collect();
        add(
            format!("/calico/ipam/v2/assignment/ipv4/block/{cidr}-28"),
            format!(
                r#"{{"cidr":"{cidr}/28","affinity":"host:{node}","allocations":[{},null,null],"unallocated":[14,15],"attributes":[{}],"sequenceNumber":1777630272123456794,"deleted":false}}"#,
                indexes.join(","),
                records.join(",")
            ),
        );
    }
    all.sort();
    all.dedup_by(|a, b| a.0 == b.0);
    all
}

/// Writes entries to etcd.
pub(super) async fn seed(etcd: &Etcd, entries: &Entries) {
    let mut client = etcd.client().await.unwrap();
    for part in entries.chunks(100) {
        let put = |(key, value): &(String, Vec<u8>)| TxnOp::put(key.as_str(), value.as_slice(), None);
        client.txn(Txn::new().and_then(part.iter().map(put).collect::<Vec<_>>())).await.unwrap();
    }
}

/// Reads everything under /calico/ in one request.
pub(super) async fn plain_read(client: &mut Client) -> Vec<RawKv> {
    let options = etcd_client::GetOptions::new().with_prefix();
    let answer = client
        .kv_client()
        .max_decoding_message_size(usize::MAX)
        .get("/calico/", Some(options))
        .await
        .unwrap();
    let entry = |kv: &etcd_client::KeyValue| RawKv {
        key: kv.key().to_vec(),
        value: kv.value().to_vec(),
        mod_revision: kv.mod_revision(),
    };
    answer.kvs().iter().map(entry).collect()
}

/// A snapshot of entries, added one by one in the order of the keys.
pub(super) fn one_by_one(entries: &[RawKv]) -> Snapshot {
    let mut snapshot = Snapshot::default();
    let mut read: Vec<&RawKv> = entries.iter().filter(|entry| is_read(&entry.key)).collect();
    read.sort_by(|a, b| a.key.cmp(&b.key));
    for entry in read {
        snapshot.add_entry(&entry.key, &entry.value, entry.mod_revision);
    }
    snapshot.defects.sort_by(|a, b| a.path.cmp(&b.path));
    snapshot.revision = entries.iter().map(|entry| entry.mod_revision).max().unwrap_or_default().to_string();
    snapshot.mark_read(ETCD_SOURCES);
    snapshot
}

/// Settings from endpoints and environment variables.
pub(super) fn settings(endpoints: &str, environment: &[(&str, &str)]) -> Settings {
    let overrides = Overrides {
        etcd_endpoints: Some(endpoints.to_owned()),
        connect_timeout: Some(std::time::Duration::from_secs(3)),
        ..Overrides::default()
    };
    resolve(&overrides, environment)
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
        [
            s.blocks.len(),
            s.affinities.len(),
            s.handles.len(),
            s.endpoints.len(),
            s.nodes.len(),
            s.pools.len(),
            s.defects.len(),
        ]
    };
    assert_eq!(count(&a), count(b));
    assert!(a == *b, "the objects or their order differ");
}
