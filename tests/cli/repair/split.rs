//! `split` replaces a pool with its parts, and keeps blocks. On etcd, it is one transaction. On Kubernetes, it is
//! tested in both API groups.

use std::collections::BTreeMap;

use calipam_testkit::kube::{Connection, Flavour};
use serde_json::{Value, json};

use super::kubernetes::{KubeSite, in_each_group};
use super::site::*;

const POOL: &str = "/calico/resources/v3/projectcalico.org/ippools/p";
const POOLS: &str = "/calico/resources/v3/projectcalico.org/ippools/";
const INFORMATION: &str = "/calico/resources/v3/projectcalico.org/clusterinformations/default";

/// Creates a pool of two blocks, with labels and an unknown field.
pub(super) fn pool() -> Value {
    json!({
        "apiVersion": "projectcalico.org/v3", "kind": "IPPool",
        "metadata": {"name": "p", "uid": "U7", "creationTimestamp": "2026-05-01T10:00:00Z", "labels": {"zone": "a"}},
        "spec": {"cidr": "10.7.0.0/29", "blockSize": 30, "ipipMode": "Never", "vxlanMode": "Never",
            "nodeSelector": "all()", "allowedUses": ["Workload", "Tunnel"], "future": [1]},
    })
}

pub(super) fn with_pool(pool: &Value) -> Site {
    let site = Site::of(&healthy());
    site.put(POOL, pool.to_string());
    site
}

/// Returns the pool `p` and its parts, by name.
fn pools(site: &Site) -> BTreeMap<String, Value> {
    let ours = |name: &str| name == "p" || name.starts_with("split-p-");
    let dump = site.dump();
    let pools = dump.iter().filter_map(|(key, (raw, _))| Some((key.strip_prefix(POOLS)?, raw)));
    pools
        .filter(|(name, _)| ours(name))
        .map(|(name, raw)| (name.to_owned(), serde_json::from_slice(raw).unwrap()))
        .collect()
}

#[test]
fn the_parts_take_the_place_of_the_pool_in_one_transaction_and_undo_brings_it_back() {
    let site = with_pool(&pool());
    let before = site.dump();
    let run = site.run(&["split", "2", "--name", "p", "--yes", "-o", "json"]).succeeded();
    let expected = set(["create-pool 10.7.0.0/30", "create-pool 10.7.0.4/30", "delete-pool 10.7.0.0/29"]);
    assert_eq!(changes(&run.json()), expected);

    let after = pools(&site);
    assert_eq!(after.keys().collect::<Vec<_>>(), ["split-p-0", "split-p-1"]);
    for (name, cidr) in [("split-p-0", "10.7.0.0/30"), ("split-p-1", "10.7.0.4/30")] {
        let part = &after[name];
        let mut spec = pool()["spec"].clone();
        spec["cidr"] = cidr.into();
        assert_eq!(part["spec"], spec);
        assert_eq!(part["metadata"]["labels"], json!({"zone": "a"}));
        assert_eq!(part["metadata"]["name"], name);
        assert_ne!(part["metadata"]["uid"], "U7");
        assert_eq!(part["metadata"]["uid"].as_str().unwrap().len(), 36);
    }
    let dump = site.dump();
    let written: Vec<i64> = after.keys().map(|name| dump[&format!("{POOLS}{name}")].1).collect();
    assert_eq!(written[0], written[1], "one transaction");
    let only_pools = differing(&before, &dump).into_iter().filter(|key| key != INFORMATION);
    assert_eq!(only_pools.collect::<Vec<_>>().len(), 3);
    assert_eq!(values(&dump)[INFORMATION], values(&before)[INFORMATION], "the lock is restored");

    site.undo(&journal_of(&run)).succeeded();
    assert_eq!(pools(&site), BTreeMap::from([("p".to_owned(), pool())]));
    assert_eq!(site.value(POOL), before.get(POOL).map(|(raw, _)| raw.clone()), "byte by byte");
}

