//! `migrate`: from pool to pool in phases that follow from the datastore alone, each of them with its undo; killed and resumed, while
//! nodes work.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use calipam_testkit::allocator::{Churn, ChurnLog, Target};
use calipam_testkit::cluster::wire::{affinity, key};
use calipam_testkit::cluster::{Cluster, ClusterSpec};
use calipam_testkit::rounds;
use calipam_testkit::servers::{Tear, Tearing};
use serde_json::{Value, json};

use super::killed::run_and_kill;
use super::site::*;
use crate::cli::program::Run;

pub(super) const OLD: &str = "default-ipv4-ippool";
const NEW: &str = "default-ipv4-ippool-10-99-0-0-16";
const TO: [&str; 4] = ["--from", OLD, "--to-cidr", "10.99.0.0/16"];

/// As it is now, without a cooldown of released addresses.
fn spec() -> ClusterSpec {
    ClusterSpec { cooldown_seconds: 0, ..ClusterSpec::new(31).at(jiff::Timestamp::now()).v4_only() }
}

/// Three nodes with tunnels, and one pod on each.
pub(super) fn cluster() -> Cluster {
    Cluster::plain(spec(), 3, 1)
}

fn migrate(site: &Site, arguments: &[&str]) -> Run {
    site.run(&[&["migrate"], &AT_ONCE[..], arguments].concat())
}

/// Carries out a phase, which has to be this one.
fn resume(site: &Site, phase: &str) -> Run {
    let run = migrate(site, &["resume", "--from", OLD, "--yes", "-o", "json"]);
    assert_eq!((run.code, &run.json()["phase"]), (0, &json!(phase)), "{run:?}");
    run
}

fn phase(site: &Site) -> Value {
    migrate(site, &["status", "--from", OLD, "-o", "json"]).json()
}

fn pool(site: &Site, name: &str) -> Option<Value> {
    site.value(&key::pool(name)).map(|raw| serde_json::from_slice(&raw).unwrap())
}

/// All that uses addresses goes: pods with their endpoints, and nodes have other tunnels. Their addresses leak.
fn leave(site: &Site) {
    for (key, (raw, _)) in site.dump() {
        if key.contains("/workloadendpoints/") {
            site.delete(&key);
        } else if key.contains("/nodes/") {
            let mut node: Value = serde_json::from_slice(&raw).unwrap();
            let spec = node["spec"].as_object_mut().unwrap();
            spec.remove("ipv4VXLANTunnelAddr");
            spec.remove("wireguard");
            spec["bgp"].as_object_mut().unwrap().remove("ipv4IPIPTunnelAddr");
            site.put(&key, node.to_string());
        }
    }
}

/// Blocks and affinities in `10.244.0.0/16`.
fn left_of_old(site: &Site) -> BTreeSet<String> {
    let dump = site.dump();
    let lies_there = |key: &&String| key.starts_with("/calico/ipam/") && key.contains("/10.244.");
    dump.keys().filter(lies_there).cloned().collect()
}

