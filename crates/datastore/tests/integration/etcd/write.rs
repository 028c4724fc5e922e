//! Writing by compare-and-swap.

use calipam_datastore::write::{Batch, Change, Expect, Swap, Writer};
use calipam_datastore::{Datastore, Error, Failure, Server};
use calipam_model::handle::Handle;
use calipam_model::key::Key;
use calipam_model::object::Object;
use calipam_model::snapshot::Revision;
use calipam_testkit::servers::Etcd;
use etcd_client::Client;

use super::support::{entries, open, plain_read, seed};
use crate::support::{consent, open_file, quiet};

async fn start() -> (Etcd, Datastore, Writer, Client) {
    let etcd = Etcd::start().unwrap();
    seed(&etcd, &entries(3)).await;
    let store = open(&etcd).await;
    let writer = store.writer(consent()).unwrap();
    let client = etcd.client().await.unwrap();
    (etcd, store, writer, client)
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
    let (_etcd, _store, writer, mut client) = start().await;
    let keys = [block_key(0), Key::Handle("no-such".into())];
    let read = writer.read(&keys).await.unwrap();
    let stored = read[0].clone().unwrap();
    assert!(read[1].is_none());
    let Some(Object::Block(content)) = &stored.object else { panic!("{stored:?}") };
    let mut block = content.sound().unwrap().clone();
    let handle_id = block.attributes().next().unwrap().handle().unwrap().to_string();
    block.update(|edit| edit.release(&[0]));
    let old_handle = Key::Handle(handle_id);
    let revision = writer.read(std::slice::from_ref(&old_handle)).await.unwrap()[0].clone().unwrap().revision;
    let (new_key, new_handle) = handle("fresh");
    let node = Key::Node("node-0".into());
    let node_revision = writer.read(std::slice::from_ref(&node)).await.unwrap()[0].clone().unwrap().revision;
    let batch = Batch {
        changes: vec![
            Change::update(block_key(0), stored.revision.clone(), Object::from(block.clone()).encode()),
            Change::delete(old_handle.clone(), revision),
            Change::create(new_key.clone(), new_handle.encode()),
        ],
        evidence: vec![(node, Expect::At(node_revision))],
    };
    let before = plain_read(&mut client).await;
    let Swap::Done(revisions) = writer.commit(&batch).await.unwrap() else { panic!("lost") };
    assert_eq!(revisions.len(), 3);
    let after = writer.read(&[block_key(0), old_handle, new_key]).await.unwrap();
    assert_eq!(after[0].as_ref().map(|s| &s.revision), revisions[0].as_ref());
    assert_eq!(after[0].as_ref().unwrap().raw, Object::from(block).encode());
    assert!(after[1].is_none() && after[2].is_some());
    // The same batch again finds nothing as it expects.
    assert_eq!(writer.commit(&batch).await.unwrap(), Swap::Lost);
    let later = plain_read(&mut client).await;
    let changed = |a: &[calipam_datastore::raw::RawKv], b: &[calipam_datastore::raw::RawKv]| {
        a.iter().filter(|entry| !b.contains(entry)).count()
    };
    assert_eq!((changed(&before, &later), changed(&later, &before)), (2, 2));
}

