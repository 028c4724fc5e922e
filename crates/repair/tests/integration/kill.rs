//! Repairs whose process is killed by SIGKILL before or after a write.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use calipam_datastore::Datastore;
use calipam_model::block::Block;
use calipam_model::edit::Step;
use calipam_repair::journal::{Recorded, resolve};
use calipam_repair::{Event, EventFn, Execution, Options, UndoPlan, execute, stale_locks, undo};
use calipam_testkit::servers::Etcd;
use rustix::process::{Signal, getpid, kill_process};

use crate::cluster::{
    Until, consent, dump, guid, journal_path, leaks, new_journal, observe, open, repair_by_hand, start,
    values,
};
use crate::execute::release;

/// The environment variable that is set in the copy of this program that kills itself.
const DYING: &str = "CALIPAM_TEST_DYING";

/// Kills this process at the n-th event of a kind.
fn kill_at_event(moment: String, number: usize) -> EventFn {
    let seen = AtomicUsize::new(0);
    Arc::new(move |event| {
        let counts = match event {
            Event::Intended { .. } => moment == "before a write",
            Event::Written { .. } => moment == "after a write",
            _ => false,
        };
        if counts && seen.fetch_add(1, Ordering::SeqCst) + 1 == number {
            kill_process(getpid(), Signal::KILL).unwrap();
        }
    })
}

/// Waits until etcd has carried out the requests of the killed process. On a busy machine, some of these requests are
/// carried out after the end of the process.
async fn quiet(etcd: &Etcd) {
    let mut before = values(&dump(etcd).await);
    loop {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let now = values(&dump(etcd).await);
        if now == before {
            return;
        }
        before = now;
    }
}

/// Undoes a run, and asserts that the undo is complete.
async fn undo_all(store: &Datastore, journal: &Path, own: &Path) -> Execution {
    let plan = UndoPlan::new(&Recorded::read(journal).unwrap()).unwrap();
    assert!(plan.skipped().is_empty(), "{}: {:?}", journal.display(), plan.skipped());
    let options = Options::new("undo", own);
    let execution = undo(store, &plan, consent(plan.cluster()), &options).await.unwrap();
    assert!(execution.is_complete(), "{}: {execution:?}", journal.display());
    execution
}

/// Carries out the steps of [`plan_even_ordinals`], and asserts that they are complete. Returns the number of steps.
async fn release_even_ordinals(store: &Datastore, journal: &Path) -> usize {
    let (cluster, plan) = (guid(store).await, plan_even_ordinals(store).await);
    let (steps, options) = (plan.len(), Options::new("release", journal));
    let execution = execute(store, &cluster, plan, consent(&cluster), &options).await.unwrap();
    assert!(execution.is_complete(), "{}: {execution:?}", journal.display());
    steps
}

/// Runs `test` in a copy of this program, which kills itself at an event.
fn run_and_die(test: &str, etcd: &Etcd, folder: &Path, moment: &str, number: usize) {
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test])
        .env(DYING, format!("{}\n{}\n{moment}\n{number}", etcd.endpoint(), folder.display()))
        .output()
        .unwrap()
        .status;
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "{moment}: {status}");
}

