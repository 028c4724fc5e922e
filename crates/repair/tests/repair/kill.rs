//! A real SIGKILL of a process that repairs, at every kind of moment.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use calipam_repair::journal::{Recorded, settle};
use calipam_repair::{Event, Options, UndoPlan, left_locks, undo};
use rustix::process::{Signal, getpid, kill_process};

use crate::cluster::{Until, consent, dump, guid, journal_path, leaks, open, repair_by_hand, start, values};

/// Set in the copy of this program that repairs and is killed.
const DYING: &str = "CALIPAM_TEST_DYING";

/// In the copy: an undo, which writes as every repair does, and which kills itself at the n-th event of a
/// kind.
async fn die(what: &str) {
    let [endpoint, folder, moment, number] = what.split('\n').collect::<Vec<_>>()[..] else { panic!() };
    let (folder, moment) = (Path::new(folder), moment.to_owned());
    let number: usize = number.parse().unwrap();
    let store = open(endpoint).await;
    let plan = UndoPlan::new(&Recorded::read(&journal_path(folder, "first")).unwrap()).unwrap();
    let seen = AtomicUsize::new(0);
    let options = Options {
        lock: true,
        events: Arc::new(move |event| {
            let counts = match event {
                Event::Intended { .. } => moment == "before a write",
                Event::Written { .. } => moment == "after a write",
                _ => false,
            };
            if counts && seen.fetch_add(1, Ordering::SeqCst) + 1 == number {
                kill_process(getpid(), Signal::KILL).unwrap();
            }
        }),
        ..Options::new("undo", journal_path(folder, "killed"))
    };
    let execution = undo(&store, &plan, consent(plan.cluster()), &options).await;
    panic!("it is still alive: {execution:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_repair_converges_when_it_is_run_again() {
    if let Ok(what) = std::env::var(DYING) {
        return die(&what).await;
    }
    for (moment, number) in
        [("before a write", 1), ("before a write", 17), ("after a write", 1), ("after a write", 30)]
    {
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
    let what = format!("{}\n{}\n{moment}\n{number}", etcd.endpoint(), folder.path().display());
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill::a_killed_repair_converges_when_it_is_run_again"])
        .env(DYING, what)
        .output()
        .unwrap()
        .status;
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "{moment}: {status}");
    let torn = dump(&etcd).await;
    assert_ne!(torn, base, "{moment}: nothing was locked or written");

    // The lock that it left is named, and restored.
    let left = left_locks(folder.path(), &cluster).unwrap();
    assert_eq!(left.iter().map(|l| (&l.journal, l.before)).collect::<Vec<_>>(), [(&killed, Some(true))]);
    left[0].restore(&store, consent(&cluster)).await.unwrap();
    assert!(left_locks(folder.path(), &cluster).unwrap().is_empty());

    // Its journal says, after it was settled, exactly what it wrote; undone, everything is as before it.
    let (settled, _) = settle(Recorded::read(&killed).unwrap(), &store).await.unwrap();
    assert_eq!(settled.open_intents().count(), 0, "{moment}");
    let written = settled.outcomes.values().filter(|o| o.written.is_some()).count();
    assert!((1..=40).contains(&written) || number == 1, "{moment}: {written}");
    let back = UndoPlan::new(&settled).unwrap();
    assert_eq!(back.steps().len(), written);
    let options = Options::new("undo", journal_path(folder.path(), "back"));
    let execution = undo(&store, &back, consent(&cluster), &options).await.unwrap();
    assert!(execution.is_complete(), "{moment}: {execution:?}");
    assert_eq!(values(&dump(&etcd).await), values(&repaired), "{moment}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_undo_is_finished_by_another() {
    if let Ok(what) = std::env::var(DYING) {
        return die(&what).await;
    }
    let (etcd, store) = start(3000).await;
    let cluster = guid(&store).await;
    let folder = tempfile::tempdir().unwrap();
    let first = journal_path(folder.path(), "first");
    let base = dump(&etcd).await;
    repair_by_hand(&store, &first, &leaks(&store, 40).await, Until::Outcome).await;
    let what = format!("{}\n{}\nafter a write\n12", etcd.endpoint(), folder.path().display());
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill::a_killed_undo_is_finished_by_another"])
        .env(DYING, what)
        .output()
        .unwrap()
        .status;
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9));
    left_locks(folder.path(), &cluster).unwrap()[0].restore(&store, consent(&cluster)).await.unwrap();
    let plan = UndoPlan::new(&Recorded::read(&first).unwrap()).unwrap();
    let options = Options::new("undo", journal_path(folder.path(), "again"));
    let execution = undo(&store, &plan, consent(&cluster), &options).await.unwrap();
    assert!(execution.is_complete() && execution.already >= 12, "{execution:?}");
    assert_eq!(values(&dump(&etcd).await), values(&base));
}
