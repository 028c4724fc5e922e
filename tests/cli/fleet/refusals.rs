//! Refused calls for fleets, and their errors.

use std::fs;

use super::{check, fleet};
use crate::cli::program::calipam;

#[test]
fn mistakes_in_the_file_are_refused_with_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |text: &str| {
        fs::write(folder.path().join("fleet.yaml"), text).unwrap();
        let run = check(&folder, "fleet.yaml", &[]);
        assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{text}: {run:?}");
        run.stderr
    };
    for (text, said) in [
        (
            "clusters: [{name: a, datastor: a.jsonl}]",
            "cluster \"a\": unknown field `datastor`, expected one of `name`",
        ),
        ("cluster: []", "unknown field `cluster`, expected `clusters` or `taken`"),
        ("clusters: [{name: a}]", "does not say how to connect"),
        ("clusters: [{name: a, datastore: a.jsonl, config: b.cfg}]", "has datastore and config"),
        ("clusters: [{datastore: a.jsonl}]", "cluster 1: missing field `name`"),
        (
            "clusters: [{name: a, datastore: a.j}, {name: a, datastore: b.j}]",
            "two clusters have the name \"a\"",
        ),
        ("clusters: []", "names no cluster"),
        ("clusters: [{name: a b, datastore: a.j}]", "contains a space"),
        ("clusters: [{name: a, datastore: a.j, etcdKeyFile: k}]", "but no etcdEndpoints"),
        ("clusters: [{name: a, datastore: a.j}]\ntaken: [10.0.0.0/33]", "not a list of CIDRs"),
        (
            "clusters: [{name: a, datastore: a.j, services: 10.96.0.0/12}]",
            "cluster \"a\": not a list of CIDRs",
        ),
        ("clusters: {", "not YAML"),
        ("- a", "invalid type"),
    ] {
        let stderr = refused(text);
        assert!(stderr.contains(said), "{text}: {stderr}");
    }
    assert_eq!(check(&folder, "none.yaml", &[]).code, 3);
}

#[test]
fn options_about_one_cluster_are_refused() {
    let (folder, _) = fleet(&[]);
    for option in [&["--node", "node-1"][..], &["--pool", "p"], &["--namespace", "x"], &["--report", "r"]] {
        check(&folder, "fleet.yaml", option).failed(2, "works on one cluster");
    }
    check(&folder, "fleet.yaml", &["-d", "x.jsonl"]).exits(2);
}

#[test]
fn repairs_refuse_several_clusters() {
    let commands: [&[&str]; 6] = [
        &["release", "--leaked"],
        &["rebuild"],
        &["undo", "x.journal"],
        &["split", "4", "--name", "p"],
        &["configure", "--strict-affinity", "true"],
        &["assign", "--count", "1", "--node", "n"],
    ];
    for command in commands {
        for contexts in [&["--context", "a", "--context", "b"][..], &["--context", "prod-*"]] {
            calipam(&[command, contexts].concat()).failed(2, "works on one");
        }
        calipam(&[command, &["--fleet", "f.yaml"]].concat()).failed(2, "check").says("has this option");
    }
}
