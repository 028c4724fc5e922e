//! Checks that the explorer's servers answer like real ones.

use std::sync::Arc;

use calipam_datastore::Datastore;
use calipam_datastore::write::{Batch, Change, Precondition, Swap};
use calipam_explore::world::{World, etcd, kubernetes};
use calipam_model::key::Key;
use calipam_model::snapshot::DatastoreKind;
use calipam_model::writable::Object;
use calipam_testkit::datastore;
use calipam_testkit::kube::{Flavour, Kinds, lease};
use calipam_testkit::memory::MemoryStore;
use calipam_testkit::servers::Etcd;

/// The answer to a batch: whether the batch was applied, and the handle afterwards.
type Answer = (bool, Option<Object>);

/// The answers to writes of a handle at current and outdated versions.
async fn answers(store: &Datastore) -> Vec<Answer> {
    let writer = store.writer(datastore::consent("")).unwrap();
    let (key, other) = (Key::Handle("net.a".into()), Key::Handle("net.b".into()));
    let value = |key: &Key, count: u32| {
        let id = if *key == other { "net.b" } else { "net.a" };
        format!(r#"{{"handleID":"{id}","block":{{"10.0.0.0/30":{count}}},"deleted":false}}"#)
    };
    let create = |key: &Key, count| Change::create(key.clone(), value(key, count));
    let read = async |key: &Key| {
        writer
            .read(std::slice::from_ref(key))
            .await
            .unwrap()
            .pop()
            .flatten()
    };
    let commit = async |change: Change, evidence: Vec<(Key, Precondition)>| {
        let batch = Batch {
            changes: vec![change],
            evidence,
        };
        let is_done = matches!(writer.commit(&batch).await.unwrap(), Swap::Done(_));
        (is_done, read(&key).await.and_then(|stored| stored.object))
    };

    let mut answers = vec![
        commit(create(&key, 1), vec![]).await,
        commit(create(&key, 2), vec![]).await,
    ];
    let first = read(&key).await.unwrap().revision;
    let update = |revision, count| Change::update(key.clone(), revision, value(&key, count));
    answers.push(commit(update(first.clone(), 3), vec![]).await);
    answers.push(commit(update(first.clone(), 4), vec![]).await);
    answers.push(commit(Change::delete(key.clone(), first.clone()), vec![]).await);
    let second = read(&key).await.unwrap().revision;
    answers.push(commit(Change::delete(key.clone(), second.clone()), vec![]).await);
    answers.push(commit(Change::delete(key.clone(), second.clone()), vec![]).await);
    answers.push(commit(update(second, 5), vec![]).await);
    answers.push(commit(create(&key, 6), vec![]).await);
    answers.push(commit(update(first, 7), vec![]).await);
    if store.kind() == DatastoreKind::Etcd {
        let absent = |key: &Key| vec![(key.clone(), Precondition::Absent)];
        answers.push(commit(create(&other, 1), absent(&key)).await);
        answers.push(commit(create(&other, 1), absent(&Key::Handle("net.c".into()))).await);
    }
    answers
}

fn done(answers: &[Answer]) -> Vec<bool> {
    answers.iter().map(|(is_done, _)| *is_done).collect()
}

#[tokio::test]
async fn etcd_answers_as_the_real_one() {
    let server = Etcd::start().unwrap();
    let real = datastore::open(datastore::etcd(server.endpoint())).await;
    let own = etcd::open(&Arc::new(World::free(MemoryStore::default())), 0).await;
    let (expected, found) = (answers(&real).await, answers(&own).await);
    assert_eq!(found, expected);
    let [t, f] = [true, false];
    assert_eq!(done(&found), [t, f, t, f, f, t, f, f, t, f, f, t]);
}

#[tokio::test]
async fn kubernetes_answers_as_the_real_one() {
    let server = lease(Kinds::Calico(Flavour::Classic)).unwrap();
    let real = datastore::open(datastore::kubernetes(&server.kubeconfig())).await;
    let own = kubernetes::open(&Arc::new(World::free(MemoryStore::default())), 0);
    let (expected, found) = (answers(&real).await, answers(&own).await);
    assert_eq!(found, expected);
    let [t, f] = [true, false];
    assert_eq!(done(&found), [t, f, t, f, f, t, f, f, t, f]);
}
