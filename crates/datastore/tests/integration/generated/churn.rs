//! Reads while pods are created, finish, are evicted and are deleted, and nodes claim and release blocks: on etcd, on a
//! real API server, and on an etcd with the pods of an API server.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use calipam_datastore::Datastore;
use calipam_model::snapshot::Snapshot;
use calipam_testkit::World;
use calipam_testkit::allocator::{Activity, Churn, ChurnLog, Scene};
use calipam_testkit::cluster::{Cluster, ClusterSpec, Fault};
use calipam_testkit::datastore::observe;
use calipam_testkit::kube::Flavour;
use calipam_testkit::servers::Etcd;
use etcd_client::GetOptions;
use jiff::Timestamp;

use super::findings::{checked, findings, lines, recheck};

/// The pause before a recheck, which is longer than most operations of a worker. The test waits separately for the end
/// of longer operations.
const SETTLE: Duration = Duration::from_secs(4);
/// The time for which the workers run. They continue if they or the readers had not done enough by then, as on a busy
/// machine.
const WORK: Duration = Duration::from_secs(10);
const LIMIT: Duration = Duration::from_secs(600);
/// The number of parallel readers. Together, they read often although each one waits before a recheck.
const READERS: usize = 3;
/// The minimum number of reads. On etcd, only reads between two writes of an operation count.
const MIN_READINGS: usize = 6;
/// The minimum number of distinct revisions to read.
const MIN_REVISIONS: usize = 3;

/// Returns true once the workers have assigned and released 120 addresses, and every kind of event of pods and blocks
/// has occurred.
fn is_enough(log: &ChurnLog) -> bool {
    let each_ending = log.finished.min(log.evicted).min(log.restarted);
    log.operations() >= 120 && each_ending > 2 && log.claimed > 3 && log.released > 0
}

/// Returns true once [`is_enough`] does and addresses have leaked.
fn is_enough_with_leaks(log: &ChurnLog) -> bool {
    is_enough(log) && log.lost > 0
}

fn spec() -> ClusterSpec {
    ClusterSpec::new(9).v4_only()
}

/// The content of etcd at one revision, read in one request by a plain client.
async fn exact(etcd: &Etcd, like: &Snapshot) -> Snapshot {
    let mut client = etcd.client().await.unwrap();
    let options = GetOptions::new()
        .with_prefix()
        .with_revision(like.revision.parse().unwrap());
    let answer = client.get("/calico/", Some(options)).await.unwrap();
    let mut snapshot = Snapshot {
        taken_at: like.taken_at,
        location: like.location.clone(),
        revision: like.revision.clone(),
        coverage: like.coverage.clone(),
        ..Snapshot::default()
    };
    for pair in answer.kvs() {
        snapshot.add_entry(pair.key(), pair.value(), pair.mod_revision());
    }
    snapshot
}

/// The findings of the readers.
#[derive(Default)]
struct Seen {
    readings: usize,
    revisions: BTreeSet<String>,
    /// Findings after a single read. They include false ones, because operations were in progress or because objects
    /// changed between two list requests.
    unsettled: BTreeSet<String>,
    /// Findings that remained after their objects were read again.
    settled: BTreeSet<String>,
}

/// Data shared by readers and workers.
#[derive(Clone)]
struct Course {
    scene: Arc<Scene>,
    /// The findings that are there from the beginning to the end.
    truth: BTreeSet<String>,
    begin: Instant,
    activity: Activity,
    readings: Arc<AtomicUsize>,
    /// The thread of the workers, which returns their log.
    working: Arc<JoinHandle<ChurnLog>>,
}

impl Course {
    fn count_reading(&self) {
        let readings = self.readings.fetch_add(1, Ordering::Relaxed) + 1;
        if self.begin.elapsed() > WORK && readings >= MIN_READINGS {
            self.activity.stop();
        }
    }
}

async fn read(datastore: Arc<Datastore>, course: Course) -> Seen {
    let mut seen = Seen::default();
    let on_etcd = matches!(course.scene.world, World::Etcd(_));
    while !course.working.is_finished() {
        let snapshot = observe(&datastore).await;
        let read = Instant::now();
        seen.revisions.insert(snapshot.revision.clone());
        let mut report = checked(&snapshot);
        seen.unsettled.extend(lines(&report.findings));
        if let World::Etcd(etcd) = &course.scene.world {
            let exact = exact(etcd, &snapshot).await;
            assert_eq!(
                lines(&findings(&exact)),
                lines(&report.findings),
                "the report is of no single revision"
            );
            assert_eq!(exact.endpoints.len(), snapshot.endpoints.len());
        }

        let half_done = BTreeSet::from_iter(lines(&report.findings)) != course.truth;
        recheck(
            &datastore,
            (&snapshot, read),
            &mut report,
            (SETTLE, &course.activity),
        )
        .await;
        assert_eq!(course.activity.failures(), [""; 0], "a worker gave up");
        let settled = BTreeSet::from_iter(lines(&report.findings));
        assert!(settled.is_superset(&course.truth), "a fault is not found");
        if on_etcd {
            assert_eq!(settled, course.truth, "a half-done operation is called a fault");
        }
        seen.settled.extend(settled);

        if !on_etcd || half_done {
            seen.readings += 1;
            course.count_reading();
        }
    }
    seen
}

