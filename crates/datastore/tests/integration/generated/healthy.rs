//! Clusters with rare features, in every form: there is nothing to find, release or rebuild.

use std::collections::BTreeSet;

use calipam_check::{Options, check};
use calipam_model::snapshot::Snapshot;
use calipam_plan::{Basis, rebuild, release};
use calipam_testkit::cluster::rng::Rng;
use calipam_testkit::cluster::{Cluster, ClusterSpec, Fault};
use calipam_testkit::rounds;
use serde_json::Value;

use super::findings::{FLAVOURS, complaints, findings, snapshot_of_objects};
use super::forms::every_form;

/// Asserts that a full rebuild has nothing to do.
fn assert_nothing_to_rebuild(name: &str, snapshot: &Snapshot) {
    let options = Options::default();
    let report = check(snapshot, &options);
    let plan = rebuild::plan(
        &Basis::new(snapshot, &report, &options),
        &rebuild::Request::default(),
    );
    assert!(
        plan.is_empty() && plan.skipped.len() == report.findings.len(),
        "{name}: {plan:?}"
    );
}

/// Asserts that no form has a finding, and that neither a release of leaks nor a rebuild plans anything.
async fn assert_healthy(name: &str, cluster: &Cluster) {
    for (form, snapshot, truth) in every_form(cluster).await {
        assert!(truth.is_empty(), "{name}, {form}: the generator expects findings");
        let options = Options::default();
        let report = check(&snapshot, &options);
        assert_eq!(report.findings, [], "{name}, {form}");

        let request = release::Request {
            leaked: true,
            orphan_handles: true,
            ..release::Request::default()
        };
        let plan = release::plan(&Basis::new(&snapshot, &report, &options), &request);
        assert!(
            plan.is_empty() && plan.skipped.is_empty(),
            "{name}, {form}: {plan:?}"
        );
        assert_nothing_to_rebuild(&format!("{name}, {form}"), &snapshot);
    }
}

/// Only the pod object shows that its address bypasses IPAM. If Calico's etcd is read without Kubernetes, the address
/// is reported as unallocated.
#[tokio::test(flavor = "multi_thread")]
async fn a_rebuild_does_not_record_addresses_that_bypass_ipam() {
    let mut cluster = Cluster::plain(ClusterSpec::new(4), 2, 2);
    cluster.inject(Fault::UnallocatedBypassing, 1);
    for (form, snapshot, truth) in every_form(&cluster).await {
        let codes: Vec<String> = truth.iter().map(|expected| expected.code.to_owned()).collect();
        let expected = if form == "etcd" {
            "unallocated-in-use"
        } else {
            "unrecorded-address"
        };
        assert_eq!(codes, [expected], "{form}");
        if form != "etcd" {
            assert_nothing_to_rebuild(form, &snapshot);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_feature_is_healthy_in_every_form() {
    for feature in 0..Cluster::FEATURES {
        let mut cluster = Cluster::plain(ClusterSpec::new(5), 4, 2);
        cluster.add_feature(feature);
        assert_healthy(&format!("feature {feature}"), &cluster).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_features_together_pods_on_windows_and_services_only_are_healthy_in_every_form() {
    assert_healthy("pods on Windows", &Cluster::with_windows(ClusterSpec::new(4))).await;
    assert_healthy("services only", &Cluster::with_services_only(ClusterSpec::new(3))).await;
    let spec = ClusterSpec::new(6);
    for spec in [spec, spec.v4_only(), spec.wide()] {
        assert_healthy("every feature", &Cluster::featured(spec)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_mix_of_features_leads_to_a_release_in_any_form() {
    for seed in 0..rounds(8) {
        let mut rng = Rng::new(seed);
        let mut cluster = Cluster::small(ClusterSpec::new(seed));
        let mix: Vec<usize> = (0..Cluster::FEATURES).filter(|_| rng.below(2) == 1).collect();
        mix.iter().for_each(|feature| cluster.add_feature(*feature));
        assert_healthy(&format!("features {mix:?}"), &cluster).await;
    }
}

/// A kind that is missing from a file counts as not read, so no rule concludes that the cluster has no objects of this
/// kind.
#[tokio::test(flavor = "multi_thread")]
async fn kinds_missing_from_a_list_cause_no_findings() {
    let cluster = Cluster::featured(ClusterSpec::new(9));
    let mut wrong = Vec::new();
    for flavour in FLAVOURS {
        let whole = cluster.kubernetes(flavour).list();
        let kinds: BTreeSet<&str> = items(&whole).filter_map(|item| item["kind"].as_str()).collect();
        assert!(kinds.len() > 10, "{kinds:?}");
        for left_out in &kinds {
            let mut list = whole.clone();
            list["items"] = items(&whole)
                .filter(|item| item["kind"] != *left_out)
                .cloned()
                .collect();
            let snapshot = snapshot_of_objects(&list).await;
            let report = check(&snapshot, &Options::default());
            let lines = report
                .findings
                .iter()
                .map(|f| format!("{} {}", f.code, f.subject));
            wrong.extend(lines.map(|line| format!("{flavour:?} without {left_out}: {line}")));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list["items"].as_array().into_iter().flatten()
}

/// Only borrowed addresses cause findings. Migrated machines and the tunnels of Windows nodes do not.
#[tokio::test(flavor = "multi_thread")]
async fn features_under_strict_affinity() {
    let mut cluster = Cluster::featured(ClusterSpec::new(8));
    cluster.inject(Fault::StrictAffinity, 1);
    for (form, snapshot, truth) in every_form(&cluster).await {
        assert_eq!(complaints(&findings(&snapshot), &truth), [""; 0], "{form}");
    }
}
