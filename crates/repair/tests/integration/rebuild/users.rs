//! Between planning and execution, other clients write to pods that use addresses. Only changes to addresses matter.

use std::net::IpAddr;

use calipam_datastore::Datastore;
use calipam_datastore::settings::Overrides;
use calipam_model::IpNet;
use calipam_model::snapshot::Snapshot;
use calipam_plan::rebuild::{self, Request};
use calipam_plan::{Basis, Verb, apply_plan};
use calipam_repair::{Execution, Options as Running, execute};
use calipam_testkit::cluster::{Cluster, ClusterSpec, Fault};
use calipam_testkit::kube::{Connection, Flavour, Kinds, Lease, lease};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::support::{open, options};
use crate::cluster::{consent, journal_path, observe};

struct World {
    connection: Connection,
    store: Datastore,
    _server: Lease,
}

impl World {
    async fn with(faults: &[Fault]) -> Self {
        let server = lease(Kinds::CalicoAndKubevirt(Flavour::Classic)).unwrap();
        let mut cluster = Cluster::small(ClusterSpec::new(31).at(Timestamp::now()));
        faults.iter().for_each(|fault| cluster.inject(*fault, 1));
        cluster.kubernetes(Flavour::Classic).write_to_server(&server).unwrap();
        let overrides = Overrides {
            datastore: Some("kubernetes".into()),
            kubeconfig: Some(server.kubeconfig().display().to_string()),
            ..Overrides::default()
        };
        let store = open(overrides).await;
        Self { connection: Connection::open(&server).unwrap(), store, _server: server }
    }

    /// Plans a rebuild, lets `meanwhile` write to pods, and carries out the plan.
    async fn run(&mut self, meanwhile: impl FnOnce(&mut Connection, &Snapshot)) -> Execution {
        let snapshot = observe(&self.store).await;
        let report = calipam_check::check(&snapshot, &options());
        let plan = rebuild::plan(&Basis::new(&snapshot, &report, &options()), &Request::default());
        assert!(plan.changes().any(|change| change.action == Verb::AssignAddress), "{:?}", plan.skipped);
        let tried = apply_plan(snapshot.clone(), &plan, snapshot.taken_at);
        assert!(tried.is_ok(), "{:?}", tried.err());
        meanwhile(&mut self.connection, &snapshot);

        let guid = snapshot.cluster.unwrap().guid;
        let folder = tempfile::tempdir().unwrap();
        let options = Running::new("a test", journal_path(folder.path(), "run"));
        execute(&self.store, &guid, plan.divide().1, consent(&guid), &options).await.unwrap()
    }
}

fn path(pod: &calipam_model::pod::Pod) -> String {
    format!("/api/v1/namespaces/{}/pods/{}", pod.namespace(), pod.name())
}

#[tokio::test(flavor = "multi_thread")]
async fn annotations_of_pods_and_nodes_abandon_nothing() {
    let faults =
        [Fault::UnallocatedFreed, Fault::UnallocatedNoBlock, Fault::OwnerMismatchPod, Fault::LeakedMoved];
    let mut world = World::with(&faults).await;
    let execution = world
        .run(|connection, snapshot| {
            let patch = r#"{"metadata":{"annotations":{"example.com/note":"written meanwhile"}}}"#;
            let pods = snapshot.pods.iter().map(|pod| path(&pod.value));
            let nodes = snapshot.nodes.iter().map(|node| format!("/api/v1/nodes/{}", node.value.name));
            for path in pods.chain(nodes) {
                assert_eq!(connection.request("PATCH", &path, patch).unwrap().status, 200, "{path}");
            }
        })
        .await;
    assert!(execution.is_complete(), "{execution:?}");
    assert!(execution.written > 1, "{execution:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_addresses_of_a_deleted_pod_are_omitted() {
    let mut world = World::with(&[Fault::UnallocatedFreed, Fault::UnallocatedFreed]).await;
    let mut gone = Vec::new();
    let execution = world
        .run(|connection, snapshot| {
            // The first pod with an address that no block records.
            let recorded = |address| {
                let mut blocks = snapshot.blocks.iter().filter_map(|block| block.value.content.sound());
                blocks.any(|block| block.allocation_of(address).is_some())
            };
            let pod = snapshot.pods.iter().map(|pod| &pod.value);
            let pod = pod.clone().find(|pod| pod.addresses().any(|address| !recorded(address))).unwrap();
            gone.extend(pod.addresses());
            let path = format!("{}?gracePeriodSeconds=0", path(pod));
            assert_eq!(connection.request("DELETE", &path, "").unwrap().status, 200);
        })
        .await;
    let mut left: Vec<_> =
        execution.conflicts.iter().flat_map(|conflict| conflict.addresses.clone()).collect();
    left.sort();
    gone.sort();
    assert_eq!(left, gone, "{execution:?}");
    assert!(execution.failure.is_none() && execution.written > 0, "{execution:?}");

    // The addresses of the other pod are recorded.
    let snapshot = observe(&world.store).await;
    let blocks = || snapshot.blocks.iter().filter_map(|block| block.value.content.sound());
    for address in snapshot.pods.iter().flat_map(|pod| pod.value.addresses()) {
        assert!(blocks().any(|block| block.allocation_of(address).is_some()), "{address}");
    }
    assert!(gone.iter().all(|gone| !blocks().any(|block| block.allocation_of(*gone).is_some())));
}

/// The damage to a block that a rebuild then writes as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lost {
    /// The block is deleted, and the rebuild creates it again.
    Deleted,
    /// The block has lost its records, and the rebuild replaces it.
    Corrupt,
}

