//! Reads of both API groups: as a whole, by name, and through an export.

use std::collections::BTreeSet;

use calipam_datastore::Datastore;
use calipam_datastore::read::Lookup;
use calipam_model::affinity::{AffinityKey, AffinityType};
use calipam_model::key::Key;
use calipam_model::node::TunnelKind;
use calipam_model::snapshot::{Coverage, DatastoreKind, DefectKind, Revision, Snapshot, Source};
use calipam_testkit::kube::{Flavour, Kinds, create, install, install_kubevirt, lease};
use calipam_testkit::servers::KubeApiserver;
use jiff::Timestamp;
use serde_json::json;

use super::support::{node, open, resource, seed, server};
use crate::support::{observe, quiet};

#[tokio::test(flavor = "multi_thread")]
async fn the_classic_group_is_read_whole_and_by_name() {
    let server = server(Flavour::Classic);
    seed(&server, Flavour::Classic);
    let store = open(&server).await;
    let snapshot = observe(&store).await.unwrap();
    assert_healthy(&snapshot);
    assert_eq!(snapshot.location, server.url());
    export_and_check(&store, &snapshot).await;
    by_name(&store, &snapshot).await;
    strange_objects(&server, &store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_native_group_is_read_whole_and_by_name() {
    let server = lease(Kinds::Kubernetes).unwrap();
    let nothing = observe(&open(&server).await).await.unwrap_err();
    assert!(matches!(nothing, calipam_datastore::Error::NoCalicoKinds { .. }), "{nothing}");
    assert!(!nothing.is_usage());

    install(&server, Flavour::Native).unwrap();
    seed(&server, Flavour::Native);
    let store = open(&server).await;
    let snapshot = observe(&store).await.unwrap();
    assert_healthy(&snapshot);
    by_name(&store, &snapshot).await;

    install_kubevirt(&server).unwrap();
    let machine =
        json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "vm-1"}});
    create(&server, "/apis/kubevirt.io/v1/namespaces/default/virtualmachines", &[machine]).unwrap();
    let snapshot = observe(&open(&server).await).await.unwrap();
    assert!(snapshot.has_read(Source::Machines));
    let machines: Vec<&str> = snapshot.machines.iter().map(|m| m.value.name.as_str()).collect();
    assert_eq!(machines, ["vm-1"]);
}

fn assert_healthy(snapshot: &Snapshot) {
    assert!(snapshot.defects.is_empty(), "{:?}", snapshot.defects);
    assert_eq!(snapshot.datastore, DatastoreKind::Kubernetes);
    assert!(snapshot.revision.parse::<u64>().is_ok(), "{}", snapshot.revision);
    let age = Timestamp::now().duration_since(snapshot.taken_at);
    assert!(age.as_secs().abs() < 60, "{}", snapshot.taken_at);
    let block = &snapshot.blocks[0].value;
    assert_eq!(block.key.to_string(), "10.0.0.0/30");
    let block = block.content.sound().unwrap();
    assert_eq!(
        (block.allocated(), block.free(), block.sequence()),
        (2, [3, 2].as_slice(), 1777630272123456792)
    );
    assert_eq!(block.sequence_of(1), 1777630272123456790);
    assert!(block.claimed_at().is_some());
    let mut handles: Vec<String> = snapshot.handles.iter().map(|h| h.value.id().to_string()).collect();
    handles.sort();
    assert_eq!(handles, ["ipip-tunnel-addr-node-1", "k8s-pod-network.ABC"]);
    assert!(snapshot.handles.iter().all(|h| h.value.unknown().is_none()));
    let affinity = &snapshot.affinities[0];
    assert_eq!(affinity.value.key, affinity_key());
    let Revision::Kubernetes(version) = &affinity.revision else { panic!("{:?}", affinity.revision) };
    assert_eq!(version.labels["projectcalico.org/affinity-type"], "host");
    assert!(!version.uid.is_empty() && !version.resource_version.is_empty());
    let config = snapshot.ipam_config.unwrap();
    assert!(config.strict_affinity && config.max_blocks_per_host == 4);
    assert_eq!((snapshot.pools[0].value.block_size, snapshot.reservations[0].value.cidrs.len()), (30, 1));
    assert_eq!(snapshot.cluster.as_ref().unwrap().guid, "0f0e1d2c");
    assert!(snapshot.kube_controllers.as_ref().unwrap().leak_grace_period.is_some());
    let node = &snapshot.nodes[0].value;
    assert_eq!(node.tunnels, [(TunnelKind::Ipip, "10.0.0.0".parse().unwrap())]);
    assert_eq!((node.labels["zone"].as_str(), node.kubernetes_name.as_deref()), ("a", Some("node-1")));
    assert_eq!(node.plugin.as_deref(), Some("calipam 0.1.0"));
    let pod = &snapshot.pods[0].value;
    assert_eq!(pod.addresses().map(|a| a.to_string()).collect::<Vec<_>>(), ["10.0.0.1"]);
    for source in
        [Source::Blocks, Source::Handles, Source::Affinities, Source::Nodes, Source::Pods, Source::Services]
    {
        assert!(snapshot.has_read(source), "{source}");
    }
    assert!(matches!(snapshot.coverage[&Source::Machines], Coverage::Skipped(_)));
}

fn affinity_key() -> AffinityKey {
    AffinityKey { kind: AffinityType::Host, node: "node-1".into(), cidr: "10.0.0.0/30".parse().unwrap() }
}

