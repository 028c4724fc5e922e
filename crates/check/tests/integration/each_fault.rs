//! Clusters with one kind of fault at a time.

use calipam_check::{Options, check};
use calipam_model::block::BlockContent;
use calipam_model::snapshot::Snapshot;
use calipam_testkit::cluster::{Cluster, ClusterSpec, Fault};
use serde_json::json;

use crate::expected::assert_truth;

#[test]
fn each_fault_gives_exactly_its_findings_and_stray_records_change_none_about_an_address() {
    let mut failures = Vec::new();
    for fault in Fault::ALL {
        for spec in [ClusterSpec::new(7), ClusterSpec::new(8).v4_only()] {
            let cluster = Cluster::small(spec).with(*fault, 2);
            let judged = std::panic::catch_unwind(|| {
                assert_truth(fault.name(), &cluster);
                let snapshot = cluster.snapshot();
                assert_eq!(
                    of_addresses(&with_stray_records(&snapshot)),
                    of_addresses(&snapshot)
                );
            });
            failures.extend(judged.is_err().then(|| fault.name()));
        }
    }
    assert!(failures.is_empty(), "{failures:?}");
}

/// The findings about addresses, each as `code subject`.
fn of_addresses(snapshot: &Snapshot) -> Vec<String> {
    let report = check(snapshot, &Options::default());
    let about = report
        .findings
        .iter()
        .filter(|finding| finding.subject.kind() == "address");
    about
        .map(|finding| format!("{} {}", finding.code, finding.subject))
        .collect()
}

/// The snapshot with a record in each sound block that no ordinal refers to.
fn with_stray_records(snapshot: &Snapshot) -> Snapshot {
    let mut stray = snapshot.clone();
    for block in &mut stray.blocks {
        let Some(sound) = block.value.content.sound().filter(|sound| !sound.is_deleted()) else {
            continue;
        };
        let mut value = serde_json::to_value(sound).unwrap();
        let Some(records) = value["attributes"].as_array_mut() else {
            continue;
        };
        records.push(json!({"handle_id": "stray"}));
        block.value.content = BlockContent::parse(value.to_string().as_bytes()).unwrap();
    }
    stray
}
