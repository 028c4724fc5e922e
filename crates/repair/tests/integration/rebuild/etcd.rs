//! Rebuilds on etcd.

use calipam_testkit::cluster::{Cluster, ClusterSpec, Fault};
use calipam_testkit::datastore;
use calipam_testkit::servers::Etcd;
use jiff::Timestamp;

use super::support::{Rebuilt, judge, rebuild_all, touched};
use crate::cluster::{Site, dump};

/// Rebuilds the cluster, and checks that only objects of the plan have changed.
async fn rebuild_and_compare(name: &str, etcd: &Etcd, cluster: &Cluster) -> Rebuilt {
    etcd.delete_below("/calico/").unwrap();
    cluster.write_to_etcd(&etcd.endpoint()).unwrap();
    // A new connection for each cluster has nothing cached about the previous one.
    let site = Site::open(datastore::etcd(etcd.endpoint())).await;
    let before = dump(etcd);
    let rebuilt = rebuild_all(&site).await;
    judge(name, &rebuilt);
    let after = dump(etcd);
    let named: Vec<String> = touched(&rebuilt.plan).iter().map(ToString::to_string).collect();
    for key in before
        .keys()
        .chain(after.keys())
        .filter(|key| !named.contains(key))
    {
        assert_eq!(before.get(key), after.get(key), "{name}: {key} has changed");
    }
    rebuilt
}

#[tokio::test(flavor = "multi_thread")]
async fn each_fault_that_can_be_repaired_is_and_nothing_else_changes() {
    let etcd = Etcd::start().unwrap();
    let mut rebuilt = 0;
    for (number, fault) in (0..).zip(Fault::ALL) {
        let spec = ClusterSpec::new(100 + number).at(Timestamp::now());
        let cluster = Cluster::small(spec).with(*fault, 1);
        let done = rebuild_and_compare(fault.name(), &etcd, &cluster).await;
        rebuilt += usize::from(!done.plan.is_empty());
    }
    assert!(
        rebuilt > 90,
        "only {rebuilt} of {} plans did anything",
        Fault::ALL.len()
    );
}
