//! Several states of the clusters of a fleet: differences, and the history of an address.

use std::collections::BTreeSet;
use std::fs;

use calipam_testkit::cluster::{Fleet, FleetFault};
use calipam_testkit::servers::Etcd;
use serde_json::{Value, json};

use super::{Folder, fleet};
use crate::cli::program::{column, items};

/// The common prefix of the times in earlier exports of [`before_and_after`], ten days before the end of their data.
const EARLIER: &str = "2026-05-22T";

/// Creates a healthy fleet in `data`, and its state of ten days before in `earlier`. In the earlier state, the second
/// cluster has four fewer pods. Returns the address of the last of these pods.
fn before_and_after() -> (Folder, Fleet, String) {
    let (folder, mut fleet) = fleet(&[]);
    fs::create_dir_all(folder.at("earlier/mesh")).unwrap();
    for (name, cluster) in &fleet.clusters {
        let now = cluster.spec().now;
        let then = now - jiff::SignedDuration::from_hours(240);
        let export = String::from_utf8(cluster.export()).unwrap();
        let (header, rest) = export.split_once('\n').unwrap();
        let header = header.replace(&now.to_string(), &then.to_string());
        folder.write(&format!("earlier/mesh/{name}.jsonl"), format!("{header}\n{rest}"));
    }
    let second = &mut fleet.clusters[1].1;
    let added: Vec<_> = (0..4).map(|_| second.add_pod_on(0).address()).collect();
    folder.write("data/b.jsonl", second.export());
    (folder, fleet, added[3].to_string())
}

/// Returns the document of a cluster in a list.
fn named<'v>(list: &'v Value, name: &str) -> &'v Value {
    &items(&list["clusters"])
        .iter()
        .find(|cluster| cluster["name"] == name)
        .unwrap()["document"]
}

/// Returns the events in the documents of all clusters, each with the name of its cluster.
pub(super) fn events(list: &Value) -> Vec<(&str, &Value)> {
    let mut all = Vec::new();
    for cluster in items(&list["clusters"]) {
        let name = cluster["name"].as_str().unwrap();
        all.extend(
            items(&cluster["document"]["events"])
                .iter()
                .map(|event| (name, event)),
        );
    }
    all
}

#[test]
fn each_cluster_is_compared_with_its_earlier_state() {
    let (folder, _, address) = before_and_after();
    let earlier = folder.at("earlier");
    let diff = format!("diff {earlier}");
    let found = folder
        .run(&format!("{diff} -o json"))
        .exits(1)
        .says_nothing()
        .json();
    assert_eq!(items(&found["clusters"]).len(), 4);
    let second = named(&found, "b");
    assert_eq!(second["same"], false, "{found}");
    let assigned = column(&second["addresses"], "address");
    assert!(assigned.contains(&address), "{assigned:?}");
    assert_eq!(second["sums"]["total"]["assigned"], assigned.len());
    for name in ["a", "c", "d"] {
        assert_eq!(named(&found, name)["same"], true, "{found}");
    }

    // Those that are as they were are not listed.
    let table = folder
        .run(&diff)
        .exits(1)
        .prints(" in 1 of 4 clusters")
        .omits("\na  ");
    let mut rows = table.stdout.lines().filter(|line| line.starts_with("b  "));
    assert!(rows.any(|row| row.contains("assigned")), "{table:?}");
    folder
        .run(&format!("{diff} -o wide"))
        .prints(&address)
        .prints("\na: No difference");

    folder
        .run_on("earlier", &diff)
        .succeeded()
        .prints_exactly("No difference in 4 clusters\n");
}

#[test]
fn unmatched_and_unreadable_clusters_are_named() {
    let (folder, _, _) = before_and_after();
    folder.write("earlier/mesh/a.jsonl", folder.run("check -o json").stdout);
    fs::remove_file(folder.at("earlier/mesh/c.jsonl")).unwrap();
    folder.write(
        "fleet.yaml",
        folder.read("fleet.yaml").replace("name: d", "name: e"),
    );
    let diff = format!("diff {} -o json", folder.at("earlier"));
    let run = folder.run(&diff).exits(3);
    let found = run.json();
    assert_eq!(found["onlyOld"], json!(["mesh/d"]));
    assert_eq!(found["onlyNew"], json!(["c", "e"]));
    assert_eq!(found["unreadable"][0]["cluster"], "a");
    run.says("a is not compared: ").says("a.jsonl");
    // The earlier export of this name is replaced by one of a different cluster.
    fs::copy(folder.at("data/c.jsonl"), folder.at("earlier/mesh/b.jsonl")).unwrap();
    folder
        .run(&diff)
        .says("b is not compared: the two states are from different clusters");
}

