//! An address counts as leaked only if two checks find it unused.

use std::io::{BufRead, BufReader, Read};
use std::net::IpAddr;

use super::site::*;
use crate::cli::program::started;

const RELEASE: [&str; 6] = ["release", "--leaked", "--settle", "0", "--yes", "--grace"];

/// Counts the plans in the output of a run.
fn planned(shown: &str) -> usize {
    shown.matches("\nPlan: ").count()
}

/// Releases leaks after two checks, and calls `meanwhile` between them.
fn release_while(site: &Site, meanwhile: impl FnOnce()) -> Run {
    let mut child = started(&mut site.command(&[&RELEASE[..], &["5s", "-v", "-o", "json"]].concat()));
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut stderr = String::new();
    while !stderr.contains("rechecking ") {
        assert!(said.read_line(&mut stderr).unwrap() > 0, "{stderr}");
    }
    meanwhile();
    said.read_to_string(&mut stderr).unwrap();
    let mut run = Run::ended(child.wait_with_output().unwrap());
    run.stderr = stderr;
    run
}

#[test]
fn addresses_that_are_used_or_assigned_during_the_wait_are_kept() {
    let mut cluster = healthy();
    let leaked: Vec<_> = (0..3).map(|number| leak(&mut cluster, number)).collect();
    let [unchanged, other_handle, other_number] = leaked.as_slice() else {
        panic!()
    };
    // A pod is starting: its endpoint is written while the program waits.
    let back = cluster.add_pod_on(1);
    let endpoint = cluster.remove(&back.endpoint);
    let site = Site::of(&cluster);
    let before = site.dump();
    let begun = Instant::now();
    let run = release_while(&site, || {
        site.put(&back.endpoint, endpoint.value());
        site.change_blocks(other_handle, hand_over);
        site.change_blocks(other_number, reassign);
    });
    assert!(begun.elapsed() > Duration::from_secs(5), "{:?}", begun.elapsed());
    let run = run.exits(1);
    let plan = run.json();
    assert_eq!(changes(&plan), of_pods("release-address", [unchanged]), "{run:?}");
    assert_eq!(skips(&plan), of_pods("seen-once", [other_handle, other_number]));
    assert!(
        recorded(&site.dump())
            .keys()
            .eq(recorded_without(&before, &leaked[..1]).keys())
    );
}

#[test]
fn unused_addresses_are_released_after_the_second_check() {
    let (site, pod) = Site::leaky();
    let run = release_while(&site, || {
        let held = recorded(&site.dump());
        assert!(
            pod.addresses
                .iter()
                .all(|(address, _)| held.contains_key(address)),
            "not before it"
        );
    })
    .succeeded();
    assert_eq!(run.json()["totals"]["addresses"], pod.addresses.len());
    assert_eq!(site.findings(&[]), BTreeSet::new());
}

/// At the first check, the address of a pod that is being deleted looks like a leaked one. The deletion releases it
/// during the wait.
#[test]
fn a_normal_release_during_the_wait_is_no_conflict() {
    let (site, pod) = Site::leaky();
    let run = release_while(&site, || {
        site.release(&["--handle", &pod.handle]).succeeded();
    })
    .succeeded();
    assert_eq!(
        (changes(&run.json()), skips(&run.json())),
        (BTreeSet::new(), BTreeSet::new())
    );
}

#[test]
fn ctrl_c_ends_the_wait() {
    let (site, _) = Site::leaky();
    let before = site.dump();
    let release = [
        "release", "--leaked", "--grace", "10m", "--settle", "0", "--yes", "--lock",
    ];
    let begun = Instant::now();
    let (mut command, waiting) = (site.command(&release), "waiting to check a second time");
    Terminal::new(150)
        .converse(command.env("TERM", "xterm"), waiting, |_, it| interrupt(it))
        .exits(130);
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    assert_eq!((site.dump(), site.journals()), (before, Vec::new()));

    // The wait is announced even without a terminal and with `--quiet`.
    let mut quiet = site.command(&release);
    let mut quiet = quiet
        .arg("--quiet")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(quiet.stderr.take().unwrap())
        .lines()
        .map(Result::unwrap);
    assert!(said.any(|line| line.starts_with("waiting to check a second time: 10m, until ")));
    interrupt(&quiet);
    assert_eq!(quiet.wait().unwrap().code(), Some(130));
    let said: Vec<String> = said.collect();
    assert_eq!(said[0], "error: interrupted; nothing was changed");
    assert!(
        said[1].starts_with("hint: to wait without this terminal: run `calipam check -o json --grace 10m"),
        "{said:?}"
    );
    assert_eq!(said.len(), 2, "{said:?}");
}

