//! The report of a fleet in every format.

use std::fs;
use std::path::Path;

use calipam_testkit::browser::{Browser, Page};
use calipam_testkit::cluster::{Cluster, ClusterSpec, Fault, FleetFault};

use super::fleet;
use crate::cli::pages::evaluate;
use crate::cli::program::assert_expected;
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
