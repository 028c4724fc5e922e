//! The datastore lock is always restored to what it was.

use std::sync::Arc;

use calipam_repair::journal::Recorded;
use calipam_repair::{Event, Interrupt, Options, UndoPlan, stale_lock, stale_locks, undo};
use calipam_testkit::servers::Etcd;
use rustix::process::{Signal, getpid, kill_process};

use crate::cluster::{Until, consent, dump, guid, journal_path, leaks, repair_by_hand, start};

const KEY: &str = "/calico/resources/v3/projectcalico.org/clusterinformations/default";

async fn information(etcd: &Etcd) -> String {
    String::from_utf8(dump(etcd).await[KEY].0.clone()).unwrap()
}

/// What ClusterInformation is while a run is under way, and how it ends.
async fn run_locked(value: &str, interrupted: bool) -> (Vec<bool>, String) {
    let (etcd, store) = start(600).await;
    let cluster = guid(&store).await;
    let value = value.replace('@', &cluster);
    etcd.client().await.unwrap().put(KEY, value.as_str(), None).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let first = journal_path(folder.path(), "first");
    repair_by_hand(&store, &first, &leaks(&store, 5).await, Until::Outcome).await;
    let plan = UndoPlan::new(&Recorded::read(&first).unwrap()).unwrap();
    let interrupt = Interrupt::default();
    if interrupted {
        interrupt.set();
    }
    let (seen, second) = (Arc::new(std::sync::Mutex::new(Vec::new())), journal_path(folder.path(), "second"));
    let (note, path, guid) = (Arc::clone(&seen), second.clone(), cluster.clone());
    let options = Options {
        lock: true,
        interrupt: interrupt.clone(),
        events: Arc::new(move |event| {
            if let Event::Written { .. } = event {
                // While the run lives, its lock is nobody's leftover.
                note.lock().unwrap().push(stale_lock(&path, &guid).is_none());
            }
        }),
        ..Options::new("undo", &second)
    };
    let watch = tokio::spawn(watch(etcd.endpoint()));
    let execution = undo(&store, &plan, consent(&cluster), &options).await.unwrap();
    assert_eq!(execution.is_complete(), !interrupted, "{execution:?}");
    assert_eq!(execution.interrupted, interrupted);
    assert!(seen.lock().unwrap().iter().all(|none| *none));
    let recorded = Recorded::read(&second).unwrap();
    assert!(recorded.ended && !recorded.leaves_lock());
    assert!(stale_locks(folder.path(), &cluster).unwrap().is_empty());
    let now = information(&etcd).await;
    assert_eq!(now, value);
    drop(etcd);
    (watch.await.unwrap(), now)
}

/// Every state of the flag that ClusterInformation passes through until the server ends.
async fn watch(endpoint: String) -> Vec<bool> {
    let mut client = etcd_client::Client::connect([endpoint], None).await.unwrap();
    let mut stream = client.watch(KEY, None).await.unwrap();
    let mut states = Vec::new();
    while let Ok(Some(answer)) = stream.message().await {
        for event in answer.events() {
            let value: serde_json::Value = serde_json::from_slice(event.kv().unwrap().value()).unwrap();
            states.push(value["spec"]["datastoreReady"].as_bool().unwrap_or(true));
        }
    }
    states
}

#[tokio::test(flavor = "multi_thread")]
async fn true_false_and_absent_come_back() {
    let ready = r#"{"kind":"ClusterInformation","spec":{"clusterGUID":"@","datastoreReady":true} }"#;
    assert_eq!(run_locked(ready, false).await.0, [false, true]);
    let absent = r#"{"spec":{"clusterGUID":"@"},"kind":"ClusterInformation"}"#;
    assert_eq!(run_locked(absent, false).await.0, [false, true]);
}

