//! The report of a fleet in every format.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use calipam_testkit::browser::{Browser, Page};
use calipam_testkit::cluster::{Cluster, ClusterSpec, Fault, FleetFault};
use calipam_testkit::servers::Etcd;
use serde_json::Value;

use super::fleet;
use crate::cli::pages::evaluate;
use crate::cli::program::{assert_expected, calipam, items};
use crate::cli::reports;

#[test]
fn every_format_names_the_cluster() {
    let (folder, _) = fleet(&FleetFault::ALL);
    let format = |name: &str| folder.run(&format!("check -o {name}")).stdout;
    assert_expected("fleet_table", &without_age(&format("table")));
    assert!(format("name").lines().any(|line| line == "a/pool/10.1.0.0/16"));
    let wide = format("wide");
    assert!(
        wide.contains("a        critical  address-in-several-clusters  10.1.1.0"),
        "{wide}"
    );

    let metrics = reports::samples(&format("prometheus"));
    assert_eq!(metrics[r#"calipam_cluster_up{cluster="a"}"#], 1.0);
    let found = metrics[r#"calipam_findings{cluster="b",code="pool-covers-other-cluster",severity="error"}"#];
    assert_eq!(found, 1.0);
    let junit = format("junit");
    assert_eq!(
        reports::attributes(&junit, "testsuite", "name"),
        ["a", "b", "c", "d"]
    );
    let page = format("html");
    assert!(
        page.contains("address-in-several-clusters") && page.contains("10.0.0.0/8"),
        "{page}"
    );
}

/// Returns the command lines of the cures and repairs that a report in JSON has for a cluster. Those that only explain a
/// rule are left out, since they read no data.
fn commands(report: &Value, cluster: &str) -> BTreeSet<String> {
    let mut clusters = items(&report["clusters"]).iter();
    let of = clusters.find(|of| of["name"] == cluster).unwrap();
    let of_causes = items(&of["causes"])
        .iter()
        .flat_map(|cause| items(&cause["cures"]));
    let cures = of_causes.chain(items(&of["cures"])).map(|cure| &cure["command"]);
    let findings = items(&report["findings"]).iter();
    let repairs = findings
        .filter(|finding| finding["cluster"] == cluster)
        .map(|finding| &finding["repair"]);
    let lines = cures.chain(repairs).filter_map(Value::as_str);
    lines
        .filter(|line| !line.starts_with("calipam explain "))
        .map(str::to_owned)
        .collect()
}

#[test]
fn each_command_names_the_cluster_that_it_is_for() {
    let (folder, fleet) = fleet(&[]);
    let leaking = |place: usize| fleet.clusters[place].1.clone().with(Fault::LeakedNoOwner, 2);
    let etcd = Etcd::of(&leaking(1)).unwrap();
    folder.write("data/a.jsonl", leaking(0).export());
    let text = format!(
        "clusters:\n- {{name: a, datastore: data/a.jsonl}}\n- {{name: b, etcdEndpoints: [\"{}\"]}}\n",
        etcd.endpoint()
    );
    folder.write("fleet.yaml", text);

    let run = |format: &str| folder.run(&format!("check --settle 0 -o {format}")).exits(1);
    let report = run("json").json();
    let connections = [
        ("a", format!(" --datastore {}", folder.at("data/a.jsonl"))),
        ("b", format!(" --etcd-endpoints {}", etcd.endpoint())),
    ];
    for (cluster, connection) in &connections {
        let commands = commands(&report, cluster);
        assert!(!commands.is_empty(), "{report}");
        for command in &commands {
            assert!(command.ends_with(connection), "{cluster}: {command}");
        }
        let release = commands.iter().find(|line| line.starts_with("calipam release "));
        let release = release.unwrap();
        for format in ["wide", "yaml", "junit", "html"] {
            run(format).prints(release);
        }
        let line = release.strip_prefix("calipam ").unwrap();
        calipam(&format!("{line} --settle 0 --grace 0 --dry-run")).completed();
    }
    let table = run("table").stdout;
    for command in table.split('`').skip(1).step_by(2) {
        let is_named = connections
            .iter()
            .any(|(_, connection)| command.ends_with(connection));
        assert!(is_named || command.starts_with("calipam explain "), "{command}");
    }
}

/// A pool of the second cluster covers the nodes of all others.
#[test]
fn a_cluster_that_a_finding_of_another_one_concerns_is_not_without_findings() {
    let (folder, _) = fleet(&[FleetFault::PoolOverNodes]);
    let report = folder.run("check -o json").exits(1).json();
    let shared = items(&report["clusters"]).iter().map(|cluster| {
        (
            cluster["name"].as_str().unwrap(),
            cluster["shared"].as_u64().unwrap(),
        )
    });
    assert_eq!(
        shared.collect::<Vec<_>>(),
        [("b", 0), ("a", 1), ("c", 1), ("d", 1)]
    );
    let table = folder
        .run("check")
        .exits(1)
        .prints(" SHARED ")
        .omits("without findings");
    assert!(table.stdout.contains("\nd        mesh"), "{table:?}");

    // The finding is accepted, and concerns none of them any more.
    folder.write("accepted", folder.run("check -o ignore").stdout);
    let accept = format!("check --ignore {}", folder.at("accepted"));
    folder.run(&accept).succeeded().omits(" SHARED ");
}

/// Masks the age of the data, which depends on the current time.
fn without_age(table: &str) -> String {
    let cut = |line: &str| match line.ends_with(" d") {
        true => {
            line.rsplit_once("  ")
                .map_or(line, |(rest, _)| rest)
                .trim_end()
                .to_owned()
                + "  (age)"
        }
        false => line.to_owned(),
    };
    table.lines().map(|line| cut(line) + "\n").collect()
}

/// Returns the script that counts the visible rows of a table.
fn shown(table: &str) -> String {
    format!(
        "[...document.querySelectorAll('table[data-filtered={table}] > tbody > tr')].filter((row) => row.offsetParent).length"
    )
}

/// Tests four clusters with faults between them, and 996 copies of a cluster with two leaked pods, each with two
/// addresses.
#[test]
fn a_thousand_clusters_are_one_page() {
    let Some(mut browser) = Browser::unless_left_out() else {
        return;
    };
    let (folder, fleet) = fleet(&FleetFault::ALL);
    fs::create_dir_all(folder.at("sent/mesh")).unwrap();
    for (name, cluster) in &fleet.clusters {
        folder.write(&format!("sent/mesh/{name}.jsonl"), cluster.export());
    }
    let mut leaking = Cluster::plain(ClusterSpec::new(5), 3, 4);
    leaking.set_information("clusterGUID", "{guid}");
    leaking.inject(Fault::LeakedNoOwner, 2);
    let export = String::from_utf8(leaking.export()).unwrap();
    for number in 0..996 {
        let export = export.replace("{guid}", &format!("{number:032x}"));
        folder.write(&format!("sent/cluster-{number}.jsonl"), export);
    }
    folder.write("page.html", folder.run_on("sent", "check -o html").stdout);

    let mut page = browser.page().unwrap();
    page.open(Path::new(&folder.at("page.html"))).unwrap();
    let of_table = |table: &str, what: &str| {
        format!("document.querySelectorAll('table[data-filtered={table}] > tbody > tr').{what}")
    };
    assert_eq!(page.evaluate(&of_table("clusters", "length")).unwrap(), 1000);
    assert_eq!(
        page.evaluate(&of_table("findings", "length")).unwrap(),
        10 + 4 * 996
    );
    assert_eq!(page.evaluate(&shown("clusters")).unwrap(), 100);
    let text = |id: &str| format!("document.getElementById('{id}').textContent");
    assert_eq!(
        page.evaluate(&text("clusters-shown")).unwrap(),
        "100 of 1,000 shown"
    );
    let first = "document.querySelector('#clusters-table tbody tr td').textContent";
    assert_eq!(page.evaluate(first).unwrap(), "mesh/a");
    let kinds =
        "[...document.querySelectorAll('#kinds-table tbody tr')].map(row => row.innerText.split('\\t')[2])";
    let kinds: Vec<String> = evaluate(&mut page, kinds);
    assert!(
        kinds.iter().any(|kind| kind.ends_with(" in 996 clusters")),
        "{kinds:?}"
    );

    // Sorts by name, with numbers in names in numerical order, and shows all clusters.
    page.evaluate("document.querySelector('#clusters-table th button').click()")
        .unwrap();
    assert_eq!(page.evaluate(first).unwrap(), "cluster-0");
    page.evaluate("document.getElementById('clusters-all').click()")
        .unwrap();
    assert_eq!(page.evaluate(&shown("clusters")).unwrap(), 1000);
    filter(&mut page, "cluster-777");
    assert_eq!(page.evaluate(&shown("clusters")).unwrap(), 1);
    assert_eq!(page.evaluate(&shown("findings")).unwrap(), 4);
    assert!(page.complaints().unwrap().is_empty());

    // The four clusters alone: the filter applies to all tables.
    folder.write("page.html", folder.run("check -o html").stdout);
    let mut page = browser.page().unwrap();
    page.open(Path::new(&folder.at("page.html"))).unwrap();
    assert_eq!(page.evaluate(&shown("findings")).unwrap(), 10);
    filter(&mut page, "over-nodes");
    assert_eq!(page.evaluate(&shown("findings")).unwrap(), 2);
    assert_eq!(
        page.evaluate("document.querySelectorAll('.strip i.error').length")
            .unwrap(),
        2
    );
    page.resize(400, 900).unwrap();
    assert_eq!(
        page.evaluate("document.documentElement.scrollWidth").unwrap(),
        400
    );
    assert!(page.complaints().unwrap().is_empty());
}

fn filter(page: &mut Page<'_>, text: &str) {
    let typed = format!(
        "document.getElementById('filter').value = '{text}'; \
         document.getElementById('filter').dispatchEvent(new Event('input'))"
    );
    page.evaluate(&typed).unwrap();
}
