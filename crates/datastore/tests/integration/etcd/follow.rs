//! Following etcd gives the same data as a whole read. After any incident, everything is read again.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use calipam_check::{Options, check};
use calipam_datastore::Datastore;
use calipam_datastore::feed::{Broken, Followed, WholeReadReason};
use calipam_files::recording::{Change, Position, Positions, checksum};
use calipam_model::snapshot::Snapshot;
use calipam_testkit::allocator::{Churn, ChurnLog, Scene};
use calipam_testkit::cluster::{Cluster, ClusterSpec, Fault};
use calipam_testkit::datastore::quiet;
use calipam_testkit::servers::{Etcd, EtcdVersion, Tool, left_out};
use jiff::Timestamp;
use tokio::time::timeout;

use super::support::{assert_same, entries, open, start};

/// The time for which other clients keep writing. They continue if there were too few reads by then.
const WORK: Duration = Duration::from_secs(5);
const LIMIT: Duration = Duration::from_secs(90);

const BLOCK: &str = r#"{"block":{}}"#;
const OTHER: &str = r#"{"block":{},"deleted":false}"#;

fn handle(id: &str) -> String {
    format!("/calico/ipam/v2/handle/{id}")
}

/// A followed datastore and its known state.
struct Following {
    store: Datastore,
    snapshot: Snapshot,
    followed: Followed,
}

impl Following {
    async fn begin(etcd: &Etcd) -> Self {
        let store = open(etcd).await;
        let (snapshot, followed) = store.follow(&quiet()).await.unwrap();
        let following = Self {
            store,
            snapshot,
            followed,
        };
        following.assert_whole().await;
        following
    }

    /// Applies the changes. Returns the number of changed keys, or the reason why everything must be read again.
    async fn news(&mut self) -> Result<usize, WholeReadReason> {
        let changes = match self.followed.news().await {
            Ok(changes) => changes,
            Err(Broken::Lost(reason)) => return Err(reason),
            Err(Broken::Failed(error)) => panic!("{error}"),
        };
        self.followed.apply(&mut self.snapshot);
        self.assert_whole().await;
        Ok(changes)
    }

