//! kubectl's connection options, and `-n`.

use calipam_testkit::kube::Flavour;

use super::kube_cluster::{KubeCluster, Record};
use super::program::{calipam, findings};

#[test]
fn a_cluster_is_reached_by_options_and_entries_of_a_kubeconfig() {
    let cluster = KubeCluster::with_nodes(Flavour::Classic, &["node-a"]);
    let (url, token) = (cluster.server.url(), cluster.server.token());
    let ca = format!("--certificate-authority {}", cluster.server.pki.ca.display());
    let show = |options: &str| calipam(&format!("show --nodes -d kubernetes --server {url} {options}"));
    let with = |options: &str| show(&format!("--token {token} {options}"));

    with(&format!("{ca} --request-timeout 30"))
        .succeeded()
        .prints("node-a");
    with("--insecure-skip-tls-verify").succeeded();
    with("").exits(3).hides(token);
    with(&format!("{ca} --tls-server-name elsewhere.example")).exits(3);
    with(&format!("{ca} --tls-server-name localhost")).succeeded();
    with(&format!("{ca} --insecure-skip-tls-verify")).failed(
        2,
        "specifying a root certificates file with the insecure flag is not allowed",
    );
    show(&format!("--token other {ca}")).exits(3);

    // Users and groups are impersonated.
    cluster.run("show --nodes").succeeded();
    cluster.run("show --nodes --as jane").exits(3);
    cluster
        .run("show --nodes --as jane --as-group dev --as-group system:masters")
        .succeeded();
    cluster.run("show --as-group dev").exits(2);

    // Missing entries of a kubeconfig are named as by kubectl.
    for (option, says) in [
        (
            "--context nope",
            "context \"nope\" does not exist; available contexts: test",
        ),
        ("--cluster nope", "cluster \"nope\" does not exist"),
        ("--user nope", "auth info \"nope\" does not exist"),
        (
            "--request-timeout soon",
            "Timeout must be a single integer in seconds",
        ),
    ] {
        cluster.run(&format!("show {option}")).failed(2, says);
    }
    cluster
        .run("show --cluster test --user admin --context test")
        .succeeded();
    // There is no limit.
    cluster.run("check --request-timeout 0").succeeded();
}

#[test]
fn the_namespace_selects_by_owner() {
    let cluster = KubeCluster::with_nodes(Flavour::Classic, &["node-a"]);
    let records = [
        Record::of_pod(1, "team", "web", "node-a"),
        Record::of_pod(2, "other", "db", "node-a"),
    ];
    cluster.add_block("10.0.3.0/26", "node-a", &records);
    let subjects = |options: &str| -> Vec<String> {
        let check = format!("check -o json --settle 0 --rule leaked-address {options}");
        findings(&cluster.run(&check).json(), &["name"])
    };
    assert_eq!(subjects(""), ["10.0.3.1", "10.0.3.2"]);
    assert_eq!(subjects("-n team"), ["10.0.3.1"]);
    assert_eq!(subjects("--namespace=other"), ["10.0.3.2"]);
    cluster.run("check -n tea").failed(1, "did you mean `team`?");
}
