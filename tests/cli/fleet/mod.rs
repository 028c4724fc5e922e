//! Several clusters in one call.

mod formats;
mod live;
mod refusals;
mod states;

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;

use calipam_testkit::cluster::{Fault, Fleet, FleetFault};
use calipam_testkit::servers::Etcd;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::program::{Run, calipam, column, file, items, prepare};

/// A folder with the exports of a fleet in `data`, and with the file `fleet.yaml`, which names them.
struct Folder(TempDir);

impl Folder {
    fn at(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.at(name)).unwrap()
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        fs::write(self.at(name), text).unwrap();
    }

    /// Adds lines to the file.
    fn add(&self, text: &str) {
        self.write("fleet.yaml", self.read("fleet.yaml") + text);
    }

    /// Runs the program with the fleet that the file describes.
    fn run(&self, line: &str) -> Run {
        self.run_on("fleet.yaml", line)
    }

    /// Runs the program with the fleet that a file or folder describes.
    fn run_on(&self, name: &str, line: &str) -> Run {
        calipam(&format!("{line} --fleet {}", self.at(name)))
    }
}

/// Creates a fleet with faults.
fn fleet(faults: &[FleetFault]) -> (Folder, Fleet) {
    let mut fleet = Fleet::healthy(4);
    faults.iter().for_each(|fault| fleet.inject(*fault));
    let folder = Folder(tempfile::tempdir().unwrap());
    fs::create_dir(folder.at("data")).unwrap();
    let mut text = String::from("clusters:\n");
    for (name, cluster) in &fleet.clusters {
        folder.write(&format!("data/{name}.jsonl"), cluster.export());
        text += &format!(
            "  - {{name: {name}, group: mesh, labels: {{region: eu}}, datastore: data/{name}.jsonl}}\n"
        );
    }
    folder.write("fleet.yaml", text);
    (folder, fleet)
}

/// Returns the findings between clusters, each as its cluster, code and subject.
fn between(report: &Value) -> BTreeSet<[String; 3]> {
    let codes = calipam_check::Code::ALL.iter().filter(|code| code.is_of_fleet());
    let codes: Vec<&str> = codes.map(|code| code.name()).collect();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    items(&report["findings"])
        .iter()
        .map(|finding| {
            [
                text(&finding["cluster"]),
                text(&finding["code"]),
                text(&finding["subject"]["name"]),
            ]
        })
        .filter(|[_, code, _]| codes.contains(&code.as_str()))
        .collect()
}

fn unreadable(name: &str) -> [String; 3] {
    [name, "cluster-unreadable", name].map(str::to_owned)
}

#[test]
fn one_report_has_what_is_wrong_in_and_between_clusters() {
    let (folder, fleet) = fleet(&FleetFault::ALL);
    let report = folder.run("check -o json").exits(1).says_nothing().json();
    assert_eq!(report["kind"], "FleetReport");
    assert_eq!(between(&report), fleet.expected);
    assert_eq!(report["counts"]["clusters"], 4);
    let names = column(&report["clusters"], "name");
    assert_eq!(
        names,
        ["a", "b", "c", "d"],
        "those with most critical findings first"
    );
    assert_eq!(report["clusters"][0]["labels"]["region"], "eu");

    // Exports of all clusters give the same report.
    let export = format!("export {}", folder.at("exported"));
    folder.run(&export).succeeded().says("wrote 4 exports");
    let exported = folder.run_on("exported", "check -o json").json();
    assert_eq!(exported["clusters"][0]["pools"], report["clusters"][0]["pools"]);
    assert!(exported["clusters"][0]["age"].as_i64().unwrap() > 0);
    let prefixed = fleet.expected.into_iter().map(|[cluster, code, subject]| {
        let subject = if subject == cluster {
            format!("mesh/{subject}")
        } else {
            subject
        };
        [format!("mesh/{cluster}"), code, subject]
    });
    assert_eq!(between(&exported), prefixed.collect());
    folder.run(&export).failed(2, "--overwrite");

    // Lines for `--ignore` accept what they name.
    let lines = folder
        .run("check -o ignore")
        .prints("overlapping-cluster-pools 10.1.0.0/16 cluster a\n")
        .stdout;
    let accept = format!("check --ignore {}", folder.at("accepted"));
    folder.write("accepted", &lines);
    folder.run(&accept).succeeded().says_nothing();
    folder.write("accepted", lines.replace("cluster a", "cluster c"));
    folder.run(&accept).failed(1, "cluster c matches no finding");
}

