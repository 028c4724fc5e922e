//! `calipam check` on the example cluster.

use std::fs;
use std::process::Stdio;

use serde_json::Value;

use super::program::{EXAMPLE, HOSTILE, Run, calipam, command, expected, on_example, root, scratch};

#[test]
fn every_format() {
    expected!("check-table", on_example(&["check"]).transcript());
    expected!("check-wide", on_example(&["check", "-o", "wide"]).transcript());
    expected!("check-yaml", on_example(&["check", "-o", "yaml", "--rule", "duplicate-address"]).transcript());
    expected!("check-json", on_example(&["check", "-o", "json", "--rule", "duplicate-address"]).transcript());
}

#[test]
fn yaml_and_json_say_the_same() {
    let json = on_example(&["check", "-o", "json"]).json();
    let yaml: Value = serde_yaml::from_str(&on_example(&["check", "-o", "yaml"]).stdout).unwrap();
    assert_eq!(json, yaml);
    assert_eq!((&json["apiVersion"], &json["kind"]), (&"calipam/v1".into(), &"CheckReport".into()));
    let counts = json["counts"]["findings"].as_object().unwrap();
    let counted: u64 = counts.values().map(|number| number.as_u64().unwrap()).sum();
    assert_eq!(counted, json["findings"].as_array().unwrap().len() as u64);
}

/// Numbers that do not fit into 53 bits are strings, since many JSON parsers would lose their last digits.
#[test]
fn no_number_is_too_large_for_other_readers() {
    fn look(value: &Value) {
        match value {
            Value::Number(number) => assert!(number.as_i64().is_some_and(|n| n.abs() < 1 << 53), "{number}"),
            Value::Array(items) => items.iter().for_each(look),
            Value::Object(fields) => fields.values().for_each(look),
            _ => {}
        }
    }
    let json = on_example(&["check", "-o", "json"]).json();
    look(&json);
    assert!(json["cluster"]["revision"].is_string());
}

#[test]
fn the_exit_code_follows_fail_on() {
    let code = |arguments: &[&str]| on_example(&[&["check", "-q"], arguments].concat()).code;
    assert_eq!(code(&[]), 1);
    assert_eq!(code(&["--fail-on", "never"]), 0);
    assert_eq!(code(&["--fail-on", "critical"]), 1);
    assert_eq!(code(&["--rule", "orphan-handle"]), 1);
    assert_eq!(code(&["--rule", "orphan-handle", "--fail-on", "error"]), 0);
    assert_eq!(code(&["--rule", "block-size-mismatch"]), 0);
    assert_eq!(code(&["--rule", "block-size-mismatch", "--fail-on", "info"]), 1);
}

#[test]
fn names_are_one_subject_a_line() {
    let run = on_example(&["check", "-o", "name", "--rule", "leaked-address,orphan-handle"]);
    let json = on_example(&["check", "-o", "json", "--rule", "leaked-address,orphan-handle"]);
    let json = json.json();
    let subjects = json["findings"].as_array().unwrap().iter().map(|finding| {
        let text = |field: &str| finding["subject"][field].as_str().unwrap().to_owned();
        format!("{}/{}", text("kind"), text("name"))
    });
    let expected: Vec<String> = subjects.collect();
    assert!(!expected.is_empty());
    assert_eq!(run.stdout.lines().collect::<Vec<_>>(), expected);
    assert_eq!(run.stderr, "");
}

#[test]
fn formats_of_reports_are_refused_elsewhere() {
    for (arguments, format) in [
        (&["show", "-o", "junit"][..], "junit"),
        (&["show", "--map", "-o", "html"], "html"),
        (&["explain", "-o", "name"], "name"),
    ] {
        on_example(arguments).refused(2, &format!(" has no format `{format}`; it has table, wide, "));
    }
}

/// Returns the codes of the findings, without repetitions.
fn codes(run: &Run) -> Vec<String> {
    let json = run.json();
    let findings = json["findings"].as_array().unwrap().iter();
    let mut codes: Vec<String> = findings.map(|f| f["code"].as_str().unwrap().to_owned()).collect();
    codes.dedup();
    codes
}

#[test]
fn rules_are_selected() {
    let json = |arguments: &[&str]| on_example(&[&["check", "-o", "json"], arguments].concat());
    let two = json(&["--rule", "orphan-handle,leaked-address"]);
    assert_eq!(codes(&two), ["leaked-address", "orphan-handle"]);
    assert_eq!(codes(&json(&["--rule", "orphan-handle", "--rule", "leaked-address"])), codes(&two));
    let all = codes(&json(&[]));
    let without = codes(&json(&["--skip-rule", "leaked-address"]));
    assert_eq!(without.len(), all.len() - 1);
    assert!(!without.contains(&"leaked-address".to_owned()));
}

