//! Repeated repairs alongside allocators that assign and release at full speed, on both datastores.
//!
//! Each test takes 14 seconds, or longer on a busy machine. `CALIPAM_LIVE=full` makes it at least 60 seconds and 10,000
//! operations.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use calipam_check::{Code, Recheck, check};
use calipam_model::IpNet;
use calipam_model::cidr::ordinal_of;
use calipam_model::key::Key;
use calipam_model::snapshot::{Snapshot, StoredBlock, Versioned};
use calipam_plan::{Basis, Plan, rebuild, release};
use calipam_testkit::allocator::{Activity, Churn, ChurnLog, Scene, Tenant};
use calipam_testkit::cluster::{Cluster, ClusterSpec};
use calipam_testkit::kube::Flavour;
use serde_json::json;

use crate::cluster::{Site, judgement, sound};

/// A pause that is longer than most operations of a worker. Slower operations are awaited separately, so that a
/// half-done operation is not mistaken for a leak.
const SETTLE: Duration = Duration::from_secs(4);

fn spec() -> ClusterSpec {
    ClusterSpec::new(3).v4_only()
}

fn on_etcd() -> Scene {
    Scene::on_etcd(&Cluster::plain(spec(), 4, 0))
}

fn on_kubernetes(flavour: Flavour) -> Scene {
    Scene::on_kubernetes(flavour, spec())
}

async fn open(scene: &Scene) -> Site {
    Site::open(scene.world.overrides()).await
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
}

