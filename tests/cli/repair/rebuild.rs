//! A rebuild, on etcd and in both of Calico's API groups: it repairs everything that it can, reports the rest, and can
//! be undone completely.

use super::kubernetes::{KubeSite, in_each_group};
use super::site::*;
use crate::cli::program::items;

/// Rebuilds everything that can be repaired. Asserts that only skipped objects have findings afterwards, and that
/// nothing is left to do.
fn repairs_all_but_what_it_skips(site: &impl Runs, more: &[&str]) -> Run {
    let rebuild = || site.run_at_once(&["rebuild", "--apply", "--yes", "-o", "json"], more);
    let earlier = site.findings(&[]);
    let run = rebuild();
    let plan = run.json();
    assert_eq!(plan["execution"]["conflicts"], json!([]), "{run:?}");
    assert!(changes(&plan).len() > 100, "{:?}", changes(&plan));

    let skipped: Vec<&Value> = items(&plan["skipped"])
        .iter()
        .map(|skip| &skip["subject"]["name"])
        .collect();
    let left = site.findings(&[]);
    for finding in left.iter().filter(|finding| !finding.starts_with("info ")) {
        let subject = finding.splitn(3, ' ').last().unwrap();
        assert!(
            skipped.contains(&&json!(subject)),
            "neither repaired nor skipped: {finding}"
        );
    }
    assert!(
        left.len() * 2 < earlier.len(),
        "{} of {} are left",
        left.len(),
        earlier.len()
    );
    assert_eq!(changes(&rebuild().json()), BTreeSet::new());
    run
}

/// True if the plan names the object with this key. A block is also named by a change of one of its addresses or of its
/// affinity.
fn is_named(plan: &Value, key: &str) -> bool {
    let Some(rest) = key.strip_prefix("/calico/ipam/v2/") else {
        return false;
    };
    let subjects = items(&plan["changes"]).iter().map(|change| &change["subject"]);
    let mut subjects = subjects.map(|of| (of["kind"].as_str().unwrap(), of["name"].as_str().unwrap()));
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
    let site = Site::of(&Cluster::all_faults(
        ClusterSpec::new(22).at(Timestamp::now()).wide(),
        1,
    ));
    let before = site.dump();
    // What is skipped is not done.
    let run = repairs_all_but_what_it_skips(&site, &["--endpoints-only"]).exits(1);
    let (plan, after) = (run.json(), site.dump());
    let strays: Vec<_> = differing(&before, &after)
        .into_iter()
        .filter(|key| !is_named(&plan, key))
        .collect();
    assert_eq!(strays, Vec::<String>::new());
    site.undo_to(&run, &before);
}

fn on_kubernetes(flavour: Flavour) {
    let cluster = Cluster::all_faults(ClusterSpec::new(23).at(Timestamp::now()).wide(), 1);
    repairs_all_but_what_it_skips(&KubeSite::of(&cluster, flavour), &[]);
}

in_each_group!(on_kubernetes: in_the_classic_api_group, in_the_native_api_group);

#[test]
fn the_blocks_of_a_whole_cluster_come_back() {
    let mut cluster = healthy();
    let kept = recorded(&Site::of(&cluster).dump());
    cluster.inject(Fault::BlocksLost, 1);
    let site = Site::of(&cluster);
    site.run_at_once(&["rebuild", "--apply", "--yes", "--endpoints-only"], &[])
        .succeeded();
    let found = site.findings(&[]);
    assert!(
        found.iter().all(|finding| finding.starts_with("info ")),
        "{found:?}"
    );
    assert_eq!(recorded(&site.dump()), kept);
}

#[test]
fn nothing_is_written_without_apply_but_the_files_hold_each_block_before_and_after() {
    let site = Site::of(&healthy().with(Fault::CorruptSeveralWays, 1));
    let folder = site.home.path().join("blocks");
    let before = site.dump();
    let rebuild_into =
        |folder: &Path| site.run_at_once(&["rebuild", "--output-dir", folder.to_str().unwrap()], &[]);
    rebuild_into(&folder).completed();
    site.run_at_once(&["rebuild", "--apply", "--yes"], &[])
        .failed(1, "--endpoints-only");
    assert_eq!(
        (site.dump(), site.journals()),
        (before, Vec::new()),
        "nothing is written without consent"
    );
    let files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    let [file] = files.as_slice() else {
        panic!("{files:?}")
    };
    let content: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let cidr: IpNet = content["after"]["cidr"].as_str().unwrap().parse().unwrap();
    let stored = site.json(&key::block(cidr));
    assert_eq!(content["before"], stored);
    assert_ne!(content["after"], stored);

    // Nothing is written through a link, since it could lead anywhere.
    let (link, target) = (site.home.path().join("link"), site.home.path().join("target"));
    std::fs::create_dir(&target).unwrap();
    std::os::unix::fs::symlink(&target, &link).unwrap();
    rebuild_into(&link).failed(3, "it is a link");
    assert_eq!(std::fs::read_dir(&target).unwrap().count(), 0);
}
