//! Checks machine-readable formats with the programs that read them: Prometheus' promtool, an XML schema, systemd.

use std::fs;
use std::path::Path;
use std::process::Command;

use calipam_check::{Code, Severity};
use calipam_testkit::servers::{Tool, left_out, promtool};
use serde_json::{Value, json};
use uppsala::XsdValidator;

use super::alerts::{alerts, dashboard, expressions};
use super::program::{EXAMPLE, HOSTILE, Run, calipam, column, root, scratch};

const SCHEMAS: &str = "tests/fixtures/schemas";

/// Runs an installed program with `text` on its standard input.
fn read(program: &Path, arguments: &[&str], text: &str) -> Run {
    Run::with_input(
        Command::new(program).args(arguments).current_dir(root()),
        text.as_bytes(),
    )
}

/// Checks a cluster, which need not exist, and returns the report in a format.
fn report(format: &str, datastore: &str) -> String {
    calipam(&["check", "-d", datastore, "-o", format]).stdout
}

#[test]
fn promtool_has_no_complaint_about_the_metrics() {
    let Some(promtool) = promtool() else { return };
    let check = |text: &str| read(&promtool, &["check", "metrics"], text);
    for datastore in [EXAMPLE, HOSTILE, "/no/such/cluster"] {
        let metrics = report("prometheus", datastore);
        assert!(metrics.contains("\ncalipam_up "), "{metrics}");
        check(&metrics).succeeded().prints_nothing().says_nothing();
    }
    // promtool does read its input, and refuses incorrect input.
    let metrics = report("prometheus", EXAMPLE);
    assert_ne!(check(&metrics.replace("# HELP", "# HULP")).code, 0);
    assert_ne!(
        check(&metrics.replace("# TYPE calipam_up gauge", "# TYPE calipam_up number")).code,
        0
    );
}

/// Returns rules as one group.
fn group(rules: &[Value]) -> Value {
    json!({"groups": [{"name": "calipam", "rules": rules}]})
}

#[test]
fn promtool_reads_the_alerts_and_the_expressions_of_the_dashboard() {
    let Some(promtool) = promtool() else { return };
    let folder = tempfile::tempdir().unwrap();
    let check = |name: &str, rules: &Value| {
        let path = folder.path().join(name);
        fs::write(&path, serde_yaml::to_string(rules).unwrap()).unwrap();
        read(&promtool, &["check", "rules", path.to_str().unwrap()], "")
    };
    let alerts = alerts();
    let number = alerts.len();
    check("alerts.yaml", &group(&alerts))
        .succeeded()
        .prints(&format!("SUCCESS: {number} rules found"));

    let mut panels = Vec::new();
    expressions(&dashboard(), &mut panels);
    // Grafana replaces its variables before it queries Prometheus.
    let texts = panels
        .iter()
        .map(|text| text.replace("$__rate_interval", "5m").replace('$', ""));
    let rule = |(place, text): (usize, String)| json!({"record": format!("panel:{place}"), "expr": text});
    let rules: Vec<Value> = texts.enumerate().map(rule).collect();
    check("panels.yaml", &group(&rules)).succeeded();

    let wrong = json!({"record": "wrong:1", "expr": "calipam_up by"});
    assert_ne!(check("wrong.yaml", &group(&[wrong])).code, 0);
}

/// Each rule has a unit test in which it fires and one in which it does not, since a rule might always or never fire.
/// Every code with critical findings has an alert.
#[test]
fn each_alert_fires_when_it_should_and_only_then() {
    let Some(promtool) = promtool() else { return };
    let (folder, tests) = scratch("alerts-test.yaml");
    fs::copy(root().join("tests/fixtures/alerts-test.yaml"), &tests).unwrap();
    let test = |rules: &[Value]| {
        fs::write(
            folder.path().join("alerts.yaml"),
            serde_yaml::to_string(&group(rules)).unwrap(),
        )
        .unwrap();
        read(&promtool, &["test", "rules", tests.to_str().unwrap()], "")
    };
    let alerts = alerts();
    test(&alerts).succeeded();
    for always_or_never in ["vector(1)", "vector(0) > 1"] {
        let mut wrong = alerts.clone();
        wrong
            .iter_mut()
            .for_each(|rule| rule["expr"] = always_or_never.into());
        let run = test(&wrong).exits(1);
        for name in column(&json!(alerts), "alert") {
            let is_seen = run.transcript().contains(&format!("alertname: {name},"));
            assert!(
                is_seen,
                "no unit test sees that {name} is {always_or_never}: {run:?}"
            );
        }
    }

    let tests = fs::read_to_string(&tests).unwrap();
    for code in Code::ALL
        .iter()
        .filter(|code| code.severity() == Severity::Critical)
    {
        let fires = format!("exp_labels: {{ severity: critical, code: {code} }}");
        assert!(tests.contains(&fires), "no unit test has an alert for {code}");
    }
}

#[test]
fn junit_is_valid_against_what_its_readers_have_in_common() {
    let schema = fs::read_to_string(root().join(SCHEMAS).join("junit.xsd")).unwrap();
    let schema = uppsala::parse(&schema).unwrap();
    let schema = XsdValidator::from_schema(&schema).unwrap();
    let complaints = |xml: &str| match uppsala::parse(xml) {
        Ok(document) => schema
            .validate(&document)
            .iter()
            .map(ToString::to_string)
            .collect(),
        Err(error) => vec![error.to_string()],
    };
    for datastore in [EXAMPLE, HOSTILE] {
        assert_eq!(complaints(&report("junit", datastore)), [""; 0], "{datastore}");
    }
    let xml = report("junit", EXAMPLE);
    for (valid, not) in [
        ("time=\"0\"", "time=\"soon\""),
        ("<failure ", "<failed "),
        (" tests=", " test="),
    ] {
        assert!(xml.contains(valid), "{valid}");
        assert_ne!(complaints(&xml.replacen(valid, not, 1)), [""; 0], "{not}");
    }
}

#[test]
fn systemd_has_no_complaint_about_the_units() {
    if left_out(&[Tool::SystemdAnalyze]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let unit = |name: &str| fs::read_to_string(root().join("docs/systemd").join(name)).unwrap();
    let verify = |service: &str| {
        let names = ["calipam-check.service", "calipam-check.timer"];
        // The program must exist, but the man pages that the unit names need not.
        let service = service.replace("/usr/bin/calipam", crate::cli::PROGRAM);
        fs::write(folder.path().join(names[0]), service).unwrap();
        fs::write(folder.path().join(names[1]), unit(names[1])).unwrap();
        let paths = names.map(|name| folder.path().join(name).display().to_string());
        let arguments = ["verify", "--man=no", &paths[0], &paths[1]];
        read(Path::new("systemd-analyze"), &arguments, "")
    };
    let service = unit("calipam-check.service");
    verify(&service).succeeded().prints_nothing().says_nothing();
    verify(&service.replace("ProtectHome=yes", "ProtectHome=perhaps")).says("perhaps");
}
