//! Writes by compare-and-swap.

use calipam_datastore::write::{Batch, Change, Precondition, Swap, Writer};
use calipam_datastore::{Datastore, Error, Failure, Server};
use calipam_model::handle::Handle;
use calipam_model::key::Key;
use calipam_model::snapshot::Revision;
use calipam_model::writable::Object;
use calipam_testkit::datastore::{consent, observe, quiet};
use calipam_testkit::servers::{Entries, Etcd, EtcdOptions};

use super::support::{entries, open, settings, start};
use crate::support::open_file;

async fn started() -> (Etcd, Datastore, Writer) {
    let etcd = start(&entries(3));
    let store = open(&etcd).await;
    let writer = store.writer(consent("0f0e1d2c")).unwrap();
    (etcd, store, writer)
}

/// The current revision of an object, which must exist.
async fn revision(writer: &Writer, key: &Key) -> Revision {
    writer.read(std::slice::from_ref(key)).await.unwrap()[0]
        .clone()
        .unwrap()
        .revision
}

fn create(id: &str) -> Change {
    let (key, object) = handle(id);
    Change::create(key, object.encode())
}

/// A batch of one change on one condition.
fn batch(change: &Change, key: Key, expected: Precondition) -> Batch {
    Batch {
        changes: vec![change.clone()],
        evidence: vec![(key, expected)],
    }
}

fn unconditional(changes: Vec<Change>) -> Batch {
    Batch {
        changes,
        evidence: Vec::new(),
    }
}

fn block_key(n: usize) -> Key {
    Key::Block(format!("10.0.0.{}/28", n * 16).parse().unwrap())
}

fn handle(id: &str) -> (Key, Object) {
    let mut handle = Handle::new(id);
    handle.set_count("10.0.0.0/28".parse().unwrap(), 1);
    (Key::Handle(id.to_owned()), Object::Handle(handle))
}

#[tokio::test]
async fn a_batch_takes_place_as_a_whole() {
    let (etcd, _store, writer) = started().await;
    let keys = [block_key(0), Key::Handle("no-such".into())];
    let read = writer.read(&keys).await.unwrap();
    let stored = read[0].clone().unwrap();
    assert!(read[1].is_none());
    let Some(Object::Block(content)) = &stored.object else {
        panic!("{stored:?}")
    };
    let mut block = content.sound().unwrap().clone();
    let handle_id = block.attributes().next().unwrap().handle().unwrap().to_string();
    block.update(|edit| edit.release(&[0]));
    let old_handle = Key::Handle(handle_id);
    let (new_key, new_handle) = handle("fresh");
    let node = Key::Node("node-0".into());
    let node_revision = revision(&writer, &node).await;
    let batch = Batch {
        changes: vec![
            Change::update(
                block_key(0),
                stored.revision.clone(),
                Object::from(block.clone()).encode(),
            ),
            Change::delete(old_handle.clone(), revision(&writer, &old_handle).await),
            Change::create(new_key.clone(), new_handle.encode()),
        ],
        evidence: vec![(node, Precondition::At(node_revision))],
    };
    let before = etcd.entries().unwrap();
    let Swap::Done(revisions) = writer.commit(&batch).await.unwrap() else {
        panic!("lost")
    };
    assert_eq!(revisions.len(), 3);
    let after = writer.read(&[block_key(0), old_handle, new_key]).await.unwrap();
    assert_eq!(after[0].as_ref().map(|s| &s.revision), revisions[0].as_ref());
    assert_eq!(after[0].as_ref().unwrap().raw, Object::from(block).encode());
    assert!(after[1].is_none() && after[2].is_some());
    // If the batch is sent a second time, the objects are not in the states that it expects.
    assert_eq!(writer.commit(&batch).await.unwrap(), Swap::Conflict);
    let later = etcd.entries().unwrap();
    let changed =
        |a: &Entries, b: &Entries| a.iter().filter(|(key, value)| b.get(*key) != Some(value)).count();
    assert_eq!((changed(&before, &later), changed(&later, &before)), (2, 2));
}

