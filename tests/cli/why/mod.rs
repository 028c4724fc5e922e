//! Pods without an address in `check`, `explain` and `show`: on lists of kubectl, on an API server and on etcd.

mod cases;
mod lists;

use std::time::Duration;

use calipam_testkit::kube::{Flavour, Kinds, create, lease, service_account_token};
use calipam_testkit::servers::KubeApiserver;
use serde::Deserialize;
use serde_json::{Value, json};

use super::program::{Run, calipam, root, scratch};
use lists::{CREATED, Lists, answer, findings, pool};

#[test]
fn each_case_wherever_the_data_is() {
    let server = lease(Kinds::Calico(Flavour::Classic)).unwrap();
    let (kubeconfig, endpoint) = (server.kubeconfig(), server.etcd().endpoint());
    let kubernetes = ["--datastore", "kubernetes", "--kubeconfig", kubeconfig.to_str().unwrap()];
    let etcd = ["--etcd-endpoints", &endpoint, "--kubeconfig", kubeconfig.to_str().unwrap()];
    for case in cases::all() {
        case.check("lists", |arguments| case.lists().run(arguments));
        case.lists().write_to(&server);
        case.check("API server", |arguments| calipam(&[arguments, &kubernetes].concat()));
        case.check("etcd", |arguments| calipam(&[arguments, &etcd].concat()));
    }

    cases::gone_node_with_a_cooldown().write_to(&server);
    released_addresses_cool_down_first(|arguments| calipam(&[arguments, &kubernetes].concat()));

    let case = cases::pool_of_namespaces(true);
    case.write_to(&server);
    let (folder, export) = scratch("export");
    let export = export.to_str().unwrap();
    assert_eq!(calipam(&[&["export", export], &kubernetes[..]].concat()).code, 0);
    let exported =
        answer(&["--pod", "shop/new"], |arguments| calipam(&[arguments, &["--datastore", export]].concat()));
    assert_eq!(exported, case.answer(&["--pod", "shop/new"]), "an export holds the namespaces");
    let path = folder.path().join("kubeconfig");
    std::fs::write(&path, kubeconfig_without_namespaces(&server)).unwrap();
    let connection = ["--datastore", "kubernetes", "--kubeconfig", path.to_str().unwrap()];
    let run = |arguments: &[&str]| calipam(&[arguments, &connection].concat());
    assert_eq!(findings(run), [""; 0], "what was not read is not guessed");
    let (code, sentence) = answer(&["--pod", "shop/new"], run);
    assert!(code == 0 && sentence.ends_with(NOT_READ), "{sentence}");
    let checked = run(&["check", "--settle", "0"]).stdout;
    assert!(checked.contains("not read: ") && checked.contains("namespaces ("), "{checked}");
}

/// The block of a deleted node is released. The pod that waits for its addresses gets one when the cooldown ends.
fn released_addresses_cool_down_first(run: impl Fn(&[&str]) -> Run) {
    let new = ["--pod", "shop/new"];
    let (code, sentence) = answer(&new, &run);
    assert!(code == 1 && sentence.ends_with("no address in its pools is free"), "{sentence}");
    let folder = tempfile::tempdir().unwrap();
    let [first, second] = ["first", "second"].map(|name| folder.path().join(name));
    let journal = first.to_str().unwrap();
    let released =
        run(&["release", "--node", "dead-1", "--grace", "0", "--yes", "--journal", journal]).succeeded();
    let (code, sentence) = answer(&new, &run);
    for text in [&released.stdout, &sentence] {
        assert!(text.contains("16 addresses are cooling down, the first until "), "{text}");
    }
    assert!(code == 1 && released.stdout.contains("configure --ip-cooldown-seconds 0"), "{released:?}");
    let journal = second.to_str().unwrap();
    run(&["configure", "--ip-cooldown-seconds", "0", "--yes", "--journal", journal]).succeeded();
    // Both times have whole seconds, and a cooldown of 0 ends after the second in which the address was released.
    std::thread::sleep(Duration::from_secs(2));
    let (code, sentence) = answer(&new, &run);
    assert_eq!(code, 0, "{sentence}");
}