/// The repairs that run at the same time. Two of the same kind conflict with each other, and must detect that.
const REPAIRS: [fn(&Basis<'_>) -> Plan; 3] = [release_all, release_all, rebuild_all];

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

fn release_all(basis: &Basis<'_>) -> Plan {
    let all = release::Request {
        leaked: true,
        orphan_handles: true,
        ..release::Request::default()
    };
    release::plan(basis, &all)
}

fn rebuild_all(basis: &Basis<'_>) -> Plan {
    let all = rebuild::Request {
        endpoints_only: true,
        ..rebuild::Request::default()
    };
    rebuild::plan(basis, &all)
}

/// The result of a repairer.
#[derive(Debug, Default)]
struct Done {
    runs: usize,
    written: usize,
    conflicts: usize,
}

/// Reads a snapshot, rechecks objects that could be half written, and plans a repair without a grace period.
async fn planned(site: &Site, repair: fn(&Basis<'_>) -> Plan, activity: &Activity) -> Plan {
    let snapshot = site.observe().await;
    let mut read = Instant::now();
    let mut report = check(&snapshot, &judgement());
    let mut recheck = Recheck::new(&snapshot);
    while let Some(keys) = recheck.keys(&report) {
        tokio::time::sleep(SETTLE).await;
        activity.ended(read).await;
        let later = site.store.reread(&keys).await.unwrap().unwrap();
        read = Instant::now();
        recheck.take(&mut report, later);
    }
    repair(&Basis::new(&snapshot, &report, &judgement()))
}

/// Repeats one of [`REPAIRS`] until the allocators have ended.
async fn repair_until_over(
    scene: Arc<Scene>,
    shared: Arc<Shared>,
    working: Arc<JoinHandle<Vec<ChurnLog>>>,
    number: usize,
) {
    let site = open(&scene).await;
    let repair = REPAIRS[number];
    while !working.is_finished() {
        let run = shared.repairs()[number].runs;
        let plan = planned(&site, repair, &shared.activity).await;
        let execution = site.run_as(&run.to_string(), plan.divide().1).await;
        assert!(execution.failure.is_none(), "{number}: {execution:?}");
        assert_eq!(
            execution.is_complete(),
            execution.conflicts.is_empty(),
            "{execution:?}"
        );
        let done = &mut shared.repairs()[number];
        done.runs += 1;
        done.written += execution.written;
        done.conflicts += execution.conflicts.len();
    }
}

async fn leaked_addresses_go_and_live_ones_stay(scene: Scene) {
    let (scene, shared) = (Arc::new(scene), Arc::new(Shared::default()));
    let (place, known) = (Arc::clone(&scene), Arc::clone(&shared));
    let working = Arc::new(thread::spawn(move || work(&place, &known)));
    let start = |number| {
        let (scene, shared, working) = (Arc::clone(&scene), Arc::clone(&shared), Arc::clone(&working));
        tokio::spawn(repair_until_over(scene, shared, working, number))
    };
    let repairers: Vec<_> = (0..REPAIRS.len()).map(start).collect();
    for repairer in repairers {
        repairer.await.unwrap();
    }
    let rounds = Arc::into_inner(working)
        .expect("the repairers have ended")
        .join()
        .unwrap();
    assert!(
        shared.is_enough_repaired(),
        "{:?} beside {rounds:?}",
        shared.repairs()
    );

    // After all allocators and repairers have ended, the last leaked addresses are released, and nothing is left to do.
    let site = open(&scene).await;
    let plan = planned(&site, release_all, &shared.activity).await;
    let execution = site.run_as("last", plan.divide().1).await;
    assert!(execution.is_complete(), "{execution:?}");
    let left = check(&site.observe().await, &judgement());
    let bad = [
        Code::LeakedAddress,
        Code::DuplicateAddress,
        Code::UnallocatedInUse,
        Code::CorruptBlock,
    ];
    let left: Vec<_> = left.findings.iter().filter(|f| bad.contains(&f.code)).collect();
    assert!(left.is_empty(), "{left:?}");
    rounds
        .iter()
        .for_each(|log| assert_eq!(scene.violations(&log.ledger), []));
    let operations: u64 = rounds.iter().map(ChurnLog::operations).sum();
    println!(
        "{operations} operations, {:?} beside {rounds:?}",
        shared.repairs()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn repairs_alongside_allocators_on_etcd() {
    leaked_addresses_go_and_live_ones_stay(on_etcd()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn repairs_alongside_allocators_on_kubernetes() {
    leaked_addresses_go_and_live_ones_stay(on_kubernetes(Flavour::Classic)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn repairs_alongside_allocators_on_kubernetes_with_native_kinds() {
    leaked_addresses_go_and_live_ones_stay(on_kubernetes(Flavour::Native)).await;
}

/// Frees addresses of live pods in one block and deletes their handles, so that a rebuild has to record them again.
async fn lose_records(scene: &Scene, site: &Site, tenants: &[&Tenant]) {
    let block = tenants[0].block;
    let freed: Vec<u32> = tenants
        .iter()
        .filter_map(|tenant| ordinal_of(block, tenant.address))
        .collect();
    let snapshot = site.observe().await;
    let mut without = sound(&snapshot)
        .find(|sound| sound.cidr() == block)
        .unwrap()
        .clone();
    without.update(|edit| edit.release(&freed));
    scene.world.edit(&Key::Block(block), |block| {
        let fields = ["allocations", "unallocated", "attributes", "sequenceNumber"];
        fields
            .iter()
            .for_each(|field| block[field] = json!(without)[field].take());
        block["sequenceNumberForAllocation"] = json!(without)["sequenceNumberForAllocation"].take();
    });
    for tenant in tenants {
        scene.world.delete(&Key::Handle(tenant.handle.clone()));
    }
}

/// The blocks with at least 10 free addresses, and their revisions.
fn roomy(snapshot: &Snapshot) -> BTreeMap<IpNet, String> {
    let is_roomy = |block: &&Versioned<StoredBlock>| {
        block
            .value
            .content
            .sound()
            .is_some_and(|sound| sound.free().len() >= 10)
    };
    let blocks = snapshot.blocks.iter().filter(is_roomy);
    blocks
        .map(|block| (block.value.key, block.revision.to_string()))
        .collect()
}

/// The allocator writes the block between a rebuild and its undo. In that case, the undo leaves the block and the
/// handles of its live pods as they are.
#[tokio::test(flavor = "multi_thread")]
async fn an_undo_leaves_live_pods_their_addresses_and_handles() {
    for scene in [on_etcd(), on_kubernetes(Flavour::Classic)] {
        let few = Churn {
            operations: 25,
            limit: Duration::from_secs(4),
            ..Churn::default()
        };
        let churn = |seed| tokio::task::block_in_place(|| scene.churn(&Churn { seed, ..few.clone() }));
        let first = churn(1);
        let site = open(&scene).await;
        // A block that the allocator uses now, and will use again.
        let before = roomy(&site.observe().await);
        let second = churn(2);
        let used: Vec<IpNet> = roomy(&site.observe().await)
            .into_iter()
            .filter(|(block, revision)| before.get(block) != Some(revision))
            .map(|(block, _)| block)
            .collect();
        let mut tenants = second.ledger.live();
        let block = tenants
            .find(|tenant| used.contains(&tenant.block))
            .expect("a block with room")
            .block;
        let tenants = second.ledger.live().filter(|tenant| tenant.block == block);
        let lost: Vec<&Tenant> = tenants.take(3).collect();
        lose_records(&scene, &site, &lost).await;
        assert!(!scene.violations(&second.ledger).is_empty());

        let plan = planned(&site, rebuild_all, &few.activity).await;
        let execution = site.run_as("run", plan.divide().1).await;
        assert!(execution.is_complete() && execution.written > 0, "{execution:?}");
        assert_eq!(scene.violations(&second.ledger), []);

        let revision = async || {
            let stored = site
                .store
                .stored(&[Key::Block(block)])
                .await
                .unwrap()
                .pop()
                .flatten();
            stored.map(|stored| stored.revision.to_string())
        };
        let before = revision().await;
        let mut later = Vec::new();
        while revision().await == before {
            assert!(later.len() < 9, "the allocator does not write the block");
            later.push(churn(later.len() as u64 + 3));
        }

        // Reading the plan skips all steps, and an undo of the unread plan abandons them.
        let plan = site.undo_plan("run");
        let looked = plan.clone().read(&site.store).await.unwrap();
        assert!(
            looked.steps().is_empty() && !looked.skipped().is_empty(),
            "{looked:?}"
        );
        let execution = site.undo(&plan, &site.options("undone")).await;
        assert_eq!((execution.written, execution.partly), (0, 0), "{execution:?}");
        assert_eq!(execution.aborted, execution.steps, "{execution:?}");
        assert_eq!(scene.violations(&first.ledger), []);
        assert_eq!(scene.violations(&second.ledger), []);
        later
            .iter()
            .for_each(|log| assert_eq!(scene.violations(&log.ledger), []));
    }
}
