//! Reads while pods are created, finish, are evicted and are deleted, and nodes claim and release blocks: on a real API
//! server, and on an etcd with the pods of an API server.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use calipam_datastore::Datastore;
use calipam_testkit::allocator::{Activity, Churn, ChurnLog, Target};
use calipam_testkit::cluster::{Cluster, ClusterSpec};
use calipam_testkit::kube::{Flavour, Kinds, Lease, lease, seed, seed_nodes};
use calipam_testkit::servers::Etcd;

use super::findings::{checked, findings, lines, recheck};
use crate::support::{observe, open_kubernetes};

/// The pause before a recheck, which is longer than most operations of a worker. The test waits separately for the end
/// of longer operations.
const SETTLE: Duration = Duration::from_secs(4);
/// The time for which the workers run. They continue if they or the readers had not done enough by then, as on a busy
/// machine.
const WORK: Duration = Duration::from_secs(10);
const LIMIT: Duration = Duration::from_secs(180);
/// The number of parallel readers. Together, they read often although each one waits before a recheck.
const READERS: usize = 3;
/// The minimum number of reads.
const MIN_READINGS: usize = 6;

/// Returns true once the workers have assigned and released 120 addresses, and every kind of event of pods and blocks
/// has occurred.
fn is_enough(log: &ChurnLog) -> bool {
    let each_ending = log.finished.min(log.evicted).min(log.restarted);
    log.operations() >= 120 && each_ending > 2 && log.lost > 0 && log.claimed > 3
}

/// A cluster without pods.
struct Scene {
    server: Lease,
    flavour: Flavour,
    /// The etcd that stores Calico's data instead of the server, and its endpoint.
    etcd: Option<(Etcd, String)>,
    spec: ClusterSpec,
    nodes: Vec<String>,
}

impl Scene {
    fn new(flavour: Flavour) -> Self {
        let spec = ClusterSpec::new(9).v4_only();
        let server = lease(Kinds::Calico(flavour)).unwrap();
        let nodes = seed(&server, flavour, &spec, 4).unwrap();
        Self { server, flavour, etcd: None, spec, nodes }
    }

    fn with_etcd() -> Self {
        let spec = ClusterSpec::new(9).v4_only();
        let cluster = Cluster::plain(spec, 4, 0);
        let nodes: Vec<String> = cluster.nodes().iter().map(|node| node.name.clone()).collect();
        let server = lease(Kinds::Kubernetes).unwrap();
        seed_nodes(&server, &nodes).unwrap();
        let etcd = Etcd::start().unwrap();
        let endpoint = etcd.endpoint();
        cluster.write_to_etcd(&endpoint).unwrap();
        Self { server, flavour: Flavour::Classic, etcd: Some((etcd, endpoint)), spec, nodes }
    }

    fn target(&self) -> Target<'_> {
        match &self.etcd {
            None => Target::Kubernetes(&self.server, self.flavour),
            Some((_, endpoint)) => Target::EtcdAndKubernetes(endpoint, &self.server),
        }
    }

    async fn open(&self) -> Datastore {
        let endpoint = self.etcd.as_ref().map(|(_, endpoint)| endpoint.clone());
        open_kubernetes(&self.server.kubeconfig(), endpoint).await
    }
}

/// The findings of the readers.
#[derive(Default)]
struct Seen {
    readings: usize,
    /// Findings after a single read. They include false ones, because operations were in progress or because objects
    /// changed between two list requests.
    unsettled: BTreeSet<String>,
    /// Findings that remained after their objects were read again.
    settled: BTreeSet<String>,
}

/// Data shared by readers and workers.
#[derive(Clone)]
struct Course {
    begin: Instant,
    activity: Activity,
    readings: Arc<AtomicUsize>,
    /// True after all workers have ended.
    over: Arc<AtomicBool>,
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
    while !course.over.load(Ordering::Relaxed) {
        let snapshot = observe(&datastore).await.unwrap();
        let read = Instant::now();
        let mut report = checked(&snapshot);
        seen.unsettled.extend(lines(&report.findings));

        recheck(&datastore, (&snapshot, read), &mut report, (SETTLE, &course.activity)).await;
        seen.settled.extend(lines(&report.findings));

        seen.readings += 1;
        course.count_reading();
    }
    seen
}

/// The findings that a churn causes on purpose.
fn leaks(log: &ChurnLog) -> BTreeSet<String> {
    log.ledger.leaked().keys().map(|address| format!("leaked-address {address}")).collect()
}

async fn nothing_false_is_found(scene: Scene, seed: u64) {
    let scene = Arc::new(scene);
    let datastore = Arc::new(scene.open().await);
    let churn = Churn {
        workers: 4,
        operations: 100_000,
        enough: is_enough,
        limit: LIMIT,
        pause: Duration::from_millis(5),
        leaks: 80,
        seed,
        ..Churn::default()
    };
    let course = Course {
        begin: Instant::now(),
        activity: churn.activity.clone(),
        readings: Arc::default(),
        over: Arc::default(),
    };
    let (cluster, done) = (Arc::clone(&scene), Arc::clone(&course.over));
    let working = std::thread::spawn(move || {
        let log = churn.run_on(cluster.target(), &cluster.spec, &cluster.nodes);
        done.store(true, Ordering::Relaxed);
        log.unwrap()
    });
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
        seen.unsettled.extend(other.unsettled);
        seen.settled.extend(other.settled);
    }
    let log = working.join().unwrap();
    let expected = leaks(&log);
    let false_ones: Vec<&String> = seen.settled.difference(&expected).collect();
    println!(
        "{} readings, {} findings before settling, {} operations, {log:?}",
        seen.readings,
        seen.unsettled.len(),
        log.operations()
    );
    assert!(false_ones.is_empty(), "a half-done operation is called a fault: {false_ones:#?}\n{log:?}");
    assert!(seen.readings >= MIN_READINGS && is_enough(&log), "{}, {log:?}", seen.readings);
    assert!(
        seen.unsettled.difference(&expected).next().is_some(),
        "no reading fell between two writes: {log:?}"
    );
    // After all operations have ended, only the leaks are found.
    let after: BTreeSet<String> = lines(&findings(&observe(&datastore).await.unwrap())).into_iter().collect();
    assert_eq!(after, expected);
    assert_eq!(log.ledger.verify(scene.target()).unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_false_findings_while_allocators_work_in_the_classic_api_group() {
    nothing_false_is_found(Scene::new(Flavour::Classic), 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_false_findings_while_allocators_work_in_the_native_api_group() {
    nothing_false_is_found(Scene::new(Flavour::Native), 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_false_findings_while_allocators_work_on_etcd_with_kubernetes_pods() {
    nothing_false_is_found(Scene::with_etcd(), 3).await;
}
