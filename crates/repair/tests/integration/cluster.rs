//! A datastore for repairs, and a hand-made repair that writes it and a journal like a real run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use calipam_check::Options as Judgement;
use calipam_datastore::Datastore;
use calipam_datastore::settings::Overrides;
use calipam_datastore::write::{
    Batch, Change, Consent, ObjectCounts, ProposedChange, Question, Stored, Swap, Writer,
};
use calipam_model::block::Block;
use calipam_model::edit::Step;
use calipam_model::key::Key;
use calipam_model::snapshot::Snapshot;
use calipam_model::writable::Object;
use calipam_repair::journal::{
    ChangeRecord, FORMAT, Header, Intent, Journal, Outcome, Recorded, Value, Version,
};
use calipam_repair::{Execution, Options, UndoPlan, execute, undo};
use calipam_testkit::cluster::{Cluster, ClusterSpec};
use calipam_testkit::datastore::{self, consent};
use calipam_testkit::servers::{Entries, Etcd};
use jiff::SignedDuration;
use tempfile::TempDir;

/// Consent to change these numbers of objects.
pub(crate) fn consent_to_write(cluster: &str, counts: ObjectCounts) -> Consent {
    let question = Question {
        cluster: cluster.to_owned(),
        location: "a test".to_owned(),
        change: ProposedChange::Objects(counts),
    };
    let agrees = true;
    Consent::from_option(question, agrees).unwrap()
}

/// A datastore, and the journals of runs on it.
pub(crate) struct Site {
    pub store: Datastore,
    /// The GUID of the cluster.
    pub cluster: String,
    folder: TempDir,
}

