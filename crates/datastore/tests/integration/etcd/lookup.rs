//! Reads around an address or a handle, and repeated reads.

use std::collections::BTreeSet;

use calipam_datastore::read::Lookup;
use calipam_model::key::{DEFAULT, Key};
use calipam_model::snapshot::{Coverage, Snapshot, Source};
use calipam_testkit::datastore::{self, observe};
use calipam_testkit::servers::Asked;

use super::support::{entries, open, start};

#[tokio::test]
async fn an_address_takes_a_few_keys() {
    let etcd = start(&entries(300));
    let store = open(&etcd).await;
    let before = store.request_count();
    let address = "10.0.1.19".parse().unwrap();
    let snapshot = store.lookup(&Lookup::Address(address)).await.unwrap();
    assert_eq!(store.request_count() - before, 2);
    assert_eq!(
        (
            snapshot.blocks.len(),
            snapshot.handles.len(),
            snapshot.endpoints.len()
        ),
        (1, 1, 14)
    );
    assert_eq!(
        (
            snapshot.affinities.len(),
            snapshot.nodes.len(),
            snapshot.pools.len()
        ),
        (1, 1, 1)
    );
    let users = snapshot
        .endpoints
        .iter()
        .filter(|e| e.value.addresses().any(|a| a == address));
    assert_eq!(users.count(), 1, "those of its node, whatever their pods");
    assert_eq!(snapshot.coverage[&Source::Blocks], Coverage::Partial);
    assert!(snapshot.has_read(Source::Pools) && snapshot.cluster.is_some());
    for free in ["10.200.0.1", "fd00::1"] {
        let before = store.request_count();
        let found = store
            .lookup(&Lookup::Address(free.parse().unwrap()))
            .await
            .unwrap();
        assert_eq!((store.request_count() - before, found.blocks.len()), (1, 0));
    }
}

/// The same is read whatever the size of the cluster: not even of a small one are all endpoints read.
#[tokio::test]
async fn a_small_cluster_is_read_as_a_large_one() {
    let etcd = start(&entries(50));
    let store = open(&etcd).await;
    let snapshot = store
        .lookup(&Lookup::Address("10.0.1.19".parse().unwrap()))
        .await
        .unwrap();
    assert_eq!(snapshot.endpoints.len(), 14);
    assert_eq!(snapshot.coverage[&Source::Endpoints], Coverage::Partial);
}

/// The checks before a write read single keys.
#[tokio::test]
async fn a_preflight_reads_no_range() {
    let etcd = start(&entries(5));
    let asked = Asked::of(&etcd).unwrap();
    let store = datastore::open(datastore::etcd(asked.url())).await;
    store
        .may_write(&[Source::Blocks, Source::Handles, Source::Affinities], true)
        .await
        .unwrap();
    let information = Key::ClusterInformation(DEFAULT.into());
    assert!(store.stored(&[information]).await.unwrap()[0].is_some());
    let ranges = asked.take();
    assert!(
        !ranges.is_empty() && ranges.iter().all(|range| range.end.is_empty()),
        "{ranges:#?}"
    );
}

#[tokio::test]
async fn a_handle_takes_a_few_keys() {
    let etcd = start(&entries(300));
    let store = open(&etcd).await;
    let all = observe(&store).await;
    let id = all.handles[77].value.id().to_string();
    let before = store.request_count();
    let found = store.lookup(&Lookup::Handle(id.clone())).await.unwrap();
    assert_eq!(store.request_count() - before, 3);
    assert_eq!((found.handles.len(), found.blocks.len()), (1, 1));
    assert_eq!((found.endpoints.len(), found.nodes.len()), (1, 1));
    assert_eq!(found.handles[0], all.handles[77]);
    let before = store.request_count();
    let none = store.lookup(&Lookup::Handle("no-such".into())).await.unwrap();
    assert_eq!((store.request_count() - before, none.handles.len()), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn reading_again_shows_what_changed() {
    let etcd = start(&entries(200));
    let store = open(&etcd).await;
    let first = observe(&store).await;
    let keys: BTreeSet<Key> = first
        .handles
        .iter()
        .map(|h| Key::Handle(h.value.id().to_string()))
        .collect();
    assert_eq!(keys.len(), 2800);
    let id = |i: usize| first.handles[i].value.id().to_string();
    etcd.put(&Key::Handle(id(5)).to_string(), r#"{"block":{}}"#)
        .unwrap();
    etcd.delete(&Key::Handle(id(9)).to_string()).unwrap();
    let before = store.request_count();
    let later = store.reread(&keys).await.unwrap().unwrap();
    assert_eq!(store.request_count() - before, 28);
    assert_eq!(later.handles.len(), 2799);
    let revision = |snapshot: &Snapshot, id: String| {
        snapshot
            .handles
            .iter()
            .find(|h| h.value.id() == *id.as_str())
            .map(|h| h.revision.clone())
    };
    assert_ne!(revision(&later, id(5)), revision(&first, id(5)));
    assert_eq!(revision(&later, id(6)), revision(&first, id(6)));
    assert_eq!(revision(&later, id(9)), None);
    assert!(later.revision.parse::<u64>().unwrap() > first.revision.parse().unwrap());
    let nothing = store.reread(&BTreeSet::new()).await.unwrap().unwrap();
    assert!(nothing.handles.is_empty());
}
