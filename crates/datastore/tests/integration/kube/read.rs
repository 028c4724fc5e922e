//! Reads of both API groups: as a whole, by name, and through an export.

use std::collections::BTreeSet;

use calipam_datastore::Datastore;
use calipam_datastore::read::Lookup;
use calipam_model::affinity::AffinityKey;
use calipam_model::key::Key;
use calipam_model::node::TunnelKind;
use calipam_model::snapshot::{Coverage, DatastoreKind, DefectKind, Revision, Snapshot, Source};
use calipam_testkit::World;
use calipam_testkit::datastore::{observe, quiet};
use calipam_testkit::kube::{Flavour, Kinds, create, install, install_kubevirt, lease};
use jiff::Timestamp;
use serde_json::json;

use super::support::{affinity_key, block, node, open, resource, seed, seeded};
use crate::support::open_file;

#[tokio::test(flavor = "multi_thread")]
async fn the_classic_group_is_read_whole_and_by_name() {
    let world = seeded(Flavour::Classic);
    let store = world.open().await;
    let snapshot = observe(&store).await;
    assert_healthy(&snapshot);
    assert_eq!(snapshot.location, world.server().url());
    assert!(snapshot.has_read(Source::Machines));
    export_and_check(&store, &snapshot).await;
    by_name(&store, &snapshot).await;
    strange_objects(&world, &store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_native_group_is_read_whole_and_by_name() {
    let server = lease(Kinds::Kubernetes).unwrap();
    let nothing = open(&server).await.observe(&quiet()).await.unwrap_err();
    assert!(
        nothing.to_string().contains("holds no Calico data: neither"),
        "{nothing}"
    );
    assert!(!nothing.is_usage());

    install(&server, Flavour::Native).unwrap();
    let world = World::Kubernetes(Box::new(server), Flavour::Native);
    seed(&world);
    let (server, store) = (world.server(), world.open().await);
    let snapshot = observe(&store).await;
    assert_healthy(&snapshot);
    assert!(matches!(
        snapshot.coverage[&Source::Machines],
        Coverage::Skipped(_)
    ));
    by_name(&store, &snapshot).await;

    install_kubevirt(server).unwrap();
    let machine =
        json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "vm-1"}});
    create(
        server,
        "/apis/kubevirt.io/v1/namespaces/default/virtualmachines",
        &[machine],
    )
    .unwrap();
    let snapshot = observe(&world.open().await).await;
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
    let mut handles: Vec<String> = snapshot
        .handles
        .iter()
        .map(|h| h.value.id().to_string())
        .collect();
    handles.sort();
    assert_eq!(handles, ["ipip-tunnel-addr-node-1", "k8s-pod-network.ABC"]);
    assert!(snapshot.handles.iter().all(|h| h.value.unknown().is_none()));
    let affinity = &snapshot.affinities[0];
    assert_eq!(affinity.value.key, affinity_key("10.0.0.0/30"));
    let Revision::Kubernetes(version) = &affinity.revision else {
        panic!("{:?}", affinity.revision)
    };
    assert_eq!(version.labels["projectcalico.org/affinity-type"], "host");
    assert!(!version.uid.is_empty() && !version.resource_version.is_empty());
    let config = snapshot.ipam_config.unwrap();
    assert!(config.strict_affinity && config.max_blocks_per_host == 4);
    assert_eq!(
        (
            snapshot.pools[0].value.block_size,
            snapshot.reservations[0].value.cidrs.len()
        ),
        (30, 1)
    );
    assert_eq!(snapshot.cluster.as_ref().unwrap().guid, "0f0e1d2c");
    assert!(
        snapshot
            .kube_controllers
            .as_ref()
            .unwrap()
            .leak_grace_period
            .is_some()
    );
    let node = &snapshot.nodes[0].value;
    assert_eq!(node.tunnels, [(TunnelKind::Ipip, "10.0.0.0".parse().unwrap())]);
    assert_eq!(
        (node.labels["zone"].as_str(), node.kubernetes_name.as_deref()),
        ("a", Some("node-1"))
    );
    assert_eq!(node.plugin.as_deref(), Some("calipam 0.1.0"));
    let pod = &snapshot.pods[0].value;
    assert_eq!(
        pod.addresses().map(|a| a.to_string()).collect::<Vec<_>>(),
        ["10.0.0.1"]
    );
    for source in [
        Source::Blocks,
        Source::Handles,
        Source::Affinities,
        Source::Nodes,
        Source::Pods,
        Source::Services,
    ] {
        assert!(snapshot.has_read(source), "{source}");
    }
}

