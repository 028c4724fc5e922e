//! Several clusters in one call.

mod formats;
mod live;
mod refusals;
mod states;

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::path::Path;

use calipam_testkit::cluster::{Fleet, FleetFault};
use calipam_testkit::servers::Etcd;
use serde_json::Value;
use tempfile::TempDir;

use super::program::{Run, calipam, command};

/// Creates a fleet with faults: exports in the folder `data`, and a file that names them.
fn fleet(faults: &[FleetFault]) -> (TempDir, Fleet) {
    let mut fleet = Fleet::healthy(4);
    faults.iter().for_each(|fault| fleet.inject(*fault));
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("data")).unwrap();
    let mut file = String::from("clusters:\n");
    for (name, cluster) in &fleet.clusters {
        cluster.write_export(&folder.path().join(format!("data/{name}.jsonl"))).unwrap();
        file += &format!(
            "  - {{name: {name}, group: mesh, labels: {{region: eu}}, datastore: data/{name}.jsonl}}\n"
        );
    }
    fs::write(folder.path().join("fleet.yaml"), file).unwrap();
    (folder, fleet)
}

fn at(folder: &TempDir, name: &str) -> String {
    folder.path().join(name).to_str().unwrap().to_owned()
}

/// Checks the fleet that a file or folder describes.
fn check(folder: &TempDir, name: &str, arguments: &[&str]) -> Run {
    calipam(&[&["check", "--fleet", &at(folder, name)], arguments].concat())
}

