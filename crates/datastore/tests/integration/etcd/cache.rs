//! A check with a cache reads what a whole read reads; and whatever is wrong with the cache, or has happened to etcd, everything
//! is read.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use calipam_check::{Options, check};
use calipam_datastore::Datastore;
use calipam_datastore::cache::{CacheUse, CachedRead, WhyWhole};
use calipam_files::frames::{HEAD, MAGIC, Packer};
use calipam_model::snapshot::Snapshot;
use calipam_testkit::allocator::{Churn, ChurnLog};
use calipam_testkit::cluster::{Cluster, ClusterSpec, Fault};
use calipam_testkit::servers::{Etcd, EtcdVersion, Tool, left_out};
use etcd_client::CompactionOptions;
use jiff::Timestamp;

use super::support::{assert_same, entries, open, seed};
use crate::support::quiet;

/// How long others write while it is read with a cache; longer where little has been read by then.
const WORK: Duration = Duration::from_secs(5);
const LIMIT: Duration = Duration::from_secs(90);

async fn read(store: &Datastore, folder: &Path) -> CachedRead {
    let read = store.observe_with_cache(folder, &quiet()).await.unwrap();
    let found = &read.snapshot;
    let revision = found.revision.parse().unwrap();
    let mut whole = store.observe_at(revision, &quiet()).await.unwrap();
    // Only files go by the newest time that ever was.
    whole.newest_creation = found.newest_creation;
    whole.taken_at = found.taken_at;
    assert_same(whole.clone(), found);
    let report = |snapshot: &Snapshot| check(snapshot, &Options::default());
    assert_eq!(report(&whole), report(found), "revision {revision}");
    read
}

fn changes(read: &CachedRead) -> Option<usize> {
    assert_eq!(read.unsaved, None);
    match read.used {
        CacheUse::Changes { changes, .. } => Some(changes),
        CacheUse::Whole(_) => None,
        ref used => panic!("{used:?}"),
    }
}

fn why(read: &CachedRead) -> &WhyWhole {
    match &read.used {
        CacheUse::Whole(why) => why,
        used => panic!("{used:?}"),
    }
}

fn file_of(folder: &Path) -> PathBuf {
    let files: Vec<_> = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    let [only] = files.as_slice() else { panic!("{files:?}") };
    only.clone()
}

