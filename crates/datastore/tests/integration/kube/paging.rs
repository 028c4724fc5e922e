//! Lists of several pages.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use calipam_datastore::Datastore;
use calipam_datastore::read::ProgressFn;
use calipam_model::key::Key;
use calipam_model::snapshot::Snapshot;
use calipam_testkit::datastore;
use calipam_testkit::kube::{Flavour, create_in_etcd};
use calipam_testkit::servers::{Tear, Tearing};
use serde_json::{Value, json};

use super::support::{pod, resource, seeded};

/// A number of objects that fills more than two pages.
const MANY: usize = 10_500;

/// Reads everything. Also returns the highest numbers of read and expected objects that were reported as progress.
async fn told(store: &Datastore) -> (Snapshot, u64, u64) {
    let (read, expected) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (r, e) = (Arc::clone(&read), Arc::clone(&expected));
    let progress: ProgressFn = Arc::new(move |p| {
        r.fetch_max(p.read, Ordering::Relaxed);
        e.fetch_max(p.expected, Ordering::Relaxed);
    });
    let snapshot = store.observe(&progress).await.unwrap();
    (
        snapshot,
        read.load(Ordering::Relaxed),
        expected.load(Ordering::Relaxed),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn every_object_of_long_lists_comes_once() {
    let world = seeded(Flavour::Classic);
    let server = world.server();
    let objects = |object: fn(usize) -> Value| {
        let made = (0..MANY).map(|i| {
            let mut object = object(i);
            object["metadata"]["uid"] = format!("00000000-0000-0000-0000-{i:012}").into();
            object["metadata"]["creationTimestamp"] = "2026-05-01T10:00:00Z".into();
            object
        });
        made.collect::<Vec<Value>>()
    };
    let handles = objects(|i| {
        let spec = json!({"handleID": format!("net.{i}"), "block": {"10.0.0.0/30": 1}, "deleted": false});
        resource(Flavour::Classic, "IPAMHandle", &format!("net.{i}"), spec)
    });
    create_in_etcd(server, "/registry/crd.projectcalico.org/ipamhandles/", &handles).unwrap();
    let pods = objects(|i| {
        let mut pod = pod(&format!("p-{i}"), "node-1");
        pod["status"] = json!({"phase": "Running", "podIP": format!("10.2.{}.{}", i / 256, i % 256)});
        pod
    });
    create_in_etcd(server, "/registry/pods/", &pods).unwrap();

    // If the server does not report its version, pages are requested.
    let proxy = Tearing::kubernetes(server).unwrap();
    proxy.plan(|seen| {
        if seen.path == "/version" {
            Tear::Status(404)
        } else {
            Tear::Pass
        }
    });
    let store = datastore::open(datastore::kubernetes(&proxy.kubeconfig())).await;
    let (snapshot, read, expected) = told(&store).await;
    assert!(snapshot.defects.is_empty());
    assert!(
        read as usize >= 2 * MANY && expected >= read,
        "{read} of {expected}"
    );
    let (mut whole, read, expected) = told(&world.open().await).await;
    assert!(read as usize >= 2 * MANY && expected == 0, "{read} of {expected}");
    (whole.revision, whole.taken_at) = (snapshot.revision.clone(), snapshot.taken_at);
    whole.location.clone_from(&snapshot.location);
    assert!(whole == snapshot, "whole lists and pages differ");
    assert_eq!(
        (snapshot.handles.len(), snapshot.pods.len()),
        (MANY + 2, MANY + 1)
    );
    let ids: BTreeSet<String> = snapshot
        .handles
        .iter()
        .map(|h| h.value.id().to_string())
        .collect();
    assert_eq!(ids.len(), MANY + 2);
    let names: BTreeSet<String> = snapshot.pods.iter().map(|p| p.value.name().to_string()).collect();
    assert_eq!(names.len(), MANY + 1);

    // So many objects of a kind are read with list requests instead of one by one.
    let keys: BTreeSet<Key> = (0..2_000).map(|i| Key::Handle(format!("net.{i}"))).collect();
    let again = store.reread(&keys).await.unwrap().unwrap();
    let found: BTreeSet<Key> = again
        .handles
        .iter()
        .map(|h| Key::Handle(h.value.id().to_string()))
        .collect();
    assert!(keys.is_subset(&found));
}