#[tokio::test]
async fn one_condition_that_fails_stops_all() {
    let (_etcd, _store, writer, mut client) = start().await;
    let before = plain_read(&mut client).await;
    let revision = writer.read(&[block_key(1)]).await.unwrap()[0].clone().unwrap().revision;
    let (key, object) = handle("fresh");
    let create = Change::create(key, object.encode());
    let stale = Revision::Etcd(1);
    let node = Key::Node("node-0".into());
    for batch in [
        // A piece of evidence is there that should not be, or is another version, or is not there.
        Batch { changes: vec![create.clone()], evidence: vec![(block_key(1), Expect::Absent)] },
        Batch { changes: vec![create.clone()], evidence: vec![(node, Expect::At(stale.clone()))] },
        Batch {
            changes: vec![create.clone()],
            evidence: vec![(Key::Node("gone".into()), Expect::At(revision.clone()))],
        },
        // One of two changes is out of date.
        Batch { changes: vec![create, Change::delete(block_key(1), stale)], evidence: Vec::new() },
        // What is to be created is there.
        Batch {
            changes: vec![
                Change::create(block_key(1), object.encode()),
                Change::delete(block_key(2), revision),
            ],
            evidence: Vec::new(),
        },
    ] {
        assert_eq!(writer.commit(&batch).await.unwrap(), Swap::Lost, "{batch:?}");
    }
    assert_eq!(plain_read(&mut client).await, before);
    assert_eq!(writer.commit(&Batch::default()).await.unwrap(), Swap::Done(Vec::new()));
}

#[tokio::test]
async fn what_etcd_would_not_take_is_never_sent() {
    let (_etcd, store, writer, mut client) = start().await;
    let before = plain_read(&mut client).await;
    let creates = |count: usize| -> Vec<Change> {
        (0..count)
            .map(|n| {
                let (key, object) = handle(&format!("h-{n}"));
                Change::create(key, object.encode())
            })
            .collect()
    };
    let absent = |count| (0..count).map(|n| (Key::Handle(format!("no-{n}")), Expect::Absent)).collect();
    let large = vec![b' '; 1_500_001];
    let (key, small) = handle("x");
    for batch in [
        Batch { changes: creates(129), evidence: Vec::new() },
        Batch { changes: creates(1), evidence: absent(128) },
        Batch { changes: vec![Change::create(key.clone(), large)], evidence: Vec::new() },
        // No stored key has revision 0: this would be true of an absent one.
        Batch { changes: vec![Change::update(key, Revision::Etcd(0), small.encode())], evidence: Vec::new() },
        Batch {
            changes: creates(1),
            evidence: vec![(Key::Pod { namespace: "a".into(), name: "b".into() }, Expect::Absent)],
        },
    ] {
        let error = writer.commit(&batch).await.unwrap_err();
        assert!(matches!(error, Error::Write { .. }), "{error}");
    }
    assert_eq!(plain_read(&mut client).await, before);
    // Just at the limit.
    let full = Batch { changes: creates(128), evidence: Vec::new() };
    assert!(matches!(writer.commit(&full).await.unwrap(), Swap::Done(_)));
    assert_eq!(store.observe(&quiet()).await.unwrap().handles.len(), 3 * 14 + 128);
}

#[tokio::test]
async fn who_may_only_read_is_told() {
    use calipam_testkit::servers::EtcdOptions;
    let reader = ("reader", "pass-r");
    let etcd = EtcdOptions::new().login("admin", "pass-a").reader(reader.0, reader.1, "/calico/").start();
    let etcd = etcd.unwrap();
    let variables = [("ETCD_USERNAME", reader.0), ("ETCD_PASSWORD", reader.1)];
    let store = Datastore::open(&super::support::settings(&etcd.endpoint(), &variables)).await.unwrap();
    let (key, object) = handle("x");
    let batch = Batch { changes: vec![Change::create(key, object.encode())], evidence: Vec::new() };
    let error = store.writer(consent()).unwrap().commit(&batch).await.unwrap_err();
    assert!(
        error.to_string().contains("cannot write /calico/ipam/v2/handle/x: permission denied"),
        "{error}"
    );
    let Error::Write { server: Server::Etcd, failure, .. } = error else { panic!("{error}") };
    assert_eq!(failure, Failure::PermissionDenied(String::new()));
}

#[tokio::test]
async fn files_are_never_written() {
    let etcd = Etcd::start().unwrap();
    seed(&etcd, &entries(1)).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cluster.jsonl");
    open(&etcd).await.export(&path, &quiet()).await.unwrap();
    let error = open_file(&path).await.unwrap().writer(consent()).unwrap_err();
    assert!(matches!(error, Error::NotWritable { .. }), "{error}");
}
