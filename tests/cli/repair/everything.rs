//! A release of all leaks changes nothing else, and can be undone completely.

use std::collections::BTreeSet;

use calipam_testkit::cluster::wire::{Block, key};
use calipam_testkit::cluster::{Cluster, ClusterSpec};
use calipam_testkit::servers::{Etcd, EtcdVersion, Tool, left_out};
use jiff::Timestamp;
use serde_json::Value;

use super::site::*;

/// Returns the keys that a plan may change: the objects that it names, and the block and handle of each address.
fn named(plan: &Value, before: &Entries) -> Vec<String> {
    let mut keys = Vec::new();
    for change in plan["changes"].as_array().unwrap() {
        let subject = change["subject"]["name"].as_str().unwrap();
        match change["action"].as_str().unwrap() {
            "release-address" => {
                let address = subject.parse().unwrap();
                let blocks = before.iter().filter(|(key, _)| key.contains("/assignment/"));
                let blocks = blocks.filter_map(|(key, (raw, _))| Some((key, Block::read(raw)?)));
                for (key, mut block) in blocks.filter(|(_, block)| block.cidr.contains(&address)) {
                    keys.push(key.clone());
                    let held = block.records().any(|(recorded, _)| recorded == address);
                    let handle = held.then(|| block.record_mut(address).handle.clone()).flatten();
                    keys.extend(handle.map(|id| key::handle(&id)));
                }
            }
            "delete-handle" | "set-handle-counts" => keys.push(key::handle(subject)),
            other => panic!("a release of leaked addresses does not {other}"),
        }
    }
    keys
}

#[test]
fn all_leaks_are_released_and_restored() {
    all_goes_and_comes_back(EtcdVersion::default());
}

#[test]
fn all_leaks_are_released_and_restored_on_an_older_etcd() {
    if !left_out(&[Tool::OldEtcd]) {
        all_goes_and_comes_back(EtcdVersion::V3_4);
    }
}

fn all_goes_and_comes_back(version: EtcdVersion) {
    let cluster = Cluster::all_faults(ClusterSpec::new(21).at(Timestamp::now()).wide(), 1);
    let site = Site::with(&cluster, Etcd::start_version(version).unwrap());
    let before = site.dump();
    let short = site.release(&["--leaked", "--orphan-handles", "--dry-run"]);
    let says = "hint: `calipam release --leaked --orphan-handles --dry-run --grace 0 --settle 0";
    assert!(short.stderr.contains(says), "{short:?}");
    let run = site.release(&["--leaked", "--orphan-handles", "-o", "json"]);
    let plan = run.json();
    let after = site.dump();
    assert_eq!(run.code, 1, "what is skipped is not done: {}", run.stderr);
    assert!(changes(&plan).len() > 30, "{:?}", changes(&plan));
    assert_eq!(plan["execution"]["conflicts"], serde_json::json!([]));

    let named = named(&plan, &before);
    let strays: Vec<_> = differing(&before, &after).into_iter().filter(|key| !named.contains(key)).collect();
    assert_eq!(strays, Vec::<String>::new());
    let released: BTreeSet<String> = changes(&plan)
        .into_iter()
        .filter_map(|change| Some(change.strip_prefix("release-address ")?.to_owned()))
        .collect();
    let mut expected = recorded(&before);
    for address in &released {
        assert!(expected.remove(&address.parse().unwrap()).is_some(), "{address}");
    }
    assert_eq!(recorded(&after), expected);

    let skipped: Vec<String> =
        skips(&plan).iter().map(|line| line.split_once(' ').unwrap().1.to_owned()).collect();
    // Leaked addresses with an unknown owner have a lower severity, and are kept.
    let leaks = cluster.truth().iter().filter(|f| f.code == "leaked-address" && f.severity.is_none());
    let leaks = leaks.map(|f| f.subject).chain(cluster.young().iter().map(ToString::to_string));
    let leaks: BTreeSet<String> = leaks.filter(|s| !skipped.contains(s)).collect();
    assert_eq!(released, leaks);
    let count =
        format!("\nACTION           COUNT  FOR EXAMPLE\nrelease-address {:>6}  10.128", released.len());
    assert!(short.stdout.contains(&count), "{count}: {short:?}");

    for finding in site.findings(&[]) {
        let subject = finding.rsplit(' ').next().unwrap().to_owned();
        let may_stay = !finding.starts_with("error leaked-address") && !finding.contains(" orphan-handle ");
        assert!(may_stay || skipped.contains(&subject), "{finding}");
    }

    let undone = site.undo(&journal_of(&run)).succeeded();
    let back = site.dump();
    assert_eq!(values(&back), values(&before));
    site.undo(&journal_of(&undone)).succeeded();
    assert_eq!(values(&site.dump()), values(&after));
    assert_eq!(site.journals().len(), 3);
}

