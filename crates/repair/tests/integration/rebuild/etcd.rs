//! Rebuilds on etcd.

use calipam_datastore::Datastore;
use calipam_datastore::settings::Overrides;
use calipam_testkit::cluster::{Cluster, ClusterSpec, Fault};
use calipam_testkit::servers::Etcd;
use jiff::Timestamp;

use super::support::{Rebuilt, judge, open, rebuild_all, touched};
use crate::cluster::dump;

async fn fill(etcd: &Etcd, cluster: &Cluster) {
    let mut client = etcd.client().await.unwrap();
    client.delete("/calico/", Some(etcd_client::DeleteOptions::new().with_prefix())).await.unwrap();
    cluster.write_to_etcd(&etcd.endpoint()).unwrap();
}

/// Rebuilds the cluster, and checks that only objects of the plan have changed.
async fn rebuild_and_compare(name: &str, etcd: &Etcd, store: &Datastore, cluster: &Cluster) -> Rebuilt {
    fill(etcd, cluster).await;
    let before = dump(etcd).await;
    let rebuilt = rebuild_all(store).await;
    judge(name, &rebuilt);
    let after = dump(etcd).await;
    let named: Vec<String> = touched(&rebuilt.plan).iter().map(ToString::to_string).collect();
    for key in before.keys().chain(after.keys()).filter(|key| !named.contains(key)) {
        assert_eq!(before.get(key), after.get(key), "{name}: {key} has changed");
    }
    rebuilt
}

#[tokio::test(flavor = "multi_thread")]
async fn each_fault_that_can_be_repaired_is_and_nothing_else_changes() {
    let etcd = Etcd::start().unwrap();
    let overrides = Overrides { etcd_endpoints: Some(etcd.endpoint()), ..Overrides::default() };
    let mut rebuilt = 0;
    for (number, fault) in (0..).zip(Fault::ALL) {
        let spec = ClusterSpec::new(100 + number).at(Timestamp::now());
        let cluster = Cluster::small(spec).with(*fault, 1);
        fill(&etcd, &cluster).await;
        // A new connection for each cluster has nothing cached about the previous one.
        let store = open(overrides.clone()).await;
        let done = rebuild_and_compare(fault.name(), &etcd, &store, &cluster).await;
        rebuilt += usize::from(!done.plan.is_empty());
    }
    assert!(rebuilt > 90, "only {rebuilt} of {} plans did anything", Fault::ALL.len());
}