#[test]
fn findings_equal_those_of_a_single_check() {
    let (folder, fleet) = fleet(&[]);
    let (name, cluster) = &fleet.clusters[0];
    folder.write(
        &format!("data/{name}.jsonl"),
        cluster.clone().with(Fault::ALL[0], 2).export(),
    );
    let mut alone = calipam(&format!("check -d {} -o json", folder.at("data/a.jsonl"))).json();
    let report = folder.run("check -o json").json();
    let alone = alone["findings"].as_array_mut().unwrap();
    assert!(!alone.is_empty());
    for finding in alone.iter_mut() {
        finding["cluster"] = "a".into();
        // In a fleet, a command of calipam names the cluster.
        if let Some(repair) = finding["repair"]
            .as_str()
            .filter(|line| line.starts_with("calipam "))
        {
            finding["repair"] = format!("{repair} --datastore {}", folder.at("data/a.jsonl")).into();
        }
    }
    assert_eq!(items(&report["findings"]), alone);
}

#[test]
fn a_cluster_that_cannot_be_read_is_a_finding_and_stops_nothing() {
    let (folder, fleet) = fleet(&[FleetFault::OverlappingPools]);
    folder.add("  - {name: e, datastore: data/none.jsonl}\n");
    folder.add("  - {name: f, etcdEndpoints: [\"http://127.0.0.1:1\"]}\n");
    let report = folder.run("check -o json --fail-on never").exits(3).json();
    let mut expected = fleet.expected;
    expected.extend(["e", "f"].map(unreadable));
    assert_eq!(between(&report), expected);
    assert_eq!(report["counts"]["unreadable"], 2);
    for (name, said) in [("e", "none.jsonl"), ("f", "127.0.0.1:1")] {
        let found = items(&report["findings"])
            .iter()
            .find(|found| found["cluster"] == name)
            .unwrap();
        assert!(found["message"].as_str().unwrap().contains(said), "{found}");
    }
    folder.run("check").exits(3).prints("2 not read");
}

#[test]
fn pools_of_all_clusters_and_ranges_that_are_free_in_all() {
    let (folder, _) = fleet(&[]);
    for name in ["fleet.yaml", "data"] {
        let list = folder
            .run_on(name, "show --find-range /16 -o json")
            .succeeded()
            .says_nothing()
            .json();
        // The pools are 10.1.0.0/16 to 10.4.0.0/16.
        assert_eq!(items(&list["freeRanges"])[..2], ["10.0.0.0/16", "10.5.0.0/16"]);
        let pools = items(&list["clusters"])
            .iter()
            .map(|of| items(&of["document"]["pools"]).len());
        assert_eq!(pools.collect::<Vec<_>>(), [5; 4]);
    }
    folder.add("taken: [10.0.0.0/9]\n");
    folder
        .run("show --find-range /9")
        .prints("Free in all clusters: 10.128.0.0/9")
        .prints("4 clusters, 20 pools: 84 of 262,144 IPv4 addresses");
    // The addresses of nodes begin at 192.168.0.1.
    folder.run("show --find-range /8").exits(1);
    folder.run("show --nodes --find-range /16").exits(2);
    assert_eq!(folder.run_on("data", "show -o name").stdout.lines().count(), 20);
    calipam(&format!("show --find-range /16 -d {}", folder.at("data/a.jsonl"))).exits(2);
}

