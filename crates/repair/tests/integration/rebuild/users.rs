//! Between plan and run the pods that use addresses are written on: what counts is what they say about addresses.

use calipam_datastore::Datastore;
use calipam_datastore::settings::Overrides;
use calipam_model::snapshot::Snapshot;
use calipam_plan::rebuild::{self, Request};
use calipam_plan::{Basis, Verb};
use calipam_repair::{Execution, Options as Running, execute};
use calipam_testkit::cluster::{Cluster, ClusterSpec, Fault};
use calipam_testkit::kube::{Connection, Flavour, install, install_kubevirt};
use calipam_testkit::servers::KubeApiserver;
use jiff::Timestamp;

use super::mend::{open, options};
use crate::cluster::{consent, journal_path, observe};

struct World {
    connection: Connection,
    store: Datastore,
    _server: KubeApiserver,
}

impl World {
    async fn with(faults: &[Fault]) -> Self {
        let server = KubeApiserver::start().unwrap();
        install(&server, Flavour::Classic).unwrap();
        install_kubevirt(&server).unwrap();
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

    /// Plans a rebuild, lets others write to pods, and carries the plan out.
    async fn run(&mut self, meanwhile: impl FnOnce(&mut Connection, &Snapshot)) -> Execution {
        let snapshot = observe(&self.store).await;
        let report = calipam_check::check(&snapshot, &options());
        let plan = rebuild::plan(&Basis::new(&snapshot, &report, &options()), &Request::default(), &[], 0);
        assert!(plan.changes().any(|change| change.action == Verb::AssignAddress), "{:?}", plan.skipped);
        meanwhile(&mut self.connection, &snapshot);

        let guid = snapshot.cluster.unwrap().guid;
        let folder = tempfile::tempdir().unwrap();
        let options = Running::new("a test", journal_path(folder.path(), "run"));
        execute(&self.store, &guid, plan.into_steps(), consent(&guid), &options).await.unwrap()
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
async fn a_pod_that_has_gone_costs_its_own_addresses_only() {
    let mut world = World::with(&[Fault::UnallocatedFreed, Fault::UnallocatedFreed]).await;
    let mut gone = Vec::new();
    let execution = world
        .run(|connection, snapshot| {
            // The first of the pods whose addresses no block records.
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
    assert!(execution.broken_off.is_none() && execution.written > 0, "{execution:?}");

    // The addresses of the other pod are recorded.
    let snapshot = observe(&world.store).await;
    let blocks = || snapshot.blocks.iter().filter_map(|block| block.value.content.sound());
    for address in snapshot.pods.iter().flat_map(|pod| pod.value.addresses()) {
        assert!(blocks().any(|block| block.allocation_of(address).is_some()), "{address}");
    }
    assert!(gone.iter().all(|gone| !blocks().any(|block| block.allocation_of(*gone).is_some())));
}
