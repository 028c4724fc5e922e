//! `check --compare-with` and `check --report`.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;
use tempfile::TempDir;

use super::program::{EXAMPLE, GUID, Run, calipam, command, expected, on_example, scratch};

/// A folder with the report of the example, changed by hand.
struct Earlier {
    folder: TempDir,
    path: PathBuf,
}

impl Earlier {
    fn new(edit: impl FnOnce(&mut Value)) -> Self {
        let (folder, path) = scratch("earlier.json");
        let mut report = on_example(&["check", "-o", "json"]).json();
        edit(&mut report);
        fs::write(&path, report.to_string()).unwrap();
        Self { folder, path }
    }

    fn check(&self, more: &[&str]) -> Run {
        on_example(&[&["check", "--compare-with", self.path.to_str().unwrap()], more].concat())
    }

    fn json(&self, more: &[&str]) -> Value {
        self.check(&[more, &["-o", "json"]].concat()).json()
    }
}

/// Removes the first leaked address from a report, and returns it.
fn remove_leak(report: &mut Value) -> Value {
    let findings = report["findings"].as_array_mut().unwrap();
    let leak = findings
        .iter()
        .position(|finding| finding["code"] == "leaked-address")
        .unwrap();
    findings.remove(leak)
}

/// Changes the earlier report: it lacks a leak, has a finding that no longer exists, and gives another one a lower
/// severity.
fn some_changes() -> Earlier {
    Earlier::new(|report| {
        let mut gone = remove_leak(report);
        let findings = report["findings"].as_array_mut().unwrap();
        gone["subject"]["name"] = "10.244.99.1".into();
        gone["message"] = "10.244.99.1 was \u{1b}[31mheld".into();
        let error = findings
            .iter_mut()
            .find(|finding| finding["severity"] == "error")
            .unwrap();
        error["severity"] = "warning".into();
        findings.push(gone);
    })
}

#[test]
fn every_format_shows_new_gone_and_unchanged_findings() {
    let earlier = some_changes();
    let number = on_example(&["check", "-o", "json"]).json()["findings"]
        .as_array()
        .unwrap()
        .len();

    expected!("check-changes-table", earlier.check(&["-q"]).transcript());
    let wide = earlier.check(&["-o", "wide"]).stdout;
    assert!(
        wide.contains("gone    10.244.99.1") && !wide.contains('\u{1b}'),
        "{wide}"
    );

    let json = earlier.json(&[]);
    let changes = &json["changes"];
    assert_eq!((&changes["new"], &changes["worse"]), (&1.into(), &1.into()));
    let expected = (&(number - 2).into(), &"10.244.99.1".into());
    assert_eq!(
        (&changes["stay"], &changes["gone"][0]["subject"]["name"]),
        expected
    );
    let expected = (&Value::Array(vec![]), &json["cluster"]["takenAt"]);
    assert_eq!((&changes["notChecked"], &changes["since"]), expected);
    let new = json["findings"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|finding| finding["change"] == "new");
    assert_eq!(
        new.map(|finding| finding["code"].as_str().unwrap())
            .collect::<Vec<_>>(),
        ["leaked-address"]
    );

    let metrics = earlier.check(&["-o", "prometheus"]).stdout;
    for (change, number) in [("new", 1), ("worse", 1), ("gone", 1), ("not_checked", 0)] {
        let sample = format!("\ncalipam_findings_changed{{change=\"{change}\"}} {number}\n");
        assert!(metrics.contains(&sample), "{sample}");
    }
    let junit = earlier.check(&["-o", "junit"]).stdout;
    assert_eq!(
        junit.matches("<failure ").count(),
        1,
        "only the leaked addresses have news"
    );
    earlier
        .check(&["-o", "html"])
        .prints("<span class=\"mono\">10.244.99.1</span>")
        .prints("<strong>new</strong>");
}

