//! Clusters with features that few have, in every form: nothing is found, nothing released and nothing rebuilt.

use calipam_check::{Options, check};
use calipam_model::snapshot::Snapshot;
use calipam_plan::{Basis, rebuild, release};
use calipam_testkit::cluster::rng::Rng;
use calipam_testkit::cluster::{Cluster, ClusterSpec, Fault};
use calipam_testkit::rounds;

use super::findings::{complaints, findings};
use super::forms::every_form;

/// Fails unless a rebuild of everything finds nothing to do.
fn assert_nothing_to_rebuild(name: &str, snapshot: &Snapshot) {
    let options = Options::default();
    let report = check(snapshot, &options);
    let plan = rebuild::plan(&Basis::new(snapshot, &report, &options), &rebuild::Request::default(), &[], 0);
    assert!(plan.is_empty() && plan.skipped.is_empty(), "{name}: {plan:?}");
}

/// Fails unless no form has a finding, and neither a release of all that is leaked nor a rebuild plans anything.
async fn assert_healthy(name: &str, cluster: &Cluster) {
    for (form, snapshot, truth) in every_form(cluster).await {
        assert!(truth.is_empty(), "{name}, {form}: the generator expects findings");
        let options = Options::default();
        let report = check(&snapshot, &options);
        assert_eq!(report.findings, [], "{name}, {form}");

        let request = release::Request { leaked: true, orphan_handles: true, ..release::Request::default() };
        let plan = release::plan(&Basis::new(&snapshot, &report, &options), &request, &[], 0);
        assert!(plan.is_empty() && plan.skipped.is_empty(), "{name}, {form}: {plan:?}");
        assert_nothing_to_rebuild(&format!("{name}, {form}"), &snapshot);
    }
}

/// Only the pod says that its address bypasses IPAM: with etcd alone it is missed.
#[tokio::test(flavor = "multi_thread")]
async fn a_rebuild_does_not_record_addresses_that_bypass_ipam() {
    let mut cluster = Cluster::plain(ClusterSpec::new(4), 2, 2);
    cluster.inject(Fault::UnallocatedBypassing, 1);
    for (form, snapshot, truth) in every_form(&cluster).await {
        assert_eq!(truth.is_empty(), form != "etcd");
        if truth.is_empty() {
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
async fn all_features_together_are_healthy_in_every_form() {
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

/// Only what is borrowed is found: neither machines that migrated nor the tunnels of Windows nodes.
#[tokio::test(flavor = "multi_thread")]
async fn features_under_strict_affinity() {
    let mut cluster = Cluster::featured(ClusterSpec::new(8));
    cluster.inject(Fault::StrictAffinity, 1);
    for (form, snapshot, truth) in every_form(&cluster).await {
        assert_eq!(complaints(&findings(&snapshot), &truth), [""; 0], "{form}");
    }
}