async fn export_and_check(store: &Datastore, live: &Snapshot) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cluster.jsonl");
    store.export(&path, &quiet()).await.unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(!text.contains("managedFields") && !text.contains("containers"), "{text}");
    let overrides = calipam_datastore::settings::Overrides {
        datastore: Some(path.display().to_string()),
        ..Default::default()
    };
    let files = calipam_datastore::settings::LocalFiles;
    let settings =
        calipam_datastore::settings::Settings::resolve(&overrides, &Default::default(), &files).unwrap();
    let mut read = observe(&Datastore::open(&settings).await.unwrap()).await.unwrap();
    read.location.clone_from(&live.location);
    read.revision.clone_from(&live.revision);
    read.taken_at = live.taken_at;
    // No pool selects namespaces and no pod waits, so only the export contains namespaces.
    assert!(
        read.namespaces.take().is_some_and(|all| all.contains_key("default")) && live.namespaces.is_none()
    );
    assert!(read == *live, "{read:#?}\n{live:#?}");
}

async fn by_name(store: &Datastore, whole: &Snapshot) {
    let pod = |name: &str| Key::Pod { namespace: "default".into(), name: name.into() };
    let keys = BTreeSet::from([
        Key::Block("10.0.0.0/30".parse().unwrap()),
        Key::Block("10.0.0.4/30".parse().unwrap()),
        Key::Handle("k8s-pod-network.ABC".into()),
        Key::Handle("gone\r\neth0".into()),
        Key::Affinity(affinity_key()),
        Key::Node("node-1".into()),
        pod("web-0"),
        pod("web-1"),
    ]);
    let again = store.reread(&keys).await.unwrap().unwrap();
    assert_eq!((&again.blocks, &again.affinities), (&whole.blocks, &whole.affinities));
    assert_eq!((&again.nodes, &again.pods), (&whole.nodes, &whole.pods));
    assert_eq!(again.handles.len(), 1);
    assert!(again.defects.is_empty() && !again.has_read(Source::Pods));

    let before = store.request_count();
    let found = store.lookup(&Lookup::Address("10.0.0.1".parse().unwrap())).await.unwrap();
    assert_eq!((found.blocks.len(), found.handles.len(), found.pods.len(), found.nodes.len()), (1, 1, 1, 1));
    assert!(found.has_read(Source::Pools) && !found.has_read(Source::Blocks));
    let sent = store.request_count() - before;
    assert!(sent < 30, "{sent}");
    let found = store.lookup(&Lookup::Handle("k8s-pod-network.ABC".into())).await.unwrap();
    assert_eq!((found.blocks.len(), found.handles.len()), (1, 1));
    assert_eq!(found.pods, whole.pods);
}

/// Undecodable objects are reported and do not stop the read.
async fn strange_objects(server: &KubeApiserver, store: &Datastore) {
    let classic = Flavour::Classic;
    let add = |plural: &str, object| create(server, &classic.path(plural), &[object]).unwrap();
    let affinity =
        |deleted: &str| json!({"cidr": "10.0.0.8/30", "node": "n", "state": "pending", "deleted": deleted});
    add("blockaffinities", resource(classic, "BlockAffinity", "n-10-0-0-8-30", affinity("perhaps")));
    add("blockaffinities", resource(classic, "BlockAffinity", "misnamed", affinity("TRUE")));
    let mut foreign = super::support::block(classic);
    foreign["metadata"]["name"] = "10-0-0-16-30".into();
    add("ipamblocks", foreign);
    let mut nonsense = super::support::block(classic);
    (nonsense["metadata"]["name"], nonsense["spec"]["cidr"]) = ("10-0-0-32-30".into(), "ten".into());
    add("ipamblocks", nonsense);
    add("ipamhandles", resource(classic, "IPAMHandle", "h", json!({"handleID": "H", "block": {"x": 1}})));
    let annotations =
        json!({"projectcalico.org/IPv6VXLANTunnelAddr": "10.0.0.9", "projectcalico.org/labels": "{"});
    create(server, "/api/v1/nodes", &[node("node-2", annotations)]).unwrap();

    let snapshot = observe(store).await.unwrap();
    let defect = |path: &str| {
        let found = snapshot.defects.iter().find(|d| d.path == path);
        found.unwrap_or_else(|| panic!("{path}: {:#?}", snapshot.defects))
    };
    let expected =
        AffinityKey { kind: AffinityType::Host, node: "n".into(), cidr: "10.0.0.8/30".parse().unwrap() };
    assert_eq!(defect("blockaffinities/n-10-0-0-8-30").key, Some(Key::Affinity(expected)));
    assert!(matches!(defect("blockaffinities/misnamed").kind, DefectKind::Fields(_)));
    assert!(snapshot.affinities.iter().any(|a| a.value.deleted));
    assert_eq!(defect("ipamblocks/10-0-0-32-30").key, Some(Key::Block("10.0.0.32/30".parse().unwrap())));
    assert_eq!(defect("ipamhandles/h").key, Some(Key::Handle("H".into())));
    let DefectKind::Fields(fields) = &defect("nodes/node-2").kind else { panic!("the node itself is fine") };
    assert_eq!(fields.len(), 2);
    let key_and_value = |b: &&calipam_model::snapshot::Versioned<calipam_model::snapshot::StoredBlock>| {
        b.value.key != b.value.content.cidr()
    };
    assert_eq!(snapshot.blocks.iter().filter(key_and_value).count(), 1);
    assert_eq!(snapshot.defects.len(), 5);
}