#[tokio::test]
async fn one_condition_that_fails_stops_all() {
    let (etcd, _store, writer) = started().await;
    let before = etcd.entries().unwrap();
    let revision = revision(&writer, &block_key(1)).await;
    let (fresh, stale) = (create("fresh"), Revision::Etcd(1));
    let there = Change::create(block_key(1), handle("fresh").1.encode());
    for batch in [
        // A piece of evidence exists but should not, has another version, or is missing.
        batch(&fresh, block_key(1), Precondition::Absent),
        batch(
            &fresh,
            Key::Node("node-0".into()),
            Precondition::At(stale.clone()),
        ),
        batch(
            &fresh,
            Key::Node("gone".into()),
            Precondition::At(revision.clone()),
        ),
        // One of two changes is out of date.
        unconditional(vec![fresh.clone(), Change::delete(block_key(1), stale)]),
        // The object to create already exists.
        unconditional(vec![there, Change::delete(block_key(2), revision)]),
    ] {
        assert_eq!(writer.commit(&batch).await.unwrap(), Swap::Conflict, "{batch:?}");
    }
    assert_eq!(etcd.entries().unwrap(), before);
    assert_eq!(
        writer.commit(&Batch::default()).await.unwrap(),
        Swap::Done(Vec::new())
    );
}

#[tokio::test]
async fn batches_that_etcd_would_reject_are_never_sent() {
    let (etcd, store, writer) = started().await;
    let before = etcd.entries().unwrap();
    let creates = |count: usize| {
        (0..count)
            .map(|n| create(&format!("h-{n}")))
            .collect::<Vec<Change>>()
    };
    let absent = |count| {
        (0..count)
            .map(|n| (Key::Handle(format!("no-{n}")), Precondition::Absent))
            .collect()
    };
    let large = vec![b' '; 1_500_001];
    let (key, small) = handle("x");
    for batch in [
        unconditional(creates(129)),
        Batch {
            changes: creates(1),
            evidence: absent(128),
        },
        unconditional(vec![Change::create(key.clone(), large)]),
        // No stored key has revision 0. A comparison with 0 would match a missing key.
        unconditional(vec![Change::update(key, Revision::Etcd(0), small.encode())]),
        batch(
            &create("h-0"),
            Key::Pod {
                namespace: "a".into(),
                name: "b".into(),
            },
            Precondition::Absent,
        ),
    ] {
        let error = writer.commit(&batch).await.unwrap_err();
        assert!(matches!(error, Error::Write { .. }), "{error}");
    }
    assert_eq!(etcd.entries().unwrap(), before);
    // A batch exactly at the limit is sent.
    let full = unconditional(creates(128));
    assert!(matches!(writer.commit(&full).await.unwrap(), Swap::Done(_)));
    assert_eq!(observe(&store).await.handles.len(), 3 * 14 + 128);
}

#[tokio::test]
async fn a_read_only_user_gets_a_clear_error() {
    let reader = ("reader", "pass-r");
    let etcd = EtcdOptions::new()
        .login("admin", "pass-a")
        .reader(reader.0, reader.1, "/calico/")
        .start();
    let etcd = etcd.unwrap();
    let variables = [("ETCD_USERNAME", reader.0), ("ETCD_PASSWORD", reader.1)];
    let store = Datastore::open(&settings(&etcd.endpoint(), &variables))
        .await
        .unwrap();
    let batch = unconditional(vec![create("x")]);
    let error = store
        .writer(consent("0f0e1d2c"))
        .unwrap()
        .commit(&batch)
        .await
        .unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("cannot write /calico/ipam/v2/handle/x: permission denied"),
        "{text}"
    );
    let Error::Write {
        server: Server::Etcd,
        failure,
        ..
    } = error
    else {
        panic!("{error}")
    };
    assert_eq!(failure, Failure::PermissionDenied(String::new()));
}

#[tokio::test]
async fn files_are_never_written() {
    let etcd = start(&entries(1));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cluster.jsonl");
    open(&etcd).await.export(&path, &quiet()).await.unwrap();
    let error = open_file(&path)
        .await
        .unwrap()
        .writer(consent("0f0e1d2c"))
        .unwrap_err();
    assert!(
        error.to_string().ends_with(": files are read, but never changed"),
        "{error}"
    );
}

/// Creates handles in parallel, each in its own batch with a piece of evidence.
async fn create_at_once(
    writer: &Writer,
    ids: &[String],
    evidence: impl Fn(usize) -> (Key, Precondition),
) -> Vec<calipam_datastore::Result<Swap>> {
    let commit = |(index, id): (usize, &String)| {
        let (key, expected) = evidence(index);
        let (writer, batch) = (writer.clone(), batch(&create(id), key, expected));
        tokio::spawn(async move { writer.commit(&batch).await })
    };
    let running: Vec<_> = ids.iter().enumerate().map(commit).collect();
    let mut swaps = Vec::new();
    for running in running {
        swaps.push(running.await.unwrap());
    }
    swaps
}

