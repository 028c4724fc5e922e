//! Clusters for the plugin: a real etcd, or a real API server with either of Calico's API groups.

use std::sync::Arc;

use calipam_check::Options;
use calipam_datastore::Datastore;
use calipam_datastore::settings::{LocalFiles, Overrides, Settings};
use calipam_model::snapshot::Snapshot;
use calipam_testkit::blocks::{TakenBlock, put_block_objects, put_blocks};
use calipam_testkit::kube::{Flavour, Kinds, Lease, create, lease};
use calipam_testkit::relay::Relay;
use calipam_testkit::servers::{Etcd, EtcdVersion, KubeApiserver};
use serde_json::{Value, json};

use crate::runtime::Runtime;

const RESOURCES: &str = "/calico/resources/v3/projectcalico.org";

/// A cluster with the nodes `a` and `b`, and one pool of small blocks for each family.
pub(crate) enum World {
    Etcd(Box<Etcd>),
    Kubernetes(Box<Lease>, Flavour),
}

impl World {
    pub(crate) fn etcd(version: EtcdVersion) -> Self {
        let world = Self::Etcd(Box::new(Etcd::start_version(version).unwrap()));
        world.put_pool("v4", &json!({"cidr": "10.7.0.0/24", "blockSize": 28}));
        world.put_pool("v6", &json!({"cidr": "fd00:7::/120", "blockSize": 124}));
        for name in ["a", "b"] {
            world.put("nodes", "Node", name, &json!({}), &json!({"kubernetes.io/os": "linux"}));
        }
        world
    }