#[test]
fn fail_on_new_fails_only_for_new_findings() {
    let same = Earlier::new(|_| {});
    same.check(&[]).exits(1);
    same.check(&["--fail-on-new"]).succeeded();
    let some = some_changes();
    some.check(&["--fail-on-new"]).exits(1);
    some.check(&["--fail-on-new", "--fail-on", "critical"])
        .succeeded();
    // Findings that are filtered out count neither as new nor as gone.
    let narrowed = some.json(&["--rule", "orphan-handle", "--fail-on-new"]);
    let expected = (&0.into(), &Value::Array(vec![]));
    assert_eq!(
        (&narrowed["changes"]["new"], &narrowed["changes"]["gone"]),
        expected
    );
    // There is nothing to compare with.
    on_example(&["check", "--fail-on-new"]).exits(2);
}

#[test]
fn findings_that_could_not_be_checked_are_neither_gone_nor_new_later() {
    let earlier = Earlier::new(|report| {
        report["coverage"]["pods"] = "read".into();
        let mut gone = report["findings"][0].clone();
        gone["subject"]["name"] = "10.244.99.1".into();
        let mut orphan = gone.clone();
        orphan["code"] = "orphan-handle".into();
        report["findings"].as_array_mut().unwrap().extend([gone, orphan]);
    });
    let changes = &earlier.json(&[])["changes"];
    let expected = (&"pods".into(), &"duplicate-address".into());
    assert_eq!(
        (&changes["notReadNow"][0], &changes["notChecked"][0]["code"]),
        expected
    );
    assert_eq!(
        (&changes["gone"][0]["code"], &changes["gone"][1]),
        (&"orphan-handle".into(), &Value::Null)
    );
    earlier.check(&[]).prints("(pods were not read this time)");

    // A finding that the earlier run could not check is not new in the next run.
    let earlier = Earlier::new(|report| {
        let leak = remove_leak(report);
        report["changes"] = serde_json::json!({ "notChecked": [leak] });
    });
    let again = earlier.json(&["--only-new"]);
    assert_eq!(
        (&again["changes"]["new"], &again["findings"]),
        (&0.into(), &Value::Array(vec![])),
        "{again}"
    );
}

#[test]
fn the_earlier_report_may_be_yaml_and_the_output_file() {
    let (_folder, path) = scratch("last.yaml");
    fs::write(&path, on_example(&["check", "-o", "yaml"]).stdout).unwrap();
    let file = format!("yaml={}", path.display());
    let words = [
        "check",
        "--compare-with",
        path.to_str().unwrap(),
        "--output-file",
        &file,
        "--fail-on-new",
        "-q",
    ];
    for _ in 0..2 {
        assert_eq!(on_example(&words).code, 0);
    }
    assert!(fs::read_to_string(&path).unwrap().contains("change: stays"));
}

#[test]
fn a_line_of_cron_needs_no_first_report_and_prints_only_new_findings() {
    let (_folder, path) = scratch("last.json");
    let (last, file) = (path.to_str().unwrap(), format!("json={}", path.display()));
    let line = [
        "check",
        "-q",
        "--compare-with",
        last,
        "--only-new",
        "--output-file",
        &file,
    ];
    let (first, all) = (on_example(&line), on_example(&["check", "-q"]));
    let everything = (1, "", all.stdout.as_str());
    assert_eq!(
        (first.code, first.stderr.as_str(), first.stdout.as_str()),
        everything
    );
    on_example(&line).succeeded().prints_nothing().says_nothing();

    let mut report: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let findings = report["findings"].as_array_mut().unwrap();
    let number = findings.len();
    findings.retain(|finding| finding["subject"]["name"] != "10.244.10.6");
    assert_eq!(findings.len(), number - 1);
    fs::write(&path, report.to_string()).unwrap();
    expected!("check-only-new", on_example(&line[..5]).transcript());
    let json = on_example(&[&line[..5], &["-o", "json", "--output-file", &file]].concat()).json();
    assert_eq!(
        (
            json["findings"].as_array().unwrap().len(),
            &json["changes"]["new"]
        ),
        (1, &1.into())
    );
    assert_eq!(json["changes"]["stay"], number - 1);
    let written: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let found = written["findings"].as_array().unwrap().len();
    assert_eq!(found, number, "the next call compares with everything");
    on_example(&["check", "--compare-with", last, "--only-new"])
        .succeeded()
        .prints("No new findings");

    // The earlier report must be a report, and a mistyped path does not count as a first run.
    fs::remove_file(&path).unwrap();
    let other = format!("html={last}");
    for file in [&other, &format!("json={last}.new")] {
        on_example(&[&line[..5], &["--output-file", file]].concat()).failed(3, "cannot read the report");
    }
    // There is nothing to compare with.
    on_example(&["check", "--only-new"]).exits(2);
}