#[test]
fn without_anything_to_do_nothing_is_written() {
    let site = Site::of(&healthy());
    let before = site.dump();
    site.release(&["--leaked", "--orphan-handles"]).succeeded().prints("\nNothing to do\n");
    assert_eq!((site.dump(), site.journals()), (before, Vec::new()));
}

#[test]
fn later_changes_of_other_clients_are_not_undone() {
    let mut cluster = healthy();
    let [first, second] = [leak(&mut cluster, 0), leak(&mut cluster, 1)];
    let site = Site::of(&cluster);
    let before = site.dump();
    let run = site.release(&["--leaked"]).succeeded();
    site.change_block(first.block(), |block| block.sequence += 1);
    let changed = site.dump();

    let dry = site.run(&["undo", &journal_of(&run), "--dry-run"]);
    assert_eq!(site.dump(), changed, "{dry:?}");
    let undone = site.undo(&journal_of(&run)).exits(1);
    let told = format!("{} has changed since the run", key::block(first.block()));
    assert!(undone.stderr.contains(&told), "{undone:?}");
    assert!(undone.stderr.contains("warning: not undone: "), "{undone:?}");
    // The dry run has printed the same message.
    assert!(dry.code == 1 && dry.stdout.contains("REASON") && dry.stdout.contains(&told), "{dry:?}");
    let back = site.dump();
    // The pod has one handle in two blocks. The handle and both blocks are written together.
    assert_eq!(
        differing(&changed, &back),
        set([key::block(second.block()), key::block(second.addresses[1].1), key::handle(&second.handle),])
    );
    let second_only: Vec<_> = second.addresses.iter().map(|(_, block)| key::block(*block)).collect();
    for key in second_only {
        assert_eq!(values(&back)[key.as_str()], values(&before)[key.as_str()]);
    }
}

#[test]
fn an_undo_that_finds_everything_as_it_was_says_so() {
    let (site, _) = Site::leaky();
    let run = site.release(&["--leaked"]);
    assert_eq!(site.undo(&journal_of(&run)).code, 0);
    let (before, journals) = (site.dump(), site.journals().len());
    for more in [&["--yes"][..], &["--dry-run"]] {
        let again = site.run(&[&["undo", &journal_of(&run)], more].concat());
        again.succeeded().prints("everything is as it was before that run");
    }
    assert_eq!((site.dump(), site.journals().len()), (before, journals));
}

/// With a grace period shorter than a CNI operation, the address of a starting pod looks unused.
#[test]
fn a_short_grace_period_is_warned_of() {
    let (site, _) = Site::leaky();
    for (grace, is_short) in [("0", true), ("9s", true), ("10s", false)] {
        for command in [&["release", "--leaked", "--dry-run"][..], &["rebuild"]] {
            let run = site.run(&[command, &["--grace", grace, "--settle", "0"]].concat());
            let warned = run.stderr.contains("shorter than a CNI operation");
            assert!(run.code < 2 && warned == is_short, "{grace}: {run:?}");
        }
    }
}

/// Whenever one run writes a step, the other run gets a conflict or has nothing left to do.
#[test]
fn two_runs_at_once_do_no_harm() {
    let mut cluster = Cluster::plain(*healthy().spec(), 60, 1);
    (0..60).for_each(|node| drop(leak(&mut cluster, node)));
    let site = Site::of(&cluster);
    let before = site.dump();
    let runs = std::thread::scope(|scope| {
        let both = [(); 2].map(|()| scope.spawn(|| site.release(&["--leaked"])));
        both.map(|run| run.join().unwrap())
    });
    for run in &runs {
        assert!(run.code == 0 || run.code == 1 && run.stderr.contains("not done: "), "{run:?}");
    }
    assert_eq!((site.findings(&[]), site.journals().len() <= 2), (set::<String>([]), true));
    assert_eq!(recorded(&site.dump()).len(), recorded(&before).len() - 120);
}

#[test]
fn an_undo_is_for_the_cluster_of_its_journal() {
    let mut cluster = healthy();
    leak(&mut cluster, 0);
    let site = Site::of(&cluster);
    let run = site.release(&["--leaked"]);
    let other = Site::of(&cluster);
    let path = "/calico/resources/v3/projectcalico.org/clusterinformations/default";
    let information = String::from_utf8(other.value(path).unwrap()).unwrap();
    other.put(path, information.replace("0f0e1d2c", "ffffffff"));
    let before = other.dump();
    let there = other.etcd.endpoint();
    let undone = other
        .run(&["undo", &journal_of(&run), "--yes", "--etcd-endpoints", &there])
        .failed(1, "made for cluster 0f0e1d2c");
    assert!(undone.stderr.contains("\nhint: "), "{undone:?}");
    assert_eq!(other.dump(), before);
}
