//! The report of a fleet in every format.

use std::fs;

use calipam_testkit::browser::Browser;
use calipam_testkit::cluster::FleetFault;
use calipam_testkit::servers::{Tool, left_out};
use serde_json::Value;

use super::{check, fleet};
use crate::cli::program::assert_expected;
use crate::cli::reports;

#[test]
fn every_format_names_the_cluster() {
    let (folder, _) = fleet(&FleetFault::ALL);
    let format = |name: &str| check(&folder, "fleet.yaml", &["-o", name]).stdout;
    assert_expected("fleet_table", &without_age(&format("table")));
    assert!(format("name").lines().any(|line| line == "a/pool/10.1.0.0/16"));
    let wide = format("wide");
    assert!(wide.contains("b        critical  address-in-several-clusters  10.1.1.0"), "{wide}");

    let metrics = reports::samples(&format("prometheus"));
    assert_eq!(metrics[r#"calipam_cluster_up{cluster="a"}"#], 1.0);
    assert_eq!(
        metrics[r#"calipam_findings{cluster="b",code="pool-covers-other-cluster",severity="error"}"#],
        1.0
    );
    let junit = format("junit");
    let suites = reports::attributes(&junit, "testsuite", "name");
    assert_eq!(suites, ["a", "b", "c", "d"]);
    let sarif: Value = serde_json::from_str(&format("sarif")).unwrap();
    assert_eq!(sarif["runs"].as_array().unwrap().len(), 4);
    assert_eq!(sarif["runs"][1]["automationDetails"]["id"], "calipam check/b");
    let rule = &sarif["runs"][0]["results"][0]["ruleIndex"];
    let rules = &sarif["runs"][0]["tool"]["driver"]["rules"];
    assert_eq!(rules[rule.as_u64().unwrap() as usize]["id"], sarif["runs"][0]["results"][0]["ruleId"]);
    let page = format("html");
    assert!(page.contains("address-in-several-clusters") && page.contains("10.0.0.0/8"), "{page}");
    assert_eq!(check(&folder, "fleet.yaml", &["-o", "summary"]).code, 2);
}

/// The data is of a fixed time, and gets older.
fn without_age(table: &str) -> String {
    let cut = |line: &str| match line.ends_with(" d") {
        true => line.rsplit_once("  ").map_or(line, |(rest, _)| rest).trim_end().to_owned() + "  (age)",
        false => line.to_owned(),
    };
    table.lines().map(|line| cut(line) + "\n").collect()
}

#[test]
fn the_page_filters_in_a_browser() {
    if left_out(&[Tool::Chromium]) {
        return;
    }
    let (folder, _) = fleet(&FleetFault::ALL);
    let file = folder.path().join("page.html");
    fs::write(&file, check(&folder, "fleet.yaml", &["-o", "html"]).stdout).unwrap();
    let mut browser = Browser::start().unwrap();
    let mut page = browser.page().unwrap();
    page.open(&file).unwrap();
    let rows = "[...document.querySelectorAll('table[data-filtered=findings] tbody tr')].filter((row) => !row.hidden).length";
    assert_eq!(page.evaluate(rows).unwrap(), 13);
    page.evaluate(
        "document.getElementById('filter').value = 'over-nodes'; \
        document.getElementById('filter').dispatchEvent(new Event('input'))",
    )
    .unwrap();
    assert_eq!(page.evaluate(rows).unwrap(), 1);
    assert_eq!(page.evaluate("document.querySelectorAll('.strip i.error').length").unwrap(), 2);
    assert!(page.complaints().unwrap().is_empty());
}
