//! Whole reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use calipam_datastore::read::{Lookup, ProgressFn};
use calipam_datastore::{Datastore, Error};
use calipam_model::key::Key;
use calipam_model::snapshot::{DefectKind, Revision};
use calipam_testkit::servers::{Etcd, EtcdVersion};
use etcd_client::{CompactionOptions, Txn, TxnOp};

use super::support::{assert_same, entries, one_by_one, open, plain_read, seed, settings};
use crate::support::quiet;

#[tokio::test(flavor = "multi_thread")]
async fn everything_is_read_in_order_whatever_the_size() {
    let here = EtcdVersion::all();
    for (version, blocks, most_requests) in
        [(EtcdVersion::V3_6, 3, 4), (EtcdVersion::V3_4, 63, 8), (EtcdVersion::V3_6, 700, 40)]
    {
        if !here.contains(&version) {
            continue;
        }
        let etcd = Etcd::start_version(version).unwrap();
        seed(&etcd, &entries(blocks)).await;
        let store = open(&etcd).await;
        let before = store.request_count();
        let last = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&last);
        let progress: ProgressFn = Arc::new(move |p| {
            assert!(p.expected >= p.read);
            seen.fetch_max(p.read, Ordering::Relaxed);
        });
        let snapshot = store.observe(&progress).await.unwrap();
        let sent = store.request_count() - before;
        assert!(sent <= most_requests, "{blocks} blocks took {sent} requests");
        assert_eq!(snapshot.blocks.len(), blocks);
        assert_eq!(snapshot.endpoints.len(), blocks * 14);
        let nodes = snapshot.nodes.len();
        assert_eq!(last.load(Ordering::Relaxed), (blocks * 30 + nodes + 3) as u64);
        let plain = plain_read(&mut etcd.client().await.unwrap()).await;
        assert_same(snapshot, &one_by_one(&plain));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_no_sample_foresaw_are_read() {
    let etcd = Etcd::start().unwrap();
    let mut all = entries(100);
    // Removes the affinities of node-1. Adds endpoints without addresses, and orphan handles whose IDs have another
    // prefix.
    all.retain(|(key, _)| !key.contains("/host/node-1"));
    for i in 0..9_000 {
        all.push((format!("/calico/ipam/v2/handle/zz-orphan-{i:05}"), br#"{"block":{}}"#.to_vec()));
        let key = format!("/calico/resources/v3/projectcalico.org/workloadendpoints/zz/n-k8s-p{i}-eth0");
        all.push((key, b"{}".to_vec()));
    }
    seed(&etcd, &all).await;
    let snapshot = open(&etcd).await.observe(&quiet()).await.unwrap();
    assert_eq!(snapshot.handles.len(), 1400 + 9000);
    assert_eq!(snapshot.endpoints.len(), 1400 + 9000);
    assert_same(snapshot, &one_by_one(&plain_read(&mut etcd.client().await.unwrap()).await));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_great_number_of_nodes_and_affinities_is_read() {
    let etcd = Etcd::start().unwrap();
    let mut all = entries(1);
    for i in 0..21_000 {
        let key = format!("/calico/ipam/v2/host/n{i}/ipv4/block/10.{}.{}.0-26", i / 256, i % 256);
        all.push((key, b"{}".to_vec()));
        if i < 2500 {
            all.push((format!("/calico/resources/v3/projectcalico.org/nodes/n{i}"), b"{}".to_vec()));
        }
    }
    seed(&etcd, &all).await;
    let snapshot = open(&etcd).await.observe(&quiet()).await.unwrap();
    assert_eq!((snapshot.affinities.len(), snapshot.nodes.len()), (21_001, 2501));
}

#[tokio::test]
async fn unknown_keys_and_undecodable_values_are_defects() {
    let etcd = Etcd::start().unwrap();
    let mut all = entries(1);
    for (key, value) in [
        ("/calico/ipam/v2/zzz", "{}"),
        ("/calico/ipam/v2/assignment/ipv4/block/strange", "{}"),
        ("/calico/ipam/v2/assignment/other", "{}"),
        ("/calico/ipam/v2/handle/broken", "{"),
        ("/calico/ipam/v2/@/node-1/ipv4/block/10.9.0.0-26", "{}"),
        ("/calico/ipam/v2/host/left-over", ""),
    ] {
        all.push((key.to_owned(), value.into()));
    }
    seed(&etcd, &all).await;
    let snapshot = open(&etcd).await.observe(&quiet()).await.unwrap();
    let mut paths: Vec<&str> = snapshot.defects.iter().map(|d| d.path.as_str()).collect();
    paths.sort_unstable();
    assert_eq!(
        paths,
        [
            "/calico/ipam/v2/assignment/ipv4/block/strange",
            "/calico/ipam/v2/assignment/other",
            "/calico/ipam/v2/handle/broken",
            "/calico/ipam/v2/zzz",
        ]
    );
    let broken = snapshot.defects.iter().find(|d| d.path.ends_with("broken")).unwrap();
    assert!(matches!(broken.kind, DefectKind::Value(_)));
    assert_eq!(snapshot.affinities.len(), 2);
}

/// A writer changes two keys in different ranges in one transaction; no read has only one of the changes.
#[tokio::test(flavor = "multi_thread")]
async fn a_read_is_of_one_revision() {
    let etcd = Etcd::start().unwrap();
    seed(&etcd, &entries(150)).await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut client = etcd.client().await.unwrap();
    let flag = Arc::clone(&stop);
    let writer = tokio::spawn(async move {
        while !flag.load(Ordering::Relaxed) {
            let put = |key: &str| TxnOp::put(key, r#"{"block":{}}"#, None);
            let ops = vec![put("/calico/ipam/v2/handle/aaa"), put("/calico/ipam/v2/handle/zzz")];
            client.txn(Txn::new().and_then(ops)).await.unwrap();
        }
    });
    let store = open(&etcd).await;
    let mut seen = Vec::new();
    while seen.len() < 12 {
        let snapshot = store.observe(&quiet()).await.unwrap();
        let revision = |id: &str| {
            let handle = snapshot.handles.iter().find(|h| h.value.id() == *id);
            handle.map(|h| h.revision.clone())
        };
        assert_eq!(revision("aaa"), revision("zzz"));
        seen.extend(revision("aaa"));
    }
    stop.store(true, Ordering::Relaxed);
    writer.await.unwrap();
    assert!(seen.iter().any(|r| *r != seen[0]), "the writer did nothing");
    assert!(matches!(seen[0], Revision::Etcd(_)));
}

/// Another client compacts every few milliseconds. The read starts over until it succeeds, or fails with a clear error.
#[tokio::test(flavor = "multi_thread")]
async fn compaction_during_the_read() {
    let etcd = Etcd::start().unwrap();
    seed(&etcd, &entries(400)).await;
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    let mut client = etcd.client().await.unwrap();
    let compactor = tokio::spawn(async move {
        let mut compactions = 0;
        while !flag.load(Ordering::Relaxed) {
            let revision = client.put("/other", "x", None).await.unwrap().header().unwrap().revision();
            client.compact(revision, Some(CompactionOptions::new())).await.unwrap();
            compactions += 1;
        }
        compactions
    });
    let store = open(&etcd).await;
    let mut outcomes = Vec::new();
    for _ in 0..3 {
        outcomes.push(store.observe(&quiet()).await);
    }
    stop.store(true, Ordering::Relaxed);
    assert!(compactor.await.unwrap() > 0);
    for outcome in outcomes {
        match outcome {
            Ok(snapshot) => assert_eq!(snapshot.handles.len(), 5600),
            Err(error) => {
                assert!(matches!(error, Error::Compacted { .. }), "{error}");
            }
        }
    }
    assert_eq!(store.observe(&quiet()).await.unwrap().handles.len(), 5600);
}

/// The server restarts between two reads: the next one connects again.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_between_two_reads() {
    let mut etcd = Etcd::start().unwrap();
    seed(&etcd, &entries(5)).await;
    let store = open(&etcd).await;
    assert_eq!(store.observe(&quiet()).await.unwrap().blocks.len(), 5);
    etcd.restart().unwrap();
    assert_eq!(store.observe(&quiet()).await.unwrap().blocks.len(), 5);
    etcd.kill();
    let error = store.observe(&quiet()).await.unwrap_err();
    assert!(matches!(&error, Error::Connect(_)), "{error}");
}

/// Two endpoints of one store: the first fails between two reads, and the second takes over.
#[tokio::test(flavor = "multi_thread")]
async fn another_endpoint_takes_over() {
    let (mut first, second) = (Etcd::start().unwrap(), Etcd::start().unwrap());
    for etcd in [&first, &second] {
        seed(etcd, &entries(5)).await;
    }
    let list = [first.endpoint(), second.endpoint()].join(",");
    let store = Datastore::open(&settings(&list, &[])).await.unwrap();
    assert_eq!(store.observe(&quiet()).await.unwrap().location, first.endpoint());
    first.kill();
    assert_eq!(store.observe(&quiet()).await.unwrap().location, second.endpoint());
    let handle = Lookup::Handle("x".into());
    assert_eq!(store.lookup(&handle).await.unwrap().location, second.endpoint());
    let keys = [Key::IpamConfig].into();
    assert!(store.reread(&keys).await.unwrap().unwrap().ipam_config.is_some());
}

/// A server that hangs during a run causes an error within seconds.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_between_two_reads() {
    let etcd = Etcd::start().unwrap();
    seed(&etcd, &entries(5)).await;
    let store = open(&etcd).await;
    store.observe(&quiet()).await.unwrap();
    etcd.pause().unwrap();
    let begun = Instant::now();
    let error = store.observe(&quiet()).await.unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    assert!(matches!(error, Error::Connect(_)), "{error}");
}