/// If the output cannot be printed, the stored report is kept, so that the next run reports the same findings as new.
#[test]
fn a_closed_pipe_leaves_the_report_unchanged() {
    let (_folder, path) = scratch("last.json");
    fs::write(
        &path,
        on_example(&["check", "-q", "-o", "json", "--rule", "orphan-handle"]).stdout,
    )
    .unwrap();
    let before = fs::read(&path).unwrap();
    let line = format!(
        "{} check -q -d {EXAMPLE} --compare-with {path} --only-new --output-file json={path} | true",
        super::PROGRAM,
        path = path.display()
    );
    assert_ne!(
        Run::of(command("/bin/bash").args(["-c", &format!("set -o pipefail; {line}")])).code,
        0
    );
    assert_eq!(fs::read(&path).unwrap(), before);
    let only_new = [
        "check",
        "--only-new",
        "--compare-with",
        path.to_str().unwrap(),
        "-o",
        "prometheus",
    ];
    on_example(&only_new).exits(2);
}

#[test]
fn all_namespaces_are_accepted_after_kubectl() {
    assert_eq!(
        on_example(&["check", "-A"]).transcript(),
        on_example(&["check"]).transcript()
    );
    assert_eq!(on_example(&["check", "-A", "-n", "default"]).code, 2);
}

#[test]
fn files_that_are_not_reports_of_the_cluster_are_not_compared() {
    let other = Earlier::new(|report| report["cluster"]["guid"] = "other".into());
    other
        .check(&[])
        .refused(2, "it is about cluster other, but this is cluster 0f0e1d2c");

    let calicoctl = other.folder.path().join("calicoctl.json");
    fs::write(&calicoctl, r#"{"clusterGUID": "a"}"#).unwrap();
    fs::write(other.folder.path().join("list.json"), "[1]").unwrap();
    for (name, reason) in [
        ("calicoctl.json", "it is not a report: it is in calicoctl's form"),
        ("list.json", "it is not a report: it is not a JSON object"),
        ("missing.json", "cannot read the report "),
    ] {
        let path = other.folder.path().join(name);
        calipam(&[
            "check",
            "--compare-with",
            path.to_str().unwrap(),
            "-d",
            "/no/such/file",
        ])
        .failed(3, reason);
    }
}

#[test]
fn a_calicoctl_report_is_about_the_whole_cluster() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    on_example(&[
        "check",
        "-q",
        "--rule",
        "orphan-handle",
        "--report",
        &path("a.json"),
    ])
    .exits(1);
    let report: Value = serde_json::from_str(&fs::read_to_string(path("a.json")).unwrap()).unwrap();
    assert_eq!(report["clusterGUID"], GUID);
    let allocations = report["allocations"].as_object().unwrap();
    assert_eq!(
        allocations["10.244.10.6"][0]["inUse"], false,
        "a leak stays one, whatever the filter"
    );
    assert_eq!(allocations["10.244.10.3"][0]["inUse"], true);

    calipam(&format!(
        "release -d {EXAMPLE} --from-report {} --dry-run --force",
        path("a.json")
    ))
    .does_not_say("it is not a report");
    on_example(&["check", "--report", "/no/such/folder/a.json"])
        .failed(3, "cannot write /no/such/folder/a.json")
        .prints("findings");
}
