//! Compares a report with the ground truth.

use calipam_check::{Finding, Options, check};
use calipam_testkit::cluster::{Cluster, Found};

/// All findings about a cluster.
pub(crate) fn findings(cluster: &Cluster) -> Vec<Finding> {
    check(&cluster.snapshot(), &Options::default()).findings
}

/// Fails unless the findings are those of the ground truth, no more and no fewer, with severity and evidence.
pub(crate) fn assert_truth(name: &str, cluster: &Cluster) {
    let found: Vec<Found> = findings(cluster)
        .iter()
        .map(|f| Found::new(f, &f.code.severity()))
        .collect();
    let complaints = cluster.truth().complaints(&found);
    assert!(complaints.is_empty(), "{name}: {complaints:#?}");
}
