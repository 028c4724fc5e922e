//! Clusters that have lost all endpoints or all nodes. No address in them may be released as leaked.

use calipam_check::Code;
use calipam_plan::SkipReason;
use calipam_plan::rebuild;
use calipam_plan::release::Request;
use calipam_testkit::cluster::{Cluster, ClusterSpec, Fault};

use super::support::{no_grace, plan_on, subjects};

fn everything() -> Request {
    Request { leaked: true, orphan_handles: true, ..Request::default() }
}

/// The number of addresses that a release and a rebuild would free, and the reasons why they keep the others.
fn freed(cluster: &Cluster) -> (usize, Vec<SkipReason>) {
    let snapshot = cluster.snapshot();
    let report = calipam_check::check(&snapshot, &no_grace());
    assert!(subjects(&report, Code::LeakedAddress, true).len() >= 50);
    let basis = calipam_plan::Basis::new(&snapshot, &report, &no_grace());
    let rebuilt = rebuild::plan(&basis, &rebuild::Request::default());
    let released = plan_on(&snapshot, &everything(), &[], &no_grace());
    let freed = [&rebuilt, &released].map(|plan| {
        plan.changes().filter(|c| c.repairs.iter().any(|(code, _)| *code == Code::LeakedAddress)).count()
    });
    assert_eq!(freed[0], freed[1]);
    let mut reasons: Vec<SkipReason> = released.skipped.iter().map(|skipped| skipped.reason).collect();
    reasons.dedup();
    (freed[1], reasons)
}

#[test]
fn without_a_single_endpoint_nothing_is_leaked() {
    let mut cluster = Cluster::plain(ClusterSpec::new(3), 6, 10);
    cluster.remove_prefix("/calico/resources/v3/projectcalico.org/workloadendpoints/");
    assert_eq!(freed(&cluster), (0, vec![SkipReason::EvidenceLost]));
}

#[test]
fn without_a_single_node_nothing_is_leaked() {
    let mut cluster = Cluster::plain(ClusterSpec::new(3), 6, 10);
    cluster.remove_prefix("/calico/resources/v3/projectcalico.org/workloadendpoints/");
    cluster.remove_prefix("/calico/resources/v3/projectcalico.org/nodes/");
    assert_eq!(freed(&cluster), (0, vec![SkipReason::EvidenceLost]));
}

#[test]
fn leaks_are_freed_if_other_endpoints_remain() {
    let cluster = Cluster::plain(ClusterSpec::new(3), 1, 1).with(Fault::LeakedNoOwner, 30);
    assert!(freed(&cluster).0 >= 60);
}
