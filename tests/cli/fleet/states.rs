//! Several states of the clusters of a fleet: differences, and the history of an address.

use std::collections::BTreeSet;
use std::fs;

use calipam_testkit::cluster::{Fleet, FleetFault};
use calipam_testkit::servers::Etcd;
use serde_json::Value;
use tempfile::TempDir;

use super::{at, check, fleet};
use crate::cli::program::{Run, calipam};

/// The common prefix of the times in earlier exports of [`before_and_after`], ten days before the end of their data.
const EARLIER: &str = "2026-05-22T";

/// Creates a healthy fleet in `data`, and its state of ten days before in `earlier`. In the earlier state, the second
/// cluster has four fewer pods. Returns the address of the last of these pods.
fn before_and_after() -> (TempDir, Fleet, String) {
    let (folder, mut fleet) = fleet(&[]);
    fs::create_dir_all(folder.path().join("earlier/mesh")).unwrap();
    for (name, cluster) in &fleet.clusters {
        let now = cluster.spec().now;
        let then = now - jiff::SignedDuration::from_hours(240);
        let export = String::from_utf8(cluster.export()).unwrap();
        let (header, rest) = export.split_once('\n').unwrap();
        let header = header.replace(&now.to_string(), &then.to_string());
        fs::write(folder.path().join(format!("earlier/mesh/{name}.jsonl")), format!("{header}\n{rest}"))
            .unwrap();
    }
    let second = &mut fleet.clusters[1].1;
    let added: Vec<_> = (0..4).map(|_| second.add_pod_on(0).address()).collect();
    second.write_export(&folder.path().join("data/b.jsonl")).unwrap();
    (folder, fleet, added[3].to_string())
}

fn of_fleet(folder: &TempDir, arguments: &[&str]) -> Run {
    calipam(&[arguments, &["--fleet", &at(folder, "fleet.yaml")]].concat())
}

fn items<'v>(value: &'v Value, name: &str) -> &'v Vec<Value> {
    value[name].as_array().unwrap_or_else(|| panic!("no {name}: {value}"))
}

/// Returns the document of a cluster in a list.
fn named<'v>(list: &'v Value, name: &str) -> &'v Value {
    &items(list, "clusters").iter().find(|cluster| cluster["name"] == name).unwrap()["document"]
}

/// Returns the events in the documents of all clusters, each with the name of its cluster.
pub(super) fn events(list: &Value) -> Vec<(&str, &Value)> {
    let mut all = Vec::new();
    for cluster in items(list, "clusters") {
        let name = cluster["name"].as_str().unwrap();
        all.extend(items(&cluster["document"], "events").iter().map(|event| (name, event)));
    }
    all
}

#[test]
fn each_cluster_is_compared_with_its_earlier_state() {
    let (folder, _, address) = before_and_after();
    let earlier = at(&folder, "earlier");
    let run = of_fleet(&folder, &["diff", &earlier, "-o", "json"]);
    assert_eq!((run.code, run.stderr.as_str()), (1, ""));
    let found = run.json();
    assert_eq!(items(&found, "clusters").len(), 4);
    let second = named(&found, "b");
    assert_eq!(second["same"], false, "{found}");
    let assigned: Vec<&str> =
        items(second, "addresses").iter().map(|change| change["address"].as_str().unwrap()).collect();
    assert!(assigned.contains(&address.as_str()), "{assigned:?}");
    assert_eq!(second["sums"]["total"]["assigned"], assigned.len());
    for name in ["a", "c", "d"] {
        assert_eq!(named(&found, name)["same"], true, "{found}");
    }

    let table = of_fleet(&folder, &["diff", &earlier]).exits(1);
    let rows: Vec<&str> = table.stdout.lines().filter(|line| line.starts_with("b  ")).collect();
    assert!(rows.iter().any(|row| row.contains("assigned")), "{table:?}");
    assert!(!table.stdout.contains("\na  "), "those that are as they were are not listed: {}", table.stdout);
    assert!(table.stdout.contains(" in 1 of 4 clusters"), "{table:?}");
    of_fleet(&folder, &["diff", &earlier, "-o", "wide"]).prints(&address).prints("\na: No difference");

    let same = calipam(&["diff", &earlier, "--fleet", &earlier]);
    assert_eq!((same.code, same.stdout.as_str()), (0, "No difference in 4 clusters\n"));
}

#[test]
fn unmatched_and_unreadable_clusters_are_named() {
    let (folder, _, _) = before_and_after();
    let report = check(&folder, "fleet.yaml", &["-o", "json"]).stdout;
    fs::write(folder.path().join("earlier/mesh/a.jsonl"), report).unwrap();
    fs::remove_file(folder.path().join("earlier/mesh/c.jsonl")).unwrap();
    let text = fs::read_to_string(folder.path().join("fleet.yaml")).unwrap();
    fs::write(folder.path().join("fleet.yaml"), text.replace("name: d", "name: e")).unwrap();
    let run = of_fleet(&folder, &["diff", &at(&folder, "earlier"), "-o", "json"]).exits(3);
    let found = run.json();
    assert_eq!(found["onlyOld"], serde_json::json!(["mesh/d"]));
    assert_eq!(found["onlyNew"], serde_json::json!(["c", "e"]));
    assert_eq!(found["unreadable"][0]["cluster"], "a");
    assert!(run.stderr.contains("a is not compared: ") && run.stderr.contains("a.jsonl"), "{run:?}");
    // The earlier export of this name is replaced by one of a different cluster.
    fs::copy(folder.path().join("data/c.jsonl"), folder.path().join("earlier/mesh/b.jsonl")).unwrap();
    let run = of_fleet(&folder, &["diff", &at(&folder, "earlier"), "-o", "json"]);
    assert!(run.stderr.contains("b is not compared: the two states are from different clusters"), "{run:?}");
}

