//! Repeated repairs alongside allocators that assign and release at full speed, on both datastores.
//!
//! Each test takes 14 seconds, or longer on a busy machine. `CALIPAM_LIVE=full` makes it at least 60 seconds and 10,000
//! operations.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use calipam_check::{Code, Options as Judgement, Recheck, check};
use calipam_datastore::Datastore;
use calipam_datastore::write::{Batch, Change, Swap};
use calipam_model::IpNet;
use calipam_model::block::BlockContent;
use calipam_model::cidr::ordinal_of;
use calipam_model::key::Key;
use calipam_model::snapshot::{Snapshot, StoredBlock, Versioned};
use calipam_model::writable::Object;
use calipam_plan::{Basis, Plan, rebuild, release};
use calipam_repair::journal::Recorded;
use calipam_repair::{Options, UndoPlan, execute, undo};
use calipam_testkit::allocator::{Activity, Churn, ChurnLog, Ledger, Target, Tenant};
use calipam_testkit::cluster::{Cluster, ClusterSpec};
use calipam_testkit::kube::{Flavour, Kinds, Lease, lease, seed};
use calipam_testkit::servers::Etcd;
use jiff::SignedDuration;

use crate::cluster::{consent, journal_path, observe, open};
use crate::kubernetes::open as open_kubernetes;

/// A pause that is longer than most operations of a worker. Slower operations are awaited separately, so that a
/// half-done operation is not mistaken for a leak.
const SETTLE: Duration = Duration::from_secs(4);

/// The datastore of a cluster without pods.
struct Scene {
    server: Server,
    spec: ClusterSpec,
    nodes: Vec<String>,
}

enum Server {
    Etcd(Box<Etcd>),
    Kubernetes(Box<Lease>, Flavour),
}

impl Scene {
    fn on_etcd() -> Self {
        let spec = ClusterSpec::new(3).v4_only();
        let cluster = Cluster::plain(spec, 4, 0);
        let etcd = Etcd::of(&cluster).unwrap();
        let nodes = cluster.nodes().iter().map(|node| node.name.clone()).collect();
        Self { server: Server::Etcd(Box::new(etcd)), spec, nodes }
    }

    fn on_kubernetes(flavour: Flavour) -> Self {
        let spec = ClusterSpec::new(3).v4_only();
        let server = lease(Kinds::Calico(flavour)).unwrap();
        let nodes = seed(&server, flavour, &spec, 4).unwrap();
        Self { server: Server::Kubernetes(Box::new(server), flavour), spec, nodes }
    }

    fn churn(&self, churn: &Churn) -> ChurnLog {
        self.at(|target| churn.run_on(target, &self.spec, &self.nodes).unwrap())
    }

    /// Asserts that no live pod has lost its address.
    fn assert_sound(&self, ledger: &Ledger) {
        let violations = self.at(|target| ledger.verify(target).unwrap());
        assert!(violations.is_empty(), "{violations:?}");
    }

