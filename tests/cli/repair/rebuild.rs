//! A rebuild on a real etcd repairs everything that it can, reports the rest, and can be undone completely.

use std::collections::BTreeSet;

use calipam_model::IpNet;
use calipam_testkit::cluster::wire::key;
use calipam_testkit::cluster::{Cluster, ClusterSpec, Fault};
use jiff::Timestamp;
use serde_json::Value;

use super::site::*;
use crate::cli::program::Run;

/// Runs a rebuild that reads only endpoints.
fn rebuild(site: &Site, more: &[&str]) -> Run {
    let agreed = ["rebuild", "--apply", "--yes", "--endpoints-only"];
    site.run(&[&agreed[..], &AT_ONCE, more].concat())
}

/// True if the plan names the object with this key. A block is also named by a change of one of its addresses or of its
/// affinity.
fn is_named(plan: &Value, key: &str) -> bool {
    let Some(rest) = key.strip_prefix("/calico/ipam/v2/") else { return false };
    let changes = plan["changes"].as_array().unwrap();
    let mut subjects = changes
        .iter()
        .map(|c| (c["subject"]["kind"].as_str().unwrap(), c["subject"]["name"].as_str().unwrap()));
    let dashed = |cidr: &str| cidr.replacen('-', "/", 1).parse::<IpNet>().ok();
    match rest.split('/').collect::<Vec<_>>().as_slice() {
        ["assignment", _, "block", cidr] => {
            let block = dashed(cidr).unwrap();
            subjects.any(|(kind, name)| match kind {
                "address" => block.contains(&name.parse::<std::net::IpAddr>().unwrap()),
                "block" => name.parse() == Ok(block),
                // Before an affinity is confirmed, its block is written again.
                "affinity" => name.ends_with(&format!("/{block}")),
                _ => false,
            })
        }
        [_, node, _, "block", cidr] => {
            let name = format!("{node}/{}", dashed(cidr).unwrap());
            subjects.any(|(_, subject)| subject == name)
        }
        ["handle", ..] => true,
        _ => false,
    }
}

#[test]
fn a_rebuild_of_every_fault_is_undone() {
    let site = Site::of(&Cluster::all_faults(ClusterSpec::new(22).at(Timestamp::now()).wide(), 1));
    let before = site.dump();
    let earlier = site.findings(&[]);
    let run = rebuild(&site, &["-o", "json"]);
    let plan = run.json();
    let after = site.dump();
    assert_eq!(run.code, 1, "what is skipped is not done: {}", run.stderr);
    assert_eq!(plan["execution"]["conflicts"], serde_json::json!([]), "{run:?}");
    assert!(changes(&plan).len() > 100, "{:?}", changes(&plan));

    let strays: Vec<_> = differing(&before, &after).into_iter().filter(|key| !is_named(&plan, key)).collect();
    assert_eq!(strays, Vec::<String>::new());
    let skipped: BTreeSet<String> =
        skips(&plan).iter().map(|line| line.split_once(' ').unwrap().1.to_owned()).collect();
    let left = site.findings(&[]);
    for finding in left.iter().filter(|finding| !finding.starts_with("info ")) {
        let subject = finding.splitn(3, ' ').last().unwrap();
        assert!(skipped.contains(subject), "neither repaired nor skipped: {finding}");
    }
    assert!(left.len() * 2 < earlier.len(), "{} of {} are left", left.len(), earlier.len());

    let again = rebuild(&site, &["-o", "json"]).json();
    assert_eq!(changes(&again), BTreeSet::new());

    site.undo(&journal_of(&run)).succeeded();
    assert_eq!(values(&site.dump()), values(&before));
}

#[test]
fn the_blocks_of_a_whole_cluster_come_back() {
    let mut cluster = healthy();
    let kept = recorded(&Site::of(&cluster).dump());
    cluster.inject(Fault::BlocksLost, 1);
    let site = Site::of(&cluster);
    rebuild(&site, &[]).succeeded();
    let found = site.findings(&[]);
    assert!(found.iter().all(|finding| finding.starts_with("info ")), "{found:?}");
    assert_eq!(recorded(&site.dump()), kept);
}

#[test]
fn endpoints_alone_need_to_be_agreed_to() {
    let site = Site::of(&healthy().with(Fault::MissingHandle, 1));
    let before = site.dump();
    site.run(&[&["rebuild", "--apply", "--yes"][..], &AT_ONCE].concat()).failed(1, "--endpoints-only");
    assert_eq!((site.dump(), site.journals()), (before, Vec::new()));
}

#[test]
fn the_files_hold_each_block_before_and_after() {
    let site = Site::of(&healthy().with(Fault::CorruptSeveralWays, 1));
    let folder = site.home.path().join("blocks");
    let before = site.dump();
    let run = site.run(&[&["rebuild", "--output-dir", folder.to_str().unwrap()][..], &AT_ONCE].concat());
    assert!(run.code < 2, "{run:?}");
    assert_eq!(site.dump(), before, "a rebuild without --apply writes nothing");
    let files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()).collect();
    let [file] = files.as_slice() else { panic!("{files:?}") };
    let content: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let cidr: IpNet = content["after"]["cidr"].as_str().unwrap().parse().unwrap();
    let stored: Value = serde_json::from_slice(&site.value(&key::block(cidr)).unwrap()).unwrap();
    assert_eq!(content["before"], stored);
    assert_ne!(content["after"], stored);

    // Nothing is written through a link, since it could lead anywhere.
    let (link, target) = (site.home.path().join("link"), site.home.path().join("target"));
    std::fs::create_dir(&target).unwrap();
    std::os::unix::fs::symlink(&target, &link).unwrap();
    site.run(&[&["rebuild", "--output-dir", link.to_str().unwrap()][..], &AT_ONCE].concat())
        .failed(3, "it is a link");
    assert_eq!(std::fs::read_dir(&target).unwrap().count(), 0);
}
