//! Checks a cluster in each of its forms, and compares the findings with the expected ones.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use calipam_check::{Finding, Options, Recheck, Report, check};
use calipam_datastore::Datastore;
use calipam_model::snapshot::Snapshot;
use calipam_testkit::allocator::Activity;
use calipam_testkit::cluster::{Cluster, ClusterSpec, Fault, Found, GroundTruth, KubeCluster};
use calipam_testkit::datastore::observe;
use calipam_testkit::kube::Flavour;
use serde_json::Value;

use super::differences::{Side, is_explained};
use crate::support::open_file;

pub(super) const FLAVOURS: [Flavour; 2] = [Flavour::Classic, Flavour::Native];

/// A cluster into which a fault was injected `count` times. A fault that concerns the whole cluster, services or
/// machines is injected into a cluster with all features. For any other fault, a few pods are enough.
pub(super) fn broken(fault: Fault, count: usize) -> Cluster {
    let looks_around = fault.stands_alone() || fault == Fault::StrictAffinity;
    let whole = looks_around || Fault::KUBERNETES_ONLY.contains(&fault);
    let spec = ClusterSpec::new(7);
    let mut cluster = if whole {
        Cluster::small(spec)
    } else {
        Cluster::plain(spec, 2, 2)
    };
    cluster.add_young();
    cluster.inject(fault, count);
    cluster
}

/// Checks a snapshot with default options.
pub(super) fn checked(snapshot: &Snapshot) -> Report {
    check(snapshot, &Options::default())
}

/// Rechecks a report whose snapshot was read at `read`. Before each further read, waits for `settle`, and for the
/// operations that were in progress at the last read.
pub(super) async fn recheck(
    datastore: &Datastore,
    (snapshot, mut read): (&Snapshot, Instant),
    report: &mut Report,
    (settle, activity): (Duration, &Activity),
) {
    let mut recheck = Recheck::new(snapshot);
    while let Some(keys) = recheck.keys(report) {
        tokio::time::sleep(settle).await;
        activity.ended(read).await;
        let later = datastore.reread(&keys).await.unwrap().unwrap();
        read = Instant::now();
        recheck.take(report, later);
    }
}

pub(super) fn findings(snapshot: &Snapshot) -> Vec<Finding> {
    checked(snapshot).findings
}

/// The findings in etcd's form.
pub(super) fn in_etcd(cluster: &Cluster) -> Vec<Finding> {
    findings(&cluster.snapshot())
}

/// The snapshot of a list in the form of `kubectl get … -o json`.
pub(super) async fn snapshot_of_list(cluster: &KubeCluster) -> Snapshot {
    snapshot_of_objects(&cluster.list()).await
}

pub(super) async fn snapshot_of_objects(list: &Value) -> Snapshot {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("list.json");
    std::fs::write(&path, list.to_string()).unwrap();
    snapshot_of_file(&path).await
}

/// The snapshot of a folder with a list of each kind, in the form of the API server.
pub(super) async fn snapshot_of_folder(cluster: &KubeCluster) -> Snapshot {
    let folder = tempfile::tempdir().unwrap();
    cluster.write_lists(folder.path()).unwrap();
    snapshot_of_file(folder.path()).await
}

async fn snapshot_of_file(path: &Path) -> Snapshot {
    observe(&open_file(path).await.unwrap()).await
}

/// The findings in one list of all objects.
pub(super) async fn in_list(cluster: &KubeCluster) -> Vec<Finding> {
    findings(&snapshot_of_list(cluster).await)
}

/// The findings in a folder with a list of each kind.
pub(super) async fn in_folder(cluster: &KubeCluster) -> Vec<Finding> {
    findings(&snapshot_of_folder(cluster).await)
}

/// `code subject` of every finding, ascending.
pub(super) fn lines(findings: &[Finding]) -> Vec<String> {
    let mut lines: Vec<String> = findings
        .iter()
        .map(|f| format!("{} {}", f.code, f.subject))
        .collect();
    lines.sort_unstable();
    lines
}

/// `code subject` of every finding, as a set.
pub(super) fn distinct_lines(findings: &[Finding]) -> BTreeSet<String> {
    lines(findings).into_iter().collect()
}

pub(super) fn evidence(finding: &Finding) -> String {
    serde_json::to_string(&finding.evidence).unwrap()
}

fn describe(finding: &Finding) -> String {
    format!(
        "{} {} {}: {}",
        finding.severity,
        finding.code,
        finding.subject,
        finding.message()
    )
}

/// The differences between findings and the ground truth.
pub(super) fn complaints(findings: &[Finding], truth: &GroundTruth) -> Vec<String> {
    let found: Vec<Found> = findings
        .iter()
        .map(|f| Found::new(f, &f.code.severity()))
        .collect();
    truth.complaints(&found)
}

/// The findings that occur in only one of the two forms, and that no table of differences explains.
pub(super) fn unexplained(etcd: &[Finding], kubernetes: &[Finding], cluster: &KubeCluster) -> Vec<String> {
    let renamed = |f: &Finding| format!("{} {}", f.code, cluster.subject(&f.subject.to_string()));
    let known: BTreeSet<String> = etcd.iter().map(renamed).collect();
    let found = distinct_lines(kubernetes);
    let lost = etcd
        .iter()
        .filter(|f| !found.contains(&renamed(f)))
        .map(|f| (Side::Etcd, f));
    let added = kubernetes
        .iter()
        .filter(|f| !known.contains(&format!("{} {}", f.code, f.subject)));
    lost.chain(added.map(|f| (Side::Kubernetes, f)))
        .filter(|(side, finding)| !is_explained(*side, finding))
        .map(|(side, finding)| format!("in {side:?} only: {}", describe(finding)))
        .collect()
}
