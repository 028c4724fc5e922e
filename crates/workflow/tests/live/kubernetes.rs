//! Following a Kubernetes datastore, and an etcd with Kubernetes pods: the snapshot equals a complete read.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use calipam_check::{Code, Finding, check};
use calipam_datastore::Datastore;
use calipam_model::snapshot::{Revision, Snapshot};
use calipam_testkit::allocator::{Churn, ChurnLog, Scene, Target};
use calipam_testkit::cluster::rng::Rng;
use calipam_testkit::cluster::{Cluster, ClusterSpec};
use calipam_testkit::datastore::{self, observe, open};
use calipam_testkit::kube::{Flavour, Kinds, install, lease, seed};
use calipam_testkit::rounds;
use calipam_testkit::servers::{Etcd, KubeApiserver};
use calipam_workflow::{Live, Step};
use jiff::Timestamp;
use serde_json::Value;
use tokio::time::Instant;

use super::{begin, criteria, unattended};

/// The time within which a change must reach the snapshot, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

async fn read(datastore: &Datastore) -> Snapshot {
    sorted(observe(datastore).await)
}

/// Sorts all lists by UID, so that their order does not depend on names.
fn sorted(mut snapshot: Snapshot) -> Snapshot {
    macro_rules! sort {
        ($($list:ident)*) => {
            $(snapshot.$list.sort_by_key(|object| match &object.revision {
                Revision::Kubernetes(version) => version.uid.clone(),
                Revision::Etcd(_) => String::new(),
            });)*
        };
    }
    sort!(blocks affinities handles pools reservations nodes pods services machines);
    snapshot.defects.sort_by(|a, b| a.path.cmp(&b.path));
    snapshot
}

/// The snapshot in memory, with the fields of `at` that need not be equal, such as the time. The namespaces are one of
/// them, because a complete read lists namespaces only if a pod is waiting.
fn held(live: &Live, at: &Snapshot) -> Snapshot {
    let held = live.snapshot();
    let held = held.read().unwrap().clone();
    Snapshot {
        taken_at: at.taken_at,
        revision: at.revision.clone(),
        newest_creation: at.newest_creation,
        coverage: at.coverage.clone(),
        namespaces: at.namespaces.clone(),
        ..sorted(held)
    }
}

/// Follows the datastore until the snapshot equals a complete read, and compares the findings.
async fn assert_equal(live: &mut Live, datastore: &Datastore, name: &str) {
    let begin = Instant::now();
    let whole = read(datastore).await;
    while held(live, &whole) != whole {
        assert!(
            begin.elapsed() < PATIENCE,
            "{name}: {}",
            differences(&held(live, &whole), &whole)
        );
        live.wait(Duration::from_millis(500)).await.unwrap();
        live.step(unattended(datastore)).await.unwrap();
    }
    let key = |finding: &Finding| finding.key();
    let expected = check(&whole, &criteria(0).options).findings;
    let found = &live.report().findings;
    let wanted = expected.iter().map(key).collect::<Vec<_>>();
    assert_eq!(found.iter().map(key).collect::<Vec<_>>(), wanted, "{name}");
}

fn differences(held: &Snapshot, whole: &Snapshot) -> String {
    macro_rules! of {
        ($($list:ident)*) => {
            [$((stringify!($list), held.$list == whole.$list, format!("{:#?}\n{:#?}", held.$list.iter().find(|o| !whole.$list.contains(o)), whole.$list.iter().find(|o| !held.$list.contains(o))))),*]
        };
    }
    let lists =
        of!(blocks affinities handles pools reservations nodes endpoints pods services machines defects);
    let different: Vec<_> = lists.into_iter().filter(|(_, same, _)| !same).collect();
    format!("{different:?}")
}

/// The stored objects, by key.
type Stored = BTreeMap<String, Vec<u8>>;

