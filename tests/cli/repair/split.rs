//! `split` replaces a pool with its parts, and keeps blocks. On etcd, it is one transaction. On Kubernetes, it is
//! tested in both API groups.

use std::collections::BTreeMap;

use super::kubernetes::{KubeSite, in_each_group};
use super::site::*;

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
    let site = Site::healthy();
    site.put(&key::pool("p"), pool.to_string());
    site
}

/// Stores another pool.
fn put_other(site: &Site, name: &str, cidr: &str) -> Value {
    let mut other = pool();
    (other["metadata"]["name"], other["spec"]["cidr"]) = (name.into(), cidr.into());
    site.put(&key::pool(name), other.to_string());
    other
}

/// Stores an empty block without an owner. Returns its key.
pub(super) fn put_block(site: &Site, cidr: &str) -> String {
    let cidr = cidr.parse().unwrap();
    site.put(&key::block(cidr), Block::new(cidr, None, None, 1).value());
    key::block(cidr)
}

/// Returns the pool `p` and its parts, by name.
fn pools(site: &Site) -> BTreeMap<String, Value> {
    let mut pools = site.pools();
    pools.retain(|name, _| name == "p" || name.starts_with("split-p-"));
    pools
}

#[test]
fn the_parts_take_the_place_of_the_pool_in_one_transaction_and_undo_brings_it_back() {
    let site = with_pool(&pool());
    let before = site.dump();
    let run = site
        .run(&["split", "2", "--name", "p", "--yes", "-o", "json"])
        .succeeded();
    let expected = set([
        "create-pool 10.7.0.0/30",
        "create-pool 10.7.0.4/30",
        "delete-pool 10.7.0.0/29",
    ]);
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
    let written: Vec<i64> = after.keys().map(|name| dump[&key::pool(name)].1).collect();
    assert_eq!(written[0], written[1], "one transaction");
    let only_pools = differing(&before, &dump)
        .into_iter()
        .filter(|key| key != INFORMATION);
    assert_eq!(only_pools.collect::<Vec<_>>().len(), 3);
    assert_eq!(
        values(&dump)[INFORMATION],
        values(&before)[INFORMATION],
        "the lock is restored"
    );

    site.undo(&journal_of(&run)).succeeded();
    assert_eq!(pools(&site), BTreeMap::from([("p".to_owned(), pool())]));
    assert_eq!(
        site.value(&key::pool("p")).as_ref(),
        before.get(&key::pool("p")).map(|(raw, _)| raw),
        "byte by byte"
    );
}

#[test]
fn an_undo_that_would_lay_the_pool_over_others_is_refused_as_a_whole() {
    // Later changes: a part was split again, or deleted, or deleted and replaced by another pool.
    let cases = [
        (true, None),
        (false, None),
        (false, Some("10.7.0.0/30")),
        (false, Some("10.7.0.4/31")),
    ];
    for (is_split_again, cidr) in cases {
        let mut wide = pool();
        wide["spec"]["blockSize"] = 31.into();
        let site = with_pool(&wide);
        let run = site.run(&["split", "2", "--name", "p", "--yes"]);
        if is_split_again {
            site.run(&["split", "2", "--name", "split-p-1", "--yes"])
                .succeeded();
        } else {
            site.delete(&key::pool("split-p-1"));
        }
        cidr.into_iter()
            .for_each(|cidr| drop(put_other(&site, "q", cidr)));
        let before = site.dump();
        site.undo(&journal_of(&run))
            .exits(1)
            .prints("pool split-p-1 has changed since the run");
        assert_eq!(site.dump(), before, "{is_split_again} {cidr:?}");
    }

    // All parts are unchanged, but another pool was added.
    let site = with_pool(&pool());
    let run = site.run(&["split", "2", "--name", "p", "--yes"]);
    put_other(&site, "q", "10.7.0.0/30");
    let before = site.dump();
    for how in ["--dry-run", "--yes"] {
        site.run(&["undo", &journal_of(&run), how])
            .exits(1)
            .prints("pool p would overlap");
    }
    assert_eq!(site.dump(), before);
}

#[test]
fn many_parts_are_created_before_the_pool_is_deleted() {
    let mut wide = pool();
    wide["spec"]["cidr"] = "10.8.0.0/20".into();
    let site = with_pool(&wide);
    // The undo deletes the parts in separate steps before it creates the pool again.
    put_block(&site, "10.8.15.240/30");
    let run = site
        .run(&["split", "256", "--cidr", "10.8.0.0/20", "--yes"])
        .succeeded();
    let parts = pools(&site);
    assert_eq!(parts.len(), 256);
    assert_eq!(parts["split-p-255"]["spec"]["cidr"], "10.8.15.240/28");
    site.undo(&journal_of(&run)).succeeded();
    assert_eq!(pools(&site), BTreeMap::from([("p".to_owned(), wide)]));
}