#[test]
fn nodes_and_pools_are_selected() {
    let run = on_example(&["check", "-o", "wide", "--node", "node-11"]).prints("block-of-missing-node");
    assert!(!run.stdout.contains("duplicate-address"), "{run:?}");
    let run = on_example(&["check", "--pool", "extra-5"]);
    assert!(run.stdout.contains("pool-nearly-full") && !run.stdout.contains("duplicate-address"), "{run:?}");
    let by_cidr = on_example(&["check", "--pool", "172.16.5.0/28"]);
    // Only stdout is compared, since the hints on stderr repeat the options as typed.
    assert_eq!((by_cidr.code, by_cidr.stdout), (run.code, run.stdout));
    expected!("check-unknown-node", on_example(&["check", "--node", "node-99"]).transcript());
    expected!("check-unknown-pool", on_example(&["check", "--pool", "nowhere"]).transcript());
}

/// The example needs five kinds of repairs, such as a rebuild for critical findings and a release for errors.
#[test]
fn every_next_step_once_the_most_severe_first() {
    let run = on_example(&["check"]);
    let hints: Vec<&str> = run.stderr.lines().filter(|line| line.starts_with("hint: ")).collect();
    assert_eq!(hints.len(), 6, "the last may be the one that matters: {run:?}");
    assert!(hints[0].contains("explain duplicate-address"), "{run:?}");
    assert!(hints[1].contains("kubectl delete pod --namespace monitoring"), "{run:?}");
    assert!(hints[2].contains("calipam rebuild") && hints[3].contains("calipam release --leaked"), "{run:?}");
    assert!(hints[4].contains("release --node node-11") && hints[5].contains("--orphan-handles"), "{run:?}");
    let run = on_example(&["check", "--rule", "orphan-handle", "-o", "wide"]);
    assert!(run.stderr.contains("`calipam release --orphan-handles --datastore"), "{run:?}");
}

#[test]
fn quiet_prints_data_only() {
    let run = on_example(&["check", "-q"]);
    assert_eq!(run.stderr, "");
    assert_eq!(run.stdout, on_example(&["check"]).stdout);
}

#[test]
fn a_newer_version_of_calico_is_named() {
    let example = fs::read_to_string(root().join(EXAMPLE)).unwrap();
    let (_folder, file) = scratch("later.jsonl");
    fs::write(&file, example.replace("\"calicoVersion\":\"v3.32.1\"", "\"calicoVersion\":\"v3.99.0\""))
        .unwrap();
    let later = calipam(&["check", "--datastore", file.to_str().unwrap()]);
    let says = "note: Calico v3.99.0 is newer than calipam supports (up to v3.";
    assert!(later.stderr.contains(says), "{later:?}");
    assert!(!on_example(&["check"]).stderr.contains("newer than"));
}

#[test]
fn verbose_says_what_is_read() {
    let run = on_example(&["check", "-v", "-o", "json"]);
    assert!(run.stderr.starts_with(&format!("reading {EXAMPLE}\n")), "{run:?}");
    let cluster =
        "cluster 0f0e1d2c3b4a59687786951423324150, Calico v3.32.1, revision 48250, at 2026-06-01T08:00:00Z";
    assert!(run.stderr.contains(cluster), "{run:?}");
}

#[test]
fn grace_and_threshold_count() {
    let leaks = |grace| {
        let run = on_example(&["check", "--rule", "leaked-address", "-o", "json", "--grace", grace]);
        let json = run.json();
        json["findings"].as_array().unwrap().len()
    };
    assert!(leaks("0") >= leaks("15m") && leaks("15m") > leaks("999999h"));
    let full = |limit| on_example(&["check", "--rule", "pool-nearly-full", "--pool-threshold", limit]).code;
    assert_eq!((full("90"), full("95%")), (1, 0));
}

#[test]
fn names_cannot_take_over_a_terminal() {
    let run = calipam(&["check", "-o", "wide", "--datastore", HOSTILE]);
    let control = |c: char| c.is_control() && c != '\n';
    assert!(!run.stdout.contains(control) && !run.stderr.contains(control), "{run:?}");
    expected!("check-hostile-names", run.transcript());
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    for format in ["table", "wide", "json", "yaml"] {
        let mut child = command(crate::cli::PROGRAM)
            .args(["check", "-q", "--datastore", EXAMPLE, "-o", format])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{format}: the verdict stays");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{format}");
    }
}

/// Writes to `/dev/full` always fail. The report is lost, and the exit code is that of an error.
#[test]
fn an_output_that_cannot_be_written_is_an_error() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = command(crate::cli::PROGRAM)
        .args(["check", "--datastore", EXAMPLE])
        .stdout(full)
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.starts_with("error: cannot write the output: "), "{stderr}");
}

#[test]
fn ipam_before_the_command_is_accepted() {
    let run = on_example(&["ipam", "check"]);
    assert_eq!(run.transcript(), on_example(&["check"]).transcript());
    let before = calipam(&["--datastore", EXAMPLE, "ipam", "check"]);
    assert_eq!(before.transcript(), run.transcript());
}
