//! Connections to etcd that break at every request in turn, and members that die: every step has a defined end, the
//! lock is restored, and running again converges.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use calipam_datastore::Datastore;
use calipam_model::affinity::{AffinityState, AffinityType};
use calipam_model::attributes::Attribute;
use calipam_model::block::Block;
use calipam_model::edit::{BlockEdit, Edit, HandleEdit, Precondition, Step};
use calipam_model::key::Key;
use calipam_model::snapshot::Snapshot;
use calipam_repair::journal::{LockMark, Recorded, resolve};
use calipam_repair::{Execution, Options, UndoPlan, execute, undo};
use calipam_testkit::rounds;
use calipam_testkit::servers::{Etcd, Tear, Tearing};

use crate::cluster::{Entries, consent, dump, guid, journal_path, observe, open, start, values};
use crate::execute::release;

const INFORMATION: &str = "/calico/resources/v3/projectcalico.org/clusterinformations/default";

/// The release of an address of each of some blocks.
async fn steps(store: &Datastore) -> Vec<Step> {
    let snapshot = observe(store).await;
    let blocks = snapshot.blocks.iter().filter_map(|block| block.value.content.sound());
    let of_pod = |block: &calipam_model::block::Block| {
        let mut pods = block.allocations().filter(|a| a.attribute.owner().get("pod").is_some());
        pods.next().map(|a| release(block, &[a.ordinal], Vec::new()))
    };
    blocks.filter_map(of_pod).take(3).collect()
}

struct Site {
    etcd: Etcd,
    torn: Tearing,
    /// Opened at the torn endpoint.
    store: Datastore,
    /// Opened past the proxy.
    sound: Datastore,
    cluster: String,
    folder: tempfile::TempDir,
    runs: usize,
}

impl Site {
    async fn new() -> Self {
        let (etcd, sound) = start(300).await;
        let torn = Tearing::etcd(&etcd).unwrap();
        let store = open(&torn.url()).await;
        let folder = tempfile::tempdir().unwrap();
        Self { cluster: guid(&sound).await, etcd, torn, store, sound, folder, runs: 0 }
    }

    fn options(&mut self) -> Options {
        self.runs += 1;
        Options {
            lock: true,
            ..Options::new("a test", journal_path(self.folder.path(), &self.runs.to_string()))
        }
    }

    async fn release(&mut self, steps: Vec<Step>) -> (Option<Execution>, std::path::PathBuf) {
        let options = self.options();
        let run = execute(&self.store, &self.cluster, steps, consent(&self.cluster), &options).await;
        (run.ok(), options.journal)
    }

    async fn undo(&mut self, journal: &std::path::Path) -> Option<Execution> {
        let options = self.options();
        let recorded = resolve(Recorded::read(journal).unwrap(), &self.sound).await.unwrap().0;
        let plan = UndoPlan::new(&recorded).unwrap();
        undo(&self.store, &plan, consent(&self.cluster), &options).await.ok()
    }