async fn put(etcd: &Etcd, key: &str, value: &str) {
    etcd.client().await.unwrap().put(key, value, None).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn while_others_write_a_cache_gives_what_a_whole_read_finds() {
    let mut cluster = Cluster::plain(ClusterSpec::new(6).v4_only().at(Timestamp::now()), 4, 8);
    for fault in [Fault::LeakedNoOwner, Fault::OrphanHandle, Fault::DuplicatePods, Fault::HandleCountHigh] {
        cluster.inject(fault, 2);
    }
    let etcd = Etcd::start().unwrap();
    cluster.write_to_etcd(&etcd.endpoint()).unwrap();
    let (store, folder) = (open(&etcd).await, tempfile::tempdir().unwrap());
    assert_eq!(*why(&read(&store, folder.path()).await), WhyWhole::NoCacheYet);

    let enough = |log: &ChurnLog| log.started > 20;
    let churn = Churn { workers: 4, operations: 100_000, enough, limit: LIMIT, ..Churn::default() };
    let (activity, endpoint) = (churn.activity.clone(), etcd.endpoint());
    let (done, finished) = mpsc::channel();
    let worker = std::thread::spawn(move || done.send(churn.run(&endpoint, &cluster)).unwrap());
    let (begin, mut reads, mut all) = (Instant::now(), 0, 0);
    let is_enough_read = |reads, all| reads >= 3 && all > 40;
    let log = loop {
        // What no allocator writes: values that cannot be decoded, keys that are nothing of Calico's, and configuration.
        let number = reads % 7;
        put(&etcd, &format!("/calico/ipam/v2/handle/broken.{number}"), ["{", r#"{"block":{}}"#][reads % 2])
            .await;
        put(&etcd, &format!("/calico/ipam/v2/@/odd-{number}"), "").await;
        put(&etcd, "/calico/ipam/v2/config", r#"{"auto_allocate_blocks":true}"#).await;
        let mut client = etcd.client().await.unwrap();
        client.delete(format!("/calico/ipam/v2/handle/broken.{}", (reads + 3) % 7), None).await.unwrap();
        client.delete("/calico/ipam/v2/config", None).await.unwrap();
        if let Some(changes) = changes(&read(&store, folder.path()).await) {
            (reads, all) = (reads + 1, all + changes);
        }
        if begin.elapsed() > WORK && is_enough_read(reads, all) {
            activity.stop();
        }
        if let Ok(log) = finished.try_recv() {
            break log.unwrap();
        }
    };
    worker.join().unwrap();
    assert!(enough(&log) && is_enough_read(reads, all), "{reads} reads of {all} changes: {log:?}");
    let last = read(&store, folder.path()).await;
    assert!(matches!(last.used, CacheUse::Changes { .. } | CacheUse::Whole(WhyWhole::ManyChanges)));
    assert_eq!(changes(&read(&store, folder.path()).await), Some(0), "nothing has happened since");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cache_that_is_damaged_or_strange_is_passed_over() {
    let (etcd, other) = (Etcd::start().unwrap(), Etcd::start().unwrap());
    seed(&etcd, &entries(40)).await;
    seed(&other, &entries(30)).await;
    let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (store, foreign) = (open(&etcd).await, open(&other).await);
    read(&store, folder.path()).await;
    read(&foreign, elsewhere.path()).await;
    let path = file_of(folder.path());
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    put(&etcd, "/calico/ipam/v2/handle/new", r#"{"block":{}}"#).await;
    assert_eq!(changes(&read(&store, folder.path()).await), Some(1));
    let sound = fs::read(&path).unwrap();

    let strange = {
        let header = br#"H{"format":1,"program":"0.0.1","packing":7,"cluster":{"clusterId":"0","guid":""}}"#;
        let mut file = Vec::new();
        Packer::new().unwrap().push(header, &mut file).unwrap();
        file
    };
    let mut cases: Vec<(String, Vec<u8>)> = vec![
        ("empty".into(), Vec::new()),
        ("words".into(), b"just words\n".to_vec()),
        ("of another version".into(), strange),
    ];
    // What is appended, too; but if one of the heads after the first state is damaged, that may be what a killed run left.
    let heads: Vec<_> = (0..sound.len()).filter(|place| sound[*place..].starts_with(&MAGIC)).collect();
    let [.., appended, _] = heads.as_slice() else { panic!("{heads:?}") };
    for place in (0..*appended).step_by(appended / 9).chain([appended + HEAD, appended + HEAD + 9]) {
        let mut flipped = sound.clone();
        flipped[place] ^= 0x10;
        cases.push((format!("flipped at {place}"), flipped));
    }
    for (what, bytes) in cases {
        fs::write(&path, bytes).unwrap();
        let found = read(&store, folder.path()).await;
        assert!(matches!(why(&found), WhyWhole::Unusable(_)), "{what}: {:?}", found.used);
        assert!(!why(&found).is_usual());
        assert_eq!(changes(&read(&store, folder.path()).await), Some(0), "{what}: it was made anew");
    }
    // Of another etcd, which may call itself the same.
    fs::write(&path, fs::read(file_of(elsewhere.path())).unwrap()).unwrap();
    let found = read(&store, folder.path()).await;
    assert!(matches!(why(&found), WhyWhole::Unusable(_) | WhyWhole::AnotherHistory(_)), "{:?}", found.used);
    assert!(!why(&found).is_usual());
    // What a killed run left at the end is passed over: the changes are read once more.
    for cut in [1, 30, 70] {
        fs::write(&path, &sound[..sound.len() - cut]).unwrap();
        assert_eq!(changes(&read(&store, folder.path()).await), Some(1), "{cut}");
        assert_eq!(changes(&read(&store, folder.path()).await), Some(0), "{cut}");
    }
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink(file_of(elsewhere.path()), &path).unwrap();
    assert!(matches!(why(&read(&store, folder.path()).await), WhyWhole::Unusable(_)));

    // A place that cannot be written is told, and the check goes on.
    let file = folder.path().join("file");
    fs::write(&file, "mine").unwrap();
    let unsaved = read(&store, &file).await;
    assert!(unsaved.unsaved.is_some(), "{:?}", unsaved.used);
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_at_once_do_not_hurt_each_other() {
    let etcd = Etcd::start().unwrap();
    seed(&etcd, &entries(40)).await;
    let (store, folder) = (open(&etcd).await, tempfile::tempdir().unwrap());
    for round in 0..4 {
        put(&etcd, "/calico/ipam/v2/handle/new", &format!(r#"{{"block":{{"10.0.0.0/28":{round}}}}}"#)).await;
        let (first, second) = tokio::join!(read(&store, folder.path()), read(&store, folder.path()));
        assert_eq!([first.unsaved, second.unsaved], [None, None]);
        assert!(changes(&read(&store, folder.path()).await).is_some_and(|changes| changes <= 1), "{round}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_etcd_has_forgotten_is_read_whole() {
    let etcd = Etcd::start().unwrap();
    seed(&etcd, &entries(20)).await;
    let (store, folder) = (open(&etcd).await, tempfile::tempdir().unwrap());
    read(&store, folder.path()).await;
    put(&etcd, "/calico/ipam/v2/handle/new", r#"{"block":{}}"#).await;
    put(&etcd, "/elsewhere", "").await;
    let mut client = etcd.client().await.unwrap();
    let now = client.get("/calico/ipam/v2/handle/new", None).await.unwrap().header().unwrap().revision();
    client.compact(now, Some(CompactionOptions::new().with_physical())).await.unwrap();
    assert_eq!(*why(&read(&store, folder.path()).await), WhyWhole::Compacted);
    // The last write is still one that cannot be told again.
    assert_eq!(*why(&read(&store, folder.path()).await), WhyWhole::Compacted);
    put(&etcd, "/calico/ipam/v2/handle/newer", r#"{"block":{}}"#).await;
    read(&store, folder.path()).await;
    assert_eq!(changes(&read(&store, folder.path()).await), Some(0));

    // Much has changed: it is time for a new cache.
    let many: Vec<_> =
        (0..1_700).map(|n| (format!("/calico/ipam/v2/handle/many.{n}"), b"{}".to_vec())).collect();
    seed(&etcd, &many).await;
    assert_eq!(changes(&read(&store, folder.path()).await), Some(1_700));
    assert_eq!(*why(&read(&store, folder.path()).await), WhyWhole::ManyChanges);
    assert_eq!(changes(&read(&store, folder.path()).await), Some(0));
}

/// A server that was restored from a backup has the same names, and comes to the same revisions again.
#[tokio::test(flavor = "multi_thread")]
async fn an_etcd_that_was_restored_is_read_whole() {
    let mut etcd = Etcd::start().unwrap();
    seed(&etcd, &entries(20)).await;
    let backup = tempfile::tempdir().unwrap();
    etcd.kill();
    let copy = |from: &Path, to: &Path| {
        let status = Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
        assert!(status.success());
    };
    copy(&etcd.data_dir(), &backup.path().join("data"));
    etcd.restart().unwrap();
    let folder = tempfile::tempdir().unwrap();
    for n in 0..5 {
        put(&etcd, &format!("/calico/ipam/v2/handle/lost.{n}"), r#"{"block":{}}"#).await;
    }
    read(&open(&etcd).await, folder.path()).await;
    let kept = fs::read(file_of(folder.path())).unwrap();

    // The backup is before the revision of the cache; then at it, and after it, with other content.
    for (writes, what) in [(1, "before"), (5, "at"), (9, "after")] {
        etcd.kill();
        fs::remove_dir_all(etcd.data_dir()).unwrap();
        copy(&backup.path().join("data"), &etcd.data_dir());
        etcd.restart().unwrap();
        for n in 0..writes {
            put(&etcd, &format!("/calico/ipam/v2/handle/other.{n}"), r#"{"block":{}}"#).await;
        }
        fs::write(file_of(folder.path()), &kept).unwrap();
        let found = read(&open(&etcd).await, folder.path()).await;
        assert!(matches!(why(&found), WhyWhole::AnotherHistory(_)), "{what}: {:?}", found.used);
        assert!(!why(&found).is_usual());
    }
}

/// etcd 3.4.23 may say that it has told everything before it has.
#[tokio::test(flavor = "multi_thread")]
async fn of_an_etcd_that_may_leave_changes_out_everything_is_read() {
    if left_out(&[Tool::OldEtcd]) {
        return;
    }
    let etcd = Etcd::start_version(EtcdVersion::V3_4).unwrap();
    seed(&etcd, &entries(5)).await;
    let (store, folder) = (open(&etcd).await, tempfile::tempdir().unwrap());
    assert_eq!(*why(&read(&store, folder.path()).await), WhyWhole::NoCacheYet);
    let found = read(&store, folder.path()).await;
    let version = etcd.client().await.unwrap().status().await.unwrap().version().to_owned();
    let patch: u32 = version.rsplit('.').next().unwrap().parse().unwrap();
    let is_old = version.starts_with("3.4.") && patch < 25 || version.starts_with("3.5.") && patch < 8;
    match &found.used {
        CacheUse::Whole(WhyWhole::CannotWatch(reason)) => {
            assert!(is_old && reason.contains("too early"), "{version}: {reason}");
        }
        used => assert!(!is_old && matches!(used, CacheUse::Changes { .. }), "{version}: {used:?}"),
    }
}