fn stored(server: &KubeApiserver, flavour: Flavour) -> Stored {
    let prefixes = [
        flavour.group(),
        "pods",
        "minions",
        "services/specs",
        "kubevirt.io",
    ];
    let all = prefixes.iter().flat_map(|prefix| {
        server
            .etcd()
            .entries_below(&format!("/registry/{prefix}/"))
            .unwrap()
    });
    all.map(|(key, (value, _))| (key, value)).collect()
}

/// The prefix of the keys of handles.
fn handles(flavour: Flavour) -> String {
    format!("/registry/{}/ipamhandles/", flavour.group())
}

/// Replaces the spec of an object with that of another object of its kind, so that spec and name do not match.
fn with_the_spec_of(value: &[u8], other: &[u8]) -> Option<Vec<u8>> {
    let [mut object, other] = [value, other].map(|bytes| serde_json::from_slice::<Value>(bytes).ok());
    object.as_mut()?["spec"] = other?["spec"].clone();
    Some(object?.to_string().into_bytes())
}

#[tokio::test(flavor = "multi_thread")]
async fn after_any_change_of_a_cluster_with_every_fault_the_snapshot_equals_a_full_read() {
    let (flavour, seed) = (Flavour::Classic, 5);
    let server = lease(Kinds::CalicoAndKubevirt(flavour)).unwrap();
    let spec = ClusterSpec::new(seed).at(Timestamp::now());
    Cluster::all_faults(spec, 1)
        .kubernetes(flavour)
        .write_to_server(&server)
        .unwrap();
    let first = stored(&server, flavour);
    let keys: Vec<&String> = first.keys().collect();
    let datastore = open(datastore::kubernetes(&server.kubeconfig())).await;
    let mut live = begin(&datastore, 0).await;
    assert_equal(&mut live, &datastore, "at first").await;

    let mut rng = Rng::new(seed);
    for round in 0..rounds(3) {
        let mut changed = Vec::new();
        for _ in 0..=rng.below(16) {
            let [key, other] = [0, 1].map(|_| *rng.pick(&keys));
            let is_of_kind = key.rsplit_once('/').unwrap().0 == other.rsplit_once('/').unwrap().0;
            let value = match rng.below(3) {
                0 => None,
                1 if is_of_kind => with_the_spec_of(&first[key], &first[other]),
                _ => Some(first[key].clone()),
            };
            changed.push((key.as_str(), value.is_some()));
            match value {
                Some(value) => server.etcd().put(key, value).unwrap(),
                None => server.etcd().delete(key).unwrap(),
            };
        }
        assert_equal(
            &mut live,
            &datastore,
            &format!("seed {seed}, round {round}: {changed:?}"),
        )
        .await;
    }
}

