//! An address counts as leaked only if two checks find it unused.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use std::time::{Duration, Instant};

use calipam_testkit::cluster::wire::key;
use calipam_testkit::cluster::{Cluster, Fault};

use super::site::*;
use crate::cli::program::Run;
use crate::cli::pty::{Terminal, interrupt};

/// Releases leaks after two checks, and calls `meanwhile` between them.
fn release_while(site: &Site, meanwhile: impl FnOnce()) -> Run {
    let arguments = ["release", "--leaked", "--grace", "5s", "--settle", "0", "--yes", "-v", "-o", "json"];
    let mut command = site.command(&arguments);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
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
    let [unchanged, other_handle, other_number] = leaked.as_slice() else { panic!() };
    // A pod is starting: its endpoint is written while the program waits.
    let back = cluster.add_pod_on(1);
    let endpoint = cluster.remove(&back.endpoint);
    let site = Site::of(&cluster);
    let before = site.dump();
    let begun = Instant::now();
    let run = release_while(&site, || {
        site.put(&back.endpoint, endpoint.value());
        for (address, block) in &other_handle.addresses {
            site.change_block(*block, |block| {
                block.record_mut(*address).handle = Some("k8s-pod-network.somebody-else".into());
            });
        }
        for (address, block) in &other_number.addresses {
            site.change_block(*block, |block| {
                let ordinal = block.ordinal(*address).to_string();
                block.sequences.insert(ordinal, block.sequence);
                block.sequence += 1;
            });
        }
    });
    assert!(begun.elapsed() > Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(run.code, 1, "{run:?}");
    let plan = run.json();
    let of = |word: &str, pod: &calipam_testkit::cluster::Pod| {
        set(pod.addresses.iter().map(|(address, _)| format!("{word} {address}")))
    };
    assert_eq!(changes(&plan), of("release-address", unchanged), "{run:?}");
    assert_eq!(skips(&plan), &of("seen-once", other_handle) | &of("seen-once", other_number));
    let gone: Vec<_> = unchanged.addresses.iter().map(|(address, _)| *address).collect();
    let mut expected = recorded(&before);
    expected.retain(|address, _| !gone.contains(address));
    let now = recorded(&site.dump());
    assert_eq!(now.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
}

#[test]
fn unused_addresses_are_released_after_the_second_check() {
    let (site, pod) = Site::leaky();
    let run = release_while(&site, || {
        let held = recorded(&site.dump());
        assert!(pod.addresses.iter().all(|(address, _)| held.contains_key(address)), "not before it");
    })
    .succeeded();
    assert_eq!(run.json()["totals"]["addresses"], pod.addresses.len());
    assert_eq!(site.findings(&[]), set::<String>([]));
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
    assert_eq!((changes(&run.json()), skips(&run.json())), (set::<String>([]), set::<String>([])));
}

#[test]
fn ctrl_c_ends_the_wait() {
    let (site, _) = Site::leaky();
    let before = site.dump();
    let release = ["release", "--leaked", "--grace", "10m", "--settle", "0", "--yes", "--lock"];
    let begun = Instant::now();
    let (mut command, waiting) = (site.command(&release), "waiting to check a second time");
    Terminal::new(150).converse(command.env("TERM", "xterm"), waiting, |_, it| interrupt(it)).exits(130);
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    assert_eq!((site.dump(), site.journals()), (before, Vec::new()));

    // The wait is announced even without a terminal and with `--quiet`.
    let mut quiet = site.command(&release);
    let mut quiet = quiet.arg("--quiet").stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(quiet.stderr.take().unwrap()).lines().map(Result::unwrap);
    let told = said.find(|line| line.starts_with("waiting to check a second time: 10m, until "));
    assert!(told.is_some());
    interrupt(&quiet);
    assert_eq!(quiet.wait().unwrap().code(), Some(130));
    assert_eq!(said.collect::<Vec<_>>(), ["error: interrupted"]);
}

/// The plan is printed before the wait. It is printed again only if it has changed.
#[test]
fn the_plan_is_shown_before_the_wait() {
    let mut cluster = healthy();
    let leaked: Vec<_> = (0..2).map(|number| leak(&mut cluster, number)).collect();
    let site = Site::of(&cluster);
    let wait = ["release", "--leaked", "--settle", "0", "--yes", "--grace"];
    let planned = |shown: &str| shown.matches("\nPlan: ").count();

    let mut shown = String::new();
    let mut child = site
        .command(&[&wait[..], &["5s"]].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    while planned(&shown) == 0 {
        assert!(lines.read_line(&mut shown).unwrap() > 0, "{shown}");
    }
    assert!(shown.contains(&format!("release-address  {}", leaked[0].address())), "{shown}");
    let held = recorded(&site.dump());
    assert!(leaked.iter().all(|pod| held.contains_key(&pod.address())), "nothing is written before the wait");
    // During the wait, the addresses of one pod are recorded for another handle, so the plan changes.
    for (address, block) in &leaked[1].addresses {
        site.change_block(*block, |block| {
            block.record_mut(*address).handle = Some("k8s-pod-network.somebody-else".into());
        });
    }
    lines.read_to_string(&mut shown).unwrap();
    let run = Run::ended(child.wait_with_output().unwrap());
    assert_eq!((run.code, planned(&shown)), (1, 2), "{shown} {run:?}");
    assert!(run.stderr.contains("the plan has changed since the first check\n"), "{run:?}");

    let (site, _) = Site::leaky();
    let run = site.run(&[&wait[..], &["2s"]].concat());
    assert_eq!((run.code, planned(&run.stdout)), (0, 1), "{run:?}");
    assert!(!run.stderr.contains("has changed"), "{run:?}");
}

/// The announcement of the wait offers an alternative: a report now, and a later release with it.
#[test]
fn a_report_now_and_a_release_later_need_no_wait() {
    let (site, _) = Site::leaky();
    let folder = tempfile::tempdir().unwrap();
    let run = site.run(&["release", "--leaked", "--settle", "0", "--yes", "--grace", "2s"]);
    let (_, hint) = run.stderr.split_once("hint: to avoid the wait: run ").expect("the hint");
    let lines: Vec<&str> = hint.lines().next().unwrap().split('`').skip(1).step_by(2).collect();
    let [check, release] = lines.as_slice() else { panic!("{lines:?}") };
    assert!(check.starts_with("calipam check -o json --grace 2s"), "{check}");
    assert!(check.ends_with(" > report.json"), "{check}");
    assert!(release.contains(" --leaked ") && release.ends_with(" --from-report report.json"), "{release}");
    assert_eq!(site.undo(&journal_of(&run)).code, 0);

    let report = folder.path().join("report.json");
    let words = |line: &str| line.split(' ').skip(1).map(str::to_owned).collect::<Vec<_>>();
    let check = words(check.split(" > ").next().unwrap());
    let found = site.command(&check.iter().map(String::as_str).collect::<Vec<_>>()).output().unwrap();
    std::fs::write(&report, found.stdout).unwrap();
    std::thread::sleep(Duration::from_secs(3));
    let release = words(&release.replace("report.json", report.to_str().unwrap()));
    let run = Run::of(site.command(&release.iter().map(String::as_str).collect::<Vec<_>>()));
    assert!(run.code == 0 && !run.stderr.contains("rechecking"), "{run:?}");
    assert_eq!(site.findings(&["--rule", "leaked-address"]), set::<String>([]));
}

#[test]
fn a_dry_run_does_not_wait() {
    let (site, pod) = Site::leaky();
    let before = site.dump();
    let begun = Instant::now();
    let run = site.run(&["release", "--leaked", "--grace", "1h", "--settle", "0", "--dry-run"]).succeeded();
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    assert!(run.stdout.contains(&format!("release-address  {}", pod.address())), "{run:?}");
    assert!(
        run.stderr.contains(
            "2 addresses or handles were found unused once; the plan assumes that a second check, 1h later, finds the same"
        ),
        "{run:?}"
    );
    assert_eq!((site.dump(), site.journals()), (before, Vec::new()));
}

#[test]
fn addresses_of_a_deleted_node_need_no_wait() {
    let cluster: Cluster = healthy().with(Fault::NodeGone, 1);
    let site = Site::of(&cluster);
    let begun = Instant::now();
    site.run(&["release", "--leaked", "--grace", "50m", "--settle", "0", "--yes"]).succeeded();
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    assert_eq!(site.findings(&["--rule", "leaked-address"]), set::<String>([]));
    let node = &cluster.nodes().last().unwrap();
    assert!(
        site.dump().contains_key(&key::affinity("host", &node.name, node.blocks[0])),
        "only addresses go"
    );
}

/// Without `--grace`, the grace period of the cluster applies.
#[test]
fn the_grace_period_of_the_cluster_applies() {
    let mut cluster = healthy();
    leak(&mut cluster, 0);
    let metadata = cluster.spec().metadata("default", &mut cluster.spec().rng(9));
    let controllers = calipam_testkit::cluster::wire::kube_controllers(metadata, "2s");
    cluster.put_raw(key::resource("kubecontrollersconfigurations", "default"), controllers);
    let site = Site::of(&cluster);
    let begun = Instant::now();
    let run = site.run(&["release", "--leaked", "--settle", "0", "--yes"]);
    assert!(begun.elapsed() > Duration::from_secs(2), "{:?}", begun.elapsed());
    assert!(run.stderr.contains("rechecking 2 leaked addresses or handles in 2s, at "), "{run:?}");
    assert!(!run.stderr.contains("--grace 0"), "a way that calipam warns of is no way out: {run:?}");
    assert_eq!((run.code, site.findings(&[])), (0, set::<String>([])));
}