    async fn assert_whole(&self) {
        let found = &self.snapshot;
        let mut whole = self
            .store
            .observe_at(found.revision.parse().unwrap(), &quiet())
            .await
            .unwrap();
        // The newest creation time ever seen matters only for files.
        whole.newest_creation = found.newest_creation;
        whole.taken_at = found.taken_at;
        assert_same(whole.clone(), found);
        let report = |snapshot: &Snapshot| check(snapshot, &Options::default());
        assert_eq!(report(&whole), report(found), "revision {}", found.revision);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_followed_snapshot_equals_a_whole_read_while_others_write() {
    let mut cluster = Cluster::plain(ClusterSpec::new(6).v4_only().at(Timestamp::now()), 4, 8);
    for fault in [
        Fault::LeakedNoOwner,
        Fault::OrphanHandle,
        Fault::DuplicatePods,
        Fault::HandleCountHigh,
    ] {
        cluster.inject(fault, 2);
    }
    let scene = Arc::new(Scene::on_etcd(&cluster));
    let etcd = scene.world.keys();
    let mut following = Following::begin(etcd).await;

    let enough = |log: &ChurnLog| log.started > 20;
    let churn = Churn {
        workers: 4,
        operations: 100_000,
        enough,
        limit: LIMIT,
        ..Churn::default()
    };
    let (activity, workers) = (churn.activity.clone(), Arc::clone(&scene));
    let (done, finished) = mpsc::channel();
    let worker = std::thread::spawn(move || done.send(workers.churn(&churn)).unwrap());
    let (begin, mut reads, mut all) = (Instant::now(), 0, 0);
    let is_enough_read = |reads, all| reads >= 3 && all > 40;
    let log = loop {
        // Writes what no allocator writes: undecodable values, keys that are not Calico's, and configuration.
        let number = reads % 7;
        etcd.put(&handle(&format!("broken.{number}")), ["{", BLOCK][reads % 2])
            .unwrap();
        etcd.put(&format!("/calico/ipam/v2/@/odd-{number}"), "").unwrap();
        etcd.put("/calico/ipam/v2/config", r#"{"auto_allocate_blocks":true}"#)
            .unwrap();
        etcd.delete(&handle(&format!("broken.{}", (reads + 3) % 7)))
            .unwrap();
        etcd.delete("/calico/ipam/v2/config").unwrap();
        let changes = following.news().await.unwrap();
        (reads, all) = (reads + 1, all + changes);
        if begin.elapsed() > WORK && is_enough_read(reads, all) {
            activity.stop();
        }
        if let Ok(log) = finished.try_recv() {
            break log;
        }
    };
    worker.join().unwrap();
    assert!(
        enough(&log) && is_enough_read(reads, all),
        "{reads} reads of {all} changes: {log:?}"
    );
    following.news().await.unwrap();
    assert_eq!(following.news().await, Ok(0), "nothing has happened since");
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_is_read_again_after_a_compaction() {
    let etcd = start(&entries(20));
    let mut following = Following::begin(&etcd).await;
    etcd.put(&handle("new"), BLOCK).unwrap();
    let now = etcd.put("/elsewhere", "").unwrap();
    etcd.compact(now).unwrap();
    assert_eq!(following.news().await, Err(WholeReadReason::Compacted));
    // etcd still cannot report the last write again, since it was compacted.
    let mut following = Following::begin(&etcd).await;
    assert_eq!(following.news().await, Err(WholeReadReason::Compacted));
    etcd.put(&handle("newer"), BLOCK).unwrap();
    let mut following = Following::begin(&etcd).await;
    assert_eq!(following.news().await, Ok(0));

    let many: Vec<_> = (0..1_700)
        .map(|n| (handle(&format!("many.{n}")), b"{}".to_vec()))
        .collect();
    etcd.put_all(&many).unwrap();
    assert_eq!(following.news().await, Ok(1_700));
    assert_eq!(following.news().await, Ok(0));
}

/// A server that was restored from a backup has the same cluster ID, and reaches the same revisions again.
#[tokio::test(flavor = "multi_thread")]
async fn an_etcd_that_was_restored_is_read_whole() {
    let mut etcd = start(&entries(20));
    let backup = tempfile::tempdir().unwrap();
    etcd.kill();
    let copy = |from: &Path, to: &Path| {
        let status = Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
        assert!(status.success());
    };
    copy(&etcd.data_dir(), &backup.path().join("data"));
    etcd.restart().unwrap();
    for n in 0..5 {
        etcd.put(&handle(&format!("lost.{n}")), BLOCK).unwrap();
    }
    let mut following = Following::begin(&etcd).await;

    let known = following.followed.revision();
    let value = |value: &str| Some(value.as_bytes().to_vec());
    let last = Change {
        key: handle("lost.4").into(),
        revision: known,
        value: value(BLOCK),
    };
    let mut position = Position::at(known);
    position.note(&last);
    assert_ne!(
        checksum(&last),
        checksum(&Change {
            value: value(OTHER),
            ..last.clone()
        })
    );

    // In turn, the restored server is before the known revision; at the known revision, or after it, with other keys;
    // and at the known revision with another value of the same key.
    for (writes, name, what) in [
        (1, "other", "before"),
        (5, "other", "at"),
        (9, "other", "after"),
        (5, "lost", "at, the same key"),
    ] {
        etcd.kill();
        fs::remove_dir_all(etcd.data_dir()).unwrap();
        copy(&backup.path().join("data"), &etcd.data_dir());
        etcd.restart().unwrap();
        for n in 0..writes {
            etcd.put(&handle(&format!("{name}.{n}")), OTHER).unwrap();
        }
        following.store = open(&etcd).await;
        following.store.resume(&mut following.followed);
        let waited = timeout(LIMIT, following.followed.wait());
        waited.await.expect(what).unwrap();
        let positions = [("etcd".to_owned(), position)].into();
        let mut changes = following.store.changes_after(positions).await.unwrap();
        // The first request is abandoned, unless the server has already answered. After an abandoned request, the next
        // one can still prove that the history differs.
        let recorded = match timeout(Duration::ZERO, changes.reported()).await {
            Ok(recorded) => recorded,
            Err(_) => changes.reported().await,
        };
        assert!(
            matches!(recorded, Err(Broken::Lost(WholeReadReason::AnotherHistory(_)))),
            "{what}: {recorded:?}"
        );
        let why = following.news().await.unwrap_err();
        assert!(
            matches!(why, WholeReadReason::AnotherHistory(_)),
            "{what}: {why:?}"
        );
        assert!(!why.is_usual());
    }
}

/// etcd 3.4.23 may report too early that it has sent everything.
#[tokio::test(flavor = "multi_thread")]
async fn an_etcd_that_may_omit_changes_is_read_in_full() {
    if left_out(&[Tool::OldEtcd]) {
        return;
    }
    let etcd = Etcd::start_version(EtcdVersion::V3_4).unwrap();
    etcd.put_all(&entries(5)).unwrap();
    let found = Following::begin(&etcd).await.news().await;
    let version = etcd
        .client()
        .await
        .unwrap()
        .status()
        .await
        .unwrap()
        .version()
        .to_owned();
    let patch: u32 = version.rsplit('.').next().unwrap().parse().unwrap();
    let is_old = version.starts_with("3.4.") && patch < 25 || version.starts_with("3.5.") && patch < 8;
    // Recording the changes of an old etcd is also refused, before anything is written.
    let recorded = open(&etcd).await.changes_after(Positions::new()).await;
    let is_refused = recorded.is_err_and(|error| error.to_string().contains("too early"));
    assert_eq!(is_refused, is_old, "{version}");
    match &found {
        Err(WholeReadReason::CannotWatch(reason)) => {
            assert!(is_old && reason.contains("too early"), "{version}: {reason}");
        }
        found => assert!(!is_old && found.is_ok(), "{version}: {found:?}"),
    }
}