/// Undoes the first run or releases addresses, until the n-th event of a kind kills this process. This function runs in
/// the copy.
async fn run_until_killed(what: &str, undoes: bool) {
    let [endpoint, folder, moment, number] = what.split('\n').collect::<Vec<_>>()[..] else { panic!() };
    let folder = Path::new(folder);
    let store = open(endpoint).await;
    let events = kill_at_event(moment.to_owned(), number.parse().unwrap());
    let options = Options { lock: undoes, events, ..Options::new("a test", journal_path(folder, "killed")) };
    let cluster = guid(&store).await;
    let execution = if undoes {
        let plan = UndoPlan::new(&Recorded::read(&journal_path(folder, "first")).unwrap()).unwrap();
        undo(&store, &plan, consent(&cluster), &options).await
    } else {
        execute(&store, &cluster, plan_even_ordinals(&store).await, consent(&cluster), &options).await
    };
    panic!("it is still alive: {execution:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_repair_converges_when_it_is_run_again() {
    if let Ok(what) = std::env::var(DYING) {
        return run_until_killed(&what, true).await;
    }
    for (moment, number) in [("before a write", 17), ("after a write", 30)] {
        killed_at(moment, number).await;
    }
}

async fn killed_at(moment: &str, number: usize) {
    let (etcd, store) = start(3000).await;
    let cluster = guid(&store).await;
    let folder = tempfile::tempdir().unwrap();
    let [first, killed] = ["first", "killed"].map(|name| journal_path(folder.path(), name));
    let base = dump(&etcd).await;
    repair_by_hand(&store, &first, &leaks(&store, 40).await, Until::Outcome).await;
    let repaired = dump(&etcd).await;
    let test = "kill::a_killed_repair_converges_when_it_is_run_again";
    run_and_die(test, &etcd, folder.path(), moment, number);
    quiet(&etcd).await;
    let torn = dump(&etcd).await;
    assert_ne!(torn, base, "{moment}: nothing was locked or written");

    // The lock that the killed run left is found and restored.
    let left = stale_locks(folder.path(), &cluster).unwrap();
    assert_eq!(left.iter().map(|l| (&l.journal, l.before)).collect::<Vec<_>>(), [(&killed, Some(true))]);
    left[0].restore(&store, consent(&cluster)).await.unwrap();
    assert!(stale_locks(folder.path(), &cluster).unwrap().is_empty());

    // The resolved journal has exactly the writes of the killed run, and an undo restores everything.
    let (resolved, _) = resolve(Recorded::read(&killed).unwrap(), &store).await.unwrap();
    assert_eq!(resolved.open_intents().count(), 0, "{moment}");
    let written = resolved.outcomes.values().filter(|o| o.written.is_some()).count();
    // All intents may be on disk before the first write.
    assert!((1..=40).contains(&written) || moment == "before a write", "{moment}: {written}");
    let back = UndoPlan::new(&resolved).unwrap();
    assert_eq!(back.steps().len(), written);
    let options = Options::new("undo", journal_path(folder.path(), "back"));
    let execution = undo(&store, &back, consent(&cluster), &options).await.unwrap();
    assert!(execution.is_complete(), "{moment}: {execution:?}");
    assert_eq!(values(&dump(&etcd).await), values(&repaired), "{moment}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_undo_is_finished_by_another() {
    if let Ok(what) = std::env::var(DYING) {
        return run_until_killed(&what, true).await;
    }
    let (etcd, store) = start(3000).await;
    let cluster = guid(&store).await;
    let (folder, first) = new_journal("first");
    let base = dump(&etcd).await;
    repair_by_hand(&store, &first, &leaks(&store, 40).await, Until::Outcome).await;
    run_and_die("kill::a_killed_undo_is_finished_by_another", &etcd, folder.path(), "after a write", 12);
    quiet(&etcd).await;
    stale_locks(folder.path(), &cluster).unwrap()[0].restore(&store, consent(&cluster)).await.unwrap();
    let execution = undo_all(&store, &first, &journal_path(folder.path(), "again")).await;
    assert!(execution.already >= 12, "{execution:?}");
    assert_eq!(values(&dump(&etcd).await), values(&base));
}

/// Plans the release of the pod addresses with even ordinals: one step for each block.
async fn plan_even_ordinals(store: &Datastore) -> Vec<Step> {
    let snapshot = observe(store).await;
    let step = |block: &Block| {
        let pods = block.allocations().filter(|a| a.attribute.owner().get("pod").is_some());
        let even: Vec<u32> = pods.map(|a| a.ordinal).filter(|ordinal| ordinal % 2 == 0).collect();
        (!even.is_empty()).then(|| release(block, &even, Vec::new()))
    };
    snapshot.blocks.iter().filter_map(|b| step(b.value.content.sound()?)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_release_converges_and_can_be_undone() {
    if let Ok(what) = std::env::var(DYING) {
        return run_until_killed(&what, false).await;
    }
    // Records the state after an undisturbed run, and undoes the run.
    let (etcd, store) = start(3000).await;
    let folder = tempfile::tempdir().unwrap();
    let base = values(&dump(&etcd).await);
    let [path, undone] = ["whole", "undo-whole"].map(|name| journal_path(folder.path(), name));
    assert!(release_even_ordinals(&store, &path).await > 40);
    let whole = values(&dump(&etcd).await);
    undo_all(&store, &path, &undone).await;
    for (moment, number) in [("before a write", 20), ("after a write", 35)] {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(values(&dump(&etcd).await), base, "{moment}");
        let test = "kill::a_killed_release_converges_and_can_be_undone";
        run_and_die(test, &etcd, folder.path(), moment, number);
        quiet(&etcd).await;
        // A second run ends like the undisturbed one.
        release_even_ordinals(&store, &journal_path(folder.path(), "again")).await;
        assert_eq!(values(&dump(&etcd).await), whole, "{moment}");
        // Undoing the runs, the last one first, restores everything.
        for name in ["again", "killed"] {
            let journal = journal_path(folder.path(), name);
            let open = Recorded::read(&journal).unwrap().open_intents().count();
            assert_eq!(open, 0, "{moment}: the run after it resolves it");
            undo_all(&store, &journal, &journal_path(folder.path(), &format!("undo-{name}"))).await;
        }
        assert_eq!(values(&dump(&etcd).await), base, "{moment}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_datastore_ends_the_run() {
    let (etcd, store) = start(15000).await;
    let cluster = guid(&store).await;
    let folder = tempfile::tempdir().unwrap();
    let base = values(&dump(&etcd).await);
    let plan = plan_even_ordinals(&store).await;
    let steps = plan.len();
    let etcd = Arc::new(std::sync::Mutex::new(etcd));
    let (server, seen) = (Arc::clone(&etcd), AtomicUsize::new(0));
    let options = Options {
        events: Arc::new(move |event| {
            if matches!(event, Event::Written { .. }) && seen.fetch_add(1, Ordering::SeqCst) == 3 {
                server.lock().unwrap().kill();
            }
        }),
        ..Options::new("release", journal_path(folder.path(), "first"))
    };
    let execution = execute(&store, &cluster, plan, consent(&cluster), &options).await.unwrap();
    let error = execution.failure.as_ref().expect("etcd is gone").to_string();
    assert!(error.contains("cannot write /calico/") || error.contains("cannot read"), "{error}");
    assert!(execution.written < steps && execution.not_started > 0, "{execution:?}");
    assert_eq!(execution.written + execution.not_started, steps, "{execution:?}");
    // The options also own a reference to the server.
    drop(options);
    let mut etcd = Arc::into_inner(etcd).expect("there is no other reference").into_inner().unwrap();
    etcd.restart().unwrap();
    let store = open(&etcd.endpoint()).await;
    // The next run resolves the journal of the first run. Undoing both runs restores everything.
    release_even_ordinals(&store, &journal_path(folder.path(), "second")).await;
    for name in ["second", "first"] {
        let [journal, own] = [name, &format!("undo-{name}")].map(|name| journal_path(folder.path(), name));
        undo_all(&store, &journal, &own).await;
    }
    assert_eq!(values(&dump(&etcd).await), base);
}
