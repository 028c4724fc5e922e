//! Kills `split` and `configure` with SIGKILL at each of their last requests, before or after the server has handled
//! the request. The journal undoes the writes, and the command then succeeds.

use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use std::sync::{Arc, Mutex};

use calipam_testkit::servers::Seen;

use super::kubernetes::KubeSite;
use super::site::*;
use super::split::{add_pool, pool, put_block, with_pool};

const SPLIT: [&str; 5] = ["split", "2", "--name", "p", "--yes"];
const CONFIGURE: [&str; 5] = [
    "configure",
    "--strict-affinity=true",
    "--max-blocks-per-host=3",
    "--lock",
    "--yes",
];

/// Runs a command and kills it at the first request that matches `is_last`, before the server sees the request. If
/// `tear` drops the answer instead, kills it at the next request. Returns false if the command has ended by itself.
pub(super) fn run_and_kill(
    mut command: Command,
    torn: &Tearing,
    tear: Tear,
    mut is_last: impl FnMut(Seen<'_>) -> bool + Send + 'static,
) -> bool {
    let child: Arc<Mutex<Option<Child>>> = Arc::default();
    let (victim, mut starting) = (Arc::clone(&child), child.lock().unwrap());
    let mut is_swallowed = false;
    torn.plan(move |seen| {
        if !is_swallowed && !is_last(seen) {
            return Tear::Pass;
        }
        if !is_swallowed && tear == Tear::Swallow {
            is_swallowed = true;
            return tear;
        }
        // Requests wait here until the process is known.
        victim
            .lock()
            .unwrap()
            .as_mut()
            .expect("it was started")
            .kill()
            .unwrap();
        Tear::Drop
    });
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    *starting = Some(command.spawn().unwrap());
    drop(starting);

    let ended = || {
        child
            .lock()
            .unwrap()
            .as_mut()
            .expect("it was started")
            .try_wait()
            .unwrap()
    };
    let status = loop {
        match ended() {
            Some(status) => break status,
            None => thread::sleep(Duration::from_millis(10)),
        }
    };
    torn.plan(|_| Tear::Pass);
    status.signal() == Some(9)
}

/// Undoes a run and restores the lock, even if the run was killed before it got the answer to its lock request.
fn undo(command: &mut Command) {
    let undone = Terminal::new(150).answer(command, "y\ny\n");
    assert!(matches!(undone.code, Some(0 | 1)), "{undone:?}");
    assert!(
        !undone.text.contains("another program might hold the lock"),
        "{undone:?}"
    );
}

/// Runs the command to its end once. Then kills it at each of its last requests, and undoes each run.
fn undone_wherever_it_is_killed(site: &Site, arguments: &[&str], last: usize) {
    let torn = Tearing::etcd(&site.etcd).unwrap();
    let command = || site.command_through(&torn, arguments);
    let base = site.dump();
    torn.plan(|_| Tear::Pass);
    let whole = Run::of(command()).succeeded();
    let (requests, done) = (torn.count(), site.dump());
    site.undo_to(&whole, &base);

    let (mut killed, mut halfway) = (0, 0);
    for number in requests - last..requests {
        for tear in [Tear::Drop, Tear::Swallow] {
            let earlier = site.journals();
            killed += usize::from(run_and_kill(command(), &torn, tear, move |seen| {
                seen.number == number
            }));
            halfway += usize::from(values(&site.dump()) != values(&base));
            for journal in site
                .journals()
                .iter()
                .filter(|journal| !earlier.contains(journal))
            {
                undo(&mut site.command(&["undo", journal.to_str().unwrap()]));
            }
            assert_eq!(
                values(&site.dump()),
                values(&base),
                "request {number} of {requests}, {tear:?}"
            );
            // Removes the journals of killed runs. For ten minutes, later runs would otherwise make additional
            // requests, to look for locks that the killed runs have left.
            for journal in site
                .journals()
                .iter()
                .filter(|journal| !earlier.contains(journal))
            {
                std::fs::remove_file(journal).unwrap();
            }
        }
    }
    assert!(
        killed >= 2 * last - 2 && halfway >= 3,
        "{killed} killed, {halfway} with something to undo"
    );

    Run::of(command()).succeeded();
    assert_eq!(
        site.dump().keys().collect::<Vec<_>>(),
        done.keys().collect::<Vec<_>>()
    );
}

#[test]
fn a_killed_split_is_undone_and_made_again() {
    undone_wherever_it_is_killed(&with_pool(&pool()), &SPLIT, 5);
}

/// Splits a pool into more parts than one transaction can create, with blocks in the first and the last part. The parts
/// overlap the pool until the pool is deleted.
#[test]
fn a_killed_split_into_more_parts_than_a_transaction_holds_is_undone_and_made_again() {
    for (pool, block, parts) in [
        ("10.8.0.0/20", ["10.8.0.0/30", "10.8.15.240/30"], "128"),
        ("fd00:8::/112", ["fd00:8::/122", "fd00:8::ffc0/122"], "256"),
    ] {
        let mut wide = super::split::pool();
        wide["spec"]["cidr"] = pool.into();
        wide["spec"]["blockSize"] = if pool.contains(':') { 122 } else { 30 }.into();
        let site = with_pool(&wide);
        for block in block {
            put_block(&site, block);
        }
        undone_wherever_it_is_killed(&site, &["split", parts, "--name", "p", "--yes"], 6);
    }
}

#[test]
fn a_killed_configure_is_undone_and_made_again() {
    undone_wherever_it_is_killed(&Site::healthy(), &CONFIGURE, 5);
}

/// Returns the specifications of pools, configuration and lock.
fn specs(site: &KubeSite, flavour: Flavour) -> Vec<Value> {
    let kinds = ["ippools", flavour.ipam_config().0, "clusterinformations"];
    let objects = kinds.into_iter().flat_map(|plural| site.list(plural));
    objects
        .map(|(name, object)| json!([name, object["spec"]]))
        .collect()
}

#[test]
fn on_kubernetes_both_are_undone_and_made_again() {
    let flavour = Flavour::Classic;
    let site = KubeSite::of(&healthy(), flavour);
    add_pool(&site, flavour);
    // While the pool still exists, an undo deletes its parts even if they contain a block.
    let assign = [
        "assign", "--node", "node-1", "--count", "1", "--pool", "p", "--handle", "h", "--yes",
    ];
    site.run(&assign).succeeded();
    let torn = Tearing::kubernetes(&site.server).unwrap();
    let run = |arguments: &[&str]| Run::of(site.command_by(torn.kubeconfig(), arguments));
    let is_write = |seen: &Seen<'_>| seen.method != "GET" && seen.path.contains(".projectcalico.org/");
    // Writes the configuration once, so that it has all the fields that an undo restores.
    run(&[
        "configure",
        "--strict-affinity=false",
        "--max-blocks-per-host=0",
        "--yes",
    ])
    .succeeded();
    // The writes include those of the lock: one to take it, and one to restore it.
    for (arguments, writes) in [(&SPLIT[..], 5), (&CONFIGURE[..], 3)] {
        let base = specs(&site, flavour);
        let (mut killed, mut halfway) = (0, 0);
        for number in 0..writes {
            let tear = if number % 2 == 0 {
                Tear::Swallow
            } else {
                Tear::Drop
            };
            let (earlier, mut seen_writes) = (site.journals(), 0);
            let command = site.command_by(torn.kubeconfig(), arguments);
            killed += usize::from(run_and_kill(command, &torn, tear, move |seen| {
                seen_writes += usize::from(is_write(&seen));
                is_write(&seen) && seen_writes == number + 1
            }));
            halfway += usize::from(specs(&site, flavour) != base);
            let journals = site.journals();
            let journal = journals
                .iter()
                .find(|journal| !earlier.contains(journal))
                .expect("it has begun");
            undo(&mut site.command_by(torn.kubeconfig(), &["undo", journal.to_str().unwrap()]));
            assert_eq!(
                specs(&site, flavour),
                base,
                "{arguments:?}, write {number}, {tear:?}"
            );
        }
        assert!(
            killed >= writes - 1 && halfway >= 2,
            "{arguments:?}: {killed} killed, {halfway} halfway"
        );
        run(arguments).succeeded();
        assert_ne!(specs(&site, flavour), base);
    }
}