const NOT_READ: &str = "pools select namespaces, which were not read";

/// Creates the kubeconfig of an account with the documented role, except for access to namespaces.
fn kubeconfig_without_namespaces(server: &KubeApiserver) -> String {
    let roles = std::fs::read_to_string(root().join("docs/kubernetes/rbac.yaml")).unwrap();
    let first = serde_yaml::Deserializer::from_str(&roles).next().unwrap();
    let mut role = Value::deserialize(first).unwrap();
    role["rules"].as_array_mut().unwrap().retain(|rule| rule["resources"] != json!(["namespaces"]));
    let group = "rbac.authorization.k8s.io";
    let reference = json!({"apiGroup": group, "kind": "ClusterRole", "name": role["metadata"]["name"]});
    let binding = json!({"apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "roleRef": reference,
        "metadata": {"name": "reader"}, "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": "default"}]});
    for (plural, object) in [("clusterroles", role), ("clusterrolebindings", binding)] {
        create(server, &format!("/apis/{group}/v1/{plural}"), &[object]).unwrap();
    }
    let token = service_account_token(server, "reader").unwrap();
    std::fs::read_to_string(server.kubeconfig()).unwrap().replace(server.token(), &token)
}

#[test]
fn no_pool_is_enabled_or_selects_the_node() {
    let lists = cases::all_pools_disabled();
    let run = lists.run(&["explain", "--node", "n1"]);
    let told = "`calicoctl patch ippool old -p '{\"spec\":{\"disabled\":false}}'`";
    assert!(run.stdout.contains(told), "{run:?}");
    assert!(run.stdout.contains("Calico says: cannot find a qualified ippool"), "{run:?}");
    assert_eq!(lists.run(&["check", "--fail-on", "error"]).code, 1);
    let shown = lists.run(&["show", "--pod", "shop/new"]);
    assert!(shown.stderr.contains("shop/new gets no IPv4 address on n1: no pool is enabled"), "{shown:?}");
    assert!(shown.stderr.contains("explain --pod shop/new"), "{shown:?}");
    lists.run(&["show", "--nodes"]).prints("ipv4: no pool is enabled");
    let metrics = lists.run(&["check", "-o", "prometheus"]);
    for expected in ["calipam_nodes_without_addresses 1", "calipam_pods_without_address 1"] {
        assert!(metrics.stdout.contains(expected), "{metrics:?}");
    }

    let lists = cases::no_pool_selects_a_node(false);
    assert_eq!(lists.findings(), ["error node-without-addresses n3"]);
    assert_eq!(lists.answer(&["--node", "n1"]).0, 0);
}

/// The families of new pods are unknown unless a pod waits.
#[test]
fn a_family_has_manual_pools_only() {
    let lists = cases::manual_pools_of_a_family(false);
    assert_eq!(lists.findings(), [""; 0], "IPv4 addresses are available by pool name");
}

#[test]
fn pools_that_pods_ask_for_by_name_ignore_selectors() {
    let mut lists = cases::pool_by_name(false);
    assert_eq!(lists.findings(), [""; 0]);
    let json = lists.run(&["show", "-o", "json"]).json();
    assert_eq!((&json["pools"][0]["allocatable"], &json["pools"][0]["byName"]), (&json!(0), &json!(17)));
    let says = "west: only pods that name the pool can get its 17 free addresses";
    assert!(lists.run(&["show"]).stdout.contains(says));
    lists.pod("team/wrong", "n1", cases::asks_for("nowhere"), CREATED, None);
    let says = "asks for the pool nowhere, which does not exist";
    assert!(lists.answer(&["--pod", "team/wrong"]).1.contains(says));
    let fixed = json!({"cni.projectcalico.org/ipAddrs": "[\"10.20.0.1\"]"});
    lists.pod("team/fixed", "n1", fixed, CREATED, None);
    let (code, sentence) = lists.answer(&["--pod", "team/fixed"]);
    assert!(code == 1 && sentence.contains("10.20.0.1 is taken by apps/10-20-0-0-28-1"), "{sentence}");
}

