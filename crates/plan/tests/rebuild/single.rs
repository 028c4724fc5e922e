//! One fault at a time.

use calipam_plan::rebuild::Request;
use calipam_testkit::cluster::{Cluster, ClusterSpec, Fault};

use crate::judge::rebuild;

fn with(fault: Fault) -> Cluster {
    let mut cluster = Cluster::plain(ClusterSpec::new(3), 2, 2);
    cluster.inject(fault, 1);
    cluster
}

#[test]
fn every_fault_is_repaired_or_skipped() {
    let mut failed = Vec::new();
    for fault in Fault::ALL {
        let cluster = with(*fault);
        let done = std::panic::catch_unwind(|| {
            let r = rebuild(fault.name(), cluster.snapshot(), &Request::default());
            println!("{}: left {:?} reasons {:?}", fault.name(), r.left(), r.reasons());
        });
        if done.is_err() {
            failed.push(fault.name());
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}