async fn export_and_check(store: &Datastore, live: &Snapshot) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cluster.jsonl");
    store.export(&path, &quiet()).await.unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(
        !text.contains("managedFields") && !text.contains("containers"),
        "{text}"
    );
    let mut read = observe(&open_file(&path).await.unwrap()).await;
    read.location.clone_from(&live.location);
    read.revision.clone_from(&live.revision);
    read.taken_at = live.taken_at;
    // No pool selects namespaces and no pod waits, so only the export contains namespaces.
    assert!(
        read.namespaces
            .take()
            .is_some_and(|all| all.contains_key("default"))
            && live.namespaces.is_none()
    );
    assert!(read == *live, "{read:#?}\n{live:#?}");
}

async fn by_name(store: &Datastore, whole: &Snapshot) {
    let pod = |name: &str| Key::Pod {
        namespace: "default".into(),
        name: name.into(),
    };
    let keys = BTreeSet::from([
        Key::Block("10.0.0.0/30".parse().unwrap()),
        Key::Block("10.0.0.4/30".parse().unwrap()),
        Key::Handle("k8s-pod-network.ABC".into()),
        Key::Handle("gone\r\neth0".into()),
        Key::Affinity(affinity_key("10.0.0.0/30")),
        Key::Node("node-1".into()),
        pod("web-0"),
        pod("web-1"),
    ]);
    let again = store.reread(&keys).await.unwrap().unwrap();
    assert_eq!(
        (&again.blocks, &again.affinities),
        (&whole.blocks, &whole.affinities)
    );
    assert_eq!((&again.nodes, &again.pods), (&whole.nodes, &whole.pods));
    assert_eq!(again.handles.len(), 1);
    assert!(again.defects.is_empty() && !again.has_read(Source::Pods));

    let before = store.request_count();
    let found = store
        .lookup(&Lookup::Address("10.0.0.1".parse().unwrap()))
        .await
        .unwrap();
    assert_eq!(
        (
            found.blocks.len(),
            found.handles.len(),
            found.pods.len(),
            found.nodes.len()
        ),
        (1, 1, 1, 1)
    );
    assert!(found.has_read(Source::Pools) && !found.has_read(Source::Blocks));
    let sent = store.request_count() - before;
    assert!(sent < 30, "{sent}");
    let found = store
        .lookup(&Lookup::Handle("k8s-pod-network.ABC".into()))
        .await
        .unwrap();
    assert_eq!((found.blocks.len(), found.handles.len()), (1, 1));
    assert_eq!(found.pods, whole.pods);
}

/// Undecodable objects are reported and do not stop the read.
async fn strange_objects(world: &World, store: &Datastore) {
    let classic = Flavour::Classic;
    let add = |plural: &str, object| create(world.server(), &classic.path(plural), &[object]).unwrap();
    let affinity =
        |deleted: &str| json!({"cidr": "10.0.0.8/30", "node": "n", "state": "pending", "deleted": deleted});
    add(
        "blockaffinities",
        resource(classic, "BlockAffinity", "n-10-0-0-8-30", affinity("perhaps")),
    );
    add(
        "blockaffinities",
        resource(classic, "BlockAffinity", "misnamed", affinity("TRUE")),
    );
    let (foreign, mut nonsense) = (block(), block());
    nonsense["cidr"] = "ten".into();
    world.create(&Key::Block("10.0.0.16/30".parse().unwrap()), &foreign);
    world.create(&Key::Block("10.0.0.32/30".parse().unwrap()), &nonsense);
    add(
        "ipamhandles",
        resource(
            classic,
            "IPAMHandle",
            "h",
            json!({"handleID": "H", "block": {"x": 1}}),
        ),
    );
    let annotations =
        json!({"projectcalico.org/IPv6VXLANTunnelAddr": "10.0.0.9", "projectcalico.org/labels": "{"});
    world.create(&Key::Node("node-2".into()), &node("node-2", annotations));

    let snapshot = observe(store).await;
    let defect = |path: &str| {
        let found = snapshot.defects.iter().find(|d| d.path == path);
        found.unwrap_or_else(|| panic!("{path}: {:#?}", snapshot.defects))
    };
    let expected = AffinityKey {
        node: "n".into(),
        ..affinity_key("10.0.0.8/30")
    };
    assert_eq!(
        defect("blockaffinities/n-10-0-0-8-30").key,
        Some(Key::Affinity(expected))
    );
    assert!(matches!(
        defect("blockaffinities/misnamed").kind,
        DefectKind::Fields(_)
    ));
    assert!(snapshot.affinities.iter().any(|a| a.value.deleted));
    assert_eq!(
        defect("ipamblocks/10-0-0-32-30").key,
        Some(Key::Block("10.0.0.32/30".parse().unwrap()))
    );
    assert_eq!(defect("ipamhandles/h").key, Some(Key::Handle("H".into())));
    let DefectKind::Fields(fields) = &defect("nodes/node-2").kind else {
        panic!("the node itself is fine")
    };
    assert_eq!(fields.len(), 2);
    let blocks = snapshot.blocks.iter().map(|block| &block.value);
    assert_eq!(
        blocks.filter(|block| block.key != block.content.cidr()).count(),
        1
    );
    assert_eq!(snapshot.defects.len(), 5);
}
