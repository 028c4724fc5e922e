//! A rebuild of everything on real API servers, in both of Calico's API groups.

use std::collections::BTreeSet;
use std::process::Stdio;

use calipam_testkit::cluster::{Cluster, ClusterSpec};
use calipam_testkit::kube::{Flavour, Kinds, lease};
use calipam_testkit::servers::KubeApiserver;
use jiff::Timestamp;
use serde_json::json;

use super::site::{AT_ONCE, changes, skips};
use crate::cli::program::{Run, command};

fn run(server: &KubeApiserver, home: &tempfile::TempDir, arguments: &[&str]) -> Run {
    let kubeconfig = server.kubeconfig();
    let connection = ["--datastore", "kubernetes", "--kubeconfig", kubeconfig.to_str().unwrap()];
    let mut command = command(crate::cli::PROGRAM);
    command.args([arguments, &AT_ONCE, &connection].concat());
    command.env("XDG_STATE_HOME", home.path()).stdin(Stdio::null());
    Run::of(command)
}

fn findings(server: &KubeApiserver, home: &tempfile::TempDir) -> BTreeSet<String> {
    let report = run(server, home, &["check", "-o", "json"]).json();
    let findings = report["findings"].as_array().unwrap().iter();
    let findings = findings.filter(|finding| finding["severity"] != "info");
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    findings.map(|f| format!("{} {}", text(&f["code"]), text(&f["subject"]["name"]))).collect()
}

fn everything(flavour: Flavour) {
    let server = lease(Kinds::CalicoAndKubevirt(flavour)).unwrap();
    let cluster = Cluster::all_faults(ClusterSpec::new(23).at(Timestamp::now()).wide(), 1);
    cluster.kubernetes(flavour).write_to_server(&server).unwrap();
    let home = tempfile::tempdir().unwrap();
    let earlier = findings(&server, &home);

    let rebuild = ["rebuild", "--apply", "--yes", "-o", "json"];
    let done = run(&server, &home, &rebuild);
    let plan = done.json();
    assert_eq!(plan["execution"]["conflicts"], json!([]), "{done:?}");
    assert!(changes(&plan).len() > 100, "{:?}", changes(&plan));
    let skipped: BTreeSet<String> =
        skips(&plan).iter().map(|line| line.split_once(' ').unwrap().1.to_owned()).collect();
    let left = findings(&server, &home);
    let unsaid: Vec<_> =
        left.iter().filter(|line| !skipped.contains(line.split_once(' ').unwrap().1)).collect();
    assert_eq!(unsaid, Vec::<&String>::new(), "neither repaired nor skipped");
    assert!(left.len() * 2 < earlier.len(), "{} of {} are left", left.len(), earlier.len());
    let again = run(&server, &home, &rebuild).json();
    assert_eq!(changes(&again), BTreeSet::new());
}

#[test]
fn in_the_classic_api_group() {
    everything(Flavour::Classic);
}

#[test]
fn in_the_native_api_group() {
    everything(Flavour::Native);
}
