//! Tests of the SBOMs.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use calipam_testkit::servers::{Tool, find};
use serde_json::Value;

use super::{TARGET, VERSION, ending, packaged, root};

/// The SBOMs of calipam and of the plugin.
fn documents() -> [Value; 2] {
    let folder = tempfile::tempdir().unwrap();
    let written = packaged(folder.path(), TARGET);
    ["calipam", "calipam-cni"].map(|name| {
        let path = ending(&written, &format!("/{name}-{VERSION}-{TARGET}.cdx.json"));
        serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
    })
}

#[test]
fn lists_the_dependencies_of_a_program() {
    let [calipam, cni] = documents();
    assert_eq!(
        (&calipam["bomFormat"], &calipam["specVersion"]),
        (&"CycloneDX".into(), &"1.5".into())
    );
    assert_eq!(calipam["metadata"]["component"]["name"], "calipam");
    let names = |document: &Value| -> Vec<String> {
        let all = document["components"].as_array().unwrap().iter();
        all.map(|component| component["name"].as_str().unwrap().to_owned())
            .collect()
    };
    for name in ["clap", "kube", "calipam-model", "mimalloc"] {
        assert!(names(&calipam).iter().any(|found| found == name), "{name}");
    }
    // Crates that are needed only for tests, for other targets, or for the other program are not listed.
    for name in ["insta", "calipam-testkit", "windows-sys"] {
        assert!(!names(&calipam).iter().any(|found| found == name), "{name}");
    }
    assert!(!names(&cni).iter().any(|name| name == "clap"));

    let components = calipam["components"].as_array().unwrap();
    let mut known = BTreeSet::from([calipam["metadata"]["component"]["bom-ref"].to_string()]);
    for component in components {
        assert!(
            known.insert(component["bom-ref"].to_string()),
            "{component} stands twice"
        );
        assert!(component["licenses"][0]["expression"].is_string(), "{component}");
        let is_ours = component["name"].as_str().unwrap().starts_with("calipam");
        let sum = component["hashes"][0]["content"].as_str().map(str::len);
        assert_eq!(sum, (!is_ours).then_some(64), "{component}");
    }
    for dependency in calipam["dependencies"].as_array().unwrap() {
        assert!(known.contains(&dependency["ref"].to_string()), "{dependency}");
        let on = dependency["dependsOn"].as_array().unwrap();
        assert!(
            on.iter().all(|reference| known.contains(&reference.to_string())),
            "{dependency}"
        );
    }
}

/// Removes references to other schema files. These describe SPDX license IDs and signatures, which do not occur in
/// these SBOMs.
fn without_other_files(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.remove("$id");
            fields
                .retain(|name, value| name != "$ref" || value.as_str().is_some_and(|to| to.starts_with('#')));
            fields.values_mut().for_each(without_other_files);
        }
        Value::Array(items) => items.iter_mut().for_each(without_other_files),
        _ => {}
    }
}

#[test]
fn it_is_valid_against_the_schema_of_cyclonedx() {
    let folder = tempfile::tempdir().unwrap();
    let schema = fs::read(root().join("tests/fixtures/schemas/cyclonedx-1.5.json")).unwrap();
    let mut schema: Value = serde_json::from_slice(&schema).unwrap();
    without_other_files(&mut schema);
    fs::write(folder.path().join("schema.json"), schema.to_string()).unwrap();
    let complaints = |document: &Value| {
        fs::write(folder.path().join("document.json"), document.to_string()).unwrap();
        let mut validator = Command::new(find(Tool::Jv).unwrap());
        let output = validator
            .args(["schema.json", "document.json"])
            .current_dir(folder.path())
            .output()
            .unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        (!output.status.success()).then_some(text)
    };
    for document in documents() {
        assert_eq!(complaints(&document), None);
    }
    let [mut wrong, _] = documents();
    wrong["components"][0]["type"] = "crate".into();
    assert!(complaints(&wrong).unwrap().contains("components/0/type"));
}
