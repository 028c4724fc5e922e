//! A rebuild first writes the changes that need no second check, and then waits for the second check of the others.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use calipam_testkit::cluster::Fault;

use super::site::*;
use crate::cli::program::Run;
use crate::cli::pty::{Terminal, interrupt};

/// Creates a cluster with leaked addresses of a pod, and with addresses of running pods that are free in their blocks.
fn site() -> (Site, Vec<IpAddr>, BTreeSet<IpAddr>) {
    let mut cluster = healthy();
    let leaked = leak(&mut cluster, 0).addresses.into_iter().map(|(address, _)| address).collect();
    cluster.inject(Fault::UnallocatedFreed, 2);
    let site = Site::of(&cluster);
    let found = site.findings(&["--rule", "unallocated-in-use"]);
    let live = found.iter().map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect();
    (site, leaked, live)
}

const REBUILD: [&str; 7] = ["rebuild", "--apply", "--yes", "--endpoints-only", "--settle", "0", "--grace"];

#[test]
fn urgent_changes_remain_after_an_interrupted_wait() {
    let (site, leaked, live) = site();
    let before = site.dump();
    assert!(!live.is_empty() && live.iter().all(|address| !recorded(&before).contains_key(address)));
    let mut command = site.command(&[&REBUILD[..], &["10m"]].concat());
    let begun = Instant::now();
    let (command, waiting) = (command.env("TERM", "xterm"), "waiting to check a second time");
    let shown = Terminal::new(150).converse(command, waiting, |_, it| {
        let held = recorded(&site.dump());
        assert!(live.iter().all(|address| held.contains_key(address)), "written before the wait");
        assert!(leaked.iter().all(|address| held.contains_key(address)), "not before the second look");
        interrupt(it);
    });
    shown.exits(130);
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    let journals = site.journals();
    assert_eq!(journals.len(), 1, "{journals:?}");
    site.undo(journals[0].to_str().unwrap()).failed(1, "did not finish");
    assert_eq!(values(&site.dump()), values(&before));
}

#[test]
fn both_parts_are_one_run_with_one_journal() {
    let (site, leaked, live) = site();
    let before = site.dump();
    let run: Run = site.run(&[&REBUILD[..], &["2s", "-o", "json"]].concat());
    assert_eq!(run.code, 0, "{run:?}");
    let hint = "hint: to avoid the wait: run `calipam check -o json --grace 2s";
    assert!(run.stderr.contains("the other changes are written first"), "{run:?}");
    assert!(run.stderr.contains(hint), "{run:?}");
    let plan = run.json();
    let addresses = live.iter().map(|address| format!("assign-address {address}"));
    let released = leaked.iter().map(|address| format!("release-address {address}"));
    assert!(changes(&plan).is_superset(&addresses.chain(released).collect()), "{plan}");
    assert_eq!(skips(&plan), set::<String>([]));
    assert_eq!(plan["totals"]["addresses"], live.len() + leaked.len());
    assert_eq!(plan["execution"]["written"], plan["execution"]["steps"]);
    assert_eq!((site.findings(&[]), site.journals().len()), (set::<String>([]), 1));
    assert_eq!(site.undo(&journal_of(&run)).code, 0);
    assert_eq!(values(&site.dump()), values(&before));
}

#[test]
fn the_limit_includes_changes_that_wait() {
    let (site, leaked, live) = site();
    let before = site.dump();
    let limit = (live.len() + leaked.len() - 1).to_string();
    let run = site.run(&[&REBUILD[..], &["10m", "--max-changes", &limit]].concat());
    assert!(run.code != 0 && run.stderr.contains("--max-changes"), "{run:?}");
    assert_eq!(site.dump(), before);
}
