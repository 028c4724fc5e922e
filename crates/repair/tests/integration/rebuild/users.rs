//! Between planning and execution, other clients write to pods that use addresses. Only changes to addresses matter.

use std::net::IpAddr;

use calipam_model::IpNet;
use calipam_model::pod::Pod;
use calipam_model::snapshot::Snapshot;
use calipam_plan::{Verb, apply_plan};
use calipam_testkit::World;
use calipam_testkit::cluster::Fault;
use calipam_testkit::datastore::observe;
use calipam_testkit::kube::{Flavour, delete, edit};

use super::support::{Planned, assert_recorded_except, cluster, lose};
use crate::cluster::sound;

/// A cluster with faults on an API server.
fn with(faults: &[Fault]) -> World {
    let mut cluster = cluster();
    faults.iter().for_each(|fault| cluster.inject(*fault, 1));
    World::kubernetes_of(&cluster.kubernetes(Flavour::Classic))
}

/// Plans a rebuild that assigns addresses.
async fn planned(world: World) -> Planned {
    let planned = Planned::of(world).await;
    let Planned { snapshot, plan, .. } = &planned;
    assert!(
        plan.changes().any(|change| change.action == Verb::AssignAddress),
        "{:?}",
        plan.skipped
    );
    let tried = apply_plan(snapshot.clone(), plan, snapshot.taken_at);
    assert!(tried.is_ok(), "{:?}", tried.err());
    planned
}

fn path(pod: &Pod) -> String {
    format!("/api/v1/namespaces/{}/pods/{}", pod.namespace(), pod.name())
}

#[tokio::test(flavor = "multi_thread")]
async fn annotations_of_pods_and_nodes_abandon_nothing() {
    let faults = [
        Fault::UnallocatedFreed,
        Fault::UnallocatedNoBlock,
        Fault::OwnerMismatchPod,
        Fault::LeakedMoved,
    ];
    let planned = planned(with(&faults)).await;
    let server = planned.world.server();
    let patch = r#"{"metadata":{"annotations":{"example.com/note":"written meanwhile"}}}"#;
    let pods = planned.snapshot.pods.iter().map(|pod| path(&pod.value));
    let nodes = planned
        .snapshot
        .nodes
        .iter()
        .map(|node| format!("/api/v1/nodes/{}", node.value.name));
    for path in pods.chain(nodes) {
        assert_eq!(
            server.request("PATCH", &path, patch).unwrap().status,
            200,
            "{path}"
        );
    }
    let execution = planned.run().await;
    assert!(execution.is_complete(), "{execution:?}");
    assert!(execution.written > 1, "{execution:?}");
}

fn is_recorded(snapshot: &Snapshot, address: IpAddr) -> bool {
    sound(snapshot).any(|block| block.allocation_of(address).is_some())
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_addresses_of_a_deleted_pod_are_omitted() {
    let planned = planned(with(&[Fault::UnallocatedFreed, Fault::UnallocatedFreed])).await;
    // The first pod with an address that no block records.
    let mut pods = planned.snapshot.pods.iter().map(|pod| &pod.value);
    let pod = pods
        .find(|pod| {
            pod.addresses()
                .any(|address| !is_recorded(&planned.snapshot, address))
        })
        .unwrap();
    let mut gone: Vec<IpAddr> = pod.addresses().collect();
    delete(planned.world.server(), &path(pod));

    let execution = planned.run().await;
    let mut left: Vec<_> = execution
        .conflicts
        .iter()
        .flat_map(|conflict| conflict.addresses.clone())
        .collect();
    left.sort();
    gone.sort();
    assert_eq!(left, gone, "{execution:?}");
    assert!(
        execution.failure.is_none() && execution.written > 0,
        "{execution:?}"
    );

    // The addresses of the other pod are recorded.
    let snapshot = planned.site.observe().await;
    for address in snapshot.pods.iter().flat_map(|pod| pod.value.addresses()) {
        assert!(is_recorded(&snapshot, address), "{address}");
    }
    assert!(!gone.iter().any(|gone| is_recorded(&snapshot, *gone)));
}

/// The block with the most pods, and these pods with their addresses in the block.
fn fullest(snapshot: &Snapshot) -> (IpNet, Vec<(String, IpAddr)>) {
    let of_block = |cidr: IpNet| -> Vec<(String, IpAddr)> {
        let pods = snapshot.pods.iter().map(|pod| &pod.value);
        let all = pods.flat_map(|pod| pod.addresses().map(move |address| (path(pod), address)));
        all.filter(|(_, address)| cidr.contains(address)).collect()
    };
    let blocks = snapshot
        .blocks
        .iter()
        .map(|block| (block.value.key, of_block(block.value.key)));
    blocks.max_by_key(|(_, pods)| pods.len()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_has_gone_is_not_recorded_in_a_block_that_is_created_or_rebuilt() {
    for is_corrupt in [false, true] {
        let world = with(&[]);
        let (block, pods) = fullest(&observe(&world.open().await).await);
        assert!(pods.len() > 2, "{pods:?}");
        lose(&world, block, is_corrupt);

        let planned = planned(world).await;
        let (gone, address) = &pods[1];
        delete(planned.world.server(), gone);
        // A pod that has merely changed keeps its address.
        edit(planned.world.server(), &format!("{}/status", pods[0].0), |pod| {
            pod["status"]["phase"] = "Failed".into();
        });
        let execution = planned.run().await;
        let left: Vec<_> = execution
            .conflicts
            .iter()
            .flat_map(|c| c.addresses.clone())
            .collect();
        assert_eq!(left, [*address], "{is_corrupt}: {execution:?}");
        assert!(
            execution.failure.is_none() && execution.written > 0,
            "{is_corrupt}: {execution:?}"
        );
        let used = pods.iter().map(|(_, used)| *used);
        assert_recorded_except(&planned.site.observe().await, block, used, *address);
    }
}