#[test]
fn each_phase_follows_from_the_datastore_and_is_undone() {
    let site = Site::of(&cluster());
    let begin = site.dump();
    let plan = migrate(&site, &[&TO[..], &["--block-size", "28", "-o", "json"]].concat());
    let document = plan.json();
    assert_eq!((plan.code, &document["phase"]), (0, &json!("create")), "{plan:?}");
    assert_eq!(changes(&document), set(["create-pool 10.99.0.0/16"]));
    assert_eq!(
        document["to"],
        json!({"name": NEW, "cidr": "10.99.0.0/16", "blockSize": 28, "disabled": false})
    );
    // Each node has three tunnels and a pod, for which it claims one new block.
    let node = |name: &str| json!({"node": name, "needed": 4, "found": 4, "newBlocks": 1});
    assert_eq!(document["capacity"], json!([node("node-1"), node("node-2"), node("node-3")]));
    assert_eq!(document["left"]["inUse"], 12);
    assert_eq!(site.dump(), begin, "a plan writes nothing");

    let created = migrate(&site, &[&TO[..], &["--block-size", "28", "--apply", "--yes"]].concat());
    assert_eq!(created.code, 0, "{created:?}");
    let new = pool(&site, NEW).unwrap();
    let mut spec = pool(&site, OLD).unwrap()["spec"].clone();
    (spec["cidr"], spec["blockSize"], spec["disabled"]) = ("10.99.0.0/16".into(), 28.into(), false.into());
    assert_eq!(new["spec"], spec);

    // From here on the old pool alone says what is next; once it is disabled, it need not be named.
    let disabled = resume(&site, "disable");
    assert_eq!(pool(&site, OLD).unwrap()["spec"]["disabled"], true);
    let status = migrate(&site, &["status", "-o", "json"]);
    assert_eq!((&status.json()["phase"], &status.json()["from"]["name"]), (&json!("move"), &json!(OLD)));
    let waiting = site.dump();
    let refused = migrate(&site, &["resume", "--yes"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.stdout.contains("12 addresses in use"), "{refused:?}");
    assert_eq!(site.dump(), waiting);

    leave(&site);
    let moved = site.dump();
    assert_eq!(phase(&site)["left"]["leaked"], 12);
    let cleaned = resume(&site, "clean-up");
    assert_eq!(left_of_old(&site), BTreeSet::new());
    assert_eq!(phase(&site)["phase"], "delete");
    let deleted = resume(&site, "delete");
    assert!(deleted.stderr.contains("the migration is complete"), "{deleted:?}");
    assert_eq!(pool(&site, OLD), None);
    assert_eq!(site.findings(&[]), BTreeSet::new());

    for (run, before) in [(deleted, None), (cleaned, Some(moved)), (disabled, None), (created, None)] {
        let undo = site.undo(&journal_of(&run));
        assert_eq!(undo.code, 0, "{undo:?}");
        if let Some(before) = before {
            assert_eq!(values(&site.dump()), values(&before), "blocks and affinities are there again");
        }
    }
    assert_eq!(
        site.value(&key::pool(OLD)),
        begin.get(&key::pool(OLD)).map(|(raw, _)| raw.clone()),
        "byte by byte"
    );
    assert_eq!(pool(&site, NEW), None);
}

#[test]
fn a_block_or_affinity_of_another_size_refuses_the_new_pool() {
    let site = Site::of(&cluster());
    let stray: calipam_model::IpNet = "10.99.7.64/26".parse().unwrap();
    // The affinity alone makes its node create such a block (projectcalico/calico issue 10778).
    let affinity_key = key::affinity("host", "node-1", stray);
    site.put(&affinity_key, affinity("confirmed"));
    let sized = |size: &'static str| [&TO[..], &["--block-size", size, "--apply", "--yes"]].concat();
    let before = site.dump();
    let refused = migrate(&site, &sized("28"));
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.stderr.contains("the block 10.99.7.64/26 is left in 10.99.0.0/16"), "{refused:?}");
    assert_eq!(site.dump(), before);

    site.delete(&affinity_key);
    assert_eq!(migrate(&site, &sized("28")).code, 0);
}

#[test]
fn a_refused_migration_changes_nothing() {
    let site = Site::of(&cluster());
    let mut other = pool(&site, OLD).unwrap();
    (other["metadata"]["name"], other["spec"]["cidr"]) = ("closed".into(), "10.98.0.0/16".into());
    other["spec"]["disabled"] = true.into();
    site.put(&key::pool("closed"), other.to_string());
    let before = site.dump();
    for (arguments, code, says) in [
        (&["--from", "nope", "--to-cidr", "10.99.0.0/16"][..], 1, "there is no pool \"nope\""),
        (&["--from", OLD, "--to", "nope"], 1, "there is no pool nope"),
        (&["--from", OLD, "--to", OLD], 1, "is both the old and the new pool"),
        (&["--from", OLD, "--to", "closed"], 1, "the new pool closed is disabled"),
        (&["--from", OLD, "--to-cidr", "10.244.128.0/17"], 1, "10.244.128.0/17 overlaps 10.244.0.0/16"),
        (
            &["--from", OLD, "--to-cidr", "fd00:99::/64"],
            1,
            "blocks of /26 are none that Calico takes: /116 to /128",
        ),
        (&["--from", OLD, "--to-cidr", "fd00:99::/64", "--block-size", "122"], 1, "are of two families"),
        (&["--from", OLD, "--to-cidr", "10.99.0.0/16", "--block-size", "19"], 1, "/20 to /32"),
        (&["--from", OLD, "--to-cidr", "10.99.0.0/28"], 1, "10.99.0.0/28 is smaller than one block of /26"),
        (&["--from", OLD, "--block-size", "28"], 1, "hint: move through a pool in between"),
        (&["status"], 1, "no disabled pool has blocks"),
        (&["--from", OLD, "--to", "closed", "--to-cidr", "10.99.0.0/16"], 2, "cannot be used with"),
        (
            &["--datastore", "docs/examples/cluster.jsonl", "--from", OLD, "--to-cidr", "10.99.0.0/16"],
            2,
            "a migration needs the datastore itself",
        ),
        (&["--context", "a", "--context", "b", "--from", OLD], 2, "`migrate` works on one"),
    ] {
        let run = migrate(&site, &[arguments, &["--apply", "--yes"]].concat());
        assert_eq!(run.code, code, "{arguments:?} {run:?}");
        assert!(run.stderr.contains(says), "{arguments:?} {run:?}");
        assert_eq!(site.dump(), before, "{arguments:?}");
    }
    let asked = migrate(&site, &[&TO[..], &["--apply"]].concat());
    assert_eq!(asked.code, 2, "nobody is asked without a terminal: {asked:?}");
    assert_eq!(site.dump(), before);
}