/// Runs workers that start and stop pods for a while.
async fn churn(
    target: impl FnOnce(Churn) -> ChurnLog + Send + 'static,
    live: &mut Live,
    datastore: &Datastore,
) {
    let enough = |log: &ChurnLog| log.operations() >= 30;
    let churn = Churn {
        workers: 4,
        operations: 100_000,
        enough,
        limit: PATIENCE,
        leaks: 80,
        ..Churn::default()
    };
    let activity = churn.activity.clone();
    let work = std::thread::spawn(move || target(churn));
    let mut steps = 0;
    while !work.is_finished() {
        live.wait(Duration::from_millis(200)).await.unwrap();
        assert!(matches!(
            live.step(unattended(datastore)).await.unwrap(),
            Step::Changes(_)
        ));
        steps += 1;
        // Performs the hourly complete read while other clients write.
        if steps == 3 {
            assert!(matches!(
                live.read(unattended(datastore)).await.unwrap(),
                Step::Whole(None)
            ));
        }
        if steps > 8 && activity.done() > 30 {
            activity.stop();
        }
    }
    let log = work.join().unwrap();
    assert!(enough(&log) && steps > 8, "{steps}, {log:?}");
    assert_equal(live, datastore, "after the churn").await;
    assert_eq!(live.counts.reads, 2, "{:?}", live.counts);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_snapshot_is_current_while_pods_come_and_go_and_after_a_restart() {
    let (spec, flavour) = (ClusterSpec::new(9).v4_only(), Flavour::Native);
    let server = Arc::new(KubeApiserver::start().unwrap());
    install(&server, flavour).unwrap();
    let nodes = seed(&server, flavour, &spec, 4).unwrap();
    let datastore = open(datastore::kubernetes(&server.kubeconfig())).await;
    let mut live = begin(&datastore, 0).await;
    let shared = Arc::clone(&server);
    let work = move |churn: Churn| {
        churn
            .run(Target::Kubernetes(&shared, flavour), &spec, &nodes)
            .unwrap()
    };
    churn(work, &mut live, &datastore).await;

    // The server has lost its history. Changes that were made while the server was down are found anyway.
    let mut server = Arc::into_inner(server).unwrap();
    let handles = server.etcd().entries_below(&handles(flavour)).unwrap();
    let lost = handles.into_keys().next().unwrap();
    let delete = |etcd: &mut Etcd| {
        etcd.with_client(async |mut client| client.delete(lost.as_str(), None).await.map(drop))
    };
    server.restart(delete).unwrap();
    let begin = Instant::now();
    while let Err(error) = live.step(unattended(&datastore)).await {
        assert!(begin.elapsed() < PATIENCE, "{error}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert_equal(&mut live, &datastore, "after the restart").await;
    assert!(
        live.report()
            .findings
            .iter()
            .any(|finding| finding.code == Code::MissingHandle)
    );
}

/// The API server is restarted with an earlier state of its etcd, as after a restore of the disk.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_restored_to_an_earlier_state_is_read_again() {
    let flavour = Flavour::Classic;
    let mut server = KubeApiserver::start().unwrap();
    install(&server, flavour).unwrap();
    let spec = ClusterSpec::new(9).at(Timestamp::now());
    Cluster::plain(spec, 2, 3)
        .kubernetes(flavour)
        .write_to_server(&server)
        .unwrap();
    let (data, copy) = (
        server.etcd().data_dir(),
        server.etcd().data_dir().with_extension("copy"),
    );
    let copying = |etcd: &mut Etcd| {
        etcd.kill();
        assert!(
            Command::new("cp")
                .arg("-r")
                .args([&data, &copy])
                .status()
                .unwrap()
                .success()
        );
        etcd.restart()
    };
    server.restart(copying).unwrap();
    let datastore = open(datastore::kubernetes(&server.kubeconfig())).await;
    let mut live = begin(&datastore, 0).await;
    for handle in server
        .etcd()
        .entries_below(&handles(flavour))
        .unwrap()
        .keys()
        .take(3)
    {
        server.etcd().delete(handle).unwrap();
    }
    assert_equal(&mut live, &datastore, "before").await;
    assert_eq!(live.report().findings.len(), 3);
    let reads = live.counts.reads;

    let restoring = |etcd: &mut Etcd| {
        etcd.kill();
        std::fs::remove_dir_all(&data).unwrap();
        std::fs::rename(&copy, &data).unwrap();
        etcd.restart()
    };
    server.restart(restoring).unwrap();
    let begin = Instant::now();
    while live.counts.reads == reads {
        assert!(
            begin.elapsed() < PATIENCE,
            "it goes on as if nothing had happened"
        );
        let _ = live.step(unattended(&datastore)).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert_equal(&mut live, &datastore, "afterwards").await;
    assert_eq!(live.report().findings, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_snapshot_is_current_while_pods_of_an_etcd_come_and_go() {
    let cluster = Cluster::plain(ClusterSpec::new(9).v4_only(), 4, 0);
    let scene = Arc::new(Scene::on_etcd_with_kubernetes(&cluster));
    let datastore = scene.world.open().await;
    let mut live = begin(&datastore, 0).await;
    let workers = Arc::clone(&scene);
    churn(move |churn: Churn| workers.churn(&churn), &mut live, &datastore).await;
}
