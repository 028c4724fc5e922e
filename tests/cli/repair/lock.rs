//! `--lock`: locks the datastore while a run writes, and then restores the previous state.

use calipam_repair::journal::{LockMark, Recorded, headers};
use calipam_repair::{stale_lock, stale_locks};
use rustix::process::{Pid, Signal, kill_process};

use super::site::*;
use crate::cli::program::scratch;

fn ready(value: &[u8]) -> Option<bool> {
    serde_json::from_slice::<Value>(value).unwrap()["spec"]["datastoreReady"].as_bool()
}

fn is_locked(site: &Site) -> bool {
    ready(&site.value(INFORMATION).unwrap()) == Some(false)
}

/// Reads the journal of a completed run, which must have restored its lock.
fn ended(journal: &str) -> Recorded {
    let recorded = Recorded::read(Path::new(journal)).unwrap();
    assert!(
        recorded.ended && matches!(recorded.lock, Some(LockMark::Restored)),
        "{recorded:?}"
    );
    recorded
}

/// Creates a cluster with one leaked pod and a given `datastoreReady`, in a format that calipam does not write.
fn with_ready(state: Option<bool>) -> Site {
    let (site, _) = Site::leaky();
    let text = String::from_utf8(site.value(INFORMATION).unwrap()).unwrap();
    let field = r#","datastoreReady":true"#;
    assert!(text.contains(field), "{text}");
    let new = state.map_or(String::new(), |state| format!(r#", "datastoreReady":{state} "#));
    site.put(INFORMATION, text.replace(field, &new));
    site
}

#[test]
fn the_previous_lock_state_is_restored() {
    for state in [Some(true), Some(false), None] {
        let site = with_ready(state);
        let before = site.value(INFORMATION).unwrap();
        let from = site.history(INFORMATION).len();
        let whole = site.dump();
        let run = site.release(&["--leaked", "--lock"]);
        if state == Some(false) {
            // The lock belongs to another client, which may release it during this run.
            run.failed(3, "cannot take the datastore lock: it is already locked")
                .says("\nhint: ");
            assert_eq!(site.dump(), whole);
            continue;
        }
        let run = run.succeeded();
        let cluster = ended(&journal_of(&run)).header.cluster;
        assert!(
            stale_locks(&site.home.path().join("calipam"), &cluster, None)
                .unwrap()
                .is_empty()
        );
        // The path of the journal is printed before anything is written.
        let opened = run.stderr.find("journal: ").expect("the journal is named");
        assert!(
            opened < run.stderr.find("hint: to restore what was there").unwrap(),
            "{run:?}"
        );
        let history = site.history(INFORMATION).split_off(from);
        assert_eq!(site.value(INFORMATION).unwrap(), before, "{state:?}");
        let [(locked, value), (unlocked, _)] = history.as_slice() else {
            panic!("{history:?}")
        };
        assert_eq!(ready(value), Some(false));
        let written = site
            .dump()
            .into_iter()
            .filter(|(key, (_, at))| key != INFORMATION && at > locked);
        let written: Vec<i64> = written.map(|(_, (_, at))| at).collect();
        assert!(
            !written.is_empty() && written.iter().all(|at| at < unlocked),
            "{written:?} {unlocked}"
        );
    }
}

#[test]
fn a_conflict_unlocks_too_and_undo_locks_too() {
    let (site, pod) = Site::leaky();
    let before = site.value(INFORMATION);
    let release = [&["release", "--leaked", "--lock"], &AT_ONCE[..]].concat();
    let shown = site.asked_while("[y/N] ", &release, "y\n", || {
        // The addresses are assigned again between the plan and the answer.
        site.change_blocks(&pod, reassign);
    });
    shown
        .exits(1)
        .shows("not done: ")
        .shows("2 steps aborted (conflict)");
    assert_eq!(site.history(INFORMATION).len(), 3);
    assert_eq!(site.value(INFORMATION), before);
    assert!(
        pod.addresses
            .iter()
            .all(|(address, _)| recorded(&site.dump()).contains_key(address))
    );

    let before = site.dump();
    let run = site.release(&["--leaked"]);
    let plan = site
        .run(&["undo", &journal_of(&run), "--yes", "--lock", "-o", "json"])
        .succeeded()
        .json();
    assert_eq!(
        (&plan["kind"], &plan["execution"]["written"]),
        (&"UndoPlan".into(), &1.into()),
        "{plan}"
    );
    let states: Vec<_> = site
        .history(INFORMATION)
        .iter()
        .map(|(_, value)| ready(value))
        .collect();
    assert_eq!(states[states.len() - 3..], [Some(true), Some(false), Some(true)]);
    assert_eq!(values(&site.dump()), values(&before));
}

/// Kills a release of many orphan handles in the middle.
fn kill_in_the_middle(site: &Site, more: &[&str]) {
    let mut child = in_the_middle(site, &[&["--lock"], more].concat());
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().code(), None);
    site.etcd.resume().unwrap();
    assert!(is_locked(site));
}

#[test]
fn signals_in_the_middle_unlock() {
    let site = many_orphans();
    let before = site.dump();
    for signal in [Signal::TERM, Signal::INT, Signal::QUIT] {
        let child = in_the_middle(&site, &["--lock"]);
        // While the run exists, its lock is not stale.
        let (journal, header) = headers(&site.home.path().join("calipam")).pop().unwrap();
        assert!(stale_lock(&journal, &header.cluster).is_none());
        // etcd answers again before the run sees the signal: after a signal, a run waits for a second at most.
        let process = Pid::from_child(&child);
        kill_process(process, Signal::STOP).unwrap();
        kill_process(process, signal).unwrap();
        site.etcd.resume().unwrap();
        kill_process(process, Signal::CONT).unwrap();
        let run = Run::ended(child.wait_with_output().unwrap())
            .failed(130, " not started\n")
            .says("hint: to go on, run the command again\n");
        assert!(run.stderr.ends_with("error: interrupted\n"), "{run:?}");
        let after = site.dump();
        let gone = handles(&before) - handles(&after);
        assert!(gone > 0 && gone < MANY, "{gone} of {MANY}");
        assert_eq!(after[INFORMATION].0, before[INFORMATION].0);
        ended(&journal_of(&run));
        site.undo_to(&run, &before);
    }
}

/// The server ends in the middle of a run, and restarts while the run still tries to unlock the datastore.
#[test]
fn a_server_that_restarts_is_unlocked() {
    let mut site = many_orphans();
    let before = site.dump();
    let child = in_the_middle(&site, &["--lock"]);
    site.etcd.kill();
    // Longer than the retries of reads on a busy machine, and shorter than those of unlocking. If the server were back
    // earlier, the run would simply continue.
    thread::sleep(Duration::from_secs(15));
    site.etcd.restart().unwrap();
    let run = Run::ended(child.wait_with_output().unwrap())
        .failed(3, " not started\n")
        .says("\nerror: ");
    let after = site.dump();
    assert_eq!(after[INFORMATION].0, before[INFORMATION].0, "{run:?}");
    assert!(handles(&after) < handles(&before) && handles(&after) > handles(&before) - MANY);
    site.undo(&journal_of(&run))
        .failed(1, "warning: the run of this journal did not finish");
    assert_eq!(values(&site.dump()), values(&before));
}

#[test]
fn a_plan_that_is_declined_after_the_lock_was_removed_says_what_was_changed() {
    let site = many_orphans();
    kill_in_the_middle(&site, &[]);
    let release = [&["release", "--orphan-handles"], &AT_ONCE[..]].concat();
    site.asked(&release, "y\nn\n")
        .exits(1)
        .shows("The datastore is no longer locked.")
        .shows("error: aborted; only the lock was removed");
    assert!(!is_locked(&site));
    assert_eq!(site.journals().len(), 1, "only the killed run has one");
}

#[test]
fn the_next_run_names_the_lock_of_one_that_was_killed() {
    let site = many_orphans();
    let before = site.dump();
    kill_in_the_middle(&site, &[]);
    // A journal can have any file name.
    let killed = site.home.path().join("calipam/last night");
    std::fs::rename(site.journals().pop().unwrap(), &killed).unwrap();
    let texts = [
        "`release --orphan-handles` of 20",
        "left the datastore locked",
        killed.to_str().unwrap(),
    ];
    let named = |text: &str| texts.iter().all(|part| text.contains(part));
    let release = [&["release", "--orphan-handles"], &AT_ONCE[..]].concat();
    let asked = site.run(&release);
    assert!(
        asked.code == 2 && named(&asked.stderr) && is_locked(&site),
        "{asked:?}"
    );
    // The check knows the run from the lock itself, without its journal.
    site.run(&["check", "-o", "wide", "--settle", "0"])
        .prints("the lock names the calipam run `release --orphan-handles` of 20")
        .prints("find the run that left the lock, and undo it: `calipam undo --list`");
    let refused = site.asked(&release, "n\n");
    assert!(
        refused.code == Some(1) && named(&refused.text.replace("\r\n", " ")),
        "{refused:?}"
    );
    assert!(is_locked(&site), "{refused:?}");
    refused
        .shows("Unlock cluster ")
        .shows("error: aborted; nothing was changed");

    // `--yes` is consent to the command, but not to the removal of the lock.
    let next = site.release(&["--orphan-handles"]);
    let nothing_to_do = site.release(&["--orphan-handles", "--quiet"]);
    for run in [&next, &nothing_to_do] {
        assert!(
            named(&run.stderr) && run.stderr.contains("`--yes` does not remove a lock"),
            "{run:?}"
        );
        assert!(
            !run.stderr.contains("This restores") && run.code == 1 && is_locked(&site),
            "{run:?}"
        );
    }
    for run in [&asked, &next] {
        assert!(
            run.stderr.contains("undoes that run and unlocks the datastore"),
            "{run:?}"
        );
    }
    let restored = site.asked(&["undo", &journal_of(&next)], "y\ny\n").exits(0);
    restored.shows("The datastore is no longer locked.");
    assert!(!is_locked(&site));
    assert_eq!(values(&site.dump())[INFORMATION], values(&before)[INFORMATION]);
    let quiet = site
        .release(&["--orphan-handles"])
        .succeeded()
        .does_not_say("locked");

    // Together, the two runs have released everything, and each can be undone. The undo of the killed run reports that
    // the run did not finish.
    for (journal, code) in [(journal_of(&quiet), 0), (killed.to_str().unwrap().to_owned(), 1)] {
        let undone = site.undo(&journal).exits(code);
        assert_eq!(undone.stderr.contains("did not finish"), code == 1, "{undone:?}");
    }
    assert_eq!(values(&site.dump()), values(&before));
}

#[test]
fn the_undo_of_a_killed_run_restores_the_lock_wherever_its_journal_is() {
    let site = many_orphans();
    let before = site.dump();
    for more in [&["--lock"][..], &[]] {
        let (_folder, journal) = scratch("x.journal");
        kill_in_the_middle(&site, &["--journal", journal.to_str().unwrap()]);

        let undo = ["undo", journal.to_str().unwrap()];
        site.run(&[&undo[..], &["--dry-run"]].concat())
            .says("left the datastore locked");
        assert!(is_locked(&site));
        let undone = site.run(&[&undo[..], &["--yes", "--quiet"], more].concat());
        let undone = undone
            .failed(1, "did not finish")
            .says("left the datastore locked");
        undone.says("The datastore is no longer locked.");
        assert!(!is_locked(&site));
        assert_eq!(values(&site.dump()), values(&before));
    }
}

/// A later lock of another client stays, even if the journal of a killed run names it.
#[test]
fn a_stale_mark_unlocks_nothing() {
    let site = many_orphans();
    let ready_value = site.value(INFORMATION).unwrap();
    kill_in_the_middle(&site, &[]);
    let locked = site.value(INFORMATION).unwrap();
    // The operator unlocks the datastore, and locks it again for a migration.
    site.put(INFORMATION, ready_value);
    site.put(INFORMATION, locked.clone());
    let release = [&["release", "--orphan-handles"], &AT_ONCE[..]].concat();
    let shown = site.asked_while("[y/N/l] ", &release, "y\ny\n", || ()).exits(0);
    shown.shows_wrapped("another program might hold the lock");
    assert_eq!(site.value(INFORMATION).unwrap(), locked);
    // Once the datastore is unlocked, the stale lock is forgotten.
    site.put(
        INFORMATION,
        String::from_utf8(locked).unwrap().replace("false", "true"),
    );
    for _ in 0..2 {
        site.release(&["--orphan-handles"])
            .succeeded()
            .does_not_say("locked");
    }
}
