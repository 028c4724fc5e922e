//! Connections to etcd that break at every request in turn, and members that die: every step has a defined result, the
//! lock is restored, and a second run converges.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use calipam_datastore::Datastore;
use calipam_model::affinity::{AffinityState, AffinityType};
use calipam_model::attributes::Attribute;
use calipam_model::block::Block;
use calipam_model::edit::{BlockEdit, Edit, HandleEdit, Precondition, Step};
use calipam_model::key::Key;
use calipam_model::snapshot::Snapshot;
use calipam_repair::journal::{LockMark, Recorded};
use calipam_repair::{Event, EventFn, Execution, Options, execute};
use calipam_testkit::servers::{Etcd, Tear, Tearing};
use serde_json::Value;

use super::{Cluster, Site, sound, tear_every_request};
use crate::cluster::{Entries, consent, dump, guid, new_journal, observe, open, start, values};
use crate::execute::release;

const INFORMATION: &str = "/calico/resources/v3/projectcalico.org/clusterinformations/default";
const NEW: &str = "k8s-pod-network.new";
const ORPHAN: &str = "k8s-pod-network.orphan";

struct OnEtcd {
    etcd: Etcd,
    site: Site,
    base: Entries,
}

impl OnEtcd {
    /// A cluster with a pending affinity whose block exists, and a handle that nothing refers to.
    async fn new() -> Self {
        let (etcd, sound) = start(300).await;
        let snapshot = observe(&sound).await;
        let owned = snapshot.affinities.iter().find(|a| a.value.key.kind == AffinityType::Host).unwrap();
        let mut client = etcd.client().await.unwrap();
        let pending = r#"{"state":"pending","deleted":false}"#;
        client.put(Key::Affinity(owned.value.key.clone()).to_string(), pending, None).await.unwrap();
        let orphan = format!(r#"{{"block":{{"{}":1}},"deleted":false}}"#, owned.value.key.cidr);
        client.put(Key::Handle(ORPHAN.into()).to_string(), orphan, None).await.unwrap();
        let torn = Tearing::etcd(&etcd).unwrap();
        let store = open(&torn.url()).await;
        Self { base: dump(&etcd).await, etcd, site: Site::new(torn, store, sound).await }
    }
}

impl Cluster for OnEtcd {
    const TEARS: &'static [Tear] = &[
        Tear::Drop,
        Tear::Status(429),
        Tear::Swallow,
        Tear::Delay(Duration::from_millis(50)),
        Tear::Drop,
        Tear::Status(500),
        Tear::Swallow,
        Tear::Status(422),
    ];

    fn site(&mut self) -> &mut Site {
        &mut self.site
    }

    async fn values(&mut self) -> BTreeMap<String, Value> {
        values(&dump(&self.etcd).await)
    }

    async fn reset(&mut self) {
        let mut client = self.etcd.client().await.unwrap();
        let now = dump(&self.etcd).await;
        for (key, (value, _)) in
            self.base.iter().filter(|(key, (value, _))| now.get(*key).is_none_or(|now| now.0 != *value))
        {
            client.put(key.as_str(), value.clone(), None).await.unwrap();
        }
        for key in now.keys().filter(|key| !self.base.contains_key(*key)) {
            client.delete(key.as_str(), None).await.unwrap();
        }
    }

    /// A run must survive one broken connection.
    fn copes(tear: Tear, execution: Option<&Execution>) -> bool {
        !matches!(tear, Tear::Drop | Tear::Swallow) || execution.is_some_and(Execution::is_complete)
    }
}

/// One pod address in each of three blocks.
fn targets(snapshot: &Snapshot) -> BTreeSet<IpAddr> {
    let of_pod = |block: &Block| {
        let mut pods = block.allocations().filter(|a| a.attribute.owner().get("pod").is_some());
        pods.next().map(|a| a.address)
    };
    sound(snapshot).filter_map(of_pod).take(3).collect()
}

