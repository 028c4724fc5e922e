//! Pods without an address in `check`, `explain` and `show`: on lists of kubectl, on an API server and on etcd.

mod cases;
mod cures;
mod lists;
mod reported;
mod services;

use std::time::Duration;

use calipam_testkit::kube::{Flavour, Kinds, lease};
use serde_json::json;

use super::kube_cluster::connection;
use super::program::{Run, calipam, scratch};
use super::scheduled::{create_all, documents};
use lists::{CREATED, Lists, answer, findings};

#[test]
fn each_case_wherever_the_data_is() {
    let server = lease(Kinds::Calico(Flavour::Classic)).unwrap();
    let kubernetes = |line: &str| calipam(&format!("{line} {}", connection(&server)));
    let kubeconfig = server.kubeconfig();
    let etcd = format!(
        "--etcd-endpoints {} --kubeconfig {}",
        server.etcd().endpoint(),
        kubeconfig.display()
    );
    for case in cases::all() {
        case.check("lists", |line| case.lists().run(line));
        case.lists().write_to(&server);
        case.check("API server", kubernetes);
        case.check("etcd", |line| calipam(&format!("{line} {etcd}")));
    }

    cases::gone_node_with_a_cooldown().write_to(&server);
    released_addresses_cool_down_first(kubernetes);

    let case = cases::pool_of_namespaces(true);
    case.write_to(&server);
    let (_folder, export) = scratch("export");
    let export = export.display();
    kubernetes(&format!("export {export}")).succeeded();
    let exported = answer("--pod shop/new", |line| {
        calipam(&format!("{line} --datastore {export}"))
    });
    assert_eq!(
        exported,
        case.answer("--pod shop/new"),
        "an export holds the namespaces"
    );
    // An account with the documented role, except for access to namespaces.
    let mut role = documents("rbac.yaml");
    role[0]["rules"]
        .as_array_mut()
        .unwrap()
        .retain(|rule| rule["resources"] != json!(["namespaces"]));
    create_all(&server, &role[..2]);
    let run = |line: &str| kubernetes(&format!("{line} --as system:serviceaccount:calipam:calipam"));
    assert_eq!(findings(run), [""; 0], "what was not read is not guessed");
    let (code, sentence) = answer("--pod shop/new", run);
    assert!(code == 0 && sentence.ends_with(NOT_READ), "{sentence}");
    run("check --settle 0")
        .prints("not read: ")
        .prints("namespaces (");
}

/// The block of a deleted node is released. The pod that waits for its addresses gets one when the cooldown ends.
fn released_addresses_cool_down_first(run: impl Fn(&str) -> Run) {
    let new = "--pod shop/new";
    let (code, sentence) = answer(new, &run);
    assert!(
        code == 1 && sentence.ends_with("no address in its pools is free"),
        "{sentence}"
    );
    let folder = tempfile::tempdir().unwrap();
    let write = |line: &str, journal: &str| {
        run(&format!(
            "{line} --yes --journal {}",
            folder.path().join(journal).display()
        ))
        .succeeded()
    };
    let released = write("release --node dead-1 --grace 0", "first");
    let (code, sentence) = answer(new, &run);
    for text in [&released.stdout, &sentence] {
        assert!(
            text.contains("16 addresses are cooling down, the first until "),
            "{text}"
        );
    }
    assert_eq!(code, 1, "{sentence}");
    released.prints("configure --ip-cooldown-seconds 0");
    write("configure --ip-cooldown-seconds 0", "second");
    // Both times have whole seconds, and a cooldown of 0 ends after the second in which the address was released.
    std::thread::sleep(Duration::from_secs(2));
    let (code, sentence) = answer(new, &run);
    assert_eq!(code, 0, "{sentence}");
}

const NOT_READ: &str = "pools select namespaces, which were not read";

#[test]
fn no_pool_is_enabled_or_selects_the_node() {
    let lists = cases::all_pools_disabled();
    lists
        .run("explain --node n1")
        .prints("`calicoctl patch ippool old -p '{\"spec\":{\"disabled\":false}}'`")
        .prints("Calico says: cannot find a qualified ippool");
    lists
        .run("explain --node n1 -o wide")
        .prints("IPPool old")
        .omits("/calico/");
    lists.run("check --fail-on error").exits(1);
    lists
        .run("show --pod shop/new")
        .says("shop/new gets no IPv4 address on n1: no pool is enabled")
        .says("explain --pod shop/new");
    lists.run("show --nodes").prints("ipv4: no pool is enabled");
    lists
        .run("check -o prometheus")
        .prints("calipam_nodes_without_addresses 1")
        .prints("calipam_pods_without_address 1");

    let lists = cases::no_pool_selects_a_node(false);
    assert_eq!(
        lists.findings(),
        ["info node-without-addresses n3"],
        "no pod runs there, so it could be intended"
    );
    assert_eq!(lists.answer("--node n1").0, 0);
    assert_eq!(
        lists.run("check -o json").json()["causes"],
        json!([]),
        "no pod needs these addresses"
    );
}