/// Whoever has locked the datastore may restore it at any moment: a second run does not begin.
#[tokio::test(flavor = "multi_thread")]
async fn a_datastore_that_others_have_locked_is_not_locked_again() {
    let (etcd, store) = start(600).await;
    let cluster = guid(&store).await;
    let folder = tempfile::tempdir().unwrap();
    let first = journal_path(folder.path(), "first");
    repair_by_hand(&store, &first, &leaks(&store, 1).await, Until::Outcome).await;
    let locked = format!(r#"{{"spec":{{"clusterGUID":"{cluster}","datastoreReady":false}}}}"#);
    etcd.client().await.unwrap().put(KEY, locked.as_str(), None).await.unwrap();
    let before = dump(&etcd).await;
    let plan = UndoPlan::new(&Recorded::read(&first).unwrap()).unwrap();
    let options = Options { lock: true, ..Options::new("undo", journal_path(folder.path(), "second")) };
    let error = undo(&store, &plan, consent(&cluster), &options).await.unwrap_err();
    assert!(error.to_string().contains("it is locked already"), "{error}");
    assert_eq!(dump(&etcd).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_run_unlocks() {
    let ready = r#"{"spec":{"clusterGUID":"@","datastoreReady":true}}"#;
    assert_eq!(run_locked(ready, true).await.0, [false, true]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_change_meanwhile_stays() {
    let (etcd, store) = start(600).await;
    let cluster = guid(&store).await;
    let folder = tempfile::tempdir().unwrap();
    let first = journal_path(folder.path(), "first");
    repair_by_hand(&store, &first, &leaks(&store, 1).await, Until::Outcome).await;
    let plan = UndoPlan::new(&Recorded::read(&first).unwrap()).unwrap();
    let before: serde_json::Value = serde_json::from_str(&information(&etcd).await).unwrap();
    let endpoint = etcd.endpoint();
    let options = Options {
        lock: true,
        events: Arc::new(move |event| {
            if let Event::Intended { .. } = event {
                // A component notes its version while the lock is held.
                let endpoint = endpoint.clone();
                std::thread::spawn(move || {
                    let work = async {
                        let mut client = etcd_client::Client::connect([endpoint], None).await.unwrap();
                        let answer = client.get(KEY, None).await.unwrap();
                        let mut value: serde_json::Value =
                            serde_json::from_slice(answer.kvs()[0].value()).unwrap();
                        value["spec"]["calicoVersion"] = "v9.9.9".into();
                        client.put(KEY, value.to_string(), None).await.unwrap();
                    };
                    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                    runtime.unwrap().block_on(work);
                })
                .join()
                .unwrap();
            }
        }),
        ..Options::new("undo", journal_path(folder.path(), "second"))
    };
    let execution = undo(&store, &plan, consent(&cluster), &options).await.unwrap();
    assert!(execution.is_complete(), "{execution:?}");
    let after: serde_json::Value = serde_json::from_str(&information(&etcd).await).unwrap();
    assert_eq!(after["spec"]["calicoVersion"], "v9.9.9");
    assert_eq!(after["spec"]["datastoreReady"], before["spec"]["datastoreReady"]);
}

/// Set in the copy of this program that gets signals.
const SIGNALLED: &str = "CALIPAM_TEST_SIGNALLED";

/// In the copy: sends itself a signal in the middle of a run under lock.
async fn signalled(what: &str) {
    let [endpoint, folder, number] = what.split('\n').collect::<Vec<_>>()[..] else { panic!() };
    let signal = if number == "15" { Signal::TERM } else { Signal::INT };
    let folder = std::path::Path::new(folder);
    let store = crate::cluster::open(endpoint).await;
    let plan = UndoPlan::new(&Recorded::read(&journal_path(folder, "first")).unwrap()).unwrap();
    let options = Options {
        lock: true,
        interrupt: Interrupt::on_signals().unwrap(),
        events: Arc::new(move |event| {
            if let Event::Intended { .. } = event {
                kill_process(getpid(), signal).unwrap();
            }
        }),
        ..Options::new("undo", journal_path(folder, number))
    };
    let execution = undo(&store, &plan, consent(plan.cluster()), &options).await.unwrap();
    assert!(execution.interrupted && execution.broken_off.is_none(), "{execution:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn signals_unlock() {
    if let Ok(what) = std::env::var(SIGNALLED) {
        return signalled(&what).await;
    }
    for number in ["15", "2"] {
        let (etcd, store) = start(600).await;
        let folder = tempfile::tempdir().unwrap();
        let first = journal_path(folder.path(), "first");
        repair_by_hand(&store, &first, &leaks(&store, 5).await, Until::Outcome).await;
        let before = information(&etcd).await;
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "lock::signals_unlock"])
            .env(SIGNALLED, format!("{}\n{}\n{number}", etcd.endpoint(), folder.path().display()))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        let recorded = Recorded::read(&journal_path(folder.path(), number)).unwrap();
        assert!(recorded.ended && !recorded.leaves_lock() && recorded.lock.is_some());
        assert_eq!(information(&etcd).await, before);
    }
}