#[test]
fn an_undo_that_would_lay_the_pool_over_others_is_refused_as_a_whole() {
    // Later changes: a part was split again, or deleted, or deleted and replaced by another pool.
    let cases = [(true, None), (false, None), (false, Some("10.7.0.0/30")), (false, Some("10.7.0.4/31"))];
    for (is_split_again, cidr) in cases {
        let mut wide = pool();
        wide["spec"]["blockSize"] = 31.into();
        let site = with_pool(&wide);
        let run = site.run(&["split", "2", "--name", "p", "--yes"]);
        if is_split_again {
            assert_eq!(site.run(&["split", "2", "--name", "split-p-1", "--yes"]).code, 0);
        } else {
            site.delete(&format!("{POOLS}split-p-1"));
        }
        if let Some(cidr) = cidr {
            let mut other = pool();
            (other["metadata"]["name"], other["spec"]["cidr"]) = ("q".into(), cidr.into());
            site.put(&format!("{POOLS}q"), other.to_string());
        }

        let before = site.dump();
        let undo = site.undo(&journal_of(&run));
        assert_eq!(undo.code, 1, "{is_split_again} {cidr:?} {undo:?}");
        let changed = "ippools/split-p-1 has changed since the run";
        assert!(undo.stdout.contains(changed), "{is_split_again} {cidr:?} {undo:?}");
        assert_eq!(site.dump(), before);
    }

    // All parts are unchanged, but another pool was added.
    let site = with_pool(&pool());
    let run = site.run(&["split", "2", "--name", "p", "--yes"]);
    let mut other = pool();
    (other["metadata"]["name"], other["spec"]["cidr"]) = ("q".into(), "10.7.0.0/30".into());
    site.put(&format!("{POOLS}q"), other.to_string());
    let before = site.dump();
    for arguments in [&["--dry-run"][..], &["--yes"]] {
        let undo = site.run(&[&["undo", &journal_of(&run)], arguments].concat());
        assert_eq!(undo.code, 1, "{undo:?}");
        assert!(undo.stdout.contains("ippools/p would overlap"), "{undo:?}");
    }
    assert_eq!(site.dump(), before);
}

#[test]
fn many_parts_are_created_before_the_pool_is_deleted() {
    let mut wide = pool();
    wide["spec"]["cidr"] = "10.8.0.0/20".into();
    let site = with_pool(&wide);
    // The undo deletes the parts in separate steps before it creates the pool again.
    let block = r#"{"cidr":"10.8.15.240/30","affinity":null,"allocations":[null,null,null,null],"unallocated":[0,1,2,3],"attributes":[],"sequenceNumber":1,"sequenceNumberForAllocation":{},"deleted":false}"#;
    site.put("/calico/ipam/v2/assignment/ipv4/block/10.8.15.240-30", block);
    let run = site.run(&["split", "256", "--cidr", "10.8.0.0/20", "--yes"]).succeeded();
    let parts = pools(&site);
    assert_eq!(parts.len(), 256);
    assert_eq!(parts["split-p-255"]["spec"]["cidr"], "10.8.15.240/28");
    assert_eq!(site.undo(&journal_of(&run)).code, 0);
    assert_eq!(pools(&site), BTreeMap::from([("p".to_owned(), wide)]));
}

#[test]
fn a_refused_split_changes_nothing() {
    let mut kept = pool();
    kept["metadata"]["finalizers"] = json!(["projectcalico.org/pool"]);
    let mut of_namespaces = pool();
    of_namespaces["spec"]["namespaceSelector"] = "a == 'b'".into();
    let cases = [
        (pool(), vec!["3", "--name", "p"], 1, "not a valid power of 2: 3"),
        (pool(), vec!["1", "--name", "p"], 1, "not a valid power of 2: 1"),
        (pool(), vec!["0", "--name", "p"], 1, "not a valid power of 2: 0"),
        (pool(), vec!["16", "--name", "p"], 1, "is not large enough to be split into 16 parts"),
        (pool(), vec!["4", "--name", "p"], 1, "smaller than the pool's blocks, which are /30"),
        (pool(), vec!["8192", "--name", "p"], 1, "more than 4096"),
        (kept, vec!["2", "--name", "p"], 1, "has the finalizer projectcalico.org/pool"),
        (of_namespaces, vec!["2", "--name", "p"], 1, "has a namespaceSelector and allows the use Tunnel"),
        (pool(), vec!["2", "--name", "q"], 1, "pool \"q\" not found"),
        (pool(), vec!["2", "--cidr", "10.7.0.0/30"], 1, "pool \"10.7.0.0/30\" not found"),
        (pool(), vec!["2"], 2, "--name <NAME>|--cidr <CIDR>"),
        (pool(), vec!["2", "--name", "p", "--max-changes", "2"], 1, "limit of 2"),
    ];
    let site = with_pool(&pool());
    for (pool, arguments, code, says) in cases {
        site.put(POOL, pool.to_string());
        let before = site.dump();
        site.run(&[&["split", "--yes"], &arguments[..]].concat()).exits(code).says(says);
        assert_eq!(site.dump(), before, "{arguments:?}");
    }
}