#[test]
fn a_pool_of_the_operator_or_with_a_finalizer_is_left_to_its_keeper() {
    for (field, value, says) in [
        (
            "labels",
            json!({"app.kubernetes.io/managed-by": "tigera-operator"}),
            "is managed by tigera-operator",
        ),
        (
            "finalizers",
            json!(["projectcalico.org/ippool-finalizer"]),
            "has the finalizer projectcalico.org/ippool-finalizer",
        ),
    ] {
        let site = Site::of(&cluster());
        let mut old = pool(&site, OLD).unwrap();
        old["metadata"][field] = value;
        old["spec"]["disabled"] = true.into();
        site.put(&key::pool(OLD), old.to_string());
        leave(&site);
        for (key, _) in site.dump().iter().filter(|(key, _)| key.starts_with("/calico/ipam/v2/")) {
            if !key.ends_with("/config/") && !key.ends_with("/config") {
                site.delete(key);
            }
        }
        let before = site.dump();
        let status = phase(&site);
        assert_eq!(
            (&status["phase"], skips(&status)),
            (&json!("delete"), set(["needs-decision 10.244.0.0/16"]))
        );
        let run = migrate(&site, &["resume", "--from", OLD, "--yes"]);
        assert_eq!(run.code, 1, "{run:?}");
        assert!(run.stderr.contains(says), "{run:?}");
        assert_eq!(site.dump(), before);
    }
}

#[test]
fn without_room_for_all_users_the_old_pool_stays_enabled() {
    let site = Site::of(&cluster());
    // Room for 4 addresses, of 12.
    let narrow = ["--from", OLD, "--to-cidr", "10.99.0.0/30", "--block-size", "30"];
    let plan = migrate(&site, &[&narrow[..], &["-o", "json"]].concat()).json();
    let found = plan["capacity"].as_array().unwrap().iter().map(|node| node["found"].as_u64().unwrap());
    assert!(found.sum::<u64>() < 12, "{plan}");
    let before = site.dump();
    let refused = migrate(&site, &[&narrow[..], &["--apply", "--yes"]].concat());
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.stderr.contains("of 12 users; first node-"), "{refused:?}");
    assert_eq!(site.dump(), before);
    let forced = migrate(&site, &[&narrow[..], &["--apply", "--yes", "--force"]].concat());
    assert_eq!(forced.code, 0, "{forced:?}");
}

#[test]
fn the_creation_of_a_pool_is_not_undone_while_blocks_lie_in_it() {
    let site = Site::of(&cluster());
    let created = migrate(&site, &[&TO[..], &["--apply", "--yes"]].concat());
    assert_eq!(created.code, 0, "{created:?}");
    let assign = ["assign", "--node", "node-1", "--count", "1", "--pool", NEW, "--handle", "h", "--yes"];
    assert_eq!(site.run(&assign).code, 0);
    let before = site.dump();
    let undo = site.undo(&journal_of(&created));
    assert_eq!(undo.code, 1, "{undo:?}");
    assert!(undo.stdout.contains("would be deleted, and"), "{undo:?}");
    assert_eq!(site.dump(), before);
}

#[test]
fn what_is_not_known_to_be_leaked_keeps_its_block() {
    let site = Site::of(&cluster());
    let assign =
        ["assign", "--node", "node-1", "--count", "1", "--pool", OLD, "--handle", "by-hand", "--yes"];
    assert_eq!(site.run(&assign).code, 0);
    assert_eq!(migrate(&site, &[&TO[..], &["--apply", "--yes"]].concat()).code, 0);
    resume(&site, "disable");
    leave(&site);
    let run = migrate(&site, &["resume", "--yes", "-o", "json"]);
    assert_eq!(run.code, 1, "{run:?}");
    assert_eq!(left_of_old(&site).len(), 2, "the block and its affinity");
    assert_eq!(phase(&site)["phase"], "clean-up");
    assert_eq!(site.run(&[&["release", "--handle", "by-hand", "--yes"], &AT_ONCE[..]].concat()).code, 0);
    resume(&site, "clean-up");
    assert_eq!(left_of_old(&site), BTreeSet::new());
}