impl Site {
    pub(crate) async fn open(overrides: Overrides) -> Self {
        let store = datastore::open(overrides).await;
        let cluster = datastore::observe(&store).await.guid().to_owned();
        Self {
            store,
            cluster,
            folder: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) async fn observe(&self) -> Snapshot {
        datastore::observe(&self.store).await
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn journal(&self, name: &str) -> PathBuf {
        journal_path(self.folder(), name)
    }

    /// Consent to change any number of objects.
    pub(crate) fn consent(&self) -> Consent {
        consent(&self.cluster)
    }

    /// The options of a run with a journal of this name.
    pub(crate) fn options(&self, name: &str) -> Options {
        Options::new("a test", self.journal(name))
    }

    pub(crate) async fn run(&self, steps: Vec<Step>, options: &Options) -> Execution {
        execute(&self.store, &self.cluster, steps, self.consent(), options)
            .await
            .unwrap()
    }

    /// Carries out steps with a journal of this name.
    pub(crate) async fn run_as(&self, name: &str, steps: Vec<Step>) -> Execution {
        self.run(steps, &self.options(name)).await
    }

    pub(crate) fn recorded(&self, name: &str) -> Recorded {
        Recorded::read(&self.journal(name)).unwrap()
    }

    /// The undo of the run whose journal has this name.
    pub(crate) fn undo_plan(&self, name: &str) -> UndoPlan {
        UndoPlan::new(&self.recorded(name)).unwrap()
    }

    pub(crate) async fn undo(&self, plan: &UndoPlan, options: &Options) -> Execution {
        undo(&self.store, plan, self.consent(), options).await.unwrap()
    }

    /// Returns `count` blocks, each with the ordinal of a pod address to release, and the handle of the address.
    pub(crate) async fn leaks(&self, count: usize) -> Vec<(Key, u32, Key)> {
        let snapshot = self.observe().await;
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
        let found: Vec<_> = sound(&snapshot).filter_map(leak).take(count).collect();
        assert_eq!(found.len(), count);
        found
    }

    /// Releases addresses and their handles like a run. The last release stops at `until`.
    pub(crate) async fn repair_by_hand(
        &self,
        name: &str,
        leaks: &[(Key, u32, Key)],
        until: Until,
    ) -> Vec<Key> {
        let writer = self.store.writer(self.consent()).unwrap();
        let journal = Journal::create(&self.journal(name), &header(&self.cluster)).unwrap();
        for (index, leak) in leaks.iter().enumerate() {
            let last = index + 1 == leaks.len();
            release(
                &writer,
                &journal,
                leak,
                index,
                if last { until } else { Until::Outcome },
            )
            .await;
        }
        if until == Until::Outcome {
            journal.end().await.unwrap();
        }
        leaks
            .iter()
            .flat_map(|(block, _, handle)| [block.clone(), handle.clone()])
            .collect()
    }
}

/// Checks without a grace period.
pub(crate) fn judgement() -> Judgement {
    Judgement {
        grace: Some(SignedDuration::ZERO),
        ..Judgement::default()
    }
}

/// Starts an etcd with a cluster of about `allocations` addresses.
pub(crate) async fn start(allocations: u64) -> (Etcd, Site) {
    let etcd = Etcd::start().unwrap();
    Cluster::sized(ClusterSpec::new(7), allocations)
        .write_to_etcd(&etcd.endpoint())
        .unwrap();
    let site = Site::open(datastore::etcd(etcd.endpoint())).await;
    (etcd, site)
}

/// All entries under /calico/.
pub(crate) fn dump(etcd: &Etcd) -> Entries {
    etcd.entries().unwrap()
}

/// The values of the entries, without the sequence numbers of blocks. An undo does not restore these, because they must
/// never decrease.
pub(crate) fn values(entries: &Entries) -> BTreeMap<String, serde_json::Value> {
    let value = |raw: &[u8]| without_numbers(serde_json::from_slice(raw).unwrap());
    entries
        .iter()
        .map(|(key, (raw, _))| (key.clone(), value(raw)))
        .collect()
}

/// A value without the sequence numbers of a block.
pub(crate) fn without_numbers(mut value: serde_json::Value) -> serde_json::Value {
    for field in ["sequenceNumber", "sequenceNumberForAllocation"] {
        value.as_object_mut().unwrap().remove(field);
    }
    value
}

pub(crate) fn sound(snapshot: &Snapshot) -> impl Iterator<Item = &Block> {
    snapshot
        .blocks
        .iter()
        .filter_map(|block| block.value.content.sound())
}

pub(crate) fn header(cluster: &str) -> Header {
    let (started_at, cluster) = ("2026-05-01T10:00:00Z".into(), cluster.to_owned());
    Header {
        format: FORMAT,
        started_at,
        command: "a repair by hand".into(),
        cluster,
        ..Header::default()
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

/// The point at which the last write of a hand-made repair stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    Intent,
    Write,
    Outcome,
}

async fn release(writer: &Writer, journal: &Journal, leak: &(Key, u32, Key), step: usize, until: Until) {
    let (block_key, ordinal, handle_key) = leak;
    let stored = writer
        .read(&[block_key.clone(), handle_key.clone()])
        .await
        .unwrap();
    let [Some(block), Some(handle)] = stored.as_slice() else {
        panic!("{stored:?}")
    };
    let Some(Object::Block(content)) = &block.object else {
        panic!("{block:?}")
    };
    let mut after = content.sound().unwrap().clone();
    assert_eq!(after.update(|edit| edit.release(&[*ordinal])), [*ordinal]);
    let batch = Batch {
        changes: vec![
            Change::update(
                block_key.clone(),
                block.revision.clone(),
                Object::from(after).encode(),
            ),
            Change::delete(handle_key.clone(), handle.revision.clone()),
        ],
        evidence: Vec::new(),
    };
    let record = |change: &Change, before: &Stored| ChangeRecord {
        key: change.key().to_string(),
        before: Some(Version {
            revision: before.revision.to_string(),
            value: Value::new(&before.raw),
        }),
        after: change.value().map(Value::new),
    };
    let mut intent = Intent {
        id: 0,
        step,
        reason: format!("leaked-address in {block_key}"),
        changes: vec![
            record(&batch.changes[0], block),
            record(&batch.changes[1], handle),
        ],
        guards: Vec::new(),
    };
    journal.intend(&mut intent).await.unwrap();
    if until == Until::Intent {
        return;
    }
    let Swap::Done(revisions) = writer.commit(&batch).await.unwrap() else {
        panic!("lost")
    };
    if until == Until::Outcome {
        let written = revisions
            .iter()
            .map(|r| r.as_ref().map(ToString::to_string))
            .collect();
        journal
            .conclude(Outcome {
                id: intent.id,
                written: Some(written),
            })
            .unwrap();
    }
}