/// A check changes nothing, so it only says how to do without the wait.
#[test]
fn ctrl_c_before_a_recheck_names_the_check_without_it() {
    let site = Site::of(&healthy().with(Fault::OrphanHandleEmpty, 1));
    let mut command = site.command(&["check", "--settle", "10m"]);
    Terminal::new(200)
        .converse(command.env("TERM", "xterm"), "waiting to recheck", |_, it| {
            interrupt(it)
        })
        .exits(130)
        .shows("hint:")
        .shows("`calipam check --settle 0` does not wait, and also reports changes in progress");
}

/// What is certain does not wait for the rest. An interrupted wait says what is left.
#[test]
fn what_is_certain_is_released_before_the_wait() {
    let mut cluster = healthy().with(Fault::NodeGone, 1);
    let doubtful = leak(&mut cluster, 0);
    let site = Site::of(&cluster);
    let before = recorded(&site.dump());
    let mut child = started(&mut site.command(&[&RELEASE[..], &["10m"]].concat()));
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut stderr = String::new();
    while !stderr.contains("rechecking ") {
        assert!(said.read_line(&mut stderr).unwrap() > 0, "{stderr}");
    }
    let during = recorded(&site.dump());
    let doubtful = doubtful.address();
    assert!(
        during != before && during[&doubtful] == before[&doubtful],
        "{stderr}"
    );

    interrupt(&child);
    said.read_to_string(&mut stderr).unwrap();
    let mut run = Run::ended(child.wait_with_output().unwrap());
    run.stderr = stderr;
    let run = run
        .exits(130)
        .says("interrupted before the second check: 2 addresses or handles were found unused once");
    let run = run.says("goes on with them").says("to restore what was there: ");
    assert_eq!(recorded(&site.dump()), during);
    assert_eq!(site.journals(), [PathBuf::from(journal_of(&run))]);

    site.run(&[&RELEASE[..], &["5s"]].concat()).succeeded();
    assert_ne!(recorded(&site.dump()).get(&doubtful), before.get(&doubtful));
}

/// The plan is printed before the wait. It is printed again only if it has changed.
#[test]
fn the_plan_is_shown_before_the_wait() {
    let mut cluster = healthy();
    let leaked: Vec<_> = (0..2).map(|number| leak(&mut cluster, number)).collect();
    let site = Site::of(&cluster);
    let mut shown = String::new();
    let mut child = started(&mut site.command(&[&RELEASE[..], &["5s"]].concat()));
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    while planned(&shown) == 0 {
        assert!(lines.read_line(&mut shown).unwrap() > 0, "{shown}");
    }
    assert!(
        shown.contains(&format!("release-address  {}", leaked[0].address())),
        "{shown}"
    );
    let held = recorded(&site.dump());
    assert!(
        leaked.iter().all(|pod| held.contains_key(&pod.address())),
        "nothing is written before the wait"
    );
    // During the wait, the addresses of one pod are recorded for another handle, so the plan changes.
    site.change_blocks(&leaked[1], hand_over);
    lines.read_to_string(&mut shown).unwrap();
    let run = Run::ended(child.wait_with_output().unwrap());
    assert_eq!((run.code, planned(&shown)), (1, 2), "{shown} {run:?}");
    assert!(
        run.stderr
            .contains("the plan has changed since the first check\n"),
        "{run:?}"
    );
}

/// The announcement of the wait offers an alternative: a report now, and a later release with it.
#[test]
fn a_report_now_and_a_release_later_need_no_wait() {
    let (site, _) = Site::leaky();
    let run = site
        .run(&[&RELEASE[..], &["2s"]].concat())
        .succeeded()
        .does_not_say("has changed");
    assert_eq!(planned(&run.stdout), 1, "the plan has not changed: {run:?}");
    let (_, hint) = run
        .stderr
        .split_once("hint: to wait without this terminal: run ")
        .expect("the hint");
    let lines: Vec<&str> = hint
        .lines()
        .next()
        .unwrap()
        .split('`')
        .skip(1)
        .step_by(2)
        .collect();
    let [check, release] = lines.as_slice() else {
        panic!("{lines:?}")
    };
    let (begin, end) = ("calipam check -o json --grace 2s", " > report.json");
    assert!(check.starts_with(begin) && check.ends_with(end), "{check}");
    assert!(
        release.contains(" --leaked ") && release.ends_with(" --from-report report.json"),
        "{release}"
    );
    site.undo(&journal_of(&run)).succeeded();

    let report = site.home.path().join("report.json");
    let run = |line: &str| site.run(&line.split(' ').skip(1).collect::<Vec<_>>());
    std::fs::write(&report, run(check.split(" > ").next().unwrap()).stdout).unwrap();
    thread::sleep(Duration::from_secs(3));
    run(&release.replace("report.json", report.to_str().unwrap()))
        .succeeded()
        .does_not_say("rechecking");
    assert_eq!(site.findings(&["--rule", "leaked-address"]), BTreeSet::new());
}

