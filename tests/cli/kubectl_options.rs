//! kubectl's connection options, and `-n`.

use std::collections::BTreeSet;

use calipam_testkit::kube::Flavour;
use serde_json::json;

use super::kube_cluster::{KubeCluster, Record};
use super::program::{Run, calipam, findings};

/// Shows the nodes with some options, without a kubeconfig.
fn show(options: &[&str]) -> Run {
    calipam(&[&["show", "--nodes", "-d", "kubernetes"], options].concat())
}

#[test]
fn a_cluster_is_reached_by_options_alone() {
    let cluster = KubeCluster::start(Flavour::Classic);
    cluster.add_node("node-a", json!({}));
    let (url, token) = (cluster.server.url(), cluster.server.token());
    let ca = cluster.server.pki().ca.display().to_string();
    let with = |options: &[&str]| show(&[&["--server", &url, "--token", token], options].concat());

    with(&["--certificate-authority", &ca, "--request-timeout", "30"]).succeeded().prints("node-a");
    assert_eq!(with(&["--insecure-skip-tls-verify"]).code, 0);
    let strange = with(&[]);
    assert!(strange.code == 3 && !strange.transcript().contains(token), "{strange:?}");
    with(&["--certificate-authority", &ca, "--tls-server-name", "elsewhere.example"]).exits(3);
    with(&["--certificate-authority", &ca, "--tls-server-name", "localhost"]).succeeded();
    let both = with(&["--certificate-authority", &ca, "--insecure-skip-tls-verify"]);
    let wording = "specifying a root certificates file with the insecure flag is not allowed";
    assert!(both.code == 2 && both.stderr.contains(wording), "{both:?}");
    show(&["--server", &url, "--token", "other", "--certificate-authority", &ca]).exits(3);
}

#[test]
fn users_and_groups_are_impersonated() {
    let cluster = KubeCluster::start(Flavour::Classic);
    cluster.add_node("node-a", json!({}));
    assert_eq!(cluster.run(&["show", "--nodes"]).code, 0);
    assert_eq!(cluster.run(&["show", "--nodes", "--as", "jane"]).code, 3);
    let admin = ["show", "--nodes", "--as", "jane", "--as-group", "dev", "--as-group", "system:masters"];
    cluster.run(&admin).succeeded();
    assert_eq!(cluster.run(&["show", "--as-group", "dev"]).code, 2);
}

#[test]
fn missing_entries_of_a_kubeconfig_are_named_as_by_kubectl() {
    let cluster = KubeCluster::start(Flavour::Classic);
    for (option, says) in [
        ("--context", "context \"nope\" does not exist; available contexts: test"),
        ("--cluster", "cluster \"nope\" does not exist"),
        ("--user", "auth info \"nope\" does not exist"),
    ] {
        cluster.run(&["show", option, "nope"]).failed(2, says);
    }
    cluster.run(&["show", "--cluster", "test", "--user", "admin", "--context", "test"]).succeeded();
    let run = cluster.run(&["check", "--request-timeout", "0"]);
    assert_eq!(run.code, 0, "no limit: {run:?}");
    cluster
        .run(&["show", "--request-timeout", "soon"])
        .failed(2, "Timeout must be a single integer in seconds");
}

#[test]
fn the_namespace_selects_by_owner() {
    let cluster = KubeCluster::start(Flavour::Classic);
    cluster.add_node("node-a", json!({}));
    let records = [Record::of_pod(1, "team", "web", "node-a"), Record::of_pod(2, "other", "db", "node-a")];
    cluster.add_block("10.0.3.0/26", "node-a", &records);
    let subjects = |options: &[&str]| -> BTreeSet<String> {
        let check = ["check", "-o", "json", "--settle", "0", "--rule", "leaked-address"];
        findings(&cluster.run(&[&check, options].concat()).json(), &["name"])
    };
    assert_eq!(subjects(&[]), ["10.0.3.1", "10.0.3.2"].map(str::to_owned).into());
    assert_eq!(subjects(&["-n", "team"]), ["10.0.3.1".to_owned()].into());
    assert_eq!(subjects(&["--namespace=other"]), ["10.0.3.2".to_owned()].into());
    cluster.run(&["check", "-n", "tea"]).failed(1, "did you mean `team`?");
}
