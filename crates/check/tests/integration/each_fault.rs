//! One fault at a time.

use calipam_testkit::cluster::{Cluster, ClusterSpec, Fault};

use crate::expected::assert_truth;

#[test]
fn each_fault_gives_exactly_its_findings() {
    let mut failures = Vec::new();
    for fault in Fault::ALL {
        for spec in [ClusterSpec::new(7), ClusterSpec::new(8).v4_only()] {
            let mut cluster = Cluster::small(spec);
            cluster.inject(*fault, 2);
            let judged = std::panic::catch_unwind(|| assert_truth(fault.name(), &cluster));
            failures.extend(judged.is_err().then(|| fault.name()));
        }
    }
    assert!(failures.is_empty(), "{failures:?}");
}
