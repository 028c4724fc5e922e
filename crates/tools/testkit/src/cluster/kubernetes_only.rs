//! The parts of a cluster that only Kubernetes has: services, machines, and changes of objects that etcd cannot
//! express.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::{Value, json};

use super::layout::hash;
use super::output::pod_of;
use super::wire::merge;
use super::{Cluster, Pod};
use crate::kube::foreign_kind;

/// The objects of a Kubernetes cluster other than Calico's data.
#[derive(Clone, Debug, Default)]
pub(super) struct KubernetesOnly {
    /// Services, machines and other objects without an etcd key, by `<plural>/<namespace>/<name>`.
    objects: BTreeMap<String, Value>,
    /// JSON merge patches for objects that are made from etcd keys, by key.
    patches: BTreeMap<String, Value>,
    /// Keys without an object in Kubernetes.
    pub(super) absent: BTreeSet<String>,
    /// Paths of objects that exist only if Kubernetes is Calico's datastore.
    pub(super) only_in_kubernetes_datastore: BTreeSet<String>,
}

impl KubernetesOnly {
    /// Yields the plural and the object of all objects that are not made from an etcd key.
    pub(super) fn objects(&self) -> impl Iterator<Item = (&'static str, &Value)> {
        self.objects
            .iter()
            .filter_map(|(path, object)| Some((kind_at(path)?.0, object)))
    }

    /// Applies the patch for a key to its object, if there is one.
    pub(super) fn patch(&self, key: &str, object: &mut Value) {
        if let Some(patch) = self.patches.get(key) {
            merge(object, patch);
        }
    }
}

/// The kind of an object at a path.
fn kind_at(path: &str) -> Option<(&'static str, &'static str, &'static str)> {
    foreign_kind(path.split('/').next()?)
}

impl Cluster {
    /// Stores an object without an etcd key at `<plural>/<namespace>/<name>`. Its kind and metadata are added.
    pub(super) fn put_kubernetes_only(&mut self, path: &str, mut object: Value) {
        let (_, kind, version) = kind_at(path).expect("a kind of Kubernetes or KubeVirt");
        let added = json!({"apiVersion": version, "kind": kind, "metadata": self.kubernetes_metadata(path)});
        merge(&mut object, &added);
        self.kubernetes_only.objects.insert(path.to_owned(), object);
    }

    fn kubernetes_metadata(&self, path: &str) -> Value {
        let parts: Vec<&str> = path.split('/').collect();
        let mut metadata = self.spec.metadata(parts[2], &mut self.spec.rng(hash(11, path)));
        if !parts[1].is_empty() {
            metadata["namespace"] = parts[1].into();
        }
        metadata
    }

    /// Stores a service of type LoadBalancer with its addresses.
    pub(super) fn put_service(&mut self, namespace: &str, name: &str, addresses: &[IpAddr]) {
        let ingress: Vec<Value> = addresses
            .iter()
            .map(|a| json!({"ip": a, "ipMode": "VIP"}))
            .collect();
        let balancer = if ingress.is_empty() {
            json!({})
        } else {
            json!({"ingress": ingress})
        };
        let ports = json!([{"port": 80, "protocol": "TCP"}]);
        let service = json!({"spec": {"type": "LoadBalancer", "selector": {"app": name}, "ports": ports},
            "status": {"loadBalancer": balancer}});
        self.put_kubernetes_only(&format!("services/{namespace}/{name}"), service);
    }

    /// Returns the ingress addresses of all services.
    pub(super) fn service_addresses(&self) -> Vec<String> {
        let ingress = |object: &Value| {
            object
                .pointer("/status/loadBalancer/ingress")?
                .as_array()
                .cloned()
        };
        let entries = self
            .kubernetes_only
            .objects
            .values()
            .filter_map(ingress)
            .flatten();
        entries
            .filter_map(|entry| entry["ip"].as_str().map(str::to_owned))
            .collect()
    }

    /// Stores a virtual machine. If `runs` is true, also stores its running instance.
    pub(super) fn put_machine(&mut self, name: &str, runs: bool) {
        let strategy = if runs { "Always" } else { "Halted" };
        let machine = json!({"spec": {"runStrategy": strategy}});
        self.put_kubernetes_only(&format!("virtualmachines/vms/{name}"), machine);
        if runs {
            self.put_instance(name);
        }
    }

    /// Stores the running instance of a machine, which may be deleted.
    pub(super) fn put_instance(&mut self, name: &str) {
        let machine = self.kubernetes_metadata(&format!("virtualmachines/vms/{name}"));
        let owner = json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": name,
            "uid": machine["uid"], "controller": true});
        let instance = json!({"spec": {}, "metadata": {"ownerReferences": [owner]}});
        self.put_kubernetes_only(&format!("virtualmachineinstances/vms/{name}"), instance);
    }

    /// Removes a pod's endpoint, and stores the patched pod object in Kubernetes.
    pub(super) fn put_pod_without_endpoint(&mut self, pod: &Pod, patch: Value) {
        let endpoint = self.remove(&pod.endpoint);
        let mut object = pod_of(&endpoint.json()).expect("the endpoint of a pod");
        merge(&mut object, &patch);
        self.put_kubernetes_only(&format!("pods/{}", pod.path()), object);
    }

    /// Omits the object of a key from Kubernetes.
    pub(super) fn leave_object_out(&mut self, key: &str) {
        assert!(self.get(key).is_some(), "there is no {key}");
        self.kubernetes_only.absent.insert(key.to_owned());
    }

    /// Patches the object of a key in Kubernetes, but not in etcd.
    pub(super) fn patch_object(&mut self, key: &str, patch: Value) {
        assert!(self.get(key).is_some(), "there is no {key}");
        let before = self.kubernetes_only.patches.insert(key.to_owned(), patch);
        assert!(before.is_none(), "{key} is changed twice");
    }
}