/// Returns the findings between clusters, each as its cluster, code and subject.
fn between(report: &Value) -> BTreeSet<[String; 3]> {
    let codes = calipam_check::Code::ALL.iter().filter(|code| code.is_of_fleet());
    let codes: Vec<&str> = codes.map(|code| code.name()).collect();
    let findings = report["findings"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    findings
        .map(|finding| [text(&finding["cluster"]), text(&finding["code"]), text(&finding["subject"]["name"])])
        .filter(|[_, code, _]| codes.contains(&code.as_str()))
        .collect()
}

#[test]
fn one_report_has_what_is_wrong_in_and_between_clusters() {
    let (folder, fleet) = fleet(&FleetFault::ALL);
    let run = check(&folder, "fleet.yaml", &["-o", "json"]);
    assert_eq!((run.code, run.stderr.as_str()), (1, ""));
    let report = run.json();
    assert_eq!(report["kind"], "FleetReport");
    assert_eq!(between(&report), fleet.expected);
    assert_eq!(report["counts"]["clusters"], 4);
    let names: Vec<&str> =
        report["clusters"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["b", "a", "c", "d"], "those with most critical findings first");
    assert_eq!(report["clusters"][1]["labels"]["region"], "eu");
}

#[test]
fn findings_equal_those_of_a_single_check() {
    let (folder, fleet) = fleet(&[]);
    let (name, _) = &fleet.clusters[0];
    let cluster = fleet.clusters[0].1.clone().with(calipam_testkit::cluster::Fault::ALL[0], 2);
    cluster.write_export(&folder.path().join(format!("data/{name}.jsonl"))).unwrap();
    let alone = calipam(&["check", "-d", &at(&folder, "data/a.jsonl"), "-o", "json"]).json();
    let report = check(&folder, "fleet.yaml", &["-o", "json"]).json();
    let of_fleet = report["findings"].as_array().unwrap().clone();
    let mut alone = alone["findings"].as_array().unwrap().clone();
    assert!(!alone.is_empty());
    alone.iter_mut().for_each(|finding| finding["cluster"] = "a".into());
    assert_eq!(of_fleet, alone);
}

#[test]
fn a_cluster_that_cannot_be_read_is_a_finding_and_stops_nothing() {
    let (folder, fleet) = fleet(&[FleetFault::OverlappingPools]);
    let text = fs::read_to_string(folder.path().join("fleet.yaml")).unwrap();
    let more =
        "  - {name: e, datastore: data/none.jsonl}\n  - {name: f, etcdEndpoints: [\"http://127.0.0.1:1\"]}\n";
    fs::write(folder.path().join("fleet.yaml"), text + more).unwrap();
    let run = check(&folder, "fleet.yaml", &["-o", "json", "--fail-on", "never"]).exits(3);
    let report = run.json();
    let mut expected = fleet.expected;
    for name in ["e", "f"] {
        expected.insert([name.into(), "cluster-unreadable".into(), name.into()]);
    }
    assert_eq!(between(&report), expected);
    assert_eq!(report["counts"]["unreadable"], 2);
    let said = |name: &str| -> String {
        let found = report["findings"].as_array().unwrap().iter().find(|found| found["cluster"] == name);
        found.unwrap()["message"].as_str().unwrap().to_owned()
    };
    assert!(said("e").contains("none.jsonl"), "{} {}", said("e"), said("f"));
    assert!(said("f").contains("127.0.0.1:1"), "{} {}", said("e"), said("f"));
    check(&folder, "fleet.yaml", &[]).exits(3).prints("2 not read");
}

#[test]
fn exports_of_all_clusters_give_the_same_report() {
    let (folder, fleet) = fleet(&FleetFault::ALL);
    let file = at(&folder, "fleet.yaml");
    let export = ["export", "--fleet", &file, &at(&folder, "exported")];
    calipam(&export).succeeded().says("wrote 4 exports");
    let report = check(&folder, "exported", &["-o", "json"]).json();
    let of_clusters = check(&folder, "fleet.yaml", &["-o", "json"]).json();
    assert_eq!(report["clusters"][0]["pools"], of_clusters["clusters"][0]["pools"]);
    assert!(report["clusters"][0]["age"].as_i64().unwrap() > 0);
    let prefixed = fleet.expected.into_iter().map(|[cluster, code, subject]| {
        let subject = if subject == cluster { format!("mesh/{subject}") } else { subject };
        [format!("mesh/{cluster}"), code, subject]
    });
    assert_eq!(between(&report), prefixed.collect());
    calipam(&export).failed(2, "--overwrite");
}

#[test]
fn pools_of_all_clusters_and_ranges_that_are_free_in_all() {
    let (folder, _) = fleet(&[]);
    let show = |name: &str, arguments: &[&str]| {
        calipam(&[&["show", "--fleet", &at(&folder, name)], arguments].concat())
    };
    for name in ["fleet.yaml", "data"] {
        let run = show(name, &["--find-range", "/16", "-o", "json"]);
        assert_eq!((run.code, run.stderr.as_str()), (0, ""));
        let list = run.json();
        // The pools are 10.1.0.0/16 to 10.4.0.0/16.
        assert_eq!(list["freeRanges"][0], "10.0.0.0/16");
        assert_eq!(list["freeRanges"][1], "10.5.0.0/16");
        let of_each = list["clusters"].as_array().unwrap().iter();
        let pools = of_each.map(|of| of["document"]["pools"].as_array().unwrap().len());
        assert_eq!(pools.collect::<Vec<_>>(), [5; 4]);
    }
    let text = fs::read_to_string(folder.path().join("fleet.yaml")).unwrap();
    fs::write(folder.path().join("fleet.yaml"), text + "taken: [10.0.0.0/9]\n").unwrap();
    let run = show("fleet.yaml", &["--find-range", "/9"]);
    assert!(run.stdout.contains("Free in all clusters: 10.128.0.0/9"), "{run:?}");
    assert!(run.stdout.contains("4 clusters, 20 pools: 84 of 262,144 IPv4 addresses"), "{run:?}");
    // The addresses of nodes begin at 192.168.0.1.
    assert_eq!(show("fleet.yaml", &["--find-range", "/8"]).code, 1);
    assert_eq!(show("fleet.yaml", &["--nodes", "--find-range", "/16"]).code, 2);
    assert_eq!(show("data", &["-o", "name"]).stdout.lines().count(), 20);
    assert_eq!(calipam(&["show", "--find-range", "/16", "-d", &at(&folder, "data/a.jsonl")]).code, 2);
}

/// Lists have a column for the cluster. Details appear below the name of their cluster.
#[test]
fn whatever_is_shown_of_one_cluster_is_shown_of_several() {
    let (folder, fleet) = fleet(&[FleetFault::SharedAddresses]);
    let file = at(&folder, "fleet.yaml");
    let show = |arguments: &[&str]| calipam(&[&["show", "--fleet", &file], arguments].concat());
    for (list, columns) in [
        ("--nodes", "CLUSTER  NODE "),
        ("--blocks", "CLUSTER  BLOCK "),
        ("--borrowed", "CLUSTER  ADDRESS "),
        ("--configuration", "CLUSTER  SETTING "),
    ] {
        let run = show(&[list]);
        assert!(run.code < 2 && run.stderr.is_empty(), "{list}: {run:?}");
        assert!(run.stdout.starts_with(columns), "{list}: {}", run.stdout);
        let alone = calipam(&["show", "-d", &at(&folder, "data/c.jsonl"), list, "-o", "json"]).json();
        let document = show(&[list, "-o", "json"]).json()["clusters"][2].clone();
        assert_eq!((&document["name"], &document["document"]), (&"c".into(), &alone));
    }
    let sorted = show(&["--nodes", "--no-headers", "--sort-by", "-cluster"]).stdout;
    assert!(sorted.starts_with("d  "), "{sorted}");
    assert_eq!(show(&["--nodes", "--sort-by", "weight"]).code, 2);

    let shared = fleet.expected.iter().find(|[_, code, _]| code == "address-in-several-clusters").unwrap();
    let run = show(&["--ip", &shared[2]]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    let names: Vec<&str> = run.stdout.lines().filter(|line| line.len() == 1).collect();
    // The clusters that do not use the address have a disabled pool around its block.
    assert_eq!(names, ["a", "b", "c", "d"], "{run:?}");
    let nowhere = show(&["--ip", "203.0.113.9"]);
    assert_eq!((nowhere.code, nowhere.stdout.as_str()), (1, "No cluster has the named objects\n"));

    show(&["--node", "nobody"]).failed(1, "node \"nobody\" not found");
}

#[test]
fn entries_ignore_the_environment_and_time_out() {
    let (folder, fleet) = fleet(&[FleetFault::OverlappingPools]);
    let etcd = Etcd::start().unwrap();
    fleet.clusters[1].1.write_to_etcd(&etcd.endpoint()).unwrap();
    // This listener accepts connections but never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let text = format!(
        "clusters:\n- {{name: a, group: g, datastore: data/a.jsonl}}\n- {{name: b, group: g, etcdEndpoints: [\"{}\"]}}\n\
         - {{name: silent, etcdEndpoints: \"http://{}\"}}\n",
        etcd.endpoint(),
        silent.local_addr().unwrap()
    );
    fs::write(folder.path().join("fleet.yaml"), text).unwrap();
    let file = at(&folder, "fleet.yaml");
    let mut check = command(crate::cli::PROGRAM);
    check.args(["check", "--fleet", &file, "--settle", "0", "-o", "json", "--cluster-timeout", "1s"]);
    // The environment names another cluster.
    check.env("KUBECONFIG", "/nonexistent/kubeconfig").env("ETCD_ENDPOINTS", "http://127.0.0.1:1");
    let run = Run::of(check).exits(3);
    let mut expected = fleet.expected;
    expected.insert(["silent".into(), "cluster-unreadable".into(), "silent".into()]);
    let report = run.json();
    assert_eq!(between(&report), expected);
    assert!(run.stdout.contains("it could not be read within 1s"), "{run:?}");
}

#[test]
fn a_bad_file_of_a_folder_does_not_hide_the_other_files() {
    let (folder, _) = fleet(&[]);
    let data = |name: &str| folder.path().join("data").join(name);
    let export = fs::read_to_string(data("a.jsonl")).unwrap();
    let (header, rest) = export.split_once('\n').unwrap();
    let mut header: Value = serde_json::from_str(header).unwrap();
    header["takenAt"] = "2099-01-01T00:00:00Z".into();
    fs::write(data("evil.jsonl"), format!("{header}\n{rest}")).unwrap();
    fs::copy(data("b.jsonl"), data("b.json")).unwrap();
    fs::rename(data("c.jsonl"), data("prod eu.jsonl")).unwrap();

    let run = check(&folder, "data", &["-o", "json"]);
    let report = run.json();
    assert_eq!((run.code, run.stderr.as_str()), (3, ""));
    let unreadable = |name: &str| [name, "cluster-unreadable", name].map(str::to_owned);
    assert_eq!(between(&report), ["b-2", "evil"].map(unreadable).into());
    let said =
        report["findings"].as_array().unwrap().iter().map(|finding| finding["message"].as_str().unwrap());
    let said: BTreeSet<&str> = said.collect();
    assert!(said.iter().any(|said| said.contains("it has the same GUID as a, and only one")), "{said:?}");
    let read = report["clusters"].as_array().unwrap().iter().map(|of| of["name"].as_str().unwrap());
    assert_eq!(read.collect::<BTreeSet<_>>(), ["a", "b", "b-2", "d", "evil", "prod_eu"].into());
}

#[test]
fn services_that_the_file_lists_are_those_of_the_cluster() {
    let (folder, _) = fleet(&[]);
    let write =
        |text: &str| fs::write(folder.path().join("fleet.yaml"), format!("clusters:\n{text}")).unwrap();
    // The pools are 10.1.0.0/16 to 10.4.0.0/16.
    write(
        "- {name: a, group: mesh, datastore: data/a.jsonl}\n\
         - {name: b, group: mesh, datastore: data/b.jsonl, services: [10.1.0.0/20, \"fd00:10:9::/112\"]}\n\
         - {name: c, datastore: data/c.jsonl, services: [10.0.0.0/16]}\n",
    );
    let run = check(&folder, "fleet.yaml", &["-o", "json"]);
    let report = run.json();
    let expected = ["a", "pool-covers-other-cluster", "10.1.0.0/16"].map(str::to_owned);
    assert_eq!((run.code, between(&report)), (1, [expected].into()));
    let other = &report["findings"][0]["evidence"]["others"][0];
    assert_eq!((&other["kind"], &other["cidr"]), (&"services".into(), &"10.1.0.0/20".into()));
    let show = ["show", "--fleet", &at(&folder, "fleet.yaml"), "--find-range", "/16", "-o", "json"];
    assert_eq!(calipam(&show).json()["freeRanges"][0], "10.5.0.0/16", "10.0.0.0/16 is of c");
}

/// Writes a kubeconfig with contexts that lead to unreachable servers.
fn kubeconfig(folder: &Path, contexts: &[&str]) -> String {
    let entries =
        contexts.iter().map(|name| format!("- {{name: {name}, context: {{cluster: c, user: u}}}}\n"));
    let text = format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- {{name: c, cluster: {{server: \"http://127.0.0.1:1\"}}}}\n\
         users:\n- {{name: u, user: {{}}}}\ncontexts:\n{}",
        entries.collect::<String>()
    );
    fs::write(folder.join("kubeconfig"), text).unwrap();
    folder.join("kubeconfig").to_str().unwrap().to_owned()
}

#[test]
fn contexts_are_clusters() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = kubeconfig(folder.path(), &["prod-1", "prod-2", "test"]);
    let clusters = |arguments: &[&str]| -> Vec<String> {
        let run = calipam(&[&["check", "-o", "json", "--kubeconfig", &kubeconfig], arguments].concat());
        assert_eq!(run.code, 3, "{run:?}");
        let clusters = run.json()["clusters"].as_array().unwrap().clone();
        clusters.iter().map(|cluster| cluster["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(clusters(&["--context", "prod-*"]), ["prod-1", "prod-2"]);
    assert_eq!(clusters(&["--context", "test", "--context", "prod-1"]), ["prod-1", "test"]);
    assert_eq!(clusters(&["--context", "*", "--routed"]), ["prod-1", "prod-2", "test"]);
    calipam(&["check", "--kubeconfig", &kubeconfig, "--context", "pord-1", "--context", "test"])
        .failed(2, "did you mean `prod-1`?");
    assert_eq!(calipam(&["check", "--kubeconfig", &kubeconfig, "--routed"]).code, 2);
}

#[test]
fn a_later_check_reports_new_and_gone_findings() {
    let (folder, _) = fleet(&[FleetFault::OverlappingPools]);
    let before = check(&folder, "fleet.yaml", &["-o", "json"]);
    fs::write(folder.path().join("before.json"), before.stdout).unwrap();
    let earlier = at(&folder, "before.json");
    let same = check(&folder, "fleet.yaml", &["--compare-with", &earlier, "--fail-on-new"]).succeeded();
    assert!(same.stdout.contains("0 new, 0 more severe, 0 gone, 4 unchanged"), "{same:?}");

    let (changed, _) = fleet(&[FleetFault::PoolOverNodes]);
    let run = check(&changed, "fleet.yaml", &["--compare-with", &earlier, "-o", "json", "--fail-on-new"]);
    let changes = run.json()["changes"].clone();
    assert_eq!((run.code, &changes["new"], changes["gone"].as_array().unwrap().len()), (1, &2.into(), 4));
    let gone: BTreeSet<String> =
        changes["gone"].as_array().unwrap().iter().map(|finding| finding["cluster"].to_string()).collect();
    assert_eq!(gone.into_iter().collect::<Vec<_>>(), ["\"a\"", "\"b\""]);

    // The first cluster is not read, so its findings with other clusters are not checked. They may still exist.
    fs::remove_file(folder.path().join("data/a.jsonl")).unwrap();
    let run = check(&folder, "fleet.yaml", &["--compare-with", &earlier, "-o", "json"]);
    let changes = run.json()["changes"].clone();
    let found = (changes["gone"].as_array().unwrap().len(), changes["notChecked"].as_array().unwrap().len());
    assert_eq!(found, (0, 2));
    let single = calipam(&["check", "-d", &at(&folder, "data/b.jsonl"), "-o", "json"]);
    fs::write(folder.path().join("single.json"), single.stdout).unwrap();
    assert_eq!(check(&folder, "fleet.yaml", &["--compare-with", &at(&folder, "single.json")]).code, 3);
}

#[test]
fn lines_for_ignore_accept_what_they_name() {
    let (folder, _) = fleet(&FleetFault::ALL);
    let lines = check(&folder, "fleet.yaml", &["-o", "ignore"]).stdout;
    assert!(lines.contains("overlapping-cluster-pools 10.1.0.0/16 cluster a\n"), "{lines}");
    fs::write(folder.path().join("accepted"), &lines).unwrap();
    let run = check(&folder, "fleet.yaml", &["--ignore", &at(&folder, "accepted")]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{run:?}");
    fs::write(folder.path().join("accepted"), lines.replace("cluster a", "cluster c")).unwrap();
    let run = check(&folder, "fleet.yaml", &["--ignore", &at(&folder, "accepted")]);
    assert!(run.code == 1 && run.stderr.contains("cluster c matches no finding"), "{run:?}");
}
