//! `calipam explain`.

use calipam_check::Code;
use serde_json::Value;

use super::program::{calipam, column, expected, on_example};

#[test]
fn every_code_has_an_explanation() {
    for code in Code::ALL {
        let run = calipam(&["explain", code.name()])
            .succeeded()
            .says_nothing()
            .prints("What to do.");
        assert!(run.stdout.starts_with(&format!("{code} (")), "{run:?}");
    }
    expected!(
        "explain-leaked-address",
        calipam("explain leaked-address").transcript()
    );
}

#[test]
fn without_a_code_all_are_listed() {
    expected!("explain-rules", calipam("explain").transcript());
    let json = calipam("explain -o json").json();
    assert_eq!(json["kind"], "RuleList");
    assert_eq!(
        column(&json["rules"], "code"),
        Code::ALL.iter().map(|code| code.name()).collect::<Vec<_>>()
    );
}

#[test]
fn an_unknown_code_is_a_usage_error() {
    expected!("explain-unknown", calipam("explain leaked").transcript());
    expected!("explain-unlike-any", calipam("explain weather").transcript());
    calipam("explain LEAKED").says("unknown rule \"LEAKED\"\nhint: did you mean `leaked-address`?");
}

#[test]
fn an_explanation_for_machines() {
    let json = calipam("explain leaked-address -o json").json();
    let rule = &json["rules"][0];
    assert_eq!(
        (&json["kind"], &rule["severity"]),
        (&"RuleList".into(), &"error".into())
    );
    assert!(rule["text"].as_str().unwrap().contains("**What to do.**"));
    let yaml = calipam("explain leaked-address -o yaml").stdout;
    assert_eq!(serde_yaml::from_str::<Value>(&yaml).unwrap(), json);
}

#[test]
fn several_rules_in_any_case() {
    let run = calipam("explain Leaked-Address ORPHAN-HANDLE,leaked-address")
        .succeeded()
        .says_nothing();
    let at = |text: &str| run.stdout.find(text).unwrap_or_else(|| panic!("{text}: {run:?}"));
    assert!(at("leaked-address (error)\n\n") < at("\n\norphan-handle (warning)\n\n"));
    assert_eq!(
        run.stdout.matches("leaked-address (error)").count(),
        1,
        "each once"
    );
    let json = calipam("explain leaked-address orphan-handle -o json").json();
    assert_eq!(json["rules"][1]["code"], "orphan-handle");
    on_example("check --rule Orphan-Handle").prints("5 findings: 5 warning");
}

/// Records of a deleted node remain: what they are, and what releases them.
#[test]
fn a_deleted_node_is_explained_by_what_is_left_of_it() {
    let run = on_example("explain --node node-11").exits(1).says_nothing();
    let run = run
        .prints("node-11 does not exist, so no pod starts there; its records remain: 5 addresses, 1 block");
    run.prints("release the addresses of a deleted node: `calipam release --node node-11 --datastore");
    let json = on_example("explain --node node-11 -o json").exits(1).json();
    assert_eq!(json["node"], "node-11");
    on_example("explain --node node-99").refused(1, "node \"node-99\" not found");
}
