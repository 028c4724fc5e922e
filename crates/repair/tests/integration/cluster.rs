//! A cluster in etcd, and a hand-made repair that writes the datastore and a journal like a real run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use calipam_datastore::Datastore;
use calipam_datastore::read::ProgressFn;
use calipam_datastore::settings::{LocalFiles, Overrides, Settings};
use calipam_datastore::write::{Batch, Change, Consent, Question, Stored, Swap, Writer};
use calipam_model::block::Block;
use calipam_model::key::Key;
use calipam_model::snapshot::Snapshot;
use calipam_model::writable::Object;
use calipam_repair::journal::{ChangeRecord, FORMAT, Header, Intent, Journal, Outcome, Value, Version};
use calipam_testkit::cluster::{ClusterSpec, SizedCluster};
pub(crate) use calipam_testkit::servers::Entries;
use calipam_testkit::servers::Etcd;
use tempfile::TempDir;

/// A cluster with about `allocations` addresses.
pub(crate) async fn start(allocations: u64) -> (Etcd, Datastore) {
    let etcd = Etcd::start().unwrap();
    SizedCluster::new(ClusterSpec::new(7), allocations).write_to_etcd(&etcd.endpoint()).unwrap();
    let store = open(&etcd.endpoint()).await;
    (etcd, store)
}

pub(crate) async fn open(endpoint: &str) -> Datastore {
    open_by(Overrides { etcd_endpoints: Some(endpoint.to_owned()), ..Overrides::default() }).await
}

/// Opens the datastore that the overrides name.
pub(crate) async fn open_by(overrides: Overrides) -> Datastore {
    Datastore::open(&Settings::resolve(&overrides, &BTreeMap::new(), &LocalFiles).unwrap()).await.unwrap()
}

pub(crate) async fn observe(store: &Datastore) -> Snapshot {
    let quiet: ProgressFn = Arc::new(|_| {});
    store.observe(&quiet).await.unwrap()
}

pub(crate) async fn guid(store: &Datastore) -> String {
    observe(store).await.cluster.unwrap().guid
}

/// All entries under /calico/.
pub(crate) async fn dump(etcd: &Etcd) -> Entries {
    etcd.entries().unwrap()
}

/// The values of the entries, without the sequence numbers of blocks. An undo does not restore these, because they must
/// never decrease.
pub(crate) fn values(entries: &Entries) -> BTreeMap<String, serde_json::Value> {
    let value = |raw: &[u8]| {
        let mut value: serde_json::Value = serde_json::from_slice(raw).unwrap();
        for field in ["sequenceNumber", "sequenceNumberForAllocation"] {
            value.as_object_mut().unwrap().remove(field);
        }
        value
    };
    entries.iter().map(|(key, (raw, _))| (key.clone(), value(raw))).collect()
}

/// Consent to change any number of objects.
pub(crate) fn consent(cluster: &str) -> Consent {
    let many = usize::MAX / 8;
    let question = Question {
        cluster: cluster.to_owned(),
        location: "a test".into(),
        addresses: many,
        blocks: many,
        handles: many,
        others: many,
        pods: 0,
    };
    Consent::from_option(question, true).unwrap()
}

pub(crate) fn header(cluster: &str) -> Header {
    Header {
        format: FORMAT,
        program: "0.0.0".into(),
        started_at: "2026-05-01T10:00:00Z".into(),
        command: "a repair by hand".into(),
        cluster: cluster.to_owned(),
        datastore: "etcd".into(),
        location: "a test".into(),
    }
}

pub(crate) fn journal_path(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.journal"))
}

/// Returns a new folder, and the path of a journal in it.
pub(crate) fn new_journal(name: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = journal_path(folder.path(), name);
    (folder, path)
}

/// Returns `count` blocks, each with the ordinal of a pod address to release, and the handle of the address.
pub(crate) async fn leaks(store: &Datastore, count: usize) -> Vec<(Key, u32, Key)> {
    let snapshot = observe(store).await;
    let single: BTreeSet<String> = snapshot
        .handles
        .iter()
        .filter(|h| h.value.blocks().count() == 1 && h.value.blocks().all(|(_, n)| n == 1))
        .map(|h| h.value.id().to_string())
        .collect();
    let leak = |block: &Block| {
        let found = block.handles().find(|(_, id)| single.contains(&id.to_string()));
        found.map(|(ordinal, id)| (Key::Block(block.cidr()), ordinal, Key::Handle(id.to_string())))
    };
    let found: Vec<_> =
        snapshot.blocks.iter().filter_map(|b| leak(b.value.content.sound()?)).take(count).collect();
    assert_eq!(found.len(), count);
    found
}

/// The point at which the last write of a hand-made repair stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    Intent,
    Write,
    Outcome,
}

/// Releases addresses and their handles like a run. The last release stops at `until`.
pub(crate) async fn repair_by_hand(
    store: &Datastore,
    path: &Path,
    leaks: &[(Key, u32, Key)],
    until: Until,
) -> Vec<Key> {
    let cluster = guid(store).await;
    let writer = store.writer(consent(&cluster)).unwrap();
    let journal = Journal::create(path, &header(&cluster)).unwrap();
    for (index, leak) in leaks.iter().enumerate() {
        let last = index + 1 == leaks.len();
        release(&writer, &journal, leak, index, if last { until } else { Until::Outcome }).await;
    }
    if until == Until::Outcome {
        journal.end().await.unwrap();
        drop(journal);
    }
    leaks.iter().flat_map(|(block, _, handle)| [block.clone(), handle.clone()]).collect()
}

async fn release(writer: &Writer, journal: &Journal, leak: &(Key, u32, Key), step: usize, until: Until) {
    let (block_key, ordinal, handle_key) = leak;
    let stored = writer.read(&[block_key.clone(), handle_key.clone()]).await.unwrap();
    let [Some(block), Some(handle)] = stored.as_slice() else { panic!("{stored:?}") };
    let Some(Object::Block(content)) = &block.object else { panic!("{block:?}") };
    let mut after = content.sound().unwrap().clone();
    assert_eq!(after.update(|edit| edit.release(&[*ordinal])), [*ordinal]);
    let batch = Batch {
        changes: vec![
            Change::update(block_key.clone(), block.revision.clone(), Object::from(after).encode()),
            Change::delete(handle_key.clone(), handle.revision.clone()),
        ],
        evidence: Vec::new(),
    };
    let record = |change: &Change, before: &Stored| ChangeRecord {
        key: change.key().to_string(),
        before: Some(Version { revision: before.revision.to_string(), value: Value::new(&before.raw) }),
        after: change.value().map(Value::new),
    };
    let mut intent = Intent {
        id: 0,
        step,
        reason: format!("leaked-address in {block_key}"),
        changes: vec![record(&batch.changes[0], block), record(&batch.changes[1], handle)],
        guards: Vec::new(),
    };
    journal.intend(&mut intent).await.unwrap();
    if until == Until::Intent {
        return;
    }
    let Swap::Done(revisions) = writer.commit(&batch).await.unwrap() else { panic!("lost") };
    if until == Until::Outcome {
        let written = revisions.iter().map(|r| r.as_ref().map(ToString::to_string)).collect();
        journal.conclude(Outcome { id: intent.id, written: Some(written) }).unwrap();
    }
}
