//! Causes and cures that `check` and `explain` print: each was tried, and the fastest comes first.

use serde_json::{Value, json};

use super::cases::asks_for;
use super::lists::{CREATED, Lists, pool};
use crate::cli::program::{Run, calipam};
use crate::cli::pty::{on_terminal, plain};

/// Three deleted nodes hold most of a pool. Pods of a live node are not recorded any more, and one pod waits.
fn dead_nodes() -> Lists {
    let mut lists = Lists::of_pool("small", "10.60.0.0/26", json!({"blockSize": 28}));
    for (at, node) in ["dead-1", "dead-2", "dead-3", "n1"].into_iter().enumerate() {
        lists.block(&format!("10.60.0.{}/28", 16 * at), node, 16);
    }
    for node in ["dead-1", "dead-2", "dead-3"] {
        lists.delete_pods(node);
    }
    lists.stuck("shop/new", "n1");
    lists
}

/// Five deleted nodes hold most of a pool, and one pod waits.
fn many_dead_nodes() -> Lists {
    let mut lists = Lists::of_pool("default-ipv4-ippool", "10.60.0.0/25", json!({"blockSize": 28}));
    for at in 1..=8 {
        let node = if at <= 5 {
            format!("dead-{at}")
        } else {
            "n1".to_owned()
        };
        lists.block(&format!("10.60.0.{}/28", 16 * (at - 1)), &node, 16);
        if node != "n1" {
            lists.delete_pods(&node);
        }
    }
    lists.stuck("shop/new", "n1");
    lists
}

/// The line of a text that contains all of these parts.
fn line<'a>(text: &'a str, parts: &[&str]) -> (usize, &'a str) {
    let found = text
        .lines()
        .enumerate()
        .find(|(_, line)| parts.iter().all(|part| line.contains(part)));
    found.unwrap_or_else(|| panic!("{parts:?} in\n{text}"))
}

const RELEASE: &str = "calipam release --node dead-1,dead-2,dead-3";
const EFFECT: &str = "(frees 48 addresses; n1 gets addresses again; shop/new gets an address; ";

#[test]
fn a_check_begins_with_the_cause_and_its_cure() {
    let lists = dead_nodes();
    let says = "3 nodes were deleted (dead-1, dead-2 and dead-3), and their records remain: 48 addresses and 3 blocks";
    for options in ["", "--quiet", "-o wide"] {
        let run = lists.run(&format!("check {options}"));
        let (at, cause) = line(&run.stdout, &[says]);
        assert!(at <= 4 && cause.starts_with("critical  "), "{run:?}");
        let (command, _) = line(&run.stdout, &[RELEASE, EFFECT]);
        assert_eq!(command, at + 1, "{run:?}");
    }

    let report = lists.run("check -o json").json();
    let cause = &report["causes"][0];
    assert_eq!(
        (&cause["cause"], &cause["severity"]),
        (&json!("deleted-nodes"), &json!("critical"))
    );
    let codes = cause["codes"].as_array().unwrap();
    assert!(
        cause["findings"].as_u64() > Some(48) && codes.contains(&json!("leaked-address")),
        "{cause}"
    );
    assert!(
        codes.contains(&json!("pod-without-address")),
        "it waits because of this cause: {cause}"
    );
    let cure = &cause["cures"][0];
    assert_eq!(
        (&cure["command"], &cure["tried"]),
        (&json!(RELEASE), &json!(true))
    );
    let effect = &cure["effect"];
    assert_eq!(
        (&effect["addresses"], &effect["addressesAtOnce"]),
        (&json!(48), &json!(48))
    );
    assert_eq!(
        (&effect["nodeNames"], &effect["podNames"]),
        (&json!(["n1"]), &json!(["shop/new"]))
    );

    lists.run("check -o junit").prints(RELEASE);
    lists
        .run("check -o html")
        .prints(RELEASE)
        .prints("frees 48 addresses");
}

/// The page of a terminal begins with cause, command and effect, however much else is found.
#[test]
fn ten_narrow_lines_have_the_cause_its_command_and_the_effect() {
    let lists = many_dead_nodes();
    let page = plain(&on_terminal(
        80,
        &format!("check --datastore {}", lists.path().display()),
    ));
    let first: Vec<&str> = page.lines().skip(1).take(10).map(str::trim).collect();
    let first = first.join(" ");
    assert!(
        first.contains("5 nodes were deleted (dead-1, dead-2, dead-3 and 2 more)"),
        "{page}"
    );
    assert!(first.contains("`calipam release --node 'dead-*' "), "{page}");
    assert!(
        first.contains("(frees 80 addresses; n1 gets addresses again; "),
        "{page}"
    );
}