#[test]
fn pools_that_pods_ask_for_by_name_ignore_selectors() {
    // The families of new pods are unknown unless a pod waits.
    let lists = cases::manual_pools_of_a_family(false);
    assert_eq!(
        lists.findings(),
        [""; 0],
        "IPv4 addresses are available by pool name"
    );

    let mut lists = cases::pool_by_name(false);
    assert_eq!(lists.findings(), [""; 0]);
    let json = lists.run("show -o json").json();
    assert_eq!(
        (&json["pools"][0]["allocatable"], &json["pools"][0]["byName"]),
        (&json!(0), &json!(17))
    );
    lists
        .run("show")
        .prints("west: only pods that name the pool can get its 17 free addresses");
    lists.pod("team/wrong", "n1", cases::asks_for("nowhere"), CREATED, None);
    let says = "asks for the pool \"nowhere\", which does not exist";
    assert!(lists.answer("--pod team/wrong").1.contains(says));
    let mut limited = cases::pool_by_name_of("10.20.0.0/26");
    limited.settings(json!({"strictAffinity": true, "autoAllocateBlocks": true, "maxBlocksPerHost": 1}));
    limited
        .run("show")
        .prints("west: only pods that name the pool can get 17 of its 49 free addresses");
    let fixed = json!({"cni.projectcalico.org/ipAddrs": "[\"10.20.0.1\"]"});
    lists.pod("team/fixed", "n1", fixed, CREATED, None);
    let (code, sentence) = lists.answer("--pod team/fixed");
    assert!(
        code == 1 && sentence.contains("10.20.0.1 is taken by apps/10-20-0-0-28-1"),
        "{sentence}"
    );
}

/// A total outage has the severity error, whether it is predicted or not. A Windows node has one block.
#[test]
fn blocks_or_the_pool_are_full() {
    let nodes = cases::windows_node().run("show --nodes").stdout;
    let line = nodes.lines().find(|line| line.starts_with("win-1")).unwrap();
    assert!(line.contains("0 ipv4, limit 1"), "{nodes}");

    let lists = cases::full_pool();
    lists.run("check --fail-on error").exits(1);
    lists
        .run("show --nodes")
        .prints("0 ipv4, limit 20")
        .prints("no address in its pools is free");
}

/// The header and the percentage distinguish addresses in cooldown from those in use.
#[test]
fn the_pool_cools_down() {
    let lists = cases::cooling_pool();
    let report = lists.run("check -o json").json();
    assert_eq!(
        (&report["counts"]["allocations"], &report["counts"]["cooling"]),
        (&json!(0), &json!(16))
    );
    lists
        .run("check")
        .prints("1 block · 0 allocations · 16 cooling · ")
        .prints("is 100 % full: 0 of 16 in use, 16 cooling down");
    assert_eq!(
        lists.run("show -o json").json()["pools"][0]["percent"],
        json!(100)
    );
    lists
        .run("show")
        .prints("small: 16 addresses are cooling down, the first until ")
        .prints("configure --ip-cooldown-seconds 0");
}

#[test]
fn a_pool_serves_some_namespaces() {
    let (code, sentence) = cases::pool_of_namespaces(true).answer("--node n1");
    let says = "the next pod on n1 gets 10.70.0.2, if its namespace has the labels team == 'a'";
    assert_eq!((code, sentence.as_str()), (0, says));
    let unread = cases::pool_of_namespaces(false);
    assert_eq!(unread.findings(), [""; 0]);
    let (code, sentence) = unread.answer("--pod shop/new");
    assert!(code == 0 && sentence.ends_with(NOT_READ), "{sentence}");
}

#[test]
fn pods_that_ipam_does_not_keep_waiting() {
    let mut lists = Lists::of_pool("all", "10.60.0.0/24", json!({}));
    lists.block("10.60.0.0/26", "n1", 1);
    lists.stuck("shop/volume", "n1");
    lists.stuck("shop/unbound", "");
    lists.stuck("shop/nowhere", "n9");
    lists.stuck("kube-system/host", "n1");
    assert_eq!(lists.findings(), ["error pod-without-address shop/nowhere"]);
    for (pod, code, says) in [
        ("shop/volume", 0, "IPAM can assign 10.60.0.1 to shop/volume on n1"),
        ("shop/unbound", 0, "shop/unbound is not scheduled to a node yet"),
        (
            "shop/nowhere",
            1,
            "shop/nowhere gets no IPv4 address on n9: Calico does not know the node",
        ),
        ("kube-system/host", 0, "uses its node's network"),
        ("apps/10-60-0-0-26-0", 0, "has 10.60.0.0 on n1"),
    ] {
        let found = lists.answer(&format!("--pod {pod}"));
        assert!(found.0 == code && found.1.contains(says), "{found:?}");
    }
    lists
        .run("explain --pod shop/volume")
        .prints("kubectl describe pod --namespace shop volume");
    let gone = lists.run("explain --pod shop/volumes").says("shop/volume");
    assert_ne!(gone.code, 0, "{gone:?}");
}