/// The block with the most pods, and these pods with their addresses in the block.
fn fullest(snapshot: &Snapshot) -> (IpNet, Vec<(String, IpAddr)>) {
    let of_block = |cidr: IpNet| -> Vec<(String, IpAddr)> {
        let pods = snapshot.pods.iter().map(|pod| &pod.value);
        let all = pods.flat_map(|pod| pod.addresses().map(move |address| (path(pod), address)));
        all.filter(|(_, address)| cidr.contains(address)).collect()
    };
    let blocks = snapshot.blocks.iter().map(|block| (block.value.key, of_block(block.value.key)));
    blocks.max_by_key(|(_, pods)| pods.len()).unwrap()
}

async fn a_pod_goes_before_its_block_is_written(lost: Lost) {
    let mut world = World::with(&[]).await;
    let (block, pods) = fullest(&observe(&world.store).await);
    assert!(pods.len() > 2, "{pods:?}");
    let name = block.to_string().replace(['.', ':', '/'], "-");
    let stored = format!("{}/{name}", Flavour::Classic.path("ipamblocks"));
    match lost {
        Lost::Deleted => {
            assert_eq!(world.connection.request("DELETE", &stored, "").unwrap().status, 200, "{stored}");
        }
        Lost::Corrupt => {
            let read = world.connection.request("GET", &stored, "").unwrap();
            let mut object: Value = serde_json::from_str(&read.body).unwrap();
            object["spec"]["attributes"] = json!([]);
            let answer = world.connection.request("PUT", &stored, &object.to_string()).unwrap();
            assert_eq!(answer.status, 200, "{}", answer.body);
        }
    }

    let (gone, address) = pods[1].clone();
    let changed = pods[0].0.clone();
    let execution = world
        .run(|connection, _| {
            let path = format!("{gone}?gracePeriodSeconds=0");
            assert_eq!(connection.request("DELETE", &path, "").unwrap().status, 200);
            // A pod that has merely changed keeps its address.
            let status = r#"{"status":{"phase":"Failed"}}"#;
            let path = format!("{changed}/status");
            assert_eq!(connection.request("PATCH", &path, status).unwrap().status, 200);
        })
        .await;
    let left: Vec<_> = execution.conflicts.iter().flat_map(|conflict| conflict.addresses.clone()).collect();
    assert_eq!(left, [address], "{lost:?}: {execution:?}");
    assert!(execution.failure.is_none() && execution.written > 0, "{lost:?}: {execution:?}");

    let snapshot = observe(&world.store).await;
    let sound = snapshot.blocks.iter().find(|stored| stored.value.key == block);
    let sound = sound.unwrap().value.content.sound().unwrap();
    for (pod, used) in &pods {
        let recorded = sound.allocation_of(*used);
        assert_eq!(recorded.is_some(), *used != address, "{lost:?}: {pod} {used}");
    }
    for (_, id) in sound.handles() {
        let handle = snapshot.handles.iter().find(|handle| handle.value.id() == id);
        assert_eq!(handle.unwrap().value.count(block), 1, "{lost:?}: {id}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_has_gone_is_not_recorded_in_a_block_that_is_created_or_rebuilt() {
    for lost in [Lost::Deleted, Lost::Corrupt] {
        a_pod_goes_before_its_block_is_written(lost).await;
    }
}