#[test]
fn a_block_that_spans_parts_or_a_name_that_is_taken_refuses_the_split() {
    let site = with_pool(&pool());
    let block = "/calico/ipam/v2/assignment/ipv4/block/10.7.0.0-29";
    site.put(block, r#"{"cidr":"10.7.0.0/29","affinity":null,"allocations":[null,null,null,null,null,null,null,null],"unallocated":[0,1,2,3,4,5,6,7],"attributes":[],"sequenceNumber":1,"sequenceNumberForAllocation":{},"deleted":false}"#);
    site.run(&["split", "2", "--name", "p", "--yes"])
        .failed(1, "the block 10.7.0.0/29 is larger than a part");
    site.delete(block);

    let mut other = pool();
    other["metadata"]["name"] = "split-p-1".into();
    other["spec"]["cidr"] = "10.9.0.0/24".into();
    site.put(&format!("{POOLS}split-p-1"), other.to_string());
    site.run(&["split", "2", "--name", "p", "--yes"]).failed(1, "the pool split-p-1 already exists");
    assert_eq!(pools(&site), BTreeMap::from([("p".to_owned(), pool()), ("split-p-1".to_owned(), other)]));
}

#[test]
fn a_disabled_pool_has_disabled_parts() {
    let mut disabled = pool();
    disabled["spec"]["disabled"] = true.into();
    let site = with_pool(&disabled);
    let run = site.run(&["split", "2", "--name", "p", "--yes"]).succeeded();
    assert!(run.stderr.contains("the pool p is disabled, and so are its parts"), "{run:?}");
    assert!(pools(&site).values().all(|part| part["spec"]["disabled"] == true));
}

#[test]
fn a_dry_run_writes_nothing_and_nobody_is_asked_without_a_terminal() {
    let site = with_pool(&pool());
    let before = site.dump();
    site.run(&["split", "2", "--name", "p", "--dry-run"]).succeeded().prints("delete-pool");
    assert_eq!(site.run(&["split", "2", "--name", "p"]).code, 2);
    assert_eq!(site.dump(), before);
    assert_eq!(site.journals().len(), 0);
}

/// Creates the pool on an API server.
pub(super) fn add_pool(site: &KubeSite, flavour: Flavour) {
    let mut object = pool();
    object["apiVersion"] = flavour.api_version().into();
    object["metadata"] = json!({"name": "p", "labels": {"zone": "a"},
        "annotations": {"projectcalico.org/metadata": r#"{"uid":"U","creationTimestamp":"T"}"#}});
    object["spec"].as_object_mut().unwrap().remove("future");
    calipam_testkit::kube::create(&site.server, &flavour.path("ippools"), &[object]).unwrap();
}

fn on_kubernetes(flavour: Flavour) {
    let site = KubeSite::of(&healthy(), flavour);
    add_pool(&site, flavour);
    let all = site.list("ippools");

    let run = site.run(&["split", "2", "--name", "p", "--yes"]).succeeded();
    let parts = site.list("ippools");
    assert!(!parts.contains_key("p"));
    for (name, cidr) in [("split-p-0", "10.7.0.0/30"), ("split-p-1", "10.7.0.4/30")] {
        let mut spec = all["p"]["spec"].clone();
        spec["cidr"] = cidr.into();
        assert_eq!(parts[name]["spec"], spec);
        assert_eq!(parts[name]["metadata"]["labels"], json!({"zone": "a"}));
        assert_eq!(parts[name]["metadata"]["annotations"]["projectcalico.org/metadata"], "{}");
    }

    // A controller writes the status of a part.
    let mut touched = parts["split-p-0"].clone();
    touched["status"] = json!({"conditions": [{"type": "Allocatable", "status": "True"}]});
    let path = format!("{}/split-p-0", flavour.path("ippools"));
    let mut connection = Connection::open(&site.server).unwrap();
    assert_eq!(connection.request("PUT", &path, &touched.to_string()).unwrap().status, 200);

    site.run(&["undo", &journal_of(&run), "--yes"]).succeeded();
    let after = site.list("ippools");
    assert_eq!(after.keys().collect::<Vec<_>>(), all.keys().collect::<Vec<_>>());
    assert_eq!(after["p"]["spec"], all["p"]["spec"]);
    assert_eq!(after["p"]["metadata"]["labels"], all["p"]["metadata"]["labels"]);
}

in_each_group!(on_kubernetes: on_kubernetes_classic, on_kubernetes_native);
