//! Reads from an etcd while workers change it one key at a time.

use std::collections::BTreeSet;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use calipam_model::snapshot::Snapshot;
use calipam_testkit::allocator::{Churn, ChurnLog};
use calipam_testkit::cluster::{Cluster, ClusterSpec, Fault};
use calipam_testkit::servers::Etcd;
use etcd_client::GetOptions;
use jiff::Timestamp;

use super::findings::{checked, findings, lines, recheck};
use crate::support::{observe, open_etcd};

/// The pause before a recheck, which is longer than most operations of a worker. The test waits separately for the end
/// of longer operations.
const SETTLE: Duration = Duration::from_secs(2);
/// The time for which the workers run. They continue if there were too few reads by then, as on a busy machine, or if
/// no read fell between two writes.
const WORK: Duration = Duration::from_secs(8);
const LIMIT: Duration = Duration::from_secs(120);
/// The minimum number of distinct revisions to read.
const MIN_REVISIONS: usize = 3;

/// Returns true once the workers have completed enough operations.
fn is_enough(log: &ChurnLog) -> bool {
    log.started > 50 && log.stopped > 20 && log.claimed > 3 && log.released > 0
}

/// A cluster with faults that the workers do not touch.
fn cluster() -> Cluster {
    let mut cluster = Cluster::plain(ClusterSpec::new(6).v4_only().at(Timestamp::now()), 3, 6);
    for fault in [Fault::LeakedNoOwner, Fault::OrphanHandle, Fault::DuplicatePods, Fault::HandleCountHigh] {
        cluster.inject(fault, 2);
    }
    cluster
}

/// The content of etcd at one revision, read in one request by a plain client.
async fn exact(etcd: &Etcd, revision: i64, like: &Snapshot) -> Snapshot {
    let mut client = etcd.client().await.unwrap();
    let options = GetOptions::new().with_prefix().with_revision(revision);
    let answer = client.get("/calico/", Some(options)).await.unwrap();
    let mut snapshot = Snapshot {
        taken_at: like.taken_at,
        location: like.location.clone(),
        revision: like.revision.clone(),
        coverage: like.coverage.clone(),
        ..Snapshot::default()
    };
    for pair in answer.kvs() {
        snapshot.add_entry(pair.key(), pair.value(), pair.mod_revision());
    }
    snapshot
}

#[tokio::test(flavor = "multi_thread")]
async fn every_report_is_of_one_revision_and_without_false_findings() {
    let cluster = cluster();
    let truth = cluster.truth().lines();
    let etcd = Etcd::start().unwrap();
    cluster.write_to_etcd(&etcd.endpoint()).unwrap();
    let datastore = open_etcd(&etcd.endpoint()).await;
    let churn =
        Churn { workers: 6, operations: 100_000, enough: is_enough, limit: LIMIT, ..Churn::default() };
    let activity = churn.activity.clone();
    let begin = Instant::now();
    let (done, finished) = mpsc::channel();
    let endpoint = etcd.endpoint();
    let worker = std::thread::spawn(move || {
        done.send(churn.run(&endpoint, &cluster)).unwrap();
        cluster
    });
    let mut revisions = BTreeSet::new();
    let mut half_done = 0;
    let log = loop {
        let snapshot = observe(&datastore).await.unwrap();
        let read = Instant::now();
        revisions.insert(snapshot.revision.clone());
        let mut report = checked(&snapshot);
        let exact = exact(&etcd, snapshot.revision.parse().unwrap(), &snapshot).await;
        assert_eq!(lines(&findings(&exact)), lines(&report.findings), "the report is of no single revision");
        assert_eq!(exact.endpoints.len(), snapshot.endpoints.len());
        half_done += usize::from(lines(&report.findings) != truth);
        recheck(&datastore, (&snapshot, read), &mut report, (SETTLE, &activity)).await;
        assert_eq!(lines(&report.findings), truth, "a half-done operation is called a fault");
        if begin.elapsed() > WORK && revisions.len() >= MIN_REVISIONS && half_done > 0 {
            activity.stop();
        }
        if let Ok(log) = finished.try_recv() {
            break log.unwrap();
        }
    };
    worker.join().unwrap();
    assert!(revisions.len() >= MIN_REVISIONS, "the reader saw {} revisions", revisions.len());
    assert!(is_enough(&log), "{log:?}");
    assert!(half_done > 0, "no read fell between two writes: {log:?}");
    // After all operations have ended, only the injected faults are found.
    assert_eq!(lines(&findings(&observe(&datastore).await.unwrap())), truth);
}
