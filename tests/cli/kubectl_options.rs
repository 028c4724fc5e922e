//! kubectl's connection options, and `-n`.

use std::collections::BTreeSet;

use calipam_testkit::kube::Flavour;
use serde_json::json;

use super::kube_cluster::{KubeCluster, Record};
use super::program::{Run, calipam};

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

    let trusted = with(&["--certificate-authority", &ca, "--request-timeout", "30"]);
    assert!(trusted.code == 0 && trusted.stdout.contains("node-a"), "{trusted:?}");
    assert_eq!(with(&["--insecure-skip-tls-verify"]).code, 0);
    let strange = with(&[]);
    assert!(strange.code == 3 && !strange.transcript().contains(token), "{strange:?}");
    let named = with(&["--certificate-authority", &ca, "--tls-server-name", "elsewhere.example"]);
    assert_eq!(named.code, 3, "{named:?}");
    let named = with(&["--certificate-authority", &ca, "--tls-server-name", "localhost"]);
    assert_eq!(named.code, 0, "{named:?}");
    let both = with(&["--certificate-authority", &ca, "--insecure-skip-tls-verify"]);
    let wording = "specifying a root certificates file with the insecure flag is not allowed";
    assert!(both.code == 2 && both.stderr.contains(wording), "{both:?}");
    let wrong = show(&["--server", &url, "--token", "other", "--certificate-authority", &ca]);
    assert_eq!(wrong.code, 3, "{wrong:?}");
}

#[test]
fn users_and_groups_are_impersonated() {
    let cluster = KubeCluster::start(Flavour::Classic);
    cluster.add_node("node-a", json!({}));
    assert_eq!(cluster.run(&["show", "--nodes"]).code, 0);
    assert_eq!(cluster.run(&["show", "--nodes", "--as", "jane"]).code, 3);
    let admin = ["show", "--nodes", "--as", "jane", "--as-group", "dev", "--as-group", "system:masters"];
    let run = cluster.run(&admin);
    assert_eq!(run.code, 0, "{run:?}");
    assert_eq!(cluster.run(&["show", "--as-group", "dev"]).code, 2);
}

#[test]
fn what_a_kubeconfig_does_not_have_is_named_as_kubectl_does() {
    let cluster = KubeCluster::start(Flavour::Classic);
    for (option, says) in [
        ("--context", "context \"nope\" does not exist; available contexts: test"),
        ("--cluster", "cluster \"nope\" does not exist"),
        ("--user", "auth info \"nope\" does not exist"),
    ] {
        let run = cluster.run(&["show", option, "nope"]);
        assert!(run.code == 2 && run.stderr.contains(says), "{option}: {run:?}");
    }
    let run = cluster.run(&["show", "--cluster", "test", "--user", "admin", "--context", "test"]);
    assert_eq!(run.code, 0, "{run:?}");
    let run = cluster.run(&["check", "--request-timeout", "0"]);
    assert_eq!(run.code, 0, "no limit: {run:?}");
    let run = cluster.run(&["show", "--request-timeout", "soon"]);
    assert!(run.code == 2 && run.stderr.contains("Timeout must be a single integer in seconds"), "{run:?}");
}

#[test]
fn the_namespace_selects_by_owner() {
    let cluster = KubeCluster::start(Flavour::Classic);
    cluster.add_node("node-a", json!({}));
    let records = [Record::of_pod(1, "team", "web", "node-a"), Record::of_pod(2, "other", "db", "node-a")];
    cluster.add_block("10.0.3.0/26", "node-a", &records);
    let subjects = |options: &[&str]| -> BTreeSet<String> {
        let run = cluster
            .run(&[&["check", "-o", "json", "--settle", "0", "--rule", "leaked-address"], options].concat());
        let report = run.json();
        let findings = report["findings"].as_array().unwrap().iter();
        findings.map(|finding| finding["subject"]["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(subjects(&[]), ["10.0.3.1", "10.0.3.2"].map(str::to_owned).into());
    assert_eq!(subjects(&["-n", "team"]), ["10.0.3.1".to_owned()].into());
    assert_eq!(subjects(&["--namespace=other"]), ["10.0.3.2".to_owned()].into());
    let unknown = cluster.run(&["check", "-n", "tea"]);
    assert!(unknown.code == 1 && unknown.stderr.contains("did you mean `team`?"), "{unknown:?}");
}