#[test]
fn archives_of_all_clusters_are_written_compared_and_searched() {
    let (folder, _, address) = before_and_after();
    let archives = folder.at("archives");
    folder
        .run_on("earlier", &format!("export --archive {archives}"))
        .succeeded();
    folder
        .run(&format!("export --archive {archives} --keep 30d:all"))
        .succeeded();
    let of_second = fs::read_dir(folder.at("archives/mesh/b")).unwrap();
    let exports = of_second.filter(|file| {
        file.as_ref()
            .unwrap()
            .file_name()
            .to_string_lossy()
            .ends_with(".jsonl.zst")
    });
    assert_eq!(exports.count(), 2);

    let diff = format!("diff --archive {archives} --at");
    let found = folder
        .run(&format!("{diff} {EARLIER}23:59Z -o json"))
        .exits(1)
        .json();
    let differs = |of: &&Value| of["document"]["same"] == false;
    let differ: Vec<&Value> = items(&found["clusters"]).iter().filter(differs).collect();
    assert_eq!((differ.len(), &differ[0]["name"]), (1, &"b".into()));
    folder
        .run(&format!("{diff} 2020-01-01T00:00Z"))
        .failed(3, "has no export from 2020");

    let history = format!("history --archive {archives} --ip {address} -o json");
    let found = folder.run(&history).succeeded().json();
    assert_eq!(items(&named(&found, "a")["exports"]).len(), 2);
    let events = events(&found);
    assert!(events.iter().all(|(cluster, _)| *cluster == "b"), "{found}");
    assert!(
        events.iter().any(|(_, event)| event["what"] == "assigned"),
        "{found}"
    );
}

#[test]
fn clusters_with_one_archive_are_refused() {
    let (folder, _, address) = before_and_after();
    let archives = folder.at("archives");
    folder.run(&format!("export --archive {archives}")).succeeded();
    folder.write(
        "fleet.yaml",
        "clusters: [{name: a/b, datastore: data/a.jsonl}, {name: a_b, datastore: data/b.jsonl}]",
    );
    let refusal =
        "the exports of \"a/b\" and \"a_b\" would have the same name: a_b\nhint: rename one of the clusters";
    for line in [
        format!("history --archive {archives} --ip {address}"),
        format!("diff --archive {archives} --at {EARLIER}23:59Z"),
        format!("diff {}", folder.at("data")),
        format!("export --archive {}", folder.at("new")),
        format!("export {}", folder.at("new")),
    ] {
        folder.run(&line).refused(2, refusal);
    }
    assert!(!fs::exists(folder.at("new")).unwrap());
    folder.run(&format!("history --ip {address}")).prints("Known in ");
}

#[test]
fn every_cluster_that_knows_an_address_says_who_had_it() {
    let (folder, fleet) = fleet(&[FleetFault::SharedAddresses]);
    let etcd = Etcd::of(&fleet.clusters[1].1).unwrap();
    let text = format!(
        "clusters:\n- {{name: a, datastore: data/a.jsonl}}\n- {{name: b, etcdEndpoints: \"{}\"}}\n\
         - {{name: c, datastore: data/c.jsonl}}\n",
        etcd.endpoint()
    );
    folder.write("fleet.yaml", text);
    let shared = fleet
        .expected
        .iter()
        .find(|[_, code, _]| code == "address-in-several-clusters")
        .unwrap();
    let history = format!("history --ip {}", shared[2]);

    let found = folder
        .run(&format!("{history} -o json"))
        .succeeded()
        .says_nothing()
        .json();
    let events = events(&found);
    let clusters: BTreeSet<&str> = events.iter().map(|(cluster, _)| *cluster).collect();
    assert_eq!(clusters, ["a", "b"].into());
    let of = |name: &str| -> &Value {
        let is_it =
            |(cluster, event): &&(&str, &Value)| *cluster == name && event["subject"]["kind"] == "address";
        events.iter().find(is_it).unwrap().1
    };
    assert_eq!(
        (&of("a")["what"], &of("a")["after"]["type"]),
        (&"known".into(), &"tunnel".into()),
        "{found}"
    );
    assert!(
        of("b")["revision"].is_string() && of("b")["after"]["allocatedTo"].is_string(),
        "{found}"
    );
    assert!(named(&found, "b")["oldestRevision"].is_string() && named(&found, "c")["readAt"].is_string());

    let table = folder
        .run(&history)
        .prints("\nb: etcd has everything")
        .omits("\nc: ");
    assert!(table.stdout.starts_with("CLUSTER  REVISION  TIME"), "{table:?}");
    assert!(
        table.stdout.ends_with("\nKnown in 2 of 3 clusters\n"),
        "{table:?}"
    );
    folder.run(&format!("{history} -o wide")).prints("\nc: read at");

    folder
        .run("history --ip 203.0.113.9")
        .exits(1)
        .prints("Nothing is known about ip 203.0.113.9");
    folder.add("- {name: f, datastore: none.jsonl}\n");
    folder
        .run(&format!("{history} -o yaml"))
        .exits(3)
        .prints("name: b");
}