#[test]
fn a_windows_node_has_one_block() {
    let nodes = cases::windows_node().run(&["show", "--nodes"]).stdout;
    let line = nodes.lines().find(|line| line.starts_with("win-1")).unwrap();
    assert!(line.contains("0 ipv4, limit 1"), "{nodes}");
}

/// A total outage has the severity error, whether it is predicted or not.
#[test]
fn the_pool_is_full() {
    let lists = cases::full_pool();
    assert_eq!(lists.run(&["check", "--fail-on", "error"]).code, 1);
    let nodes = lists.run(&["show", "--nodes"]).stdout;
    assert!(
        nodes.contains("0 ipv4, limit 20") && nodes.contains("no address in its pools is free"),
        "{nodes}"
    );
}

/// The header and the percentage distinguish addresses in cooldown from those in use.
#[test]
fn the_pool_cools_down() {
    let lists = cases::cooling_pool();
    let report = lists.run(&["check", "-o", "json"]).json();
    assert_eq!((&report["counts"]["allocations"], &report["counts"]["cooling"]), (&json!(0), &json!(16)));
    let checked = lists.run(&["check"]).stdout;
    assert!(checked.contains("1 block · 0 allocations · 16 cooling · "), "{checked}");
    assert!(checked.contains("is 100 % full: 0 of 16 in use, 16 cooling down"), "{checked}");
    assert_eq!(lists.run(&["show", "-o", "json"]).json()["pools"][0]["percent"], json!(100));
    let shown = lists.run(&["show"]).stdout;
    assert!(shown.contains("small: 16 addresses are cooling down, the first until "), "{shown}");
    assert!(shown.contains("configure --ip-cooldown-seconds 0"), "{shown}");
}

#[test]
fn a_pool_serves_some_namespaces() {
    let (code, sentence) = cases::pool_of_namespaces(true).answer(&["--node", "n1"]);
    let says = "the next pod on n1 gets 10.70.0.2, if its namespace has the labels team == 'a'";
    assert_eq!((code, sentence.as_str()), (0, says));
    let unread = cases::pool_of_namespaces(false);
    assert_eq!(unread.findings(), [""; 0]);
    let (code, sentence) = unread.answer(&["--pod", "shop/new"]);
    assert!(code == 0 && sentence.ends_with(NOT_READ), "{sentence}");
}

#[test]
fn pods_that_ipam_does_not_keep_waiting() {
    let mut lists = Lists::new(&[("all", pool("10.60.0.0/24", json!({})))], &[("n1", json!({}))]);
    lists.block("10.60.0.0/26", "n1", 1);
    lists.stuck("shop/volume", "n1");
    lists.stuck("shop/unbound", "");
    lists.stuck("shop/nowhere", "n9");
    lists.pod("kube-system/host", "n1", json!({}), CREATED, None);
    assert_eq!(lists.findings(), [""; 0]);
    for (pod, code, says) in [
        ("shop/volume", 0, "IPAM can assign 10.60.0.1 to shop/volume on n1"),
        ("shop/unbound", 0, "shop/unbound is not scheduled to a node yet"),
        ("shop/nowhere", 1, "shop/nowhere gets no address: Calico does not know node n9"),
        ("kube-system/host", 0, "uses its node's network"),
        ("apps/10-60-0-0-26-0", 0, "has 10.60.0.0 on n1"),
    ] {
        let found = lists.answer(&["--pod", pod]);
        assert!(found.0 == code && found.1.contains(says), "{found:?}");
    }
    let described = lists.run(&["explain", "--pod", "shop/volume"]).stdout;
    assert!(described.contains("kubectl describe pod --namespace shop volume"), "{described}");
    let gone = lists.run(&["explain", "--pod", "shop/volumes"]);
    assert!(gone.code != 0 && gone.stderr.contains("shop/volume"), "{gone:?}");
}