#[tokio::test]
async fn parallel_batches_share_requests_but_succeed_independently() {
    let (etcd, store, writer) = started().await;
    let current = revision(&writer, &block_key(0)).await;
    let ids: Vec<String> = (0..500).map(|n| format!("h-{n}")).collect();

    // The first and the last handle already exist.
    for taken in [&ids[0], &ids[499]] {
        let (key, object) = handle(taken);
        etcd.put(&key.to_string(), object.encode()).unwrap();
    }
    let there = etcd.entries().unwrap();
    let before = store.request_count();
    let evidence = |_| (block_key(0), Precondition::At(current.clone()));
    let swaps: Vec<Swap> = create_at_once(&writer, &ids, evidence)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    let requests = store.request_count() - before;
    assert!(requests < 300, "{requests} requests for 500 writes");
    for (index, swap) in swaps.iter().enumerate() {
        assert_eq!(*swap == Swap::Conflict, index % 499 == 0, "{index}: {swap:?}");
    }
    let now = etcd.entries().unwrap();
    assert_eq!(now.len(), there.len() + 498);
    assert!(
        there.iter().all(|(key, entry)| now.get(key) == Some(entry)),
        "what was there is as it was"
    );

    // The returned revisions are those of the writes.
    let before = store.request_count();
    let read = |id: &String| {
        let (writer, keys) = (writer.clone(), [id.clone(), format!("no-{id}")].map(Key::Handle));
        tokio::spawn(async move { writer.read(&keys).await.unwrap() })
    };
    let running: Vec<_> = ids.iter().map(read).collect();
    for ((id, swap), running) in ids.iter().zip(&swaps).zip(running) {
        let found = running.await.unwrap();
        let [Some(found), None] = found.as_slice() else {
            panic!("{id}: {found:?}")
        };
        assert_eq!(found.raw, handle(id).1.encode(), "{id}");
        if let Swap::Done(revisions) = swap {
            assert_eq!(revisions.as_slice(), [Some(found.revision.clone())], "{id}");
        }
    }
    let requests = store.request_count() - before;
    assert!(requests < 100, "{requests} requests for 500 reads");
}

#[tokio::test]
async fn batches_that_change_what_others_expect_are_never_merged() {
    let (_etcd, _store, writer) = started().await;
    // Each batch creates a handle on the condition that the next handle in the ring is missing. In no order can the
    // conditions of all batches be met.
    let ids: Vec<String> = (0..60).map(|n| format!("ring-{n}")).collect();
    let next = |index: usize| {
        (
            Key::Handle(ids[(index + 1) % ids.len()].clone()),
            Precondition::Absent,
        )
    };
    let swaps = create_at_once(&writer, &ids, next).await;
    let done = swaps
        .iter()
        .filter(|swap| matches!(swap, Ok(Swap::Done(_))))
        .count();
    let lost = swaps
        .iter()
        .filter(|swap| matches!(swap, Ok(Swap::Conflict)))
        .count();
    assert!(done > 0 && lost > 0 && done + lost == 60, "{swaps:?}");
}

#[tokio::test]
async fn batches_are_sent_alone_to_a_server_with_lower_limits() {
    let etcd = EtcdOptions::new().argument("--max-txn-ops=5").start().unwrap();
    let writer = open(&etcd).await.writer(consent("0f0e1d2c")).unwrap();
    let mut left: Vec<String> = (0..200).map(|n| format!("h-{n}")).collect();
    // Sends failed batches again, as the executor does after another read.
    for _ in 0..2 {
        let swaps = create_at_once(&writer, &left, |_| (block_key(0), Precondition::Absent)).await;
        let ended: Vec<(String, calipam_datastore::Result<Swap>)> = left.drain(..).zip(swaps).collect();
        for (id, swap) in ended {
            match swap {
                Ok(Swap::Done(_)) => {}
                Ok(Swap::Conflict) => panic!("{id} is lost"),
                Err(error) => {
                    assert!(error.to_string().contains("too many operations"), "{error}");
                    left.push(id);
                }
            }
        }
    }
    assert!(left.is_empty(), "{left:?}");
}