#[test]
fn a_refused_split_changes_nothing_and_a_disabled_pool_has_disabled_parts() {
    let mut kept = pool();
    kept["metadata"]["finalizers"] = json!(["projectcalico.org/pool"]);
    let mut of_namespaces = pool();
    of_namespaces["spec"]["namespaceSelector"] = "a == 'b'".into();
    let cases = [
        (pool(), vec!["3", "--name", "p"], 1, "not a valid power of 2: 3"),
        (pool(), vec!["1", "--name", "p"], 1, "not a valid power of 2: 1"),
        (pool(), vec!["0", "--name", "p"], 1, "not a valid power of 2: 0"),
        (
            pool(),
            vec!["16", "--name", "p"],
            1,
            "is not large enough to be split into 16 parts",
        ),
        (
            pool(),
            vec!["4", "--name", "p"],
            1,
            "smaller than the pool's blocks, which are /30",
        ),
        (pool(), vec!["8192", "--name", "p"], 1, "more than 4096"),
        (
            kept,
            vec!["2", "--name", "p"],
            1,
            "has the finalizer projectcalico.org/pool",
        ),
        (
            of_namespaces,
            vec!["2", "--name", "p"],
            1,
            "has a namespaceSelector and allows the use Tunnel",
        ),
        (pool(), vec!["2", "--name", "q"], 1, "pool \"q\" not found"),
        (
            pool(),
            vec!["2", "--cidr", "10.7.0.0/30"],
            1,
            "pool \"10.7.0.0/30\" not found",
        ),
        (pool(), vec!["2"], 2, "--name <NAME>|--cidr <CIDR>"),
        (
            pool(),
            vec!["2", "--name", "p", "--max-changes", "2"],
            1,
            "limit of 2",
        ),
    ];
    let site = with_pool(&pool());
    for (pool, arguments, code, says) in cases {
        site.put(&key::pool("p"), pool.to_string());
        let before = site.dump();
        site.run(&[&["split", "--yes"], &arguments[..]].concat())
            .exits(code)
            .says(says);
        assert_eq!(site.dump(), before, "{arguments:?}");
    }

    site.put(&key::pool("p"), pool().to_string());
    let before = site.dump();
    site.run(&["split", "2", "--name", "p", "--dry-run"])
        .succeeded()
        .prints("delete-pool");
    // Nobody is asked without a terminal.
    site.run(&["split", "2", "--name", "p"]).exits(2);
    assert_eq!((site.dump(), site.journals()), (before, Vec::new()));

    let split = || site.run(&["split", "2", "--name", "p", "--yes"]);
    let block = put_block(&site, "10.7.0.0/29");
    split().failed(1, "the block 10.7.0.0/29 is larger than a part");
    site.delete(&block);
    let other = put_other(&site, "split-p-1", "10.9.0.0/24");
    split().failed(1, "the pool split-p-1 already exists");
    assert_eq!(
        pools(&site),
        BTreeMap::from([("p".to_owned(), pool()), ("split-p-1".to_owned(), other)])
    );

    site.delete(&key::pool("split-p-1"));
    let mut disabled = pool();
    disabled["spec"]["disabled"] = true.into();
    site.put(&key::pool("p"), disabled.to_string());
    split()
        .succeeded()
        .says("the pool p is disabled, and so are its parts");
    assert!(pools(&site).values().all(|part| part["spec"]["disabled"] == true));
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
        assert_eq!(
            parts[name]["metadata"]["annotations"]["projectcalico.org/metadata"],
            "{}"
        );
    }

    // A controller writes the status of a part.
    let mut touched = parts["split-p-0"].clone();
    touched["status"] = json!({"conditions": [{"type": "Allocatable", "status": "True"}]});
    site.replace("ippools", &touched);

    site.undo(&journal_of(&run)).succeeded();
    let after = site.list("ippools");
    assert_eq!(after.keys().collect::<Vec<_>>(), all.keys().collect::<Vec<_>>());
    assert_eq!(after["p"]["spec"], all["p"]["spec"]);
    assert_eq!(after["p"]["metadata"]["labels"], all["p"]["metadata"]["labels"]);
}

in_each_group!(on_kubernetes: on_kubernetes_classic, on_kubernetes_native);