/// Lists have a column for the cluster. Details appear below the name of their cluster.
#[test]
fn whatever_is_shown_of_one_cluster_is_shown_of_several() {
    let (folder, fleet) = fleet(&[FleetFault::SharedAddresses]);
    for (list, columns) in [
        ("--nodes", "CLUSTER  NODE "),
        ("--blocks", "CLUSTER  BLOCK "),
        ("--borrowed", "CLUSTER  ADDRESS "),
        ("--namespaces", "CLUSTER  NAMESPACE "),
        ("--configuration", "CLUSTER  SETTING "),
    ] {
        let run = folder.run(&format!("show {list}")).says_nothing();
        assert!(run.code < 2 && run.stdout.starts_with(columns), "{run:?}");
        let json = format!("show {list} -o json");
        let alone = calipam(&format!("{json} -d {}", folder.at("data/c.jsonl"))).json();
        let document = &folder.run(&json).json()["clusters"][2];
        assert_eq!((&document["name"], &document["document"]), (&"c".into(), &alone));
    }
    let sorted = folder.run("show --nodes --no-headers --sort-by -cluster").stdout;
    assert!(sorted.starts_with("d  "), "{sorted}");
    folder.run("show --nodes --sort-by weight").exits(2);

    let shared = fleet
        .expected
        .iter()
        .find(|[_, code, _]| code == "address-in-several-clusters")
        .unwrap();
    let run = folder
        .run(&format!("show --ip {}", shared[2]))
        .succeeded()
        .says_nothing();
    let names: Vec<&str> = run.stdout.lines().filter(|line| line.len() == 1).collect();
    // The clusters that do not use the address have a disabled pool around its block.
    assert_eq!(names, ["a", "b", "c", "d"], "{run:?}");
    let clash = format!(
        "critical address-in-several-clusters of a: {} is used by ",
        shared[2]
    );
    assert_eq!(run.stdout.matches(&clash).count(), 2, "for a and b: {run:?}");
    let json = folder.run(&format!("show --ip {} -o json", shared[2])).json();
    let clashes = items(&json["clusters"]).iter().map(|cluster| {
        let findings = items(&cluster["document"]["findings"]).iter();
        findings
            .filter(|finding| finding["code"] == "address-in-several-clusters" && finding["cluster"] == "a")
            .count()
    });
    assert_eq!(clashes.collect::<Vec<_>>(), [1, 1, 0, 0], "{json}");
    folder
        .run("show --ip 203.0.113.9")
        .exits(1)
        .prints_exactly("No cluster has the named objects\n");
    folder
        .run("show --node nobody")
        .failed(1, "node \"nobody\" not found")
        .says(&format!(
            "`calipam show --nodes --fleet {}`",
            folder.at("fleet.yaml")
        ));
}

#[test]
fn entries_ignore_the_environment_and_time_out() {
    let (folder, fleet) = fleet(&[FleetFault::OverlappingPools]);
    let etcd = Etcd::of(&fleet.clusters[1].1).unwrap();
    // This listener accepts connections but never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let text = format!(
        "clusters:\n- {{name: a, group: g, datastore: data/a.jsonl}}\n- {{name: b, group: g, etcdEndpoints: [\"{}\"]}}\n\
         - {{name: silent, etcdEndpoints: \"http://{}\"}}\n",
        etcd.endpoint(),
        silent.local_addr().unwrap()
    );
    folder.write("fleet.yaml", text);
    let mut check = prepare("check --settle 0 -o json --cluster-timeout 1s --fleet");
    // The environment names another cluster.
    let environment = [
        ("KUBECONFIG", "/nonexistent/kubeconfig"),
        ("ETCD_ENDPOINTS", "http://127.0.0.1:1"),
    ];
    let run = Run::of(check.arg(folder.at("fleet.yaml")).envs(environment))
        .exits(3)
        .prints("it could not be read within 1s");
    let mut expected = fleet.expected;
    expected.insert(unreadable("silent"));
    assert_eq!(between(&run.json()), expected);
}

#[test]
fn a_bad_file_of_a_folder_does_not_hide_the_other_files() {
    let (folder, _) = fleet(&[]);
    let export = folder.read("data/a.jsonl");
    let (header, rest) = export.split_once('\n').unwrap();
    let mut header: Value = serde_json::from_str(header).unwrap();
    header["takenAt"] = "2099-01-01T00:00:00Z".into();
    folder.write("data/evil.jsonl", format!("{header}\n{rest}"));
    fs::copy(folder.at("data/b.jsonl"), folder.at("data/b.json")).unwrap();
    fs::rename(folder.at("data/c.jsonl"), folder.at("data/prod eu.jsonl")).unwrap();

    let run = folder.run_on("data", "check -o json").exits(3).says_nothing();
    let report = run.json();
    assert_eq!(between(&report), ["b-2", "evil"].map(unreadable).into());
    let mut read = column(&report["clusters"], "name");
    read.sort();
    assert_eq!(read, ["a", "b", "b-2", "d", "evil", "prod_eu"]);
    run.prints("it has the same GUID as a, and only one");
}

