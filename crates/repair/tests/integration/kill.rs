//! Repairs whose process is killed by SIGKILL before or after a write.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use calipam_model::block::Block;
use calipam_model::edit::Step;
use calipam_repair::journal::{Recorded, resolve};
use calipam_repair::{Event, EventFn, Execution, Options, UndoPlan, stale_locks};
use calipam_testkit::datastore;
use calipam_testkit::servers::{Entries, Etcd};
use rustix::process::{Signal, getpid, kill_process};

use crate::cluster::{Site, Until, dump, journal_path, sound, start, values};
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
    let mut before = values(&dump(etcd));
    loop {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let now = values(&dump(etcd));
        if now == before {
            return;
        }
        before = now;
    }
}

/// Undoes a run, and asserts that the undo is complete.
async fn undo_all(site: &Site, name: &str) -> Execution {
    let plan = site.undo_plan(name);
    assert!(plan.skipped().is_empty(), "{name}: {:?}", plan.skipped());
    let execution = site.undo(&plan, &site.options(&format!("undo-{name}"))).await;
    assert!(execution.is_complete(), "{name}: {execution:?}");
    execution
}

/// Carries out the steps of [`plan_even_ordinals`], and asserts that they are complete. Returns the number of steps.
async fn release_even_ordinals(site: &Site, name: &str) -> usize {
    let plan = plan_even_ordinals(site).await;
    let steps = plan.len();
    let execution = site.run_as(name, plan).await;
    assert!(execution.is_complete(), "{name}: {execution:?}");
    steps
}

/// Runs `test` in a copy of this program, which kills itself at an event.
fn run_and_die(test: &str, etcd: &Etcd, folder: &Path, moment: &str, number: usize) {
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test])
        .env(
            DYING,
            format!("{}\n{}\n{moment}\n{number}", etcd.endpoint(), folder.display()),
        )
        .output()
        .unwrap()
        .status;
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&status),
        Some(9),
        "{moment}: {status}"
    );
}

/// Undoes the first run or releases addresses, until the n-th event of a kind kills this process. This function runs in
/// the copy.
async fn run_until_killed(what: &str, undoes: bool) {
    let [endpoint, folder, moment, number] = what.split('\n').collect::<Vec<_>>()[..] else {
        panic!()
    };
    let journal = |name: &str| journal_path(Path::new(folder), name);
    let site = Site::open(datastore::etcd(endpoint)).await;
    let events = kill_at_event(moment.to_owned(), number.parse().unwrap());
    let options = Options {
        lock: undoes,
        events,
        ..Options::new("a test", journal("killed"))
    };
    let execution = if undoes {
        let plan = UndoPlan::new(&Recorded::read(&journal("first")).unwrap()).unwrap();
        site.undo(&plan, &options).await
    } else {
        site.run(plan_even_ordinals(&site).await, &options).await
    };
    panic!("it is still alive: {execution:?}");
}

/// An undo of a repair, killed at an event.
struct KilledUndo {
    etcd: Etcd,
    site: Site,
    base: Entries,
    repaired: Entries,
}

