//! Whole reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use calipam_datastore::read::{Lookup, ProgressFn};
use calipam_datastore::{Datastore, Error};
use calipam_model::key::Key;
use calipam_model::snapshot::{DefectKind, Revision};
use calipam_testkit::datastore::{observe, quiet};
use calipam_testkit::servers::{Etcd, EtcdVersion};
use etcd_client::{CompactionOptions, Txn, TxnOp};

use super::support::{assert_same, entries, one_by_one, open, settings, start};

#[tokio::test(flavor = "multi_thread")]
async fn everything_is_read_in_order_whatever_the_size() {
    let here = EtcdVersion::all();
    for (version, blocks, most_requests) in [
        (EtcdVersion::V3_6, 3, 4),
        (EtcdVersion::V3_4, 63, 8),
        (EtcdVersion::V3_6, 700, 40),
    ] {
        if !here.contains(&version) {
            continue;
        }
        let etcd = Etcd::start_version(version).unwrap();
        etcd.put_all(&entries(blocks)).unwrap();
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
        assert_same(snapshot, &one_by_one(&etcd.entries().unwrap()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_no_sample_foresaw_are_read() {
    let mut all = entries(100);
    // Removes the affinities of node-1. Adds endpoints without addresses, and orphan handles whose IDs have another
    // prefix.
    all.retain(|(key, _)| !key.contains("/host/node-1"));
    for i in 0..9_000 {
        all.push((
            format!("/calico/ipam/v2/handle/zz-orphan-{i:05}"),
            br#"{"block":{}}"#.to_vec(),
        ));
        let key = format!("/calico/resources/v3/projectcalico.org/workloadendpoints/zz/n-k8s-p{i}-eth0");
        all.push((key, b"{}".to_vec()));
    }
    let etcd = start(&all);
    let snapshot = observe(&open(&etcd).await).await;
    assert_eq!(snapshot.handles.len(), 1400 + 9000);
    assert_eq!(snapshot.endpoints.len(), 1400 + 9000);
    assert_same(snapshot, &one_by_one(&etcd.entries().unwrap()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_great_number_of_nodes_and_affinities_is_read() {
    let mut all = entries(1);
    for i in 0..21_000 {
        let key = format!(
            "/calico/ipam/v2/host/n{i}/ipv4/block/10.{}.{}.0-26",
            i / 256,
            i % 256
        );
        all.push((key, b"{}".to_vec()));
        if i < 2500 {
            all.push((
                format!("/calico/resources/v3/projectcalico.org/nodes/n{i}"),
                b"{}".to_vec(),
            ));
        }
    }
    let etcd = start(&all);
    let snapshot = observe(&open(&etcd).await).await;
    assert_eq!((snapshot.affinities.len(), snapshot.nodes.len()), (21_001, 2501));
}

#[tokio::test]
async fn unknown_keys_and_undecodable_values_are_defects() {
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
    let etcd = start(&all);
    let snapshot = observe(&open(&etcd).await).await;
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
    let broken = snapshot
        .defects
        .iter()
        .find(|d| d.path.ends_with("broken"))
        .unwrap();
    assert!(matches!(broken.kind, DefectKind::Value(_)));
    assert_eq!(snapshot.affinities.len(), 2);
}

/// Reads while another client repeats `write`.
async fn beside<T>(mut write: impl AsyncFnMut(), read: impl Future<Output = T>) -> T {
    let repeat = async {
        loop {
            write().await;
        }
    };
    tokio::select! {
        read = read => read,
        () = repeat => unreachable!("the writer never ends"),
    }
}

/// A writer changes two keys in different ranges in one transaction; no read has only one of the changes.
#[tokio::test(flavor = "multi_thread")]
async fn a_read_is_of_one_revision() {
    let etcd = start(&entries(150));
    let mut client = etcd.client().await.unwrap();
    let write = async || {
        let put = |key: &str| TxnOp::put(key, r#"{"block":{}}"#, None);
        let ops = vec![
            put("/calico/ipam/v2/handle/aaa"),
            put("/calico/ipam/v2/handle/zzz"),
        ];
        client.txn(Txn::new().and_then(ops)).await.unwrap();
    };
    let store = open(&etcd).await;
    let read = async {
        let mut seen = Vec::new();
        while seen.len() < 12 {
            let snapshot = observe(&store).await;
            let revision = |id: &str| {
                let handle = snapshot.handles.iter().find(|h| h.value.id() == *id);
                handle.map(|h| h.revision.clone())
            };
            assert_eq!(revision("aaa"), revision("zzz"));
            seen.extend(revision("aaa"));
        }
        seen
    };
    let seen = beside(write, read).await;
    assert!(seen.iter().any(|r| *r != seen[0]), "the writer did nothing");
    assert!(matches!(seen[0], Revision::Etcd(_)));
}

/// Another client compacts every few milliseconds. The read starts over until it succeeds, or fails with a clear error.
#[tokio::test(flavor = "multi_thread")]
async fn compaction_during_the_read() {
    let etcd = start(&entries(400));
    let (mut client, mut compactions) = (etcd.client().await.unwrap(), 0);
    let compact = async || {
        let revision = client
            .put("/other", "x", None)
            .await
            .unwrap()
            .header()
            .unwrap()
            .revision();
        client
            .compact(revision, Some(CompactionOptions::new()))
            .await
            .unwrap();
        compactions += 1;
    };
    let store = open(&etcd).await;
    let read = async {
        for _ in 0..3 {
            match store.observe(&quiet()).await {
                Ok(snapshot) => assert_eq!(snapshot.handles.len(), 5600),
                Err(error) => {
                    assert!(
                        error.to_string().ends_with("was compacted, 4 times in a row"),
                        "{error}"
                    )
                }
            }
        }
    };
    beside(compact, read).await;
    assert!(compactions > 0);
    assert_eq!(observe(&store).await.handles.len(), 5600);
}

/// The server restarts between two reads: the next one connects again.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_between_two_reads() {
    let mut etcd = start(&entries(5));
    let store = open(&etcd).await;
    assert_eq!(observe(&store).await.blocks.len(), 5);
    etcd.restart().unwrap();
    assert_eq!(observe(&store).await.blocks.len(), 5);
    etcd.kill();
    let error = store.observe(&quiet()).await.unwrap_err();
    assert!(matches!(&error, Error::Connect(_)), "{error}");
}

/// Two endpoints of one store: the first fails between two reads, and the second takes over.
#[tokio::test(flavor = "multi_thread")]
async fn another_endpoint_takes_over() {
    let (mut first, second) = (start(&entries(5)), start(&entries(5)));
    let list = [first.endpoint(), second.endpoint()].join(",");
    let store = Datastore::open(&settings(&list, &[])).await.unwrap();
    assert_eq!(observe(&store).await.location, first.endpoint());
    first.kill();
    assert_eq!(observe(&store).await.location, second.endpoint());
    let handle = Lookup::Handle("x".into());
    assert_eq!(store.lookup(&handle).await.unwrap().location, second.endpoint());
    let keys = [Key::IpamConfig].into();
    assert!(store.reread(&keys).await.unwrap().unwrap().ipam_config.is_some());
}

/// A server that hangs during a run causes an error within seconds.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_between_two_reads() {
    let etcd = start(&entries(5));
    let store = open(&etcd).await;
    observe(&store).await;
    etcd.pause().unwrap();
    let begun = Instant::now();
    let error = store.observe(&quiet()).await.unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    assert!(matches!(error, Error::Connect(_)), "{error}");
}