#[test]
fn a_check_of_a_fleet_says_the_same_for_each_cluster() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(dead_nodes().path(), folder.path().join("east.json")).unwrap();
    let fleet = |options: &str| calipam(&format!("check --fleet {} {options}", folder.path().display()));
    let run = fleet("");
    line(&run.stdout, &["critical", "east: 3 nodes were deleted"]);
    let release = format!(
        "{RELEASE} --datastore {}",
        folder.path().join("east.json").display()
    );
    line(&run.stdout, &[&format!("`{release}`"), EFFECT]);
    let cluster = &fleet("-o json").json()["clusters"][0];
    assert_eq!(cluster["causes"][0]["cures"][0]["command"], json!(release));
    fleet("-o html").prints(&release);
    fleet("-o junit").prints(&release);
}

#[test]
fn the_fastest_cure_of_a_pod_without_address_comes_first() {
    let run = dead_nodes().run("explain --pod shop/new");
    let steps: Vec<&str> = run.stdout.lines().skip(1).collect();
    assert!(
        steps[0].contains(RELEASE) && steps[0].contains("frees 48 addresses"),
        "{run:?}"
    );
    let json = dead_nodes().run("explain --pod shop/new -o json").json();
    let cure = &json["cures"][0];
    assert!(cure["command"].as_str().unwrap().starts_with(RELEASE), "{cure}");
    assert_eq!(cure["tried"], json!(true));
}

/// A full block of the only node, which may hold no other block.
#[test]
fn a_release_that_frees_nothing_is_no_cure() {
    let mut lists = Lists::of_pool("all", "10.60.0.0/24", json!({"blockSize": 28}));
    lists.settings(json!({"strictAffinity": true, "autoAllocateBlocks": true, "maxBlocksPerHost": 1}));
    lists.block("10.60.0.0/28", "n1", 16);
    let run = lists.run("explain --node n1");
    line(
        &run.stdout,
        &[
            "calipam configure --max-blocks-per-host 2 --strict-affinity true",
            "n1 gets addresses again",
        ],
    );
    assert!(!run.stdout.contains("release"), "{run:?}");
    let check = lists.run("check");
    line(
        &check.stdout,
        &[
            "calipam configure --max-blocks-per-host 2",
            "n1 gets addresses again",
        ],
    );
}

/// More of what does not help is no cure: without another block in the pool, the limit does not matter.
#[test]
fn a_higher_limit_does_not_help_if_the_pool_is_full() {
    let mut lists = Lists::of_pool("all", "10.60.0.0/28", json!({"blockSize": 28}));
    lists.settings(json!({"strictAffinity": true, "autoAllocateBlocks": true, "maxBlocksPerHost": 1}));
    lists.block("10.60.0.0/28", "n1", 16);
    let run = lists.run("explain --node n1").exits(1);
    line(
        &run.stdout,
        &[
            "no block is left to claim either: add a pool: copy all (`calicoctl get ippool all --export -o yaml > POOL.yaml`)",
            "; then raise the block limit: `calipam configure --max-blocks-per-host 2 --strict-affinity true",
        ],
    );
    let document = lists.run("explain --node n1 -o json").json();
    assert_eq!(document["cures"], json!([]), "neither step alone is a cure");
    lists
        .run("check")
        .prints("see what helps: `calipam explain --node n1");
}

/// All addresses of a pool are in use or leaked, on more nodes than a finding each would be of use.
#[test]
fn one_release_helps_against_leaks_and_a_full_pool() {
    let nodes: Vec<String> = (1..=4).map(|number| format!("n{number}")).collect();
    let with_labels: Vec<(&str, Value)> = nodes.iter().map(|node| (node.as_str(), json!({}))).collect();
    let pools = [("all", pool("10.60.0.0/26", json!({"blockSize": 28})))];
    let mut lists = Lists::new(&pools, &with_labels);
    for (number, node) in nodes.iter().enumerate() {
        lists.block(&format!("10.60.0.{}/28", 16 * number), node, 16);
    }
    lists.delete_pod("apps/10-60-0-0-28-3");

    let run = lists.run("check");
    line(
        &run.stdout,
        &["4 nodes get no further IPv4 address: no address in its pools is free"],
    );
    let (_, command) = line(&run.stdout, &["`calipam release --leaked"]);
    assert!(command.contains("4 nodes get addresses again"), "{run:?}");
    assert_eq!(
        run.stdout.matches("`calipam release --leaked").count(),
        1,
        "{run:?}"
    );
    lists
        .run("explain --node n1")
        .prints("or add a pool: copy all (`calicoctl get ippool all --export -o yaml > POOL.yaml`)");
}