/// The findings that a churn causes on purpose.
fn leaks(log: &ChurnLog) -> BTreeSet<String> {
    log.ledger
        .leaked()
        .keys()
        .map(|address| format!("leaked-address {address}"))
        .collect()
}

async fn nothing_false_is_found(scene: Scene, truth: impl IntoIterator<Item = String>, seed: u64) {
    // Without leaks, each report on etcd settles at exactly the faults that are there from the beginning.
    let on_etcd = matches!(scene.world, World::Etcd(_));
    let enough: fn(&ChurnLog) -> bool = if on_etcd { is_enough } else { is_enough_with_leaks };
    let scene = Arc::new(scene);
    let datastore = Arc::new(scene.world.open().await);
    let churn = Churn {
        workers: 4,
        operations: 100_000,
        enough,
        limit: LIMIT,
        pause: Duration::from_millis(5),
        leaks: if on_etcd { 0 } else { 80 },
        seed,
        ..Churn::default()
    };
    let workers = Arc::clone(&scene);
    let course = Course {
        scene: Arc::clone(&scene),
        truth: truth.into_iter().collect(),
        begin: Instant::now(),
        activity: churn.activity.clone(),
        readings: Arc::default(),
        working: Arc::new(thread::spawn(move || workers.churn(&churn))),
    };
    let readers: Vec<_> = (0..READERS)
        .map(|number| {
            let (datastore, course) = (Arc::clone(&datastore), course.clone());
            tokio::spawn(async move {
                tokio::time::sleep(SETTLE * number as u32 / READERS as u32).await;
                read(datastore, course).await
            })
        })
        .collect();
    let mut seen = Seen::default();
    for reader in readers {
        let other = reader.await.unwrap();
        seen.readings += other.readings;
        seen.revisions.extend(other.revisions);
        seen.unsettled.extend(other.unsettled);
        seen.settled.extend(other.settled);
    }
    let working = Arc::into_inner(course.working).expect("the readers have ended");
    let log = working.join().unwrap();
    let expected: BTreeSet<String> = leaks(&log).union(&course.truth).cloned().collect();
    let false_ones: Vec<&String> = seen.settled.difference(&expected).collect();
    println!(
        "{} readings, {} findings before settling, {} operations, {log:?}",
        seen.readings,
        seen.unsettled.len(),
        log.operations()
    );
    assert!(
        false_ones.is_empty(),
        "a half-done operation is called a fault: {false_ones:#?}\n{log:?}"
    );
    assert!(
        seen.readings >= MIN_READINGS && enough(&log),
        "{}, {log:?}",
        seen.readings
    );
    assert!(
        seen.revisions.len() >= MIN_REVISIONS,
        "the readers saw {:?}",
        seen.revisions
    );
    assert!(
        seen.unsettled.difference(&expected).next().is_some(),
        "no reading fell between two writes: {log:?}"
    );
    // After all operations have ended, only the leaks are found.
    let after: BTreeSet<String> = lines(&findings(&observe(&datastore).await)).into_iter().collect();
    assert_eq!(after, expected);
    assert_eq!(scene.violations(&log.ledger), []);
}

/// Each report on etcd is of one revision.
#[tokio::test(flavor = "multi_thread")]
async fn no_false_findings_while_allocators_work_on_etcd() {
    // The workers do not touch these faults.
    let mut cluster = Cluster::plain(spec().at(Timestamp::now()), 3, 6);
    for fault in [
        Fault::LeakedNoOwner,
        Fault::OrphanHandle,
        Fault::DuplicatePods,
        Fault::HandleCountHigh,
    ] {
        cluster.inject(fault, 2);
    }
    nothing_false_is_found(Scene::on_etcd(&cluster), cluster.truth().lines(), 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_false_findings_while_allocators_work_in_the_classic_api_group() {
    nothing_false_is_found(Scene::on_kubernetes(Flavour::Classic, spec()), [], 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_false_findings_while_allocators_work_in_the_native_api_group() {
    nothing_false_is_found(Scene::on_kubernetes(Flavour::Native, spec()), [], 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_false_findings_while_allocators_work_on_etcd_with_kubernetes_pods() {
    let scene = Scene::on_etcd_with_kubernetes(&Cluster::plain(spec(), 4, 0));
    nothing_false_is_found(scene, [], 3).await;
}
