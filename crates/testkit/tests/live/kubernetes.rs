//! Readers while pods are created, finish, are evicted and are deleted, and nodes claim blocks and give them up, on a
//! real API server.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use calipam_check::{settle, suspects};
use calipam_datastore::Datastore;
use calipam_testkit::allocator::{Churn, ChurnLog, Target};
use calipam_testkit::cluster::ClusterSpec;
use calipam_testkit::kube::{Flavour, seed};
use calipam_testkit::servers::KubeApiserver;

use crate::reader::{judge, lines, observe, open_kubernetes};

/// Longer than any operation of a worker takes.
const SETTLE: Duration = Duration::from_secs(4);
/// Readers at once, so that there are many readings although each has to wait.
const READERS: usize = 3;
/// Least readings, and least addresses assigned and released, that the test counts for.
const MIN_READINGS: usize = 6;
const MIN_OPERATIONS: u64 = 200;

/// What readers saw.
#[derive(Default)]
struct Seen {
    readings: usize,
    /// Findings of single readings, which a half-done operation or the time between two lists explains.
    unsettled: BTreeSet<String>,
    /// Findings that stood when what is behind them was read again.
    settled: BTreeSet<String>,
}

async fn read(datastore: Arc<Datastore>, over: Arc<AtomicBool>) -> Seen {
    let mut seen = Seen::default();
    while !over.load(Ordering::Relaxed) {
        let snapshot = observe(&datastore).await;
        let mut report = judge(&snapshot);
        seen.unsettled.extend(lines(&report));
        let keys = suspects(&report);
        tokio::time::sleep(SETTLE).await;
        let later = datastore.reread(&keys).await.unwrap().unwrap();
        settle(&mut report, &snapshot, &later);
        seen.settled.extend(lines(&report));
        seen.readings += 1;
    }
    seen
}

/// Findings that a churn brings about on purpose.
fn leaks(log: &ChurnLog) -> BTreeSet<String> {
    log.ledger.leaked().keys().map(|address| format!("leaked-address {address}")).collect()
}

async fn nothing_false_is_found(flavour: Flavour, seed_number: u64) {
    let spec = ClusterSpec::new(9).v4_only();
    let server = Arc::new(KubeApiserver::start().unwrap());
    let nodes = seed(&server, flavour, &spec, 4).unwrap();
    let datastore = Arc::new(open_kubernetes(&server.kubeconfig()).await);
    let churn = Churn {
        workers: 4,
        operations: 100_000,
        limit: Duration::from_secs(16),
        pause: Duration::from_millis(1),
        leaks: 40,
        seed: seed_number,
        ..Churn::default()
    };
    let over = Arc::new(AtomicBool::new(false));
    let (allocators, done) = (Arc::clone(&server), Arc::clone(&over));
    let working = std::thread::spawn(move || {
        let log = churn.run_on(Target::Kubernetes(&allocators, flavour), &spec, &nodes);
        done.store(true, Ordering::Relaxed);
        log.unwrap()
    });
    let readers: Vec<_> = (0..READERS)
        .map(|number| {
            let (datastore, over) = (Arc::clone(&datastore), Arc::clone(&over));
            tokio::spawn(async move {
                tokio::time::sleep(SETTLE * number as u32 / READERS as u32).await;
                read(datastore, over).await
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
        "{flavour:?}: {} readings, {} findings before settling, beside {} operations, {log:?}",
        seen.readings,
        seen.unsettled.len(),
        log.operations()
    );
    assert!(false_ones.is_empty(), "a half-done operation is called a fault: {false_ones:#?}\n{log:?}");
    assert!(
        seen.readings >= MIN_READINGS && log.operations() >= MIN_OPERATIONS,
        "{}, {log:?}",
        seen.readings
    );
    assert!(log.finished > 5 && log.evicted > 5 && log.lost > 0 && log.claimed > 5, "{log:?}");
    assert!(
        seen.unsettled.difference(&expected).next().is_some(),
        "no reading fell between two writes: {log:?}"
    );
    // All operations are finished: what has leaked is found, and nothing else, settled or not.
    let after: BTreeSet<String> = lines(&judge(&observe(&datastore).await)).into_iter().collect();
    assert_eq!(after, expected);
    assert_eq!(log.ledger.verify(Target::Kubernetes(&server, flavour)).unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn beside_allocators_in_the_classic_api_group() {
    nothing_false_is_found(Flavour::Classic, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn beside_allocators_in_the_native_api_group() {
    nothing_false_is_found(Flavour::Native, 2).await;
}
