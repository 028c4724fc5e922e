//! `assign`: assignments, refusals, and the explanations of `explain`.

use std::collections::BTreeSet;

use calipam_testkit::cluster::wire::key;
use serde_json::Value;

use super::site::*;
use crate::cli::program::Run;

const INFORMATION: &str = "/calico/resources/v3/projectcalico.org/clusterinformations/default";

/// Runs `assign` and agrees to everything.
pub(super) fn assign(site: &Site, arguments: &[&str]) -> Run {
    site.run(&[&["assign", "--yes", "-o", "json"], arguments].concat())
}

/// Returns the addresses that a plan assigns.
pub(super) fn assigned(plan: &Value) -> BTreeSet<String> {
    changes(plan).iter().filter_map(|line| line.strip_prefix("assign-address ").map(str::to_owned)).collect()
}

/// Returns the findings that a check has for addresses whose user is unknown.
pub(super) fn unused(addresses: &BTreeSet<String>) -> BTreeSet<String> {
    addresses.iter().map(|address| format!("warning leaked-address {address}")).collect()
}

fn put_pool(site: &Site, name: &str, spec: Value) {
    let pool = serde_json::json!({"kind": "IPPool", "apiVersion": "projectcalico.org/v3",
        "metadata": {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": spec});
    site.put(&key::pool(name), pool.to_string());
}

#[test]
fn an_assignment_is_recorded_checked_and_undone() {
    let cluster = healthy();
    let node = cluster.nodes()[0].name.clone();
    let free = cluster.spec().spare_block_v4(0);
    let named = free.hosts().nth(4).unwrap().to_string();
    let site = Site::of(&cluster);
    let before = site.dump();
    let owned = ["--handle", "printer", "--attribute", "note=a <b> & \"c\""];

    let chosen = assign(&site, &[&["--count", "2", "--node", &node], &owned[..]].concat()).succeeded();
    let plan = chosen.json();
    assert_eq!((&plan["kind"], assigned(&plan).len()), (&"AssignPlan".into(), 2), "{plan}");
    assert!(changes(&plan).contains("create-handle printer"), "{plan}");

    // The block of this address does not exist yet.
    let run = assign(&site, &[&["--ip", &named, "--node", &node], &owned[..]].concat()).succeeded();
    let more = run.json();
    let expected = [
        format!("assign-address {named}"),
        format!("create-block {free}"),
        format!("create-affinity {node}/{free}"),
        "set-handle-counts printer".to_owned(),
    ];
    assert_eq!(changes(&more), set(expected));

    let now = recorded(&site.dump());
    for address in assigned(&plan).into_iter().chain(assigned(&more)) {
        assert_eq!(now[&address.parse().unwrap()].as_deref(), Some("printer"));
    }
    let bare = assign(&site, &["--count", "1", "--node", &node]).succeeded();
    // The users of these addresses are unknown, but nothing else is wrong. `release --leaked` does not release them.
    let all: BTreeSet<String> = [&plan, &more, &bare.json()].into_iter().flat_map(assigned).collect();
    assert_eq!(site.findings(&[]), unused(&all));
    let leaked = site.release(&["--leaked"]);
    assert!(leaked.code == 0 && recorded(&site.dump()).len() == now.len() + 1, "{leaked:?}");

    // An undo restores the data, byte for byte except for sequence numbers. A handle is deleted with its addresses.
    let undo = |run: &Run| {
        site.undo(&journal_of(run)).succeeded();
    };
    undo(&bare);
    undo(&run);
    site.release(&["--handle", "printer"]).succeeded();
    assert_eq!(recorded(&site.dump()), recorded(&before));
    let again = assign(&site, &[&["--ip", &named, "--node", &node], &owned[..]].concat());
    let free_again = site.dump();
    assert_eq!(again.code, 0, "{again:?}");
    undo(&again);
    assert_ne!(values(&site.dump()), values(&free_again));
    let keys = |entries: &Entries| entries.keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&site.dump()), keys(&before));

    let untouched = site.dump();
    let last = assign(&site, &[&["--count", "2", "--node", &node], &owned[..]].concat());
    undo(&last);
    assert_eq!(values(&site.dump()), values(&untouched));
}

#[test]
fn a_refused_assignment_changes_nothing() {
    let mut cluster = healthy();
    let node = cluster.nodes()[0].name.clone();
    let pod = cluster.add_pod_on(0);
    let unrecorded = cluster.add_pod_on(0);
    for (address, block) in &unrecorded.addresses {
        cluster.free(*address, *block);
        cluster.count(&unrecorded.handle, *block, -1);
    }
    let (taken, used) = (pod.address().to_string(), unrecorded.address().to_string());
    let site = Site::of(&cluster);
    put_pool(&site, "closed", serde_json::json!({"cidr": "172.30.0.0/24", "disabled": true}));
    let before = site.dump();

    let cases: [(&[&str], i32, &[&str]); 12] = [
        (&["--ip", "192.0.2.1"], 1, &["outside-pools", "is in no pool"]),
        (&["--ip", "172.30.0.9"], 1, &["outside-pools", "closed (172.30.0.0/24)", "it is disabled"]),
        (&["--ip", &taken], 1, &["already-assigned", &pod.handle, &pod.name.pod, "uses it"]),
        (&["--ip", &used], 1, &["in-use", &unrecorded.name.pod, "no block records it"]),
        (&["--count", "1", "--pool", "nowhere"], 1, &["pool \"nowhere\" not found", "lists the pools"]),
        (&["--count", "1", "--pool", "10.9.0.0/16"], 1, &["nothing is in 10.9.0.0/16", "lists the pools"]),
        (&["--count", "1", "--handle", "a/b"], 1, &["handle-not-storable"]),
        (&["--count", "1", "--handle", ""], 1, &["handle-not-storable"]),
        (&["--count", "1", "--attribute", "novalue"], 2, &["KEY=VALUE"]),
        (&["--count", "1", "--attribute", "a=1", "--attribute", "a=2"], 2, &["more than once"]),
        (&["--count", "0"], 2, &["--count"]),
        (&["--count", "5", "--max-changes", "4"], 1, &["more than the limit of 4"]),
    ];
    for (arguments, code, says) in cases {
        let run = site.run(&[&["assign", "--yes", "--node", &node], arguments].concat()).exits(code);
        let said = format!("{}{}", run.stdout, run.stderr);
        assert!(says.iter().all(|text| said.contains(text)), "{arguments:?} {says:?} {run:?}");
        assert_eq!(site.dump(), before, "{arguments:?}");
    }
    let run = site.run(&["assign", "--yes", "--node", "no\u{1b}[2Jnode", "--count", "1"]);
    assert!(run.code == 1 && !run.stderr.contains('\u{1b}') && run.stderr.contains("not found"), "{run:?}");
    site.run(&["assign", "--node", &node, "--count", "1"]).failed(2, "stdin is not a terminal");
    site.run(&["assign", "--node", &node, "--count", "1", "--dry-run"]).succeeded().prints("assign-address");
    assert_eq!(site.dump(), before);

    // An address in use is not chosen automatically either. Only `--force` assigns it.
    let all = assign(&site, &["--node", &node, "--count", "60", "--dry-run"]).json();
    assert!(assigned(&all).len() == 60 && !assigned(&all).contains(&used), "{all}");
    let forced = assign(&site, &["--node", &node, "--ip", &used, "--handle", &unrecorded.handle, "--force"]);
    assert_eq!((forced.code, assigned(&forced.json())), (0, set([&used])), "{forced:?}");
    let warnings = forced.json()["warnings"].to_string();
    assert!(warnings.contains("assigning anyway"), "{warnings}");
}

#[test]
fn addresses_that_the_allocator_never_assigns_need_force() {
    let cluster = healthy();
    let node = cluster.nodes()[0].name.clone();
    let site = Site::of(&cluster);
    let pool = |name: &str, cidr: &str, field: &str, value: Value| {
        let mut spec = serde_json::json!({"cidr": cidr, "blockSize": 30, "nodeSelector": "all()"});
        spec[field] = value;
        put_pool(&site, name, spec);
    };
    pool("tunnels", "10.9.0.0/28", "allowedUses", serde_json::json!(["Tunnel"]));
    pool("others", "10.9.1.0/28", "nodeSelector", "zone == 'x'".into());
    pool("off", "10.9.2.0/28", "disabled", true.into());
    pool("mixed", "10.9.3.0/28", "natOutgoing", true.into());
    let block = "10.9.3.0/30".parse().unwrap();
    let of_services =
        calipam_testkit::cluster::wire::Block::new(block, Some("virtual:load-balancer".into()), None, 1);
    site.put(&key::block(block), of_services.value());
    site.put(&key::affinity("virtual", "load-balancer", block), r#"{"state":"confirmed","deleted":false}"#);

    for (address, says) in
        [("10.9.0.1", "do not include Workload"), ("10.9.3.1", "for LoadBalancer services")]
    {
        let before = site.dump();
        let refused = assign(&site, &["--ip", address, "--node", &node]);
        assert_eq!((refused.code, skips(&refused.json())), (1, set([format!("needs-decision {address}")])));
        assert!(refused.stdout.contains(says) && site.dump() == before, "{refused:?}");
        let forced = assign(&site, &["--ip", address, "--node", &node, "--force"]);
        assert_eq!((forced.code, assigned(&forced.json())), (0, set([address])), "{forced:?}");
        assert!(forced.json()["warnings"].to_string().contains(says), "{forced:?}");
    }
    let others = assign(&site, &["--ip", "10.9.1.1", "--node", &node]);
    assert_eq!((others.code, assigned(&others.json())), (0, set(["10.9.1.1"])), "{others:?}");
    assert!(others.json()["warnings"].to_string().contains("does not select the node"), "{others:?}");

    for (pool, says) in
        [("off", "pool off (10.9.2.0/28): it is disabled"), ("10.9.9.0/28", "nothing is in 10.9.9.0/28")]
    {
        assign(&site, &["--count", "1", "--pool", pool, "--node", &node]).exits(1).prints(says);
    }
}

#[test]
fn a_full_pool_gives_what_it_has_and_a_reserved_address_can_be_named() {
    let cluster = healthy();
    let node = cluster.nodes()[0].name.clone();
    let site = Site::of(&cluster);
    let tiny = serde_json::json!({"cidr": "172.30.0.0/30", "blockSize": 30, "assignmentMode": "Manual", "vxlanMode": "Never"});
    put_pool(&site, "tiny", tiny);
    let reservation = serde_json::json!({"kind": "IPReservation", "apiVersion": "projectcalico.org/v3",
        "metadata": {"name": "kept"}, "spec": {"reservedCIDRs": ["172.30.0.1/32"]}});
    site.put(&key::resource("ipreservations", "kept"), reservation.to_string());
    let owned = ["--node", &node, "--handle", "vpn", "--attribute", "use=vpn"];

    let some = assign(&site, &[&owned[..], &["--count", "6", "--pool", "tiny"]].concat()).exits(1);
    let plan = some.json();
    assert_eq!(assigned(&plan), set(["172.30.0.0", "172.30.0.2", "172.30.0.3"]));
    assert_eq!(skips(&plan), set([format!("not-available {node}")]));
    let says = "3 of 6 addresses cannot be assigned: ";
    assert!(plan["skipped"][0]["detail"].as_str().unwrap().starts_with(says));

    let named = assign(&site, &[&owned[..], &["--ip", "172.30.0.1"]].concat()).succeeded();
    assert!(named.json()["warnings"].to_string().contains("is reserved by kept"), "{named:?}");
    assert_eq!(recorded(&site.dump())[&"172.30.0.1".parse().unwrap()].as_deref(), Some("vpn"));
    let mut found = site.findings(&[]);
    found.retain(|line| !line.contains("pool-nearly-full"));
    assert_eq!(found, unused(&set(["172.30.0.0", "172.30.0.1", "172.30.0.2", "172.30.0.3"])));
}

#[test]
fn an_explanation_names_each_pool_and_what_decided() {
    let cluster = healthy();
    let node = cluster.nodes()[0].name.clone();
    let site = Site::of(&cluster);
    for (name, third, spec) in [
        ("closed", 1, serde_json::json!({"disabled": true})),
        ("elsewhere", 2, serde_json::json!({"nodeSelector": "zone == 'b'"})),
        ("manual", 3, serde_json::json!({"assignmentMode": "Manual"})),
        ("services", 4, serde_json::json!({"allowedUses": ["LoadBalancer"]})),
        ("team", 5, serde_json::json!({"namespaceSelector": "team == 'a'"})),
    ] {
        let mut spec = spec;
        spec["cidr"] = format!("172.30.{third}.0/24").into();
        put_pool(&site, name, spec);
    }
    let settings = ["configure", "--yes", "--strict-affinity=true", "--max-blocks-per-host=1"];
    assert_eq!(site.run(&settings).code, 0);
    let before = site.dump();

    let run = site.run(&["explain", "--node", &node, "-o", "json"]).succeeded();
    let explained = run.json();
    let decisions = explained["families"][0]["decisions"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let lines: Vec<String> = decisions
        .iter()
        .map(|decision| {
            let key = decision["keys"][0].as_str().unwrap_or_default();
            format!("{} {} {key}", text(&decision["step"]), text(&decision["detail"]))
        })
        .collect();
    let pool = "/calico/resources/v3/projectcalico.org/ippools/";
    for expected in [
        format!("request 1 IPv4 address requested /calico/resources/v3/projectcalico.org/nodes/{node}"),
        format!("pool closed: skipped, it is disabled {pool}closed"),
        format!(
            "pool elsewhere: skipped, its nodeSelector does not select the node: zone == 'b' {pool}elsewhere"
        ),
        format!(
            "pool manual: skipped, its assignmentMode is Manual: it must be requested by name {pool}manual"
        ),
        format!("pool services: skipped, its allowedUses do not include Workload {pool}services"),
        format!(
            "pool team: skipped, its namespaceSelector does not select the namespace: team == 'a' {pool}team"
        ),
    ] {
        assert!(lines.contains(&expected), "{expected}: {lines:#?}");
    }
    let own = cluster.nodes()[0].blocks[0].to_string();
    assert!(decisions.iter().any(|d| d["step"] == "own-block" && d["subject"]["name"] == own), "{lines:#?}");
    assert!(decisions.iter().any(|d| d["step"] == "assign" && d["subject"]["name"] == own), "{lines:#?}");
    let table = site.run(&["explain", "--node", &node, "-o", "wide"]);
    assert!(table.stdout.starts_with(&format!("the next pod on {node} gets ")), "{table:?}");
    assert!(table.stdout.contains("elsewhere: skipped"), "{table:?}");
    assert_eq!(site.dump(), before, "an explanation writes nothing");
}

/// Like Calico's allocator, `assign` assigns addresses in overlapping pools. The plan names the consequences.
#[test]
fn pools_that_overlap_are_planned_as_they_are_used() {
    let cluster = healthy();
    let node = cluster.nodes()[0].name.clone();
    let site = Site::of(&cluster);
    put_pool(&site, "inner", serde_json::json!({"cidr": "172.30.0.0/24", "blockSize": 26}));
    put_pool(&site, "outer", serde_json::json!({"cidr": "172.30.0.0/16", "blockSize": 28}));
    let overlapping = || site.findings(&["--rule", "overlapping-pools"]).len();
    assert!(overlapping() > 0);
    for pool in ["outer", "inner"] {
        let wanted = ["--count", "2", "--node", &node, "--pool", pool];
        let foretold = assigned(&assign(&site, &[&wanted[..], &["--dry-run"]].concat()).json());
        assert_eq!(foretold.len(), 2, "{foretold:?}");

        let run = assign(&site, &[&wanted[..], &["--handle", pool]].concat()).succeeded();
        assert_eq!(assigned(&run.json()), foretold);
    }
    assert!(overlapping() > 0 && site.findings(&["--rule", "overlapping-blocks"]).is_empty());
}

#[test]
fn another_cluster_and_a_file_are_not_written() {
    let cluster = healthy();
    let node = cluster.nodes()[0].name.clone();
    let site = Site::of(&cluster);
    let information = String::from_utf8(site.value(INFORMATION).unwrap()).unwrap();
    let guid = &information.split("\"clusterGUID\":\"").nth(1).unwrap()[..8];
    let other_cluster = || site.put(INFORMATION, information.replace(guid, "ffffffff"));
    let assign_one = ["assign", "--count", "1", "--node", &node];
    site.asked_while("[y/N] ", &assign_one, "y\n", other_cluster).exits(1).shows("cluster");
    site.put(INFORMATION, information.clone());
    assert!(site.findings(&[]).is_empty());

    let file = site.home.path().join("cluster.jsonl");
    site.run(&["export", file.to_str().unwrap()]).succeeded();
    let offline = |more: &[&str]| {
        site.run(&[&["assign", "--count", "1", "--node", &node, "-d", file.to_str().unwrap()], more].concat())
    };
    offline(&["--yes"]).failed(2, "hint: ");
    assert!(offline(&["--dry-run"]).stdout.contains("assign-address"));
    site.run(&["explain", "--node", &node, "-d", file.to_str().unwrap()]).prints(" gets 10.");
}
