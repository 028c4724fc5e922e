//! The fields of YAML and JSON documents are documented.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use super::program::{files, on_example, root};

/// Collects the names of all fields, except those in maps whose keys are data.
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
    let text = fs::read_to_string(root().join("docs/output.md")).unwrap();
    for line in [
        "check",
        "explain",
        "show",
        "show --blocks",
        "show --nodes",
        "show --borrowed",
        "show --namespaces",
        "show --configuration",
        "show --map",
        "show --ip 10.244.10.6",
        "show --handle monitoring.prometheus-76",
        "release --leaked --orphan-handles",
        "rebuild",
        "assign --count 1 --node node-1 --dry-run",
        "explain --node node-1",
    ] {
        let json = on_example(&format!("{line} -o json")).json();
        let mut found = BTreeSet::new();
        fields(&json, &mut found);
        for name in found {
            let described = text.contains(&format!("`{name}`")) || text.contains(&format!("`{name}:"));
            assert!(described, "docs/output.md does not describe `{name}` of {line}");
        }
        let kind = json["kind"].as_str().unwrap();
        assert!(
            text.contains(&format!("`{kind}`")),
            "docs/output.md does not name {kind}"
        );
    }
}

/// Returns the words in backquotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Reads a source file, or all files below a folder, into one string.
fn source(path: &Path) -> String {
    let files = if path.is_file() {
        vec![path.to_owned()]
    } else {
        files(path)
    };
    files
        .iter()
        .map(|file| fs::read_to_string(file).unwrap())
        .collect()
}

/// Returns the columns of all tables, from the source: the first argument of each constructor of a `Column`.
fn columns() -> BTreeSet<String> {
    let at = |name: &str| source(&root().join("crates/cli/src").join(name));
    let code = at("render").replace(&at("render/table_tests.rs"), "") + &at("commands");
    let makers = [
        "left(",
        "right(",
        "known(",
        "number(",
        "sum(",
        "differing(",
        "addresses(",
        "column_of_set(",
    ];
    let calls = makers.iter().flat_map(|maker| code.split(maker).skip(1));
    let titles = calls.filter_map(|call| call.trim_start().strip_prefix('"')?.split('"').next());
    titles.map(str::to_owned).collect()
}

/// Each column name is described once, and no two names have the same description.
#[test]
fn every_column_is_described_once() {
    let text = fs::read_to_string(root().join("docs/output.md")).unwrap();
    let section = text
        .split("\n### Columns\n")
        .nth(1)
        .unwrap()
        .split("\n## ")
        .next()
        .unwrap();
    let rows: Vec<(&str, &str)> = section
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.strip_suffix(" |")?.split_once("` | "))
        .collect();
    let described: BTreeSet<String> = rows.iter().map(|(name, _)| (*name).to_owned()).collect();
    let meanings: BTreeSet<&str> = rows.iter().map(|(_, meaning)| *meaning).collect();
    let expected = (rows.len(), rows.len());
    assert_eq!(
        (described.len(), meanings.len()),
        expected,
        "a name or a meaning is there twice"
    );
    let columns = columns();
    assert!(columns.len() > 50, "{columns:?}");
    assert_eq!(
        described, columns,
        "docs/output.md describes the columns that tables have"
    );
}

/// The steps in the tables of `docs/architecture.md` are functions of the file in that row.
#[test]
fn the_paths_in_architecture_exist() {
    let text = fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let mut steps = 0;
    for line in text.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.split(" | ").collect();
        let [names, places, _] = cells[..] else { continue };
        let files: Vec<&str> = quoted(places).filter(|place| place.contains("/src/")).collect();
        if files.is_empty() {
            continue;
        }
        let code: String = files
            .iter()
            .map(|file| source(&root().join("crates").join(file)))
            .collect();
        for name in quoted(names) {
            let function = name.rsplit("::").next().unwrap();
            let defined = [format!("fn {function}("), format!("fn {function}<")];
            assert!(
                defined.iter().any(|text| code.contains(text)),
                "{name} is not in {files:?}"
            );
            steps += 1;
        }
    }
    assert!(steps > 20, "only {steps} steps were found");
}
