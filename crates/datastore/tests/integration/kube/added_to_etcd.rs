//! Kubernetes together with an etcd datastore.

use std::collections::{BTreeMap, BTreeSet};

use calipam_datastore::read::Lookup;
use calipam_datastore::settings::{LocalFiles, Overrides, Settings};
use calipam_datastore::{Datastore, Error};
use calipam_model::key::Key;
use calipam_model::snapshot::{DatastoreKind, Source};
use calipam_testkit::kube::{Kinds, create, lease};
use calipam_testkit::servers::{Etcd, KubeApiserver};
use serde_json::json;

use super::support::{node, pod};
use crate::support::{observe, quiet};

const RESOURCES: &str = "/calico/resources/v3/projectcalico.org";

async fn seed(etcd: &Etcd) {
    let mut client = etcd.client().await.unwrap();
    let reference = r#"{"spec":{"orchRefs":[{"nodeName":"node-1","orchestrator":"k8s"}]}}"#;
    let block = r#"{"cidr":"10.0.0.0/31","allocations":[0,null],"unallocated":[1],"attributes":[{"handle_id":"net.a",
        "secondary":{"namespace":"default","node":"calico-1","pod":"web-0"}}]}"#;
    for (key, value) in [
        (format!("{RESOURCES}/nodes/calico-1"), reference),
        ("/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-31".into(), block),
    ] {
        client.put(key, value, None).await.unwrap();
    }
}

async fn open(etcd: &Etcd, server: &KubeApiserver) -> Datastore {
    let overrides = Overrides {
        etcd_endpoints: Some(etcd.endpoint()),
        kubeconfig: Some(server.kubeconfig().display().to_string()),
        ..Overrides::default()
    };
    Datastore::open(&Settings::resolve(&overrides, &BTreeMap::new(), &LocalFiles).unwrap()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_are_added_if_the_nodes_match_those_in_etcd() {
    let (etcd, server) = (Etcd::start().unwrap(), lease(Kinds::Kubernetes).unwrap());
    seed(&etcd).await;
    create(&server, "/api/v1/nodes", &[node("node-1", json!({})), node("node-2", json!({}))]).unwrap();
    create(&server, "/api/v1/namespaces/default/pods", &[pod("web-0", "node-1")]).unwrap();
    let store = open(&etcd, &server).await;
    let snapshot = observe(&store).await.unwrap();
    assert_eq!((snapshot.datastore, snapshot.pods.len(), snapshot.nodes.len()), (DatastoreKind::Etcd, 1, 1));
    assert!(
        [Source::Blocks, Source::Pods, Source::Services].into_iter().all(|source| snapshot.has_read(source))
    );
    let named: Vec<&str> = snapshot.kubernetes_nodes.iter().map(|node| node.value.name.as_str()).collect();
    assert_eq!(named, ["node-1", "node-2"]);
    let key = Key::Pod { namespace: "default".into(), name: "web-0".into() };
    let keys = BTreeSet::from([key, Key::Node("calico-1".into())]);
    let again = store.reread(&keys).await.unwrap().unwrap();
    assert_eq!((&again.pods, &again.nodes), (&snapshot.pods, &snapshot.nodes));
    let found = store.lookup(&Lookup::Address("10.0.0.0".parse().unwrap())).await.unwrap();
    assert_eq!((found.blocks.len(), found.pods.len()), (1, 1));

    // Changes in both datastores are read.
    let (mut read, mut followed) = store.follow(&quiet()).await.unwrap().unwrap();
    create(&server, "/api/v1/namespaces/default/pods", &[pod("web-1", "node-1")]).unwrap();
    followed.confirm_current().await.unwrap();
    assert_eq!(followed.news().await.unwrap(), Ok(1));
    followed.apply(&mut read);
    let mut whole = observe(&store).await.unwrap();
    (whole.taken_at, whole.newest_creation) = (read.taken_at, read.newest_creation);
    assert!(whole == read && whole.pods.len() == 2);

    // With a third node in Kubernetes, Calico knows fewer than half of the nodes.
    create(&server, "/api/v1/nodes", &[node("node-3", json!({}))]).unwrap();
    let error = observe(&store).await.unwrap_err();
    let Error::OtherCluster { nodes, known, .. } = error else { panic!("{error}") };
    assert_eq!((nodes, known), (3, 1));
}