impl KilledUndo {
    async fn at(test: &str, moment: &str, number: usize) -> Self {
        let (etcd, site) = start(3000).await;
        let base = dump(&etcd);
        site.repair_by_hand("first", &site.leaks(40).await, Until::Outcome)
            .await;
        let repaired = dump(&etcd);
        run_and_die(test, &etcd, site.folder(), moment, number);
        quiet(&etcd).await;
        assert_ne!(dump(&etcd), base, "{moment}: nothing was locked or written");

        // The lock that the killed run left is found and restored.
        let left = stale_locks(site.folder(), &site.cluster, None).unwrap();
        let found: Vec<_> = left
            .iter()
            .map(|lock| (lock.journal.clone(), lock.before))
            .collect();
        assert_eq!(found, [(site.journal("killed"), Some(true))]);
        left[0].restore(&site.store, site.consent()).await.unwrap();
        assert!(
            stale_locks(site.folder(), &site.cluster, None)
                .unwrap()
                .is_empty()
        );
        Self {
            etcd,
            site,
            base,
            repaired,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_undo_can_be_undone() {
    if let Ok(what) = std::env::var(DYING) {
        return run_until_killed(&what, true).await;
    }
    for (moment, number) in [("before a write", 17), ("after a write", 30)] {
        let KilledUndo {
            etcd, site, repaired, ..
        } = KilledUndo::at("kill::a_killed_undo_can_be_undone", moment, number).await;
        // The resolved journal has exactly the writes of the killed run, and an undo restores everything.
        let (resolved, _) = resolve(site.recorded("killed"), &site.store).await.unwrap();
        assert_eq!(resolved.open_intents().count(), 0, "{moment}");
        let written = resolved.outcomes.values().filter(|o| o.written.is_some()).count();
        // All intents may be on disk before the first write.
        assert!(
            (1..=40).contains(&written) || moment == "before a write",
            "{moment}: {written}"
        );
        let back = UndoPlan::new(&resolved).unwrap();
        assert_eq!(
            back.steps()
                .iter()
                .filter(|step| !step.objects.is_empty())
                .count(),
            written
        );
        let execution = site.undo(&back, &site.options("back")).await;
        assert!(execution.is_complete(), "{moment}: {execution:?}");
        assert_eq!(values(&dump(&etcd)), values(&repaired), "{moment}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_undo_is_finished_by_another() {
    if let Ok(what) = std::env::var(DYING) {
        return run_until_killed(&what, true).await;
    }
    let test = "kill::a_killed_undo_is_finished_by_another";
    let KilledUndo { etcd, site, base, .. } = KilledUndo::at(test, "after a write", 12).await;
    let execution = undo_all(&site, "first").await;
    assert!(execution.already >= 12, "{execution:?}");
    assert_eq!(values(&dump(&etcd)), values(&base));
}

/// Plans the release of the pod addresses with even ordinals: one step for each block.
async fn plan_even_ordinals(site: &Site) -> Vec<Step> {
    let step = |block: &Block| {
        let pods = block
            .allocations()
            .filter(|a| a.attribute.owner().get("pod").is_some());
        let even: Vec<u32> = pods
            .map(|a| a.ordinal)
            .filter(|ordinal| ordinal % 2 == 0)
            .collect();
        (!even.is_empty()).then(|| release(block, &even, Vec::new()))
    };
    sound(&site.observe().await).filter_map(step).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_release_converges_and_can_be_undone() {
    if let Ok(what) = std::env::var(DYING) {
        return run_until_killed(&what, false).await;
    }
    // Records the state after an undisturbed run, and undoes the run.
    let (etcd, site) = start(3000).await;
    let base = values(&dump(&etcd));
    assert!(release_even_ordinals(&site, "whole").await > 40);
    let whole = values(&dump(&etcd));
    undo_all(&site, "whole").await;
    for (moment, number) in [("before a write", 20), ("after a write", 35)] {
        let site = Site::open(datastore::etcd(etcd.endpoint())).await;
        assert_eq!(values(&dump(&etcd)), base, "{moment}");
        let test = "kill::a_killed_release_converges_and_can_be_undone";
        run_and_die(test, &etcd, site.folder(), moment, number);
        quiet(&etcd).await;
        // A second run ends like the undisturbed one.
        release_even_ordinals(&site, "again").await;
        assert_eq!(values(&dump(&etcd)), whole, "{moment}");
        // Undoing the runs, the last one first, restores everything.
        for name in ["again", "killed"] {
            let open = site.recorded(name).open_intents().count();
            assert_eq!(open, 0, "{moment}: the run after it resolves it");
            undo_all(&site, name).await;
        }
        assert_eq!(values(&dump(&etcd)), base, "{moment}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_datastore_ends_the_run() {
    let (etcd, site) = start(15000).await;
    let base = values(&dump(&etcd));
    let plan = plan_even_ordinals(&site).await;
    let steps = plan.len();
    let etcd = Arc::new(std::sync::Mutex::new(etcd));
    let (server, seen) = (Arc::clone(&etcd), AtomicUsize::new(0));
    let options = Options {
        events: Arc::new(move |event| {
            if matches!(event, Event::Written { .. }) && seen.fetch_add(1, Ordering::SeqCst) == 3 {
                server.lock().unwrap().kill();
            }
        }),
        ..site.options("first")
    };
    let execution = site.run(plan, &options).await;
    let error = execution.failure.as_ref().expect("etcd is gone").to_string();
    assert!(
        error.contains("cannot write /calico/") || error.contains("cannot read"),
        "{error}"
    );
    assert!(
        execution.written < steps && execution.not_started > 0,
        "{execution:?}"
    );
    assert_eq!(execution.written + execution.not_started, steps, "{execution:?}");
    // The options also own a reference to the server.
    drop(options);
    let mut etcd = Arc::into_inner(etcd)
        .expect("there is no other reference")
        .into_inner()
        .unwrap();
    etcd.restart().unwrap();
    // The next run resolves the journal of the first run. Undoing both runs restores everything.
    release_even_ordinals(&site, "second").await;
    for name in ["second", "first"] {
        undo_all(&site, name).await;
    }
    assert_eq!(values(&dump(&etcd)), base);
}
