//! Refused calls for fleets with their errors, and files of a folder that are no exports.

use std::fs;

use super::{between, fleet, unreadable};
use crate::cli::program::{calipam, column};

#[test]
fn mistakes_in_the_file_are_refused_with_a_hint() {
    let (folder, _) = fleet(&[]);
    for (text, said) in [
        (
            "clusters: [{name: a, datastor: a.jsonl}]",
            "cluster \"a\": unknown field `datastor`, expected one of `name`",
        ),
        (
            "cluster: []",
            "unknown field `cluster`, expected `clusters` or `taken`",
        ),
        ("clusters: [{name: a}]", "does not say how to connect"),
        (
            "clusters: [{name: a, datastore: a.jsonl, config: b.cfg}]",
            "has datastore and config",
        ),
        (
            "clusters: [{datastore: a.jsonl}]",
            "cluster 1: missing field `name`",
        ),
        (
            "clusters: [{name: a, datastore: a.j}, {name: a, datastore: b.j}]",
            "two clusters have the name \"a\"",
        ),
        ("clusters: []", "names no cluster"),
        ("clusters: [{name: a b, datastore: a.j}]", "contains a space"),
        (
            "clusters: [{name: a, datastore: a.j, etcdKeyFile: k}]",
            "but no etcdEndpoints",
        ),
        (
            "clusters: [{name: a, datastore: a.j}]\ntaken: [10.0.0.0/33]",
            "not a list of CIDRs",
        ),
        (
            "clusters: [{name: a, datastore: a.j, services: 10.96.0.0/12}]",
            "cluster \"a\": not a list of CIDRs",
        ),
        ("clusters: {", "not YAML"),
        ("- a", "invalid type"),
    ] {
        folder.write("fleet.yaml", text);
        folder.run("check").refused(2, said);
    }
    folder.run_on("none.yaml", "check").exits(3);
}

#[test]
fn options_about_one_cluster_are_refused() {
    let (folder, _) = fleet(&[]);
    for option in ["--node node-1", "--pool p", "--namespace x", "--report r"] {
        folder
            .run(&format!("check {option}"))
            .failed(2, "works on one cluster");
    }
    folder.run("check -d x.jsonl").exits(2);
    for (line, said) in [
        ("history --node node-1", "`history` needs an address"),
        ("history shop/web-0", "`history` needs an address"),
        ("diff data --pool p", "--pool works on one cluster"),
        ("diff data data", "NEW works on one cluster"),
        ("diff etcd@7", "OLD is a file or folder"),
    ] {
        folder
            .run(&line.replace("data", &folder.at("data")))
            .failed(2, said);
    }
}

#[test]
fn repairs_refuse_several_clusters() {
    for line in [
        "release --leaked",
        "rebuild",
        "undo x.journal",
        "split 4 --name p",
        "configure --strict-affinity true",
        "assign --count 1 --node n",
    ] {
        for contexts in ["--context a --context b", "--context prod-*"] {
            calipam(&format!("{line} {contexts}")).failed(2, "works on one");
        }
        calipam(&format!("{line} --fleet f.yaml"))
            .failed(2, "check")
            .says("has this option");
    }
}

#[test]
fn the_file_of_a_fleet_among_its_exports_is_no_cluster() {
    let (folder, _) = fleet(&[]);
    fs::create_dir(folder.at("data/mesh")).unwrap();
    for name in ["data/fleet.yaml", "data/mesh/old.yml"] {
        fs::copy(folder.at("fleet.yaml"), folder.at(name)).unwrap();
    }
    let report = folder.run_on("data", "check -o json").succeeded().json();
    assert_eq!(column(&report["clusters"], "name"), ["a", "b", "c", "d"]);
    let says = "data/fleet.yaml names clusters and is no export: it is left out";
    folder.run_on("data", "check").succeeded().prints(says);
    folder.run_on("data", "show").succeeded().prints(says);
    folder
        .run_on("data", &format!("export {}", folder.at("exported")))
        .succeeded()
        .says(says);

    // Another file in YAML could be meant as an export.
    folder.write("data/e.yaml", "cluster: e\n");
    let report = folder.run_on("data", "check -o json").exits(3).json();
    assert_eq!(between(&report), [unreadable("e.yaml")].into());
}