    /// The steps of a rebuild.
    async fn break_affinity_and_add_orphan(&self) {
        let snapshot = observe(&self.sound).await;
        let owned = snapshot.affinities.iter().find(|a| a.value.key.kind == AffinityType::Host).unwrap();
        let mut client = self.etcd.client().await.unwrap();
        let pending = r#"{"state":"pending","deleted":false}"#;
        client.put(Key::Affinity(owned.value.key.clone()).to_string(), pending, None).await.unwrap();
        let orphan = format!(r#"{{"block":{{"{}":1}},"deleted":false}}"#, owned.value.key.cidr);
        client.put(Key::Handle(ORPHAN.into()).to_string(), orphan, None).await.unwrap();
    }

    /// Restores the first state.
    async fn reset(&self, base: &Entries) {
        let mut client = self.etcd.client().await.unwrap();
        let now = dump(&self.etcd).await;
        for (key, (value, _)) in
            base.iter().filter(|(key, (value, _))| now.get(*key).is_none_or(|now| now.0 != *value))
        {
            client.put(key.as_str(), value.clone(), None).await.unwrap();
        }
        for key in now.keys().filter(|key| !base.contains_key(*key)) {
            client.delete(key.as_str(), None).await.unwrap();
        }
    }

    /// The lock is removed, or the run has reported it.
    async fn is_settled(&self, base: &Entries, execution: Option<&Execution>, what: &str) {
        let is_named = execution.is_some_and(|execution| execution.lock_left.is_some());
        let now = dump(&self.etcd).await;
        assert!(information(&now) == information(base) || is_named, "{what}: {execution:?}");
    }
}

fn information(entries: &Entries) -> &[u8] {
    &entries[INFORMATION].0
}

/// The remaining steps of a rebuild: an address in use with its handle, an affinity with its block, and the deletion of
/// an orphan handle.
fn rebuild(snapshot: &Snapshot) -> Vec<Step> {
    let owned = snapshot.affinities.iter().find(|a| a.value.key.kind == AffinityType::Host).unwrap();
    let cidr = owned.value.key.cidr;
    let block = snapshot.blocks.iter().find(|block| block.value.key == cidr).unwrap().value.content.sound();
    let block = block.unwrap();
    let mut steps = Vec::new();
    if !block.handles().any(|(_, id)| id == *NEW) {
        let mut step = Step::new("unallocated-in-use");
        let record = Attribute { handle: Some(NEW.into()), ..Attribute::default() };
        let edits = [
            Edit::Handle(NEW.into(), HandleEdit::Increment(cidr, 1)),
            Edit::Block(cidr, BlockEdit::Assign { records: vec![(block.free()[0], record)] }),
        ];
        step.whole().edits = edits.into();
        steps.push(step);
    }
    if owned.value.state != AffinityState::Confirmed {
        let mut step = Step::new("unsettled-affinity");
        let (key, version) = (owned.value.key.clone().into(), owned.revision.clone());
        let state = Edit::Affinity(key, version, AffinityState::Confirmed);
        step.whole().edits = vec![Edit::Block(cidr, BlockEdit::Touch), state];
        steps.push(step);
    }
    if let Some(orphan) = snapshot.handles.iter().find(|handle| handle.value.id() == *ORPHAN) {
        let mut step = Step::new("orphan-handle");
        step.whole().edits = vec![Edit::Delete(Key::Handle(ORPHAN.into()), orphan.revision.clone())];
        step.whole().evidence = vec![(Key::Block(cidr), Precondition::Records(ORPHAN.into(), 0..=0))];
        steps.push(step);
    }
    steps
}

const NEW: &str = "k8s-pod-network.new";
const ORPHAN: &str = "k8s-pod-network.orphan";

const TEARS: [Tear; 6] = [
    Tear::Drop,
    Tear::Swallow,
    Tear::Status(429),
    Tear::Delay(Duration::from_millis(50)),
    Tear::Status(500),
    Tear::Status(422),
];

/// An address of a pod in each of some blocks.
fn targets(snapshot: &Snapshot) -> BTreeSet<IpAddr> {
    let blocks = snapshot.blocks.iter().filter_map(|block| block.value.content.sound());
    let of_pod = |block: &Block| {
        let mut pods = block.allocations().filter(|a| a.attribute.owner().get("pod").is_some());
        pods.next().map(|a| a.address)
    };
    blocks.filter_map(of_pod).take(3).collect()
}

/// The release of those among the addresses that are still recorded.
fn releases(snapshot: &Snapshot, targets: &BTreeSet<IpAddr>) -> Vec<Step> {
    let blocks = snapshot.blocks.iter().filter_map(|block| block.value.content.sound());
    let of_block = |block: &Block| {
        let held = block.allocations().find(|a| targets.contains(&a.address));
        held.map(|held| release(block, &[held.ordinal], Vec::new()))
    };
    blocks.filter_map(of_block).collect()
}

/// Every recorded address has its handle, and all but the targets are recorded as they were.
fn keeps(before: &Snapshot, now: &Snapshot, targets: &BTreeSet<IpAddr>, what: &str) {
    let recorded = |snapshot: &Snapshot| -> BTreeMap<IpAddr, Option<String>> {
        let blocks = snapshot.blocks.iter().filter_map(|block| block.value.content.sound());
        let all = blocks.flat_map(|block| block.allocations().collect::<Vec<_>>());
        all.map(|a| (a.address, a.attribute.clean_handle().map(|id| id.to_string()))).collect()
    };
    let (before, recorded) = (recorded(before), recorded(now));
    for (address, handle) in before.iter().filter(|(address, _)| !targets.contains(address)) {
        assert_eq!(recorded.get(address), Some(handle), "{what}: {address}");
    }
    let handles: BTreeSet<String> = now.handles.iter().map(|handle| handle.value.id().to_string()).collect();
    for (address, handle) in recorded {
        assert!(handle.is_none_or(|id| handles.contains(&id)), "{what}: the handle of {address}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_request_torn_in_turn() {
    let mut site = Site::new().await;
    let base = dump(&site.etcd).await;
    let plan = steps(&site.store).await;

    // The number of requests of an undisturbed run, and the state after it.
    site.torn.plan(|_| Tear::Pass);
    let (execution, journal) = site.release(plan.clone()).await;
    assert!(execution.unwrap().is_complete());
    let requests = site.torn.count();
    let released = values(&dump(&site.etcd).await);
    assert!(site.undo(&journal).await.unwrap().is_complete());
    assert_eq!(values(&dump(&site.etcd).await), values(&base));

    for tear in [Tear::Drop, Tear::Swallow] {
        for number in 0..requests {
            let what = format!("{tear:?} at {number} of {requests}");
            let plan = steps(&site.store).await;
            site.torn.tear_at(number, tear);
            let (execution, journal) = site.release(plan.clone()).await;
            let after = dump(&site.etcd).await;
            assert_eq!(information(&after), information(&base), "{what}: {execution:?}");
            // One connection that breaks is no reason to give up.
            let execution = execution.unwrap_or_else(|| panic!("{what}"));
            assert!(execution.is_complete(), "{what}: {execution:?}");
            assert_eq!(values(&after), released, "{what}");

            site.torn.tear_at(number, tear);
            let execution = site.undo(&journal).await.unwrap_or_else(|| panic!("undo, {what}"));
            assert!(execution.is_complete(), "undo, {what}: {execution:?}");
            assert_eq!(values(&dump(&site.etcd).await), values(&base), "undo, {what}");
            assert_eq!(information(&dump(&site.etcd).await), information(&base), "undo, {what}");
        }
    }
}

/// Every kind of answer at every request of a release, of a rebuild, and of their undo, in turn.
#[tokio::test(flavor = "multi_thread")]
async fn every_answer_at_every_request() {
    let mut site = Site::new().await;
    site.break_affinity_and_add_orphan().await;
    let base = dump(&site.etcd).await;
    let before = observe(&site.sound).await;
    for is_rebuild in [false, true] {
        let targets = if is_rebuild { BTreeSet::new() } else { targets(&before) };
        let plan = async |store: &Datastore| match is_rebuild {
            true => rebuild(&observe(store).await),
            false => releases(&observe(store).await, &targets),
        };
        site.torn.plan(|_| Tear::Pass);
        let (execution, journal) = site.release(plan(&site.sound).await).await;
        assert!(execution.unwrap().is_complete());
        let (requests, wanted) = (site.torn.count(), values(&dump(&site.etcd).await));
        assert_ne!(wanted, values(&base));
        assert!(site.undo(&journal).await.unwrap().is_complete());

        for number in 0..requests {
            for round in 0..rounds(1).min(TEARS.len()) {
                let tear = TEARS[(number + round) % TEARS.len()];
                let what = format!("rebuild {is_rebuild}, {tear:?} at {number} of {requests}");
                site.torn.tear_at(number, tear);
                let (torn, journal) = site.release(plan(&site.sound).await).await;
                site.is_settled(&base, torn.as_ref(), &what).await;
                keeps(&before, &observe(&site.sound).await, &targets, &what);

                // The finished part is undone, or running again converges.
                site.torn.plan(|_| Tear::Pass);
                let is_undone = number % 4 < 2 && torn.is_some();
                if is_undone {
                    let undone = site.undo(&journal).await.unwrap();
                    assert!(undone.is_complete(), "{what}: {torn:?}\n{undone:?}");
                    assert_eq!(values(&dump(&site.etcd).await), values(&base), "{what}: {torn:?}");
                }
                let (again, journal) = site.release(plan(&site.sound).await).await;
                assert!(again.as_ref().unwrap().is_complete(), "{what}: {torn:?}\n{again:?}");
                assert_eq!(values(&dump(&site.etcd).await), wanted, "{what}: {torn:?}\n{again:?}");

                // So does an undo.
                site.torn.tear_at(number, tear);
                let torn = site.undo(&journal).await;
                site.is_settled(&base, torn.as_ref(), &what).await;
                keeps(&before, &observe(&site.sound).await, &targets, &what);
                site.torn.plan(|_| Tear::Pass);
                let undone = site.undo(&journal).await.unwrap();
                assert!(undone.is_complete(), "undo, {what}: {torn:?}\n{undone:?}");
                if is_undone {
                    assert_eq!(values(&dump(&site.etcd).await), values(&base), "undo, {what}: {torn:?}");
                }
                site.reset(&base).await;
            }
        }
    }
}

/// The member that a run talks to dies, while another one is healthy.
#[tokio::test(flavor = "multi_thread")]
async fn the_lock_is_restored_through_another_member() {
    let (etcd, sound) = start(300).await;
    let base = dump(&etcd).await;
    let (dying, healthy) = (Tearing::etcd(&etcd).unwrap(), Tearing::etcd(&etcd).unwrap());
    let store = open(&format!("{},{}", dying.url(), healthy.url())).await;
    let folder = tempfile::tempdir().unwrap();
    let cluster = guid(&sound).await;
    let close = dying.closer();
    let options = Options {
        lock: true,
        events: Arc::new(move |event| {
            if let calipam_repair::Event::Written { .. } = event {
                close();
            }
        }),
        ..Options::new("a test", journal_path(folder.path(), "run"))
    };
    let plan = steps(&sound).await;
    let execution = execute(&store, &cluster, plan, consent(&cluster), &options).await.unwrap();
    assert!(execution.is_complete(), "{execution:?}");
    assert!(healthy.count() > 0);
    assert_eq!(information(&dump(&etcd).await), information(&base));
}

/// No member answers any more: the run reports that the datastore stays locked, whatever else went wrong.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_cannot_be_restored_is_named() {
    let (etcd, sound) = start(300).await;
    let torn = Tearing::etcd(&etcd).unwrap();
    let store = open(&torn.url()).await;
    let folder = tempfile::tempdir().unwrap();
    let cluster = guid(&sound).await;
    let close = torn.closer();
    let journal = journal_path(folder.path(), "run");
    let options = Options {
        lock: true,
        events: Arc::new(move |event| {
            if let calipam_repair::Event::Intended { .. } = event {
                close();
            }
        }),
        ..Options::new("a test", &journal)
    };
    let plan = steps(&sound).await;
    let execution = execute(&store, &cluster, plan, consent(&cluster), &options).await.unwrap();
    let error = execution.lock_left.as_ref().expect("it is still locked").to_string();
    assert!(error.starts_with("cannot restore the datastore lock: "), "{error}");
    assert!(execution.failure.is_some() && !execution.is_complete(), "{execution:?}");
    let lock = Recorded::read(&journal).unwrap().lock;
    assert!(matches!(lock, Some(LockMark::Taking(_) | LockMark::Taken(_))), "{lock:?}");
}