/// The releases of the target addresses that are still recorded.
fn releases(snapshot: &Snapshot, targets: &BTreeSet<IpAddr>) -> Vec<Step> {
    let of_block = |block: &Block| {
        let held = block.allocations().find(|a| targets.contains(&a.address));
        held.map(|held| release(block, &[held.ordinal], Vec::new()))
    };
    sound(snapshot).filter_map(of_block).collect()
}

/// The remaining steps of a rebuild: record an address in use and its handle, confirm an affinity and touch its block,
/// and delete an orphan handle.
fn rebuild(snapshot: &Snapshot) -> Vec<Step> {
    let owned = snapshot.affinities.iter().find(|a| a.value.key.kind == AffinityType::Host).unwrap();
    let cidr = owned.value.key.cidr;
    let block = sound(snapshot).find(|block| block.cidr() == cidr).unwrap();
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

/// Injects each fault into each request of a release, of a rebuild, and of their undo, in turn.
#[tokio::test(flavor = "multi_thread")]
async fn every_request_torn_in_turn() {
    let mut cluster = OnEtcd::new().await;
    let targets = targets(&cluster.site.snapshot().await);
    tear_every_request(&mut cluster, &targets, |snapshot| releases(snapshot, &targets)).await;
    tear_every_request(&mut cluster, &BTreeSet::new(), rebuild).await;
}

/// Locks the datastore and releases addresses. The proxy closes at the first event that `when` accepts.
async fn run_until_closed(
    store: &Datastore,
    sound: &Datastore,
    closing: &Tearing,
    when: fn(&Event) -> bool,
    journal: &Path,
) -> Execution {
    let (cluster, close) = (guid(sound).await, closing.closer());
    let events: EventFn = Arc::new(move |event| {
        if when(event) {
            close();
        }
    });
    let options = Options { lock: true, events, ..Options::new("a test", journal) };
    let snapshot = observe(sound).await;
    let plan = releases(&snapshot, &targets(&snapshot));
    execute(store, &cluster, plan, consent(&cluster), &options).await.unwrap()
}

/// The member that a run talks to dies, while another one is healthy.
#[tokio::test(flavor = "multi_thread")]
async fn the_lock_is_restored_through_another_member() {
    let (etcd, sound) = start(300).await;
    let base = dump(&etcd).await;
    let (dying, healthy) = (Tearing::etcd(&etcd).unwrap(), Tearing::etcd(&etcd).unwrap());
    let store = open(&format!("{},{}", dying.url(), healthy.url())).await;
    let (_folder, journal) = new_journal("run");
    let is_written = |event: &Event| matches!(event, Event::Written { .. });
    let execution = run_until_closed(&store, &sound, &dying, is_written, &journal).await;
    assert!(execution.is_complete(), "{execution:?}");
    assert!(healthy.count() > 0);
    assert_eq!(dump(&etcd).await[INFORMATION].0, base[INFORMATION].0);
}

/// No member answers any more: the run reports that the datastore stays locked, whatever else went wrong.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_cannot_be_restored_is_named() {
    let (etcd, sound) = start(300).await;
    let torn = Tearing::etcd(&etcd).unwrap();
    let store = open(&torn.url()).await;
    let (_folder, journal) = new_journal("run");
    let is_intended = |event: &Event| matches!(event, Event::Intended { .. });
    let execution = run_until_closed(&store, &sound, &torn, is_intended, &journal).await;
    let error = execution.lock_left.as_ref().expect("it is still locked").to_string();
    assert!(error.starts_with("cannot restore the datastore lock: "), "{error}");
    assert!(execution.failure.is_some() && !execution.is_complete(), "{execution:?}");
    let lock = Recorded::read(&journal).unwrap().lock;
    assert!(matches!(lock, Some(LockMark::Taking(_) | LockMark::Taken(_))), "{lock:?}");
}
