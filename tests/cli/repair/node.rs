//! The records of a deleted node.

use calipam_testkit::cluster::wire::key;
use calipam_testkit::cluster::{Cluster, Fault};

use super::site::*;

/// Creates a cluster whose last node has `fault`. Returns the cluster and the name of the node.
fn with(fault: Fault) -> (Cluster, String) {
    let cluster = healthy().with(fault, 1);
    let node = cluster.nodes().last().unwrap().name.clone();
    (cluster, node)
}

/// Returns the keys that name the node or one of its blocks.
fn of_node(cluster: &Cluster, entries: &Entries, node: &str) -> Vec<String> {
    let info = cluster.nodes().iter().find(|info| info.name == node).unwrap();
    let own: Vec<String> = info.blocks.iter().map(|block| key::block(*block)).collect();
    let names = |key: &&String| own.contains(key) || key.contains(&format!("/host/{node}/"));
    entries.keys().filter(names).cloned().collect()
}

#[test]
fn a_node_that_exists_keeps_everything() {
    let cluster = healthy();
    let site = Site::of(&cluster);
    let before = site.dump();
    let node = &cluster.nodes()[0].name;
    site.release(&["--node", node]).exits(1).prints("node-exists").prints(&format!("node {node} exists"));
    let unknown = site.release(&["--node", "node-of-nobody"]);
    assert_eq!(unknown.code, 1, "{unknown:?}");
    assert!(unknown.stdout.contains("nothing is recorded for node node-of-nobody"), "{unknown:?}");
    assert_eq!((site.dump(), site.journals()), (before, Vec::new()));
}

#[test]
fn a_node_that_is_gone_leaves_nothing() {
    let (cluster, node) = with(Fault::NodeGone);
    let site = Site::of(&cluster);
    let before = site.dump();
    assert_eq!(of_node(&cluster, &before, &node).len(), 4, "two blocks, and an affinity for each");
    let run = site.release(&["--node", &node]).succeeded();
    let after = site.dump();
    let left: Vec<_> =
        of_node(&cluster, &after, &node).into_iter().filter(|key| key.contains("/host/")).collect();
    assert_eq!(left, Vec::<String>::new());
    site.run(&["check", "--node", &node, "--settle", "0"]).says(&format!("node \"{node}\" not found"));
    assert_eq!(site.findings(&["--rule", "leaked-address"]), set::<String>([]));
    let strays = differing(&before, &after).into_iter().filter(|key| {
        let is_handle = key.contains("/handle/") && !after.contains_key(key);
        !is_handle && !of_node(&cluster, &before, &node).contains(key)
    });
    assert_eq!(strays.collect::<Vec<_>>(), Vec::<String>::new());
    assert_eq!(site.undo(&journal_of(&run)).code, 0);
    assert_eq!(values(&site.dump()), values(&before));
}

/// The node object is missing, but endpoints still name the node, so it may be alive.
#[test]
fn records_that_a_node_still_uses_are_kept() {
    let (cluster, node) = with(Fault::NodeGonePodsLeft);
    let site = Site::of(&cluster);
    let before = site.dump();
    site.release(&["--leaked", "--orphan-handles"]).succeeded();
    assert_eq!(site.dump(), before, "nothing of it goes by itself");
    let run = site.release(&["--node", &node, "-o", "json"]);
    let after = site.dump();
    assert_eq!(recorded(&after), recorded(&before), "{run:?}");
    let warnings = run.json()["warnings"].to_string();
    assert!(warnings.contains("endpoints or pods still refer to it; what they use is kept"), "{run:?}");
    let affinities: Vec<_> =
        of_node(&cluster, &after, &node).into_iter().filter(|key| key.contains("/host/")).collect();
    assert_eq!(affinities, Vec::<String>::new());
}
