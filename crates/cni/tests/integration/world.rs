//! Clusters for the plugin: a real etcd, or a real API server with either of Calico's API groups.

use std::ops::Deref;

use calipam_assign::Allocator;
use calipam_check::Options;
use calipam_datastore::allocation::{AllocatorStore, Selecting};
use calipam_datastore::write::Consent;
use calipam_model::key::{DEFAULT, Key};
use calipam_model::snapshot::Snapshot;
use calipam_testkit::World as Server;
use calipam_testkit::blocks::{TakenBlock, put_block_objects, put_blocks};
use calipam_testkit::datastore;
use calipam_testkit::kube::{Flavour, create};
use calipam_testkit::relay::Relay;
use calipam_testkit::servers::{Etcd, EtcdVersion};
use serde_json::{Value, json};

use crate::runtime::Runtime;

/// A cluster with the nodes `a` and `b`, and one pool of small blocks for each family.
pub(crate) struct World(Server);

impl Deref for World {
    type Target = Server;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl World {
    pub(crate) fn etcd() -> Self {
        Self::etcd_of(EtcdVersion::V3_6)
    }

    pub(crate) fn etcd_of(version: EtcdVersion) -> Self {
        let etcd = Etcd::start_version(version).unwrap();
        let world = Self(Server::Etcd(Box::new(etcd)));
        world.put_pools();
        world.put_information("v3.32.1");
        for name in ["a", "b"] {
            world.put_node(name, &json!({"kubernetes.io/os": "linux"}));
        }
        world
    }

    pub(crate) fn kubernetes(flavour: Flavour) -> Self {
        let world = Self(Server::kubernetes(flavour));
        for name in ["a", "b"] {
            world.create(
                &Key::Node(name.into()),
                &json!({"spec": {"podCIDR": "10.7.0.64/26"}}),
            );
        }
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}});
        create(world.server(), "/api/v1/namespaces", &[namespace]).unwrap();
        world.put_pools();
        world.create(
            &Key::IpamConfig,
            &json!({"strictAffinity": false, "autoAllocateBlocks": true}),
        );
        world.put_information("v3.32.1");
        world
    }

    fn put_pools(&self) {
        self.put_pool("v4", json!({"cidr": "10.7.0.0/24", "blockSize": 28}));
        self.put_pool("v6", json!({"cidr": "fd00:7::/120", "blockSize": 124}));
    }

    /// Creates a pool for all nodes.
    pub(crate) fn put_pool(&self, name: &str, mut spec: Value) {
        spec["nodeSelector"] = "all()".into();
        self.create(&Key::Pool(name.into()), &json!({"spec": spec}));
    }

    /// Creates a node of Calico.
    pub(crate) fn put_node(&self, name: &str, labels: &Value) {
        self.create(
            &Key::Node(name.into()),
            &json!({"metadata": {"labels": labels}, "spec": {}}),
        );
    }

    pub(crate) fn put_information(&self, version: &str) {
        let guid = "0f0e1d2c3b4a59687786951423324150";
        let spec = json!({"clusterGUID": guid, "calicoVersion": version, "datastoreReady": true});
        self.create(&Key::ClusterInformation(DEFAULT.into()), &json!({"spec": spec}));
    }

    /// Writes blocks of other nodes.
    pub(crate) fn put_blocks(&self, blocks: &[TakenBlock]) {
        match &self.0 {
            Server::Kubernetes(server, flavour) => put_block_objects(server, *flavour, blocks).unwrap(),
            _ => put_blocks(self.keys(), blocks).unwrap(),
        }
    }

    /// A runtime whose calls go through a relay.
    pub(crate) fn relayed(&self) -> (Runtime, Relay) {
        if let Server::Etcd(etcd) = &self.0 {
            let relay = Relay::to(etcd.port);
            return (
                Runtime::on_etcd(&format!("http://127.0.0.1:{}", relay.port)),
                relay,
            );
        }
        let (server, runtime) = (self.server(), self.runtime());
        let port = server.url().rsplit(':').next().unwrap().parse().unwrap();
        let relay = Relay::to(port);
        let text = std::fs::read_to_string(server.kubeconfig()).unwrap();
        let kubeconfig = runtime.folder().join("kubeconfig");
        let text = text.replace(&format!(":{port}"), &format!(":{}", relay.port));
        std::fs::write(&kubeconfig, text).unwrap();
        (
            runtime.with("kubernetes", json!({"kubeconfig": kubeconfig})),
            relay,
        )
    }

    /// A runtime on node `a`.
    pub(crate) fn runtime(&self) -> Runtime {
        match &self.0 {
            Server::Etcd(etcd) => Runtime::on_etcd(&etcd.endpoint()),
            _ => Runtime::new(
                &json!({"datastore_type": "kubernetes", "kubernetes": {"kubeconfig": self.server().kubeconfig()}}),
            ),
        }
    }

    /// An allocator with a connection of its own.
    pub(crate) async fn allocator(&self) -> Allocator<AllocatorStore> {
        let consent = Consent::from_runtime("a test");
        Allocator::new(
            AllocatorStore::connect(&self.settings(), Selecting::All, consent)
                .await
                .unwrap(),
        )
    }

    /// All data, as calipam's datastore code reads it.
    pub(crate) fn observe(&self) -> Snapshot {
        block_on(async { datastore::observe(&self.open().await).await })
    }

    /// The allocated addresses with their handles, ascending.
    pub(crate) fn allocated(&self) -> Vec<(String, String)> {
        allocated(&self.observe())
    }

    /// Asserts that nothing is allocated, that no handle is left, and that a check finds nothing apart from leaks younger
    /// than the usual grace period.
    #[track_caller]
    pub(crate) fn assert_empty(&self) {
        let snapshot = self.observe();
        assert_eq!(allocated(&snapshot), []);
        let handles: Vec<String> = snapshot
            .handles
            .iter()
            .map(|handle| handle.value.id().to_string())
            .collect();
        assert!(handles.is_empty(), "{handles:?}");
        let report = calipam_check::check(&snapshot, &Options::default());
        let findings: Vec<_> = report
            .findings
            .iter()
            .map(|finding| format!("{finding:?}"))
            .collect();
        assert!(findings.is_empty(), "{findings:#?}");
    }
}

/// Runs async work on a runtime of its own.
pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(work)
}

/// The allocated addresses with their handles, ascending.
fn allocated(snapshot: &Snapshot) -> Vec<(String, String)> {
    let blocks = snapshot
        .blocks
        .iter()
        .map(|block| block.value.content.sound().expect("a sound block"));
    let records = blocks.flat_map(|block| block.allocations()).map(|held| {
        let handle = held.attribute.handle().map(|handle| handle.to_string());
        (held.address, handle.unwrap_or_default())
    });
    let mut records: Vec<_> = records.collect();
    records.sort();
    records
        .into_iter()
        .map(|(address, handle)| (address.to_string(), handle))
        .collect()
}
