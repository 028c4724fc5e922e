//! The same cluster read from every source: etcd, an export by calipam, an export by the generator, and an etcd
//! snapshot.

use calipam_testkit::cluster::{Cluster, ClusterSpec, Fault};
use calipam_testkit::datastore::{self, observe, open, quiet};
use calipam_testkit::servers::{Etcd, EtcdVersion};
use jiff::Timestamp;
use serde_json::Value;
use tempfile::TempDir;

use super::findings::{checked, findings, lines};
use crate::support::open_file;

/// A report without the values that depend on the source, such as the location, the time and the revision.
fn comparable(report: &calipam_check::Report) -> Value {
    let mut value = serde_json::to_value(report).unwrap();
    for field in ["location", "revision", "takenAt"] {
        value["cluster"][field].take();
    }
    value["rechecked"].take();
    value["coverage"].take();
    value["findings"] = serde_json::to_value(&report.findings).unwrap();
    value
}

#[tokio::test(flavor = "multi_thread")]
async fn all_faults_are_found_in_every_source() {
    let cluster = Cluster::all_faults(ClusterSpec::new(3).at(Timestamp::now()), 1);
    let truth = cluster.truth().lines();
    let folder = TempDir::new().unwrap();
    for version in EtcdVersion::all() {
        let etcd = Etcd::start_version(version).unwrap();
        cluster.write_to_etcd(&etcd.endpoint()).unwrap();
        let live = open(datastore::etcd(etcd.endpoint())).await;
        let report = checked(&observe(&live).await);
        assert_eq!(lines(&report.findings), truth);

        let export = folder.path().join("export.jsonl.zst");
        live.export(&export, &quiet()).await.unwrap();
        let of_export = checked(&observe(&open_file(&export).await.unwrap()).await);
        assert!(
            comparable(&of_export) == comparable(&report),
            "the export gives another report"
        );

        let saved = folder.path().join("snapshot.db");
        etcd.save_snapshot(&saved).unwrap();
        let of_snapshot = checked(&observe(&open_file(&saved).await.unwrap()).await);
        assert!(
            comparable(&of_snapshot) == comparable(&report),
            "the etcd snapshot gives another report"
        );
    }

    let written = folder.path().join("generated.jsonl");
    cluster.write_export(&written).unwrap();
    assert_eq!(
        lines(&findings(&observe(&open_file(&written).await.unwrap()).await)),
        truth
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sized_cluster_is_written_to_etcd_completely() {
    let mut head = Cluster::plain(ClusterSpec::new(4).wide().v4_only().at(Timestamp::now()), 1, 3);
    head.inject_all(Fault::ALL.iter().copied(), 1);
    let truth = head.truth().lines();
    let cluster = head.filled(20_000);
    let etcd = Etcd::start().unwrap();
    cluster.write_to_etcd(&etcd.endpoint()).unwrap();
    let snapshot = observe(&open(datastore::etcd(etcd.endpoint())).await).await;
    let report = checked(&snapshot);
    assert_eq!(lines(&report.findings), truth);
    let counts = snapshot.allocation_counts();
    assert!(
        (20_000..21_000).contains(&(counts.allocated + counts.cooling)),
        "{counts:?}"
    );
}
