//! `calipam check` on the example cluster.

use std::process::Stdio;

use serde_json::Value;

use super::program::{
    EXAMPLE, HOSTILE, Run, calipam, expected, findings, items, on_example, prepare, started,
};

#[test]
fn every_format() {
    expected!("check-table", on_example("check").transcript());
    expected!("check-wide", on_example("check -o wide").transcript());
    expected!(
        "check-yaml",
        on_example("check -o yaml --rule duplicate-address").transcript()
    );
    expected!(
        "check-json",
        on_example("check -o json --rule duplicate-address").transcript()
    );
}

/// Numbers that do not fit into 53 bits are strings, since many JSON parsers would lose their last digits.
#[test]
fn yaml_and_json_say_the_same_without_large_numbers() {
    fn look(value: &Value) {
        match value {
            Value::Number(number) => assert!(number.as_i64().is_some_and(|n| n.abs() < 1 << 53), "{number}"),
            Value::Array(items) => items.iter().for_each(look),
            Value::Object(fields) => fields.values().for_each(look),
            _ => {}
        }
    }
    let json = on_example("check -o json").json();
    let yaml: Value = serde_yaml::from_str(&on_example("check -o yaml").stdout).unwrap();
    assert_eq!(json, yaml);
    assert_eq!(
        (&json["apiVersion"], &json["kind"]),
        (&"calipam/v1".into(), &"CheckReport".into())
    );
    let counts = json["counts"]["findings"].as_object().unwrap();
    let counted: u64 = counts.values().map(|number| number.as_u64().unwrap()).sum();
    assert_eq!(counted, items(&json["findings"]).len() as u64);
    look(&json);
    assert!(json["cluster"]["revision"].is_string());
}

#[test]
fn the_exit_code_follows_fail_on_and_limits() {
    for (options, code) in [
        ("", 1),
        ("--fail-on never", 0),
        ("--fail-on critical", 1),
        ("--rule orphan-handle", 1),
        ("--rule orphan-handle --fail-on error", 0),
        ("--rule block-size-mismatch", 0),
        ("--rule block-size-mismatch --fail-on info", 1),
        ("--rule pool-nearly-full --pool-threshold 90", 1),
        ("--rule pool-nearly-full --pool-threshold 95%", 0),
    ] {
        on_example(&format!("check -q {options}")).exits(code);
    }
}

#[test]
fn names_are_one_subject_a_line() {
    let check = "check --rule leaked-address,orphan-handle -o";
    let json = on_example(&format!("{check} json")).json();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let line = |of: &Value| {
        format!(
            "{}/{}\n",
            text(&of["subject"]["kind"]),
            text(&of["subject"]["name"])
        )
    };
    let expected: String = items(&json["findings"]).iter().map(line).collect();
    assert!(!expected.is_empty());
    assert_eq!(
        on_example(&format!("{check} name")).says_nothing().stdout,
        expected
    );
}

#[test]
fn formats_of_reports_are_refused_elsewhere() {
    for (command, format) in [
        ("show", "junit"),
        ("show --map", "html"),
        ("explain", "name"),
        ("show", "ignore"),
        ("explain", "ignore"),
        ("release --leaked", "ignore"),
    ] {
        let says = format!(" has no format `{format}`; it has table, wide, ");
        on_example(&format!("{command} -o {format}")).refused(2, &says);
    }
}

#[test]
fn rules_are_selected() {
    let codes = |options: &str| {
        let report = on_example(&format!("check -o json {options}")).json();
        let mut codes: Vec<String> = findings(&report, &["code"]);
        codes.dedup();
        codes
    };
    let two = ["leaked-address", "orphan-handle"];
    assert_eq!(codes("--rule orphan-handle,leaked-address"), two);
    assert_eq!(codes("--rule orphan-handle --rule leaked-address"), two);
    let mut all = codes("");
    all.retain(|code| code != "leaked-address");
    assert_eq!(codes("--skip-rule leaked-address"), all);
}

#[test]
fn nodes_and_pools_are_selected() {
    on_example("check -o wide --node node-11")
        .prints("block-of-missing-node")
        .omits("duplicate-address");
    let by_name = on_example("check --pool extra-5")
        .prints("pool-nearly-full")
        .omits("duplicate-address");
    let by_cidr = on_example("check --pool 172.16.5.0/28");
    // Only stdout is compared, since the hints on stderr repeat the options as typed.
    assert_eq!((by_cidr.code, by_cidr.stdout), (by_name.code, by_name.stdout));
    expected!(
        "check-unknown-node",
        on_example("check --node node-99").transcript()
    );
    expected!(
        "check-unknown-pool",
        on_example("check --pool nowhere").transcript()
    );
}

/// The example needs five kinds of repairs, such as a rebuild for critical findings and a release for errors.
#[test]
fn every_next_step_once_the_most_severe_first() {
    let run = on_example("check");
    let wide = on_example("check -o wide").stdout;
    for command in [
        "kubectl delete pod --namespace monitoring",
        "calipam rebuild",
        "calipam release --leaked",
        "release --node node-11",
        "--orphan-handles",
    ] {
        assert!(wide.contains(command), "{command} in {wide}");
    }
    on_example("check --rule orphan-handle").prints("`calipam release --orphan-handles --datastore");
    assert_eq!(
        on_example("check -q").says_nothing().stdout,
        run.stdout,
        "quiet prints data only"
    );
}

#[test]
fn verbose_says_what_is_read() {
    let run = on_example("check -v -o json").says_first(&format!("reading {EXAMPLE}\n"));
    run.says(
        "cluster 0f0e1d2c3b4a59687786951423324150, Calico v3.32.1, revision 48250, at 2026-06-01T08:00:00Z",
    );
}

#[test]
fn names_cannot_take_over_a_terminal() {
    let run = calipam(&["check", "-o", "wide", "--datastore", HOSTILE]);
    let control = |c: char| c.is_control() && c != '\n';
    assert!(
        !run.stdout.contains(control) && !run.stderr.contains(control),
        "{run:?}"
    );
    expected!("check-hostile-names", run.transcript());
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    for format in ["table", "wide", "json", "yaml"] {
        let mut child = started(prepare("check -q -o").args([format, "--datastore", EXAMPLE]));
        drop(child.stdout.take());
        let run = Run::ended(child.wait_with_output().unwrap());
        assert_eq!(
            (run.code, run.stderr.as_str()),
            (1, ""),
            "{format}: the verdict stays"
        );
    }
}

/// Writes to `/dev/full` always fail. The report is lost, and the exit code is that of an error.
#[test]
fn an_output_that_cannot_be_written_is_an_error() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut check = prepare("check --datastore");
    let output = check
        .arg(EXAMPLE)
        .stdout(full)
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    Run::ended(output)
        .exits(3)
        .says_first("error: cannot write the output: ");
}
