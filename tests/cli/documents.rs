//! The schema of YAML and JSON is documented.

use std::collections::BTreeSet;

use serde_json::Value;

use super::program::{on_example, root};

/// Names of all fields, but for those below fields whose names are data.
fn fields(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| fields(item, found)),
        Value::Object(object) => {
            for (name, value) in object {
                found.insert(name.clone());
                if !["attributes", "alternateAttributes"].contains(&name.as_str()) {
                    fields(value, found);
                }
            }
        }
        _ => {}
    }
}

#[test]
fn every_field_is_described() {
    let text = std::fs::read_to_string(root().join("docs/output.md")).unwrap();
    let runs: [&[&str]; 12] = [
        &["check"],
        &["check", "--list-rules"],
        &["explain", "leaked-address"],
        &["show"],
        &["show", "--blocks"],
        &["show", "--nodes"],
        &["show", "--borrowed"],
        &["show", "--configuration"],
        &["show", "--ip", "10.244.10.6"],
        &["show", "--handle", "monitoring.prometheus-76"],
        &["release", "--leaked", "--orphan-handles"],
        &["rebuild"],
    ];
    for arguments in runs {
        let run = on_example(&[arguments, &["-o", "json"]].concat());
        let json: Value = serde_json::from_str(&run.stdout).unwrap();
        let mut found = BTreeSet::new();
        fields(&json, &mut found);
        for name in found {
            let described = text.contains(&format!("`{name}`")) || text.contains(&format!("`{name}:"));
            assert!(described, "docs/output.md does not describe `{name}` of {arguments:?}");
        }
        let kind = json["kind"].as_str().unwrap();
        assert!(text.contains(&format!("`{kind}`")), "docs/output.md does not name {kind}");
    }
}

/// What the README shows is what the program prints.
#[test]
fn the_readme_shows_real_output() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let run = on_example(&["check"]);
    let printed = run.stdout + &run.stderr;
    let shown = readme.split("```\n").find(|part| part.starts_with("$ calipam check --datastore")).unwrap();
    let lines: Vec<&str> = shown.lines().skip(1).filter(|line| !line.is_empty() && *line != "…").collect();
    assert!(lines.len() > 8, "{shown}");
    for line in lines {
        assert!(printed.lines().any(|other| other == line), "README.md shows what is not printed: {line}");
    }
}
