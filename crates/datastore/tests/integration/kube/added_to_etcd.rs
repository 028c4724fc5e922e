//! Kubernetes together with an etcd datastore.

use std::collections::BTreeSet;

use calipam_datastore::read::Lookup;
use calipam_model::key::Key;
use calipam_model::snapshot::{DatastoreKind, Source};
use calipam_testkit::World;
use calipam_testkit::datastore::{observe, quiet};
use calipam_testkit::kube::create;
use calipam_testkit::values::block;
use serde_json::json;

use super::support::{node, pod};

fn seed(world: &World) {
    let references = json!({"spec": {"orchRefs": [{"nodeName": "node-1", "orchestrator": "k8s"}]}});
    world.create(&Key::Node("calico-1".into()), &references);
    let owner = json!({"namespace": "default", "node": "calico-1", "pod": "web-0"});
    let value = block(
        "10.0.0.0/31",
        None::<String>,
        [json!({"handle_id": "net.a", "secondary": owner})],
    );
    world.create(&Key::Block("10.0.0.0/31".parse().unwrap()), &value);
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_are_added_if_the_nodes_match_those_in_etcd() {
    let world = World::etcd_with_kubernetes();
    let server = world.server();
    seed(&world);
    create(
        server,
        "/api/v1/nodes",
        &[node("node-1", json!({})), node("node-2", json!({}))],
    )
    .unwrap();
    create(
        server,
        "/api/v1/namespaces/default/pods",
        &[pod("web-0", "node-1")],
    )
    .unwrap();
    let store = world.open().await;
    let snapshot = observe(&store).await;
    assert_eq!(
        (snapshot.datastore, snapshot.pods.len(), snapshot.nodes.len()),
        (DatastoreKind::Etcd, 1, 1)
    );
    assert!(
        [Source::Blocks, Source::Pods, Source::Services]
            .into_iter()
            .all(|source| snapshot.has_read(source))
    );
    let named: Vec<&str> = snapshot
        .kubernetes_nodes
        .iter()
        .map(|node| node.value.name.as_str())
        .collect();
    assert_eq!(named, ["node-1", "node-2"]);
    let key = Key::Pod {
        namespace: "default".into(),
        name: "web-0".into(),
    };
    let keys = BTreeSet::from([key, Key::Node("calico-1".into())]);
    let again = store.reread(&keys).await.unwrap().unwrap();
    assert_eq!((&again.pods, &again.nodes), (&snapshot.pods, &snapshot.nodes));
    let found = store
        .lookup(&Lookup::Address("10.0.0.0".parse().unwrap()))
        .await
        .unwrap();
    assert_eq!((found.blocks.len(), found.pods.len()), (1, 1));

    // Changes in both datastores are read.
    let (mut read, mut followed) = store.follow(&quiet()).await.unwrap();
    create(
        server,
        "/api/v1/namespaces/default/pods",
        &[pod("web-1", "node-1")],
    )
    .unwrap();
    followed.confirm_current().await.unwrap();
    assert_eq!(followed.news().await.unwrap(), 1);
    followed.apply(&mut read);
    let mut whole = observe(&store).await;
    (whole.taken_at, whole.newest_creation) = (read.taken_at, read.newest_creation);
    assert!(whole == read && whole.pods.len() == 2);

    // With a third node in Kubernetes, Calico knows fewer than half of the nodes.
    create(server, "/api/v1/nodes", &[node("node-3", json!({}))]).unwrap();
    let error = store.observe(&quiet()).await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("only 1 of its 3 nodes are among Calico's"),
        "{error}"
    );
}