#[test]
fn services_that_the_file_lists_are_those_of_the_cluster() {
    let (folder, _) = fleet(&[]);
    // The pools are 10.1.0.0/16 to 10.4.0.0/16.
    folder.write(
        "fleet.yaml",
        "clusters:\n\
         - {name: a, group: mesh, datastore: data/a.jsonl}\n\
         - {name: b, group: mesh, datastore: data/b.jsonl, services: [10.1.0.0/20, \"fd00:10:9::/112\"]}\n\
         - {name: c, datastore: data/c.jsonl, services: [10.0.0.0/16]}\n",
    );
    let report = folder.run("check -o json").exits(1).json();
    let expected = ["a", "pool-covers-other-cluster", "10.1.0.0/16"].map(str::to_owned);
    assert_eq!(between(&report), [expected].into());
    let other = &report["findings"][0]["evidence"]["others"][0];
    assert_eq!(
        (&other["kind"], &other["cidr"]),
        (&"services".into(), &"10.1.0.0/20".into())
    );
    let free = folder.run("show --find-range /16 -o json").json();
    assert_eq!(free["freeRanges"][0], "10.5.0.0/16", "10.0.0.0/16 is of c");
}

/// The contexts of the kubeconfig lead to an unreachable server.
#[test]
fn contexts_are_clusters() {
    let context = |name: &str| json!({"name": name, "context": {"cluster": "c", "user": "u"}});
    let contexts = ["prod-1", "prod-2", "test"].map(context);
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "users": [{"name": "u", "user": {}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}], "contexts": contexts,
    });
    let (_folder, kubeconfig) = file("kubeconfig", config.to_string());
    let check = |options: &str| calipam(&format!("check --kubeconfig {kubeconfig} {options}"));
    for (options, names) in [
        ("--context prod-*", &["prod-1", "prod-2"][..]),
        ("--context test --context prod-1", &["prod-1", "test"]),
        ("--context * --routed", &["prod-1", "prod-2", "test"]),
    ] {
        assert_eq!(
            check(&format!("{options} -o json"))
                .exits(3)
                .column("clusters", "name"),
            names
        );
    }
    check("--context pord-1 --context test").failed(2, "did you mean `prod-1`?");
    check("--routed").exits(2);
}

#[test]
fn a_later_check_reports_new_and_gone_findings() {
    let (folder, _) = fleet(&[FleetFault::OverlappingPools]);
    folder.write("before.json", folder.run("check -o json").stdout);
    let compare = format!("check --compare-with {}", folder.at("before.json"));
    folder
        .run(&format!("{compare} --fail-on-new"))
        .succeeded()
        .prints("0 new, 0 more severe, 0 gone, 3 unchanged");

    let (changed, _) = fleet(&[FleetFault::PoolOverNodes]);
    let run = changed.run(&format!("{compare} -o json --fail-on-new")).exits(1);
    let changes = run.json()["changes"].take();
    let gone = column(&changes["gone"], "cluster");
    assert_eq!((&changes["new"], gone.len()), (&2.into(), 3));
    assert_eq!(
        gone.into_iter().collect::<BTreeSet<_>>(),
        ["a", "b"].map(str::to_owned).into()
    );

    // The first cluster is not read, so its findings with other clusters are not checked. They may still exist.
    fs::remove_file(folder.at("data/a.jsonl")).unwrap();
    let changes = folder.run(&format!("{compare} -o json")).json()["changes"].take();
    assert_eq!(
        (items(&changes["gone"]).len(), items(&changes["notChecked"]).len()),
        (0, 1)
    );
    folder.write(
        "before.json",
        calipam(&format!("check -d {} -o json", folder.at("data/b.jsonl"))).stdout,
    );
    folder.run(&compare).exits(3);
}
