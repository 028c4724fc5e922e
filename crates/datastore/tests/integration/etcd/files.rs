//! Exports and snapshots of a real etcd give the same data as the etcd itself.

use std::fs;

use calipam_datastore::{Datastore, Error};
use calipam_files::FileError;
use calipam_testkit::datastore::{observe, quiet};
use calipam_testkit::servers::{Etcd, EtcdVersion};

use super::support::{assert_same, entries, open, start};
use crate::support::open_file;

#[tokio::test(flavor = "multi_thread")]
async fn three_ways_to_the_same_data() {
    for version in EtcdVersion::all() {
        let etcd = Etcd::start_version(version).unwrap();
        let mut all = entries(120);
        all.push(("/calico/ipam/v2/handle/broken".into(), b"{\xFF\n".to_vec()));
        all.push(("/calico/ipam/v2/handle/long".into(), vec![b' '; 20_000]));
        etcd.put_all(&all).unwrap();
        // Creates history, which a snapshot file also contains: a changed key, a deleted key, and a key that was
        // deleted and created again.
        let [a, b, c] = ["a", "b", "c"].map(|id| format!("/calico/ipam/v2/handle/{id}"));
        for key in [&a, &b, &c] {
            etcd.put(key, "{}").unwrap();
            etcd.put(key, r#"{"block":{"10.0.0.0/28":1}}"#).unwrap();
        }
        etcd.delete(&b).unwrap();
        etcd.delete(&c).unwrap();
        etcd.put(&c, "{}").unwrap();
        let store = open(&etcd).await;
        let live = observe(&store).await;
        assert_eq!(live.defects.len(), 2);
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["plain.jsonl", "packed.zst"] {
            let written = store.export(&path(name), &quiet()).await.unwrap();
            let read = observe(&open_file(&path(name)).await.unwrap()).await;
            assert_eq!(
                written as usize,
                live.nodes.len() + live.handles.len() + live.endpoints.len() + 245
            );
            assert_eq!((&read.revision, &read.coverage), (&live.revision, &live.coverage));
            assert_same(read, &live);
        }
        assert!(
            path("packed.zst").metadata().unwrap().len() * 5 < path("plain.jsonl").metadata().unwrap().len()
        );
        etcd.save_snapshot(&path("backup.db")).unwrap();
        let backup = open_file(&path("backup.db")).await.unwrap();
        let read = observe(&backup).await;
        assert_eq!(read.revision, live.revision);
        assert_same(read, &live);
        // Converts an etcd snapshot to an export.
        backup.export(&path("from-backup"), &quiet()).await.unwrap();
        let read = observe(&open_file(&path("from-backup")).await.unwrap()).await;
        assert_eq!(read.handles.len(), live.handles.len());
    }
}

#[tokio::test]
async fn exports_are_whole_or_not_there() {
    let etcd = start(&entries(2));
    let store = open(&etcd).await;
    let folder = tempfile::tempdir().unwrap();
    let error = store
        .export(&folder.path().join("no/such/folder"), &quiet())
        .await
        .unwrap_err();
    assert!(
        matches!(&error, Error::File(error) if matches!(error.kind, FileError::Io(_))),
        "{error}"
    );
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    store.export(&folder.path().join("x"), &quiet()).await.unwrap();
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count(),
        1,
        "nothing else is left behind"
    );
}

/// Reading a truncated or damaged snapshot succeeds or returns an error, but never panics or hangs.
#[tokio::test(flavor = "multi_thread")]
async fn damaged_snapshots_never_panic_or_hang() {
    let etcd = start(&entries(8));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("backup.db");
    etcd.save_snapshot(&path).unwrap();
    let whole = fs::read(&path).unwrap();
    let read = async |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        let store: Datastore = open_file(&path).await?;
        store.observe(&quiet()).await
    };
    assert_eq!(read(&whole).await.unwrap().blocks.len(), 8);
    for i in 0..60 {
        let error = read(&whole[..whole.len() * i / 60]).await.unwrap_err();
        let Error::File(calipam_files::Error { kind, .. }) = &error else {
            panic!("{error}")
        };
        let told = matches!(
            kind,
            FileError::Empty
                | FileError::UnknownKind(_)
                | FileError::SnapshotCut(_)
                | FileError::SnapshotDamaged(_)
        );
        assert!(told, "{i}: {error}");
    }
    for i in 1..40 {
        let mut bytes = whole.clone();
        bytes[whole.len() * i / 40] ^= 0x40;
        let error = read(&bytes).await.unwrap_err();
        assert!(
            matches!(&error, Error::File(error) if matches!(error.kind, FileError::SnapshotChecksum)),
            "{error}"
        );
    }
    // Without the checksum at its end, the file looks like the database of an etcd member. The reader must tolerate
    // damage in such a file.
    let database = &whole[..whole.len() - 32];
    assert_eq!(read(database).await.unwrap().blocks.len(), 8);
    for i in 0..200 {
        let mut bytes = database.to_vec();
        let at = i * 7919 * 13 % database.len();
        bytes[at] ^= 1 << (i % 8);
        if let Ok(snapshot) = read(&bytes).await {
            assert!(snapshot.blocks.len() <= 9);
        }
    }
}
