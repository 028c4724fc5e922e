//! `calipam explain`.

use calipam_check::Code;

use super::program::{calipam, expected};

#[test]
fn a_code_is_explained() {
    expected!("explain-leaked-address", calipam(&["explain", "leaked-address"]).transcript());
}

#[test]
fn every_code_has_an_explanation() {
    for code in Code::ALL {
        let run = calipam(&["explain", code.name()]);
        assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{code}");
        assert!(run.stdout.starts_with(&format!("{code} (")) && run.stdout.contains("What to do."), "{code}");
    }
}

#[test]
fn without_a_code_all_are_listed() {
    expected!("explain-rules", calipam(&["explain"]).transcript());
    let json = calipam(&["explain", "-o", "json"]).json();
    assert_eq!(json["kind"], "RuleList");
    let codes = json["rules"].as_array().unwrap().iter().map(|rule| rule["code"].as_str().unwrap());
    assert_eq!(codes.collect::<Vec<_>>(), Code::ALL.iter().map(|code| code.name()).collect::<Vec<_>>());
}

#[test]
fn an_unknown_code_is_a_usage_error() {
    expected!("explain-unknown", calipam(&["explain", "leaked"]).transcript());
    expected!("explain-unlike-any", calipam(&["explain", "weather"]).transcript());
}

#[test]
fn an_explanation_for_machines() {
    let run = calipam(&["explain", "leaked-address", "-o", "json"]);
    let json = run.json();
    let rule = &json["rules"][0];
    assert_eq!((&json["kind"], &rule["severity"]), (&"RuleList".into(), &"error".into()));
    assert!(rule["text"].as_str().unwrap().contains("**What to do.**"));
    let yaml = calipam(&["explain", "leaked-address", "-o", "yaml"]);
    assert_eq!(serde_yaml::from_str::<serde_json::Value>(&yaml.stdout).unwrap(), json);
}

#[test]
fn several_rules_in_any_case() {
    let run = calipam(&["explain", "Leaked-Address", "ORPHAN-HANDLE,leaked-address"]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    let at = |text: &str| run.stdout.find(text).unwrap_or_else(|| panic!("{text}: {run:?}"));
    assert!(at("leaked-address (error)\n\n") < at("\n\norphan-handle (warning)\n\n"));
    assert_eq!(run.stdout.matches("leaked-address (error)").count(), 1, "each once");
    let json = calipam(&["explain", "leaked-address", "orphan-handle", "-o", "json"]);
    assert_eq!(json.json()["rules"][1]["code"], "orphan-handle");
    super::program::on_example(&["check", "--rule", "Orphan-Handle"]).prints("5 findings: 5 warning");
    let says = "unknown rule \"LEAKED\"\nhint: did you mean `leaked-address`?";
    assert!(calipam(&["explain", "LEAKED"]).stderr.contains(says));
}