#[test]
fn a_pool_for_one_workload_is_full_of_other_pods() {
    let pools = [
        ("game", pool("10.56.0.0/28", json!({"blockSize": 28}))),
        ("default", pool("10.57.0.0/24", json!({"blockSize": 28}))),
    ];
    let mut lists = Lists::new(&pools, &[("n1", json!({}))]);
    lists.block("10.56.0.0/28", "n1", 16);
    lists.pod("game/server-1", "n1", asks_for("game"), CREATED, None);
    let run = lists.run("explain --pod game/server-1");
    line(&run.stdout, &["see who holds its addresses", "--pool game"]);
    line(
        &run.stdout,
        &["patch ippool game", "\"assignmentMode\":\"Manual\""],
    );
    assert!(!run.stdout.contains("release"), "{run:?}");
}

#[test]
fn a_pool_that_calico_closed_is_not_called_disabled() {
    let closed = |name: &str, status: Value, deleted: Value| {
        let mut metadata = json!({"name": name, "creationTimestamp": CREATED});
        if !deleted.is_null() {
            metadata["deletionTimestamp"] = deleted;
        }
        json!({"kind": "IPPool", "apiVersion": "crd.projectcalico.org/v1",
            "spec": pool("10.54.128.0/20", json!({})), "metadata": metadata, "status": status})
    };
    let overlap =
        json!({"conditions": [{"type": "Allocatable", "status": "False", "reason": "CIDROverlap"}]});
    let pools = [
        (
            closed("team-b", overlap, Value::Null),
            "not allocatable: CIDROverlap",
        ),
        (
            closed("team-b", json!({}), json!("2026-06-01T08:30:00Z")),
            "terminating",
        ),
    ];
    for (closed, why) in pools {
        let mut lists = Lists::of_pool("default", "10.54.0.0/16", json!({}));
        lists.add(closed);
        lists.block("10.54.0.0/26", "n1", 1);
        lists.pod("team/b", "n1", asks_for("team-b"), CREATED, None);
        lists.run("show").prints(&format!("team-b ({why})"));
        let run: Run = lists
            .run("explain --pod team/b")
            .prints("name another pool in the annotation");
        assert!(!run.stdout.contains("disabled"), "{run:?}");
    }
}

/// The same pod left a record at each of its starts.
#[test]
fn a_workload_leaks_an_address_at_each_start() {
    let mut lists = Lists::of_pool("all", "10.60.0.0/24", json!({"blockSize": 28}));
    let record = |at: usize| {
        json!({"handle_id": format!("k8s-pod-network.{at:064x}"), "secondary": {"namespace": "db", "node": "n1",
            "pod": "store-0", "timestamp": format!("2026-05-{:02} 10:12:00 +0000 UTC", 20 + at)}})
    };
    let block = calipam_testkit::values::block("10.60.0.0/28", "host:n1", (0..4).map(record));
    lists.object("IPAMBlock", "10-60-0-0-28", block);
    let says = "db/store-0 on n1 leaves an address behind at each start: 4 addresses since 2026-05-20T10:12:00Z, the last at 2026-05-23T10:12:00Z";
    let run = lists.run("check");
    line(&run.stdout, &["error", says]);
    line(
        &run.stdout,
        &[
            "calipam release --leaked",
            "frees 4 addresses after a second check 15m later",
        ],
    );
}

/// A pool for pods and one for tunnels, each of which is full with the addresses of a node.
fn pools_of_pods_and_tunnels(of_pods: &str, of_tunnels: &str) -> Lists {
    let pods = json!({"blockSize": 28, "allowedUses": ["Workload"], "vxlanMode": "Never"});
    let tunnels = json!({"blockSize": 28, "allowedUses": ["Tunnel"]});
    let pools = [
        ("pods", pool("10.60.0.0/28", pods)),
        ("tunnels", pool("10.61.0.0/28", tunnels)),
    ];
    let mut lists = Lists::new(&pools, &[("n1", json!({})), ("n2", json!({}))]);
    lists.block("10.60.0.0/28", of_pods, 16);
    lists.block("10.61.0.0/28", of_tunnels, 16);
    for node in [of_pods, of_tunnels] {
        if node.starts_with("dead") {
            lists.delete_pods(node);
        }
    }
    lists
}

const TUNNELS_SERVED: &str = "its tunnels get their addresses then";

#[test]
fn a_cure_helps_pods_or_tunnels_of_a_node() {
    let cases = [
        ("dead-1", "n2", true, false),
        ("n2", "dead-1", false, true),
        ("dead-1", "dead-1", true, true),
    ];
    for (of_pods, of_tunnels, serves_pods, serves_tunnels) in cases {
        let run = pools_of_pods_and_tunnels(of_pods, of_tunnels)
            .run("explain --node n1")
            .exits(1);
        let (_, cure) = line(&run.stdout, &["calipam release --node dead-1"]);
        assert_eq!(
            cure.contains("2 nodes get addresses again"),
            serves_pods,
            "{run:?}"
        );
        assert_eq!(cure.contains(TUNNELS_SERVED), serves_tunnels, "{run:?}");
    }
}
