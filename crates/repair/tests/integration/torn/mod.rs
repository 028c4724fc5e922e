//! Servers behind a proxy that fails at every request in turn: no live address is freed or loses its handle, the lock
//! is restored or reported, and a second run converges.

mod etcd;
mod kubernetes;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use calipam_datastore::Datastore;
use calipam_datastore::settings::Overrides;
use calipam_model::IpNet;
use calipam_model::affinity::{Affinity, AffinityKey, AffinityState, AffinityType};
use calipam_model::attributes::Attribute;
use calipam_model::block::Block;
use calipam_model::edit::{BlockEdit, Edit, HandleEdit, Precondition, Step};
use calipam_model::key::Key;
use calipam_model::snapshot::Snapshot;
use calipam_model::writable::Object;
use calipam_repair::journal::{Recorded, resolve};
use calipam_repair::{Execution, Options, UndoPlan, execute, undo};
use calipam_testkit::servers::{Tear, Tearing};
use calipam_testkit::{datastore, rounds};
use serde_json::Value;

use crate::cluster::{Site, sound};

/// A datastore behind the proxy, and runs that lock it.
struct TornSite {
    torn: Tearing,
    /// The datastore through the proxy.
    store: Datastore,
    /// The datastore without the proxy.
    sound: Site,
    runs: usize,
}

impl TornSite {
    async fn new(torn: Tearing, store: Overrides, sound: Site) -> Self {
        Self {
            torn,
            store: datastore::open(store).await,
            sound,
            runs: 0,
        }
    }

    async fn snapshot(&self) -> Snapshot {
        self.sound.observe().await
    }

    fn options(&mut self) -> Options {
        self.runs += 1;
        Options {
            lock: true,
            ..self.sound.options(&self.runs.to_string())
        }
    }

    /// Carries out steps. Returns the result, which is `None` if the run could not begin, and the journal.
    async fn run(&mut self, steps: Vec<Step>) -> (Option<Execution>, PathBuf) {
        let (options, Site { cluster, .. }) = (self.options(), &self.sound);
        let run = execute(&self.store, cluster, steps, self.sound.consent(), &options).await;
        (run.ok(), options.journal)
    }

    async fn undo(&mut self, journal: &Path) -> Option<Execution> {
        let options = self.options();
        let recorded = resolve(Recorded::read(journal).unwrap(), &self.sound.store)
            .await
            .unwrap()
            .0;
        let plan = UndoPlan::new(&recorded).unwrap();
        undo(&self.store, &plan, self.sound.consent(), &options)
            .await
            .ok()
    }
}

/// A cluster behind the failing proxy.
trait Cluster {
    /// The faults that the proxy injects, in turn.
    const TEARS: &'static [Tear];

    fn site(&mut self) -> &mut TornSite;

    /// All values, without sequence numbers and versions.
    async fn values(&mut self) -> BTreeMap<String, Value>;

    /// Restores the initial state.
    async fn reset(&mut self);

    /// Returns true if this result of a run or an undo is acceptable after one fault of this kind.
    fn copes(tear: Tear, execution: Option<&Execution>) -> bool;
}

/// A handle that a rebuild writes, and one that nothing refers to.
const NEW: &str = "net.new";
const ORPHAN: &str = "net.orphan";

/// The remaining steps of a rebuild: record an address in use and its handle, confirm or create the affinity of a block
/// and touch the block, and delete an orphan handle.
fn rebuild(snapshot: &Snapshot, cidr: IpNet) -> Vec<Step> {
    let block = sound(snapshot).find(|block| block.cidr() == cidr).unwrap();
    let mut steps = Vec::new();
    if !block.handles().any(|(_, id)| id == *NEW) {
        let mut step = Step::new("unallocated-in-use");
        if !snapshot.handles.iter().any(|handle| handle.value.id() == *NEW) {
            step.whole().edits = vec![Edit::Handle(NEW.into(), HandleEdit::Increment(cidr, 1))];
        }
        let record = Attribute {
            handle: Some(NEW.into()),
            ..Attribute::default()
        };
        let assign = BlockEdit::Assign {
            records: vec![(block.free()[0], record)],
        };
        step.whole().edits.push(Edit::Block(cidr, assign));
        steps.push(step);
    }
    let owner = block.host().unwrap().to_owned();
    let key = AffinityKey {
        kind: AffinityType::Host,
        node: owner,
        cidr,
    };
    let state = AffinityState::Confirmed;
    let settle = match snapshot
        .affinities
        .iter()
        .find(|affinity| affinity.value.key == key)
    {
        Some(known) if known.value.state == state => None,
        Some(known) => Some(Edit::Affinity(key.into(), known.revision.clone(), state)),
        None => {
            let affinity = Object::Affinity(Affinity::new(key.clone(), state));
            Some(Edit::Create(Key::Affinity(key), Box::new(affinity)))
        }
    };
    if let Some(settle) = settle {
        let mut step = Step::new("unsettled-affinity");
        step.whole().edits = vec![Edit::Block(cidr, BlockEdit::Touch), settle];
        steps.push(step);
    }
    steps.extend(orphan(snapshot, ORPHAN));
    steps
}

