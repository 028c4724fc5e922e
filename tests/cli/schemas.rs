//! The schemas in `docs/schemas`. Every document that a test reads must be valid, without fields that its schema lacks.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use calipam_testkit::servers::{Tool, find};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::program::{Run, calipam, command, file, on_example, root};

/// Strict copies of the schemas. They forbid additional fields, which the published schemas allow.
static STRICT: LazyLock<TempDir> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    for kind in published() {
        let mut schema = schema(&kind);
        forbid_others(&mut schema);
        fs::write(folder.path().join(format!("{kind}.json")), schema.to_string()).unwrap();
    }
    folder
});

fn folder() -> PathBuf {
    root().join("docs/schemas")
}

fn published() -> BTreeSet<String> {
    let files = fs::read_dir(folder()).unwrap().map(|file| file.unwrap().path());
    files
        .map(|file| file.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect()
}

fn schema(kind: &str) -> Value {
    let text = fs::read(folder().join(format!("{kind}.json"))).unwrap_or_else(|e| panic!("{kind}: {e}"));
    serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{kind}: {error}"))
}

fn forbid_others(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.values_mut().for_each(forbid_others);
            // Only a schema has a `type` that is a string. A field of a document may also be called `properties`.
            if fields.get("type").is_some_and(Value::is_string) && fields.contains_key("properties") {
                fields.insert("additionalProperties".into(), false.into());
            }
        }
        Value::Array(items) => items.iter_mut().for_each(forbid_others),
        _ => {}
    }
}

/// Validates a document with a schema, and returns the errors.
fn complaints(schema: &Path, document: &Value) -> String {
    let (_folder, file) = file("document.json", document.to_string());
    let run = Run::of(command(find(Tool::Jv).unwrap()).arg(schema).arg(file));
    if run.code == 0 {
        String::new()
    } else {
        run.transcript()
    }
}

/// Asserts that a document of calipam is valid according to the schema of its kind.
pub(super) fn assert_valid(document: &Value) {
    if document["apiVersion"] != "calipam/v1" {
        return;
    }
    let kind = document["kind"].as_str().expect("a document has a kind");
    let said = complaints(&STRICT.path().join(format!("{kind}.json")), document);
    assert_eq!(said, "", "{kind} by docs/schemas/{kind}.json: {document}");
    let of_clusters = document["clusters"].as_array().into_iter().flatten();
    of_clusters.for_each(|of| assert_valid(&of["document"]));
}

/// There is a schema for every kind that `docs/output.md` names, and for no other kind.
#[test]
fn every_kind_has_a_schema() {
    let text = fs::read_to_string(root().join("docs/output.md")).unwrap();
    let kinds = text
        .split("Every document has `apiVersion: calipam/v1` and a `kind`:")
        .nth(1)
        .unwrap();
    let kinds: BTreeSet<String> = kinds
        .split(". ")
        .next()
        .unwrap()
        .split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect();
    assert_eq!(published(), kinds);
}

/// Every schema refuses documents that lack a field, or have a field of another type.
#[test]
fn schemas_refuse_incomplete_or_mistyped_documents() {
    let report = on_example("check -o json").json();
    let published = folder().join("CheckReport.json");
    assert_eq!(complaints(&published, &report), "");
    let mut newer = report.clone();
    newer["findings"][0]["added"] = json!("in a later version");
    assert_eq!(complaints(&published, &newer), "", "programs pass over it");
    assert_ne!(complaints(&STRICT.path().join("CheckReport.json"), &newer), "");
    let refuses = |place: &str, change: &dyn Fn(&mut Value)| {
        let mut document = report.clone();
        change(&mut document);
        assert_ne!(complaints(&published, &document), "", "{place}");
    };
    for (place, wrong) in [
        ("/kind", json!("PoolList")),
        ("/cluster/datastore", json!("zookeeper")),
        ("/findings/0/severity", json!("bad")),
        ("/findings/0/subject/kind", json!("thing")),
        ("/counts/blocks", json!("6")),
        ("/coverage/blocks", json!("maybe")),
        ("/findings", Value::Null),
    ] {
        refuses(place, &|document| {
            *document.pointer_mut(place).unwrap() = wrong.clone()
        });
    }
    for field in report.as_object().unwrap().keys() {
        refuses(field, &|document| {
            _ = document.as_object_mut().unwrap().remove(field)
        });
    }
}

/// Validates documents that other tests do not read completely.
#[test]
fn documents_that_need_no_server_are_valid() {
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().display();
    on_example(&format!("export -q --archive {archive}")).succeeded();
    let history = format!("history --archive {archive} --node node-1");
    for (kind, line) in [
        (
            "Difference",
            "diff docs/examples/cluster.jsonl tests/fixtures/hostile.jsonl",
        ),
        ("History", &history),
        ("JournalList", "undo --list"),
        ("Version", "version"),
    ] {
        assert_eq!(calipam(&format!("{line} -o json")).json()["kind"], kind, "{line}");
    }
    for (kind, line) in [
        ("AddressList", "show --node node-1"),
        ("PoolMapList", "show --map"),
        ("Error", "show --pool none"),
        ("AddressExplanation", "explain --node node-1"),
    ] {
        assert_eq!(
            on_example(&format!("{line} -o json")).json()["kind"],
            kind,
            "{line}"
        );
    }
    for question in [
        "--nodes 4 --fail-node --runs 2",
        "--nodes 4 --block-size 26..29",
        "--nodes 4 --runs 2",
        "--nodes 4 --clashes=none,freed-by-hand --runs 1",
        "--nodes 6 --advise --max-pods-per-node 12",
        "--nodes 4,8",
    ] {
        let run = calipam(&format!(
            "simulate --pods-per-node 8 --pool 10.0.0.0/24 {question} -o json"
        ));
        assert_eq!(run.json()["kind"], "Simulation", "{question}");
    }
}