#[test]
fn addresses_of_a_deleted_node_need_no_wait() {
    let cluster = healthy().with(Fault::NodeGone, 1);
    let site = Site::of(&cluster);
    let begun = Instant::now();
    site.run(&[&RELEASE[..], &["50m"]].concat()).succeeded();
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    assert_eq!(site.findings(&["--rule", "leaked-address"]), BTreeSet::new());
    let node = &cluster.nodes().last().unwrap();
    let affinity = key::affinity("host", &node.name, node.blocks[0]);
    assert!(site.dump().contains_key(&affinity), "only addresses go");
}

/// Without `--grace`, the grace period of the cluster applies.
#[test]
fn the_grace_period_of_the_cluster_applies() {
    let mut cluster = healthy();
    leak(&mut cluster, 0);
    let metadata = cluster.spec().metadata("default", &mut cluster.spec().rng(9));
    let controllers = calipam_testkit::cluster::wire::kube_controllers(&metadata, "2s");
    cluster.put_raw(
        key::resource("kubecontrollersconfigurations", "default"),
        controllers,
    );
    let site = Site::of(&cluster);
    let begun = Instant::now();
    let run = site.run(&["release", "--leaked", "--settle", "0", "--yes"]);
    assert!(begun.elapsed() > Duration::from_secs(2), "{:?}", begun.elapsed());
    // A way that calipam warns of is no way out.
    run.succeeded()
        .says("rechecking 2 leaked addresses or handles in 2s, at ")
        .does_not_say("--grace 0");
    assert_eq!(site.findings(&[]), BTreeSet::new());
}

/// A rebuild first writes the changes that need no second check, and then waits for the second check of the others.
const REBUILD: [&str; 7] = [
    "rebuild",
    "--apply",
    "--yes",
    "--endpoints-only",
    "--settle",
    "0",
    "--grace",
];

/// Creates a cluster with leaked addresses of a pod, and with addresses of running pods that are free in their blocks.
fn leaked_and_unrecorded() -> (Site, Vec<IpAddr>, BTreeSet<IpAddr>) {
    let mut cluster = healthy();
    let leaked = leak(&mut cluster, 0)
        .addresses
        .into_iter()
        .map(|(address, _)| address)
        .collect();
    cluster.inject(Fault::UnallocatedFreed, 2);
    let site = Site::of(&cluster);
    let found = site.findings(&["--rule", "unallocated-in-use"]);
    let live = found
        .iter()
        .map(|line| line.rsplit(' ').next().unwrap().parse().unwrap())
        .collect();
    (site, leaked, live)
}

#[test]
fn urgent_changes_remain_after_an_interrupted_wait() {
    let (site, leaked, live) = leaked_and_unrecorded();
    let before = site.dump();
    assert!(
        !live.is_empty()
            && live
                .iter()
                .all(|address| !recorded(&before).contains_key(address))
    );
    let mut command = site.command(&[&REBUILD[..], &["10m"]].concat());
    let begun = Instant::now();
    let (command, waiting) = (command.env("TERM", "xterm"), "waiting to check a second time");
    let shown = Terminal::new(150).converse(command, waiting, |_, it| {
        let held = recorded(&site.dump());
        assert!(
            live.iter().all(|address| held.contains_key(address)),
            "written before the wait"
        );
        assert!(
            leaked.iter().all(|address| held.contains_key(address)),
            "not before the second look"
        );
        interrupt(it);
    });
    shown.exits(130);
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    let journals = site.journals();
    assert_eq!(journals.len(), 1, "{journals:?}");
    // The journal of the first part is complete.
    site.undo(journals[0].to_str().unwrap()).succeeded();
    assert_eq!(values(&site.dump()), values(&before));
}

#[test]
fn both_parts_are_one_run_with_one_journal_and_one_limit() {
    let (site, leaked, live) = leaked_and_unrecorded();
    let before = site.dump();
    // The limit includes changes that wait.
    let limit = (live.len() + leaked.len() - 1).to_string();
    let run = site
        .run(&[&REBUILD[..], &["10m", "--max-changes", &limit]].concat())
        .says("--max-changes");
    assert!(run.code != 0 && site.dump() == before, "{run:?}");

    let run = site
        .run(&[&REBUILD[..], &["2s", "-o", "json"]].concat())
        .succeeded();
    let run = run.says("hint: to wait without this terminal: run `calipam check -o json --grace 2s");
    let run = run.says("the other changes are written first");
    let plan = run.json();
    let addresses = live.iter().map(|address| format!("assign-address {address}"));
    let released = leaked.iter().map(|address| format!("release-address {address}"));
    assert!(
        changes(&plan).is_superset(&addresses.chain(released).collect()),
        "{plan}"
    );
    assert_eq!(skips(&plan), BTreeSet::new());
    assert_eq!(plan["totals"]["addresses"], live.len() + leaked.len());
    assert_eq!(plan["execution"]["written"], plan["execution"]["steps"]);
    assert_eq!((site.findings(&[]), site.journals().len()), (BTreeSet::new(), 1));
    site.undo_to(&run, &before);
}