/// The deletion of a handle that is still there.
fn orphan(snapshot: &Snapshot, id: &str) -> Option<Step> {
    let handle = snapshot.handles.iter().find(|handle| handle.value.id() == *id)?;
    let mut step = Step::new("orphan-handle");
    step.whole().edits = vec![Edit::Delete(Key::Handle(id.into()), handle.revision.clone())];
    let blocks = handle.value.blocks();
    step.whole().evidence = blocks
        .map(|(block, _)| (Key::Block(block), Precondition::Records(id.into(), 0..=0)))
        .collect();
    Some(step)
}

/// Tears every request of a run and of its undo in turn. All addresses except the targets stay recorded under their
/// handles.
async fn tear_every_request<C: Cluster>(
    cluster: &mut C,
    targets: &BTreeSet<IpAddr>,
    plan: impl Fn(&Snapshot) -> Vec<Step>,
) {
    let (base, before) = (cluster.values().await, cluster.site().snapshot().await);
    // Measures the number of requests of an undisturbed run, and records the state after the run.
    cluster.site().torn.plan(|_| Tear::Pass);
    let (execution, journal) = cluster.site().run(plan(&before)).await;
    assert!(execution.unwrap().is_complete());
    let (requests, wanted) = (cluster.site().torn.count(), cluster.values().await);
    assert_ne!(wanted, base);
    assert!(cluster.site().undo(&journal).await.unwrap().is_complete());
    assert_eq!(cluster.values().await, base);

    let tears = C::TEARS;
    for (number, round) in
        (0..requests).flat_map(|number| (0..rounds(1).min(tears.len())).map(move |r| (number, r)))
    {
        let tear = tears[(number + round) % tears.len()];
        let what = format!("{tear:?} at {number} of {requests}");
        cluster.site().torn.tear_at(number, tear);
        let steps = plan(&cluster.site().snapshot().await);
        let (torn, journal) = cluster.site().run(steps).await;
        is_settled(cluster.site(), torn.as_ref(), &before, targets, &what).await;
        assert!(C::copes(tear, torn.as_ref()), "{what}: {torn:?}");

        // The finished part is undone, or a second run converges.
        cluster.site().torn.plan(|_| Tear::Pass);
        if number % 3 < 2 && torn.is_some() {
            let undone = cluster.site().undo(&journal).await.unwrap();
            assert!(undone.is_complete(), "{what}: {torn:?}\n{undone:?}");
            assert_eq!(cluster.values().await, base, "{what}: {torn:?}");
        } else {
            let steps = plan(&cluster.site().snapshot().await);
            let again = cluster.site().run(steps).await.0.unwrap();
            assert!(again.is_complete(), "{what}: {torn:?}\n{again:?}");
            assert_eq!(cluster.values().await, wanted, "{what}: {torn:?}\n{again:?}");
            cluster.reset().await;
        }

        // A torn undo converges as well.
        let steps = plan(&cluster.site().snapshot().await);
        let (whole, journal) = cluster.site().run(steps).await;
        assert!(
            whole.as_ref().is_some_and(Execution::is_complete),
            "{what}: {whole:?}"
        );
        assert_eq!(cluster.values().await, wanted, "{what}: {torn:?}\n{whole:?}");
        cluster.site().torn.tear_at(number, tear);
        let torn = cluster.site().undo(&journal).await;
        is_settled(cluster.site(), torn.as_ref(), &before, targets, &what).await;
        assert!(C::copes(tear, torn.as_ref()), "undo, {what}: {torn:?}");
        cluster.site().torn.plan(|_| Tear::Pass);
        let undone = cluster.site().undo(&journal).await.unwrap();
        assert!(undone.is_complete(), "undo, {what}: {torn:?}\n{undone:?}");
        assert_eq!(cluster.values().await, base, "undo, {what}: {torn:?}");
    }
}

/// Asserts that the lock is removed, or that the run has reported it. Also asserts that every recorded address has its
/// handle, and that all addresses except the targets are recorded as before.
async fn is_settled(
    site: &TornSite,
    execution: Option<&Execution>,
    before: &Snapshot,
    targets: &BTreeSet<IpAddr>,
    what: &str,
) {
    let now = site.snapshot().await;
    let is_locked = now.cluster.as_ref().unwrap().datastore_ready == Some(false);
    let is_named = execution.is_some_and(|execution| execution.lock_left.is_some());
    assert!(!is_locked || is_named, "{what}: {execution:?}");

    let (before, recorded) = (recorded(before), recorded(&now));
    for (address, handle) in before.iter().filter(|(address, _)| !targets.contains(address)) {
        assert_eq!(
            recorded.get(address),
            Some(handle),
            "{what}: {address} {execution:?}"
        );
    }
    let handles: BTreeSet<String> = now
        .handles
        .iter()
        .map(|handle| handle.value.id().to_string())
        .collect();
    for (address, handle) in recorded {
        assert!(
            handle.is_none_or(|id| handles.contains(&id)),
            "{what}: the handle of {address} {execution:?}"
        );
    }
}

/// The handles of all recorded addresses.
fn recorded(snapshot: &Snapshot) -> BTreeMap<IpAddr, Option<String>> {
    let all = sound(snapshot).flat_map(Block::allocations);
    all.map(|a| (a.address, a.attribute.clean_handle().map(|id| id.to_string())))
        .collect()
}
