//! The parts of a cluster that only Kubernetes has: services, machines, and changes of objects that etcd cannot
//! express.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::{Value, json};

use super::output::pod_of;
use super::{Cluster, Pod};

/// The objects of a Kubernetes cluster other than Calico's data.
#[derive(Clone, Debug, Default)]
pub(super) struct KubernetesOnly {
    /// Services, machines and other objects without an etcd key, by `<plural>/<namespace>/<name>`.
    objects: BTreeMap<String, Value>,
    /// JSON merge patches for objects that are made from etcd keys, by key.
    patches: BTreeMap<String, Value>,
    /// Keys without an object in Kubernetes.
    absent: BTreeSet<String>,
    /// Paths of objects that exist only if Kubernetes is Calico's datastore.
    only_in_kubernetes_datastore: BTreeSet<String>,
}

impl KubernetesOnly {
    /// Yields the plural and the object of all objects that are not made from an etcd key.
    pub(super) fn objects(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.objects.iter().map(|(path, object)| (path.split('/').next().unwrap_or_default(), object))
    }

    /// True if Kubernetes has no object for an etcd key.
    pub(super) fn lacks(&self, key: &[u8]) -> bool {
        std::str::from_utf8(key).is_ok_and(|key| self.absent.contains(key))
    }

    /// True for an object that exists only if Kubernetes is Calico's datastore.
    pub(super) fn is_only_in_kubernetes_datastore(&self, path: &str) -> bool {
        self.only_in_kubernetes_datastore.contains(path)
    }

    /// Applies the patch for a key to its object, if there is one.
    pub(super) fn patch(&self, key: &str, object: &mut Value) {
        if let Some(patch) = self.patches.get(key) {
            merge(object, patch);
        }
    }
}

/// Applies a merge patch as in RFC 7386: `null` removes a field.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        target.clone_from(patch);
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let Some(object) = target.as_object_mut() else { return };
    for (name, value) in fields {
        if value.is_null() {
            object.remove(name);
        } else {
            merge(object.entry(name.as_str()).or_insert(Value::Null), value);
        }
    }
}

impl Cluster {
    pub(super) fn put_kubernetes_only(
        &mut self,
        plural: &str,
        namespace: &str,
        name: &str,
        mut object: Value,
    ) {
        let path = format!("{plural}/{namespace}/{name}");
        let thing = path.bytes().fold(11, |hash: u64, byte| hash.wrapping_mul(31) + u64::from(byte));
        let metadata = self.spec.metadata(name, &mut self.spec.rng(thing));
        object["metadata"]["name"] = name.into();
        if !namespace.is_empty() {
            object["metadata"]["namespace"] = namespace.into();
        }
        object["metadata"]["uid"] = metadata.uid.into();
        object["metadata"]["creationTimestamp"] = metadata.creation_timestamp.into();
        self.kubernetes_only.objects.insert(path, object);
    }

    /// Stores a service of type LoadBalancer with its addresses.
    pub(super) fn put_service(&mut self, namespace: &str, name: &str, addresses: &[IpAddr]) {
        let ingress: Vec<Value> = addresses.iter().map(|a| json!({"ip": a, "ipMode": "VIP"})).collect();
        let balancer = if ingress.is_empty() { json!({}) } else { json!({"ingress": ingress}) };
        let service = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "spec": {"type": "LoadBalancer", "selector": {"app": name}, "ports": [{"port": 80, "protocol": "TCP"}]},
            "status": {"loadBalancer": balancer},
        });
        self.put_kubernetes_only("services", namespace, name, service);
    }

    /// Removes a service, which must exist.
    pub(super) fn remove_service(&mut self, namespace: &str, name: &str) {
        let path = format!("services/{namespace}/{name}");
        self.kubernetes_only.objects.remove(&path).unwrap_or_else(|| panic!("there is no {path}"));
    }

    /// Returns the ingress addresses of all services.
    pub(super) fn service_addresses(&self) -> Vec<String> {
        let ingress = |object: &Value| object.pointer("/status/loadBalancer/ingress")?.as_array().cloned();
        let entries = self.kubernetes_only.objects.values().filter_map(ingress).flatten();
        entries.filter_map(|entry| entry["ip"].as_str().map(str::to_owned)).collect()
    }

    /// Stores a virtual machine. If `runs` is true, also stores its running instance.
    pub(super) fn put_machine(&mut self, namespace: &str, name: &str, runs: bool) {
        let strategy = if runs { "Always" } else { "Halted" };
        let object = |kind: &str| json!({"apiVersion": "kubevirt.io/v1", "kind": kind, "spec": {"runStrategy": strategy}});
        self.put_kubernetes_only("virtualmachines", namespace, name, object("VirtualMachine"));
        if runs {
            let path = format!("virtualmachines/{namespace}/{name}");
            let machine = self.kubernetes_only.objects[&path]["metadata"]["uid"].clone();
            let mut instance = object("VirtualMachineInstance");
            instance["spec"] = json!({});
            instance["metadata"] = json!({"ownerReferences": [{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
                "name": name, "uid": machine, "controller": true}]});
            self.put_kubernetes_only("virtualmachineinstances", namespace, name, instance);
        }
    }

    /// Stores the instance of a deleted machine.
    pub(super) fn put_orphan_instance(&mut self, namespace: &str, name: &str) {
        self.put_machine(namespace, name, true);
        self.kubernetes_only.objects.remove(&format!("virtualmachines/{namespace}/{name}"));
    }

    /// Labels the pod of an endpoint as the target of a live migration.
    pub(super) fn mark_migration_target(&mut self, endpoint: &str, migration: &str) {
        self.patch_object(
            endpoint,
            json!({"metadata": {"labels": {"kubevirt.io/migrationJobUID": migration}}}),
        );
    }

    /// Removes a pod's endpoint, and stores the patched pod object in Kubernetes.
    pub(super) fn put_pod_without_endpoint(&mut self, pod: &Pod, patch: Value) {
        let endpoint = serde_json::from_slice(&self.remove(&pod.endpoint).value()).expect("JSON");
        let mut object = pod_of(&endpoint).expect("the endpoint of a pod");
        merge(&mut object, &patch);
        self.put_kubernetes_only("pods", pod.name.namespace, &pod.name.pod, object);
    }

    /// Omits the object of a key from Kubernetes.
    pub(super) fn leave_object_out(&mut self, key: &str) {
        assert!(self.get(key).is_some(), "there is no {key}");
        self.kubernetes_only.absent.insert(key.to_owned());
    }

    /// Marks an object as existing only if Kubernetes is Calico's datastore.
    pub(super) fn keep_from_etcd(&mut self, plural: &str, namespace: &str, name: &str) {
        self.kubernetes_only.only_in_kubernetes_datastore.insert(format!("{plural}/{namespace}/{name}"));
    }

    /// Patches the object of a key in Kubernetes, but not in etcd.
    pub(super) fn patch_object(&mut self, key: &str, patch: Value) {
        assert!(self.get(key).is_some(), "there is no {key}");
        let before = self.kubernetes_only.patches.insert(key.to_owned(), patch);
        assert!(before.is_none(), "{key} is changed twice");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_change_add_and_remove() {
        let mut object = json!({"a": {"b": 1, "c": 2}, "d": [1]});
        merge(&mut object, &json!({"a": {"b": null, "e": {"f": null, "g": 3}}, "d": "x"}));
        assert_eq!(object, json!({"a": {"c": 2, "e": {"g": 3}}, "d": "x"}));
    }
}