#[test]
fn archives_of_all_clusters_are_written_compared_and_searched() {
    let (folder, _, address) = before_and_after();
    let archives = at(&folder, "archives");
    calipam(&["export", "--fleet", &at(&folder, "earlier"), "--archive", &archives]).succeeded();
    of_fleet(&folder, &["export", "--archive", &archives, "--keep", "30d:all"]).succeeded();
    let of_second = fs::read_dir(folder.path().join("archives/mesh/b")).unwrap();
    let exports =
        of_second.filter(|file| file.as_ref().unwrap().file_name().to_string_lossy().ends_with(".jsonl.zst"));
    assert_eq!(exports.count(), 2);

    let run = of_fleet(
        &folder,
        &["diff", "--archive", &archives, "--at", &format!("{EARLIER}23:59Z"), "-o", "json"],
    );
    assert_eq!(run.code, 1, "{run:?}");
    let found = run.json();
    let differs = |of: &&Value| of["document"]["same"] == false;
    let differ: Vec<&Value> = items(&found, "clusters").iter().filter(differs).collect();
    assert_eq!((differ.len(), &differ[0]["name"]), (1, &"b".into()));
    of_fleet(&folder, &["diff", "--archive", &archives, "--at", "2020-01-01T00:00Z"])
        .failed(3, "has no export from 2020");

    let run =
        of_fleet(&folder, &["history", "--archive", &archives, "--ip", &address, "-o", "json"]).succeeded();
    let found = run.json();
    assert_eq!(items(named(&found, "a"), "exports").len(), 2);
    let events = events(&found);
    assert!(events.iter().all(|(cluster, _)| *cluster == "b"), "{found}");
    assert!(events.iter().any(|(_, event)| event["what"] == "assigned"), "{found}");
}

#[test]
fn every_cluster_that_knows_an_address_says_who_had_it() {
    let (folder, fleet) = fleet(&[FleetFault::SharedAddresses]);
    let etcd = Etcd::start().unwrap();
    fleet.clusters[1].1.write_to_etcd(&etcd.endpoint()).unwrap();
    let text = format!(
        "clusters:\n- {{name: a, datastore: data/a.jsonl}}\n- {{name: b, etcdEndpoints: \"{}\"}}\n\
         - {{name: c, datastore: data/c.jsonl}}\n",
        etcd.endpoint()
    );
    fs::write(folder.path().join("fleet.yaml"), &text).unwrap();
    let shared = fleet.expected.iter().find(|[_, code, _]| code == "address-in-several-clusters").unwrap();
    let address = shared[2].as_str();

    let run = of_fleet(&folder, &["history", "--ip", address, "-o", "json"]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    let found = run.json();
    let events = events(&found);
    let clusters: BTreeSet<&str> = events.iter().map(|(cluster, _)| *cluster).collect();
    assert_eq!(clusters.into_iter().collect::<Vec<_>>(), ["a", "b"]);
    let of = |name: &str| -> &Value {
        let is_it =
            |(cluster, event): &&(&str, &Value)| *cluster == name && event["subject"]["kind"] == "address";
        events.iter().find(is_it).unwrap().1
    };
    assert_eq!((&of("a")["what"], &of("a")["after"]["type"]), (&"known".into(), &"tunnel".into()), "{found}");
    assert!(of("b")["revision"].is_string() && of("b")["after"]["allocatedTo"].is_string(), "{found}");
    assert!(named(&found, "b")["oldestRevision"].is_string() && named(&found, "c")["readAt"].is_string());

    let table = of_fleet(&folder, &["history", "--ip", address]);
    assert!(table.stdout.starts_with("CLUSTER  REVISION  TIME"), "{table:?}");
    assert!(table.stdout.ends_with("\nKnown in 2 of 3 clusters\n"), "{table:?}");
    assert!(table.stdout.contains("\nb: etcd has everything"), "{table:?}");
    assert!(!table.stdout.contains("\nc: "), "{table:?}");
    assert!(of_fleet(&folder, &["history", "--ip", address, "-o", "wide"]).stdout.contains("\nc: read at"));

    of_fleet(&folder, &["history", "--ip", "203.0.113.9"])
        .exits(1)
        .prints("Nothing is known about ip 203.0.113.9");
    fs::write(folder.path().join("fleet.yaml"), text + "- {name: f, datastore: none.jsonl}\n").unwrap();
    of_fleet(&folder, &["history", "--ip", address, "-o", "yaml"]).exits(3).prints("name: b");
}

#[test]
fn arguments_about_one_cluster_are_refused() {
    let (folder, _, _) = before_and_after();
    let earlier = at(&folder, "earlier");
    for (arguments, said) in [
        (&["history", "--node", "node-1"][..], "`history` needs an address"),
        (&["history", "shop/web-0"], "`history` needs an address"),
        (&["diff", &earlier, "--pool", "p"], "--pool works on one cluster"),
        (&["diff", &earlier, &earlier], "NEW works on one cluster"),
        (&["diff", "etcd@7"], "OLD is a file or folder"),
    ] {
        of_fleet(&folder, arguments).failed(2, said);
    }
}