#[test]
fn addresses_that_cool_down_keep_their_block_until_they_have() {
    let site = Site::of(&Cluster::plain(ClusterSpec { cooldown_seconds: 1200, ..spec() }, 3, 1));
    assert_eq!(migrate(&site, &[&TO[..], &["--apply", "--yes"]].concat()).code, 0);
    resume(&site, "disable");
    leave(&site);
    for released in [12, 0] {
        let run = migrate(&site, &["resume", "--yes", "-o", "json"]);
        let plan = run.json();
        assert_eq!((run.code, &plan["totals"]["addresses"]), (1, &json!(released)), "{run:?}");
        assert_eq!(skips(&plan), set(["1", "2", "3"].map(|node| format!("cooling 10.244.{node}.0/26"))));
        assert_eq!(left_of_old(&site).len(), 6);
    }
    assert_eq!(site.run(&["configure", "--ip-cooldown-seconds", "0", "--yes"]).code, 0);
    resume(&site, "clean-up");
    assert_eq!(left_of_old(&site), BTreeSet::new());
}

/// Every pod that lives has moved, and there were some.
fn all_have_moved(log: &ChurnLog) -> bool {
    let mut live = log.ledger.live().peekable();
    log.started > 200
        && live.peek().is_some()
        && live.all(|tenant| tenant.address.to_string().starts_with("10.99."))
}

#[test]
fn killed_at_any_point_and_resumed_it_comes_to_its_end_while_nodes_work() {
    let mut cluster = Cluster::plain(spec(), 8, 0);
    let names: Vec<String> = cluster.nodes().iter().map(|node| node.name.clone()).collect();
    // Their agents move tunnels, of which there are none here.
    for name in &names {
        let node = cluster.node_mut(name);
        (node.spec.vxlan, node.spec.wireguard, node.spec.bgp.ipip) = Default::default();
    }
    let site = Site::of(&cluster);
    let churn = Churn {
        workers: 8,
        operations: 0,
        enough: all_have_moved,
        limit: Duration::from_secs(90),
        leaks: 50,
        ..Churn::default()
    };
    let (endpoint, spec) = (site.etcd.endpoint(), *cluster.spec());
    let log = thread::scope(|scope| {
        let working = scope.spawn(|| churn.run_on(Target::Etcd(&endpoint), &spec, &names).unwrap());
        let torn = Tearing::etcd(&site.etcd).unwrap();
        // Each phase is killed at every fourth request, in a soak at each, until it comes to its end before.
        let (between, enough) = if rounds(1) > 1 { (1, 20) } else { (4, 5) };
        let (mut killed, mut last, mut before) = (0, 1, Value::Null);
        for _ in 0..400 {
            if pool(&site, OLD).is_none() {
                break;
            }
            let phase = phase(&site)["phase"].take();
            if phase == "move" {
                thread::sleep(Duration::from_millis(300));
                continue;
            }
            last = if phase == before { last + between } else { 1 };
            before = phase;
            let arguments =
                [&["migrate"], &AT_ONCE[..], &TO[..], &["--block-size", "28", "--apply", "--yes"]].concat();
            let mut command = site.command(&arguments);
            command.env("ETCD_ENDPOINTS", torn.url());
            let (at, mut seen) = (last, 0);
            let tear = if killed % 2 == 0 { Tear::Drop } else { Tear::Swallow };
            killed += usize::from(run_and_kill(command, &torn, tear, move |_| {
                seen += 1;
                seen == at
            }));
        }
        assert!(killed >= enough, "{killed} killed");
        working.join().unwrap()
    });

    assert!(all_have_moved(&log), "{log:?}");
    assert_eq!(log.ledger.verify(Target::Etcd(&endpoint)).unwrap(), []);
    assert_eq!(pool(&site, OLD), None, "{:?}", phase(&site));
    assert_eq!(left_of_old(&site), BTreeSet::new());
    let errors = site
        .findings(&[])
        .into_iter()
        .filter(|line| line.starts_with("error") || line.starts_with("critical"));
    let of_leaks = |line: &String| line.contains("leaked-address 10.99.");
    assert_eq!(errors.filter(|line| !of_leaks(line)).collect::<Vec<_>>(), Vec::<String>::new());
}
