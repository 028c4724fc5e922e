//! Repairs of a file only plan and simulate. They never write.

use calipam_model::snapshot::DatastoreKind;
use calipam_repair::journal::{FORMAT, Header, Journal};
use serde_json::Value;

use super::site::AT_ONCE;
use crate::cli::program::{EXAMPLE, assert_expected, on_example, root, scratch};

const RELEASE: [&str; 3] = ["release", "--leaked", "--orphan-handles"];

#[test]
fn a_plan_in_every_form() {
    let plan = |format| on_example(&[&RELEASE[..], &AT_ONCE[..], &["-o", format]].concat());
    for format in ["table", "wide", "yaml"] {
        assert_expected(&format!("release-offline-{format}"), &plan(format).transcript());
    }
    let (json, yaml) = (plan("json"), plan("yaml"));
    assert_eq!((json.code, &json.stderr), (yaml.code, &yaml.stderr));
    assert_eq!(json.json(), serde_yaml::from_str::<Value>(&yaml.stdout).unwrap());
}

#[test]
fn a_file_is_never_written() {
    let before = std::fs::read(root().join(EXAMPLE)).unwrap();
    for more in [
        vec![],
        vec!["--lock"],
        vec!["--yes", "--dry-run"],
        vec!["--dry-run"],
    ] {
        let run = on_example(&[&RELEASE[..], &AT_ONCE[..], &more].concat()).prints("\nPlan: ");
        let told = run
            .stderr
            .contains("a file is never changed: this is what would be done to the cluster");
        assert!(told && !run.stderr.contains("calipam undo"), "{run:?}");
    }
    // Without a second check, the plan assumes that the check would succeed.
    on_example(&[&RELEASE[..], &["--grace", "1h", "--settle", "0"]].concat())
        .says("the plan assumes that a second check, 1h later, finds the same");
    assert_eq!(std::fs::read(root().join(EXAMPLE)).unwrap(), before);
}

#[test]
fn nothing_can_be_undone_in_a_file() {
    let (_folder, journal) = scratch("journal");
    let header = Header {
        format: FORMAT,
        program: "0.1.0".into(),
        started_at: "2026-05-01T10:00:00Z".into(),
        command: "release --leaked".into(),
        cluster: "0f0e1d2c3b4a59687786951423324150".into(),
        datastore: DatastoreKind::Etcd,
        location: "x".into(),
    };
    drop(Journal::create(&journal, &header).unwrap());
    on_example(&["undo", journal.to_str().unwrap(), "--yes"])
        .failed(2, "a file is never changed; an undo needs a live datastore");
}