    pub(crate) fn kubernetes(flavour: Flavour) -> Self {
        let server = lease(Kinds::CalicoAndKubevirt(flavour)).unwrap();
        let node = |name: &str| {
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
            "spec": {"podCIDR": "10.7.0.64/26"}})
        };
        create(&server, "/api/v1/nodes", &[node("a"), node("b")]).unwrap();
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}});
        create(&server, "/api/v1/namespaces", &[namespace]).unwrap();
        let world = Self::Kubernetes(Box::new(server), flavour);
        world.put_pool("v4", &json!({"cidr": "10.7.0.0/24", "blockSize": 28}));
        world.put_pool("v6", &json!({"cidr": "fd00:7::/120", "blockSize": 124}));
        let (plural, kind) = flavour.ipam_config();
        let config = json!({"strictAffinity": false, "autoAllocateBlocks": true});
        world.put(plural, kind, "default", &config, &json!({}));
        let cluster = json!({"clusterGUID": "0f0e1d2c3b4a59687786951423324150", "calicoVersion": "v3.32.1",
            "datastoreReady": true});
        world.put("clusterinformations", "ClusterInformation", "default", &cluster, &json!({}));
        world
    }

    /// Creates a pool for all nodes.
    pub(crate) fn put_pool(&self, name: &str, spec: &Value) {
        let mut spec = spec.clone();
        spec["nodeSelector"] = "all()".into();
        self.put("ippools", "IPPool", name, &spec, &json!({}));
    }

    /// Creates a resource of Calico's API.
    pub(crate) fn put(&self, plural: &str, kind: &str, name: &str, spec: &Value, labels: &Value) {
        let mut object = json!({"kind": kind, "metadata": {"name": name, "labels": labels}, "spec": spec});
        match self {
            Self::Etcd(_) => {
                object["apiVersion"] = "projectcalico.org/v3".into();
                self.put_key(&format!("{RESOURCES}/{plural}/{name}"), &object);
            }
            Self::Kubernetes(server, flavour) => {
                object["apiVersion"] = flavour.api_version().into();
                create(server, &flavour.path(plural), &[object]).unwrap();
            }
        }
    }

    /// Writes blocks of other nodes.
    pub(crate) fn put_blocks(&self, blocks: &[TakenBlock]) {
        match self {
            Self::Etcd(etcd) => put_blocks(etcd, blocks).unwrap(),
            Self::Kubernetes(server, flavour) => put_block_objects(server, *flavour, blocks).unwrap(),
        }
    }

    /// A runtime whose calls go through a relay.
    pub(crate) fn relayed(&self) -> (Runtime, Relay) {
        match self {
            Self::Etcd(etcd) => {
                let relay = Relay::to(etcd.port());
                (Runtime::on_etcd(&format!("http://127.0.0.1:{}", relay.port)), relay)
            }
            Self::Kubernetes(server, _) => {
                let port = server.url().rsplit(':').next().unwrap().parse().unwrap();
                let relay = Relay::to(port);
                let runtime = self.runtime();
                let text = std::fs::read_to_string(server.kubeconfig()).unwrap();
                let kubeconfig = runtime.folder().join("kubeconfig");
                let text = text.replace(&format!(":{port}"), &format!(":{}", relay.port));
                std::fs::write(&kubeconfig, text).unwrap();
                (runtime.with("kubernetes", json!({"kubeconfig": kubeconfig})), relay)
            }
        }
    }

    /// Writes an etcd key.
    pub(crate) fn put_key(&self, key: &str, value: &Value) {
        let Self::Etcd(etcd) = self else { panic!("only etcd has keys") };
        etcd.put(key, value.to_string()).unwrap();
    }

    /// Deletes the etcd keys with a prefix.
    pub(crate) fn delete_prefix(&self, prefix: &str) {
        let Self::Etcd(etcd) = self else { panic!("only etcd has keys") };
        etcd.delete_below(prefix).unwrap();
    }

    /// Deletes a handle object, as a crash or a person could.
    pub(crate) fn delete_handle(&self, id: &str) {
        match self {
            Self::Etcd(etcd) => {
                let key = format!("/calico/ipam/v2/handle/{id}");
                assert_eq!(etcd.delete(&key).unwrap(), 1, "there was no handle {id}");
            }
            Self::Kubernetes(server, flavour) => {
                let path = format!("{}/{id}", flavour.path("ipamhandles"));
                assert_eq!(server.request("DELETE", &path, "").unwrap().status, 200);
            }
        }
    }

    pub(crate) fn server(&self) -> &KubeApiserver {
        match self {
            Self::Kubernetes(server, _) => server,
            Self::Etcd(_) => panic!("etcd has no API server"),
        }
    }

    /// A runtime on node `a`.
    pub(crate) fn runtime(&self) -> Runtime {
        match self {
            Self::Etcd(etcd) => Runtime::on_etcd(&etcd.endpoint()),
            Self::Kubernetes(server, _) => Runtime::new(
                &json!({"datastore_type": "kubernetes", "kubernetes": {"kubeconfig": server.kubeconfig()}}),
            ),
        }
    }

    pub(crate) fn settings(&self) -> Settings {
        let overrides = match self {
            Self::Etcd(etcd) => Overrides { etcd_endpoints: Some(etcd.endpoint()), ..Overrides::default() },
            Self::Kubernetes(server, _) => Overrides {
                datastore: Some("kubernetes".into()),
                kubeconfig: Some(server.kubeconfig().display().to_string()),
                ..Overrides::default()
            },
        };
        Settings::resolve(&overrides, &Default::default(), &LocalFiles).unwrap()
    }

    /// All data, as calipam's datastore code reads it.
    pub(crate) fn observe(&self) -> Snapshot {
        let settings = self.settings();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let datastore = Datastore::open(&settings).await.unwrap();
            datastore.observe(&(Arc::new(|_| {}) as _)).await.unwrap()
        })
    }

    /// The allocated addresses with their handles, ascending.
    pub(crate) fn allocated(&self) -> Vec<(String, String)> {
        allocated(&self.observe())
    }

    /// Asserts that nothing is allocated, that no handle is left, and that a check finds nothing.
    #[track_caller]
    pub(crate) fn assert_empty(&self) {
        let snapshot = self.observe();
        assert_eq!(allocated(&snapshot), []);
        let handles: Vec<String> =
            snapshot.handles.iter().map(|handle| handle.value.id().to_string()).collect();
        assert!(handles.is_empty(), "{handles:?}");
        assert_sound(&snapshot);
    }
}

/// The allocated addresses with their handles, ascending.
pub(crate) fn allocated(snapshot: &Snapshot) -> Vec<(String, String)> {
    let blocks = snapshot.blocks.iter().map(|block| block.value.content.sound().expect("a sound block"));
    let records = blocks.flat_map(|block| block.allocations()).map(|held| {
        let handle = held.attribute.handle().map(|handle| handle.to_string());
        (held.address, handle.unwrap_or_default())
    });
    let mut records: Vec<_> = records.collect();
    records.sort();
    records.into_iter().map(|(address, handle)| (address.to_string(), handle)).collect()
}

/// Asserts that a check finds nothing, apart from leaks younger than the usual grace period.
#[track_caller]
pub(crate) fn assert_sound(snapshot: &Snapshot) {
    let report = calipam_check::check(snapshot, &Options::default());
    let findings: Vec<_> = report.findings.iter().map(|finding| format!("{:?}", finding)).collect();
    assert!(findings.is_empty(), "{findings:#?}");
}