    fn at<T>(&self, work: impl FnOnce(Target<'_>) -> T) -> T {
        match &self.server {
            Server::Etcd(etcd) => work(Target::Etcd(&etcd.endpoint())),
            Server::Kubernetes(server, flavour) => work(Target::Kubernetes(server, *flavour)),
        }
    }

    async fn open(&self) -> Datastore {
        match &self.server {
            Server::Etcd(etcd) => open(&etcd.endpoint()).await,
            Server::Kubernetes(server, _) => open_kubernetes(server).await,
        }
    }
}

/// The minimum duration of a test, the minimum number of assigned and released addresses, and the maximum duration of a
/// round.
fn extent() -> (Duration, u64, Duration) {
    match std::env::var("CALIPAM_LIVE").as_deref() {
        Ok("full") => (Duration::from_secs(60), 10_000, Duration::from_secs(600)),
        _ => (Duration::from_secs(14), 120, Duration::from_secs(14)),
    }
}

/// The state that allocators and repairers share.
#[derive(Default)]
struct Shared {
    activity: Activity,
    repairs: Mutex<[Done; REPAIRS.len()]>,
    /// True once all allocators have ended.
    over: AtomicBool,
}

/// The repairs that run at the same time. Two of the same kind conflict with each other, and must detect that.
const REPAIRS: [Repair; 3] = [Repair::Release, Repair::Release, Repair::Rebuild];

impl Shared {
    fn repairs(&self) -> MutexGuard<'_, [Done; REPAIRS.len()]> {
        self.repairs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if something was repaired, and every repairer has run at least twice.
    fn is_enough_repaired(&self) -> bool {
        let repairs = self.repairs();
        repairs.iter().any(|done| done.written > 0) && repairs.iter().all(|done| done.runs > 1)
    }
}

/// Runs allocators in rounds, each with new pods, until there are enough operations and repairs.
fn work(scene: &Scene, shared: &Shared) -> Vec<ChurnLog> {
    let ((enough, least, limit), begin) = (extent(), Instant::now());
    let mut rounds: Vec<ChurnLog> = Vec::new();
    while begin.elapsed() < enough
        || rounds.iter().map(ChurnLog::operations).sum::<u64>() < least
        || !shared.is_enough_repaired()
    {
        assert!(rounds.len() < 9, "too slow: {rounds:?}");
        rounds.push(scene.churn(&Churn {
            workers: 4,
            operations: 3_500,
            limit,
            pause: Duration::from_millis(5),
            leaks: 80,
            seed: rounds.len() as u64 + 1,
            activity: shared.activity.clone(),
            ..Churn::default()
        }));
    }
    rounds
}

/// Ends the repairers when the allocators end, even after a panic of an allocator.
struct EndRepairers(Arc<Shared>);

impl Drop for EndRepairers {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Relaxed);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repair {
    Release,
    Rebuild,
}

/// The result of a repairer.
#[derive(Debug, Default)]
struct Done {
    runs: usize,
    written: usize,
    conflicts: usize,
}

/// Reads a snapshot, rechecks objects that could be half written, and plans a repair without a grace period.
async fn planned(store: &Datastore, repair: Repair, activity: &Activity) -> Plan {
    let judgement = Judgement { grace: Some(SignedDuration::ZERO), ..Judgement::default() };
    let snapshot = observe(store).await;
    let mut read = Instant::now();
    let mut report = check(&snapshot, &judgement);
    let mut recheck = Recheck::new(&snapshot);
    while let Some(keys) = recheck.keys(&report) {
        tokio::time::sleep(SETTLE).await;
        activity.ended(read).await;
        let later = store.reread(&keys).await.unwrap().unwrap();
        read = Instant::now();
        recheck.take(&mut report, later);
    }
    let basis = Basis::new(&snapshot, &report, &judgement);
    match repair {
        Repair::Release => {
            let all = release::Request { leaked: true, orphan_handles: true, ..release::Request::default() };
            release::plan(&basis, &all)
        }
        Repair::Rebuild => {
            let all = rebuild::Request { endpoints_only: true, ..rebuild::Request::default() };
            rebuild::plan(&basis, &all)
        }
    }
}

/// Repeats one of [`REPAIRS`] until the allocators have ended.
async fn repair_until_over(scene: Arc<Scene>, shared: Arc<Shared>, number: usize) {
    let (store, folder) = (scene.open().await, tempfile::tempdir().unwrap());
    let repair = REPAIRS[number];
    while !shared.over.load(Ordering::Relaxed) {
        let run = shared.repairs()[number].runs;
        let plan = planned(&store, repair, &shared.activity).await;
        let cluster = plan.cluster.guid.clone();
        let options = Options::new("a test", journal_path(folder.path(), &run.to_string()));
        let steps = plan.divide().1;
        let execution = execute(&store, &cluster, steps, consent(&cluster), &options).await.unwrap();
        assert!(execution.failure.is_none(), "{repair:?}: {execution:?}");
        assert_eq!(execution.is_complete(), execution.conflicts.is_empty(), "{execution:?}");
        let done = &mut shared.repairs()[number];
        done.runs += 1;
        done.written += execution.written;
        done.conflicts += execution.conflicts.len();
    }
}

async fn leaked_addresses_go_and_live_ones_stay(scene: Scene) {
    let (scene, shared) = (Arc::new(scene), Arc::new(Shared::default()));
    let end = EndRepairers(Arc::clone(&shared));
    let place = Arc::clone(&scene);
    let working = thread::spawn(move || work(&place, &end.0));
    let start = |number| tokio::spawn(repair_until_over(Arc::clone(&scene), Arc::clone(&shared), number));
    let repairers: Vec<_> = (0..REPAIRS.len()).map(start).collect();
    for repairer in repairers {
        repairer.await.unwrap();
    }
    let rounds = working.join().unwrap();
    assert!(shared.is_enough_repaired(), "{:?} beside {rounds:?}", shared.repairs());

    // After all allocators and repairers have ended, the last leaked addresses are released, and nothing is left to do.
    let (store, folder) = (scene.open().await, tempfile::tempdir().unwrap());
    let plan = planned(&store, Repair::Release, &shared.activity).await;
    let options = Options::new("a test", journal_path(folder.path(), "last"));
    let cluster = plan.cluster.guid.clone();
    let execution = execute(&store, &cluster, plan.divide().1, consent(&cluster), &options).await.unwrap();
    assert!(execution.is_complete(), "{execution:?}");
    let judgement = Judgement { grace: Some(SignedDuration::ZERO), ..Judgement::default() };
    let left = check(&observe(&store).await, &judgement);
    let bad = [Code::LeakedAddress, Code::DuplicateAddress, Code::UnallocatedInUse, Code::CorruptBlock];
    let left: Vec<_> = left.findings.iter().filter(|f| bad.contains(&f.code)).collect();
    assert!(left.is_empty(), "{left:?}");
    rounds.iter().for_each(|log| scene.assert_sound(&log.ledger));
    let operations: u64 = rounds.iter().map(ChurnLog::operations).sum();
    println!("{operations} operations, {:?} beside {rounds:?}", shared.repairs());
}

#[tokio::test(flavor = "multi_thread")]
async fn repairs_alongside_allocators_on_etcd() {
    leaked_addresses_go_and_live_ones_stay(Scene::on_etcd()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn repairs_alongside_allocators_on_kubernetes() {
    leaked_addresses_go_and_live_ones_stay(Scene::on_kubernetes(Flavour::Classic)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn repairs_alongside_allocators_on_kubernetes_with_native_kinds() {
    leaked_addresses_go_and_live_ones_stay(Scene::on_kubernetes(Flavour::Native)).await;
}

/// Frees addresses of live pods in one block and deletes their handles, so that a rebuild has to record them again.
async fn lose_records(store: &Datastore, tenants: &[&Tenant]) {
    let block = tenants[0].block;
    let guid = observe(store).await.cluster.unwrap().guid;
    let writer = store.writer(consent(&guid)).unwrap();
    let commit = async |change: Change| {
        let swap = writer.commit(&Batch { changes: vec![change], evidence: Vec::new() }).await.unwrap();
        assert!(matches!(swap, Swap::Done(_)));
    };
    let key = Key::Block(block);
    let stored = writer.read(std::slice::from_ref(&key)).await.unwrap().pop().flatten().unwrap();
    let Some(Object::Block(BlockContent::Sound(mut sound))) = stored.object else { panic!() };
    let freed: Vec<u32> = tenants.iter().filter_map(|tenant| ordinal_of(block, tenant.address)).collect();
    sound.update(|edit| edit.release(&freed));
    commit(Change::update(key, stored.revision, Object::from(*sound).encode())).await;
    for tenant in tenants {
        let key = Key::Handle(tenant.handle.clone());
        let stored = writer.read(std::slice::from_ref(&key)).await.unwrap().pop().flatten().unwrap();
        commit(Change::delete(key, stored.revision)).await;
    }
}

/// The blocks with at least 10 free addresses, and their revisions.
fn roomy(snapshot: &Snapshot) -> BTreeMap<IpNet, String> {
    let is_roomy = |block: &&Versioned<StoredBlock>| {
        block.value.content.sound().is_some_and(|sound| sound.free().len() >= 10)
    };
    let blocks = snapshot.blocks.iter().filter(is_roomy);
    blocks.map(|block| (block.value.key, block.revision.to_string())).collect()
}

/// The allocator writes the block between a rebuild and its undo. In that case, the undo leaves the block and the
/// handles of its live pods as they are.
#[tokio::test(flavor = "multi_thread")]
async fn an_undo_leaves_live_pods_their_addresses_and_handles() {
    for scene in [Scene::on_etcd(), Scene::on_kubernetes(Flavour::Classic)] {
        let few = Churn { operations: 25, limit: Duration::from_secs(4), ..Churn::default() };
        let churn = |seed| tokio::task::block_in_place(|| scene.churn(&Churn { seed, ..few.clone() }));
        let first = churn(1);
        let store = scene.open().await;
        // A block that the allocator uses now, and will use again.
        let before = roomy(&observe(&store).await);
        let second = churn(2);
        let used: Vec<IpNet> = roomy(&observe(&store).await)
            .into_iter()
            .filter(|(block, revision)| before.get(block) != Some(revision))
            .map(|(block, _)| block)
            .collect();
        let mut tenants = second.ledger.live();
        let block = tenants.find(|tenant| used.contains(&tenant.block)).expect("a block with room").block;
        let tenants = second.ledger.live().filter(|tenant| tenant.block == block);
        let lost: Vec<&Tenant> = tenants.take(3).collect();
        lose_records(&store, &lost).await;
        assert!(!scene.at(|target| second.ledger.verify(target).unwrap()).is_empty());

        let folder = tempfile::tempdir().unwrap();
        let [run, undone] = ["run", "undone"].map(|name| journal_path(folder.path(), name));
        let plan = planned(&store, Repair::Rebuild, &few.activity).await;
        let cluster = plan.cluster.guid.clone();
        let steps = plan.divide().1;
        let execution =
            execute(&store, &cluster, steps, consent(&cluster), &Options::new("a test", &run)).await.unwrap();
        assert!(execution.is_complete() && execution.written > 0, "{execution:?}");
        scene.assert_sound(&second.ledger);

        let revision = async |store: &Datastore| {
            let stored = store.stored(&[Key::Block(block)]).await.unwrap().pop().flatten();
            stored.map(|stored| stored.revision.to_string())
        };
        let before = revision(&store).await;
        let mut later = Vec::new();
        while revision(&store).await == before {
            assert!(later.len() < 9, "the allocator does not write the block");
            later.push(churn(later.len() as u64 + 3));
        }

        // Reading the plan skips all steps, and an undo of the unread plan abandons them.
        let plan = UndoPlan::new(&Recorded::read(&run).unwrap()).unwrap();
        let looked = plan.clone().read(&store).await.unwrap();
        assert!(looked.steps().is_empty() && !looked.skipped().is_empty(), "{looked:?}");
        let options = Options::new("undo", &undone);
        let execution = undo(&store, &plan, consent(&cluster), &options).await.unwrap();
        assert_eq!((execution.written, execution.partly), (0, 0), "{execution:?}");
        assert_eq!(execution.aborted, execution.steps, "{execution:?}");
        scene.assert_sound(&first.ledger);
        scene.assert_sound(&second.ledger);
        later.iter().for_each(|log| scene.assert_sound(&log.ledger));
    }
}
