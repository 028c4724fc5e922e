//! The Kubernetes objects of a cluster with Calico in etcd: nodes, pods, services and machines.

use std::collections::BTreeSet;

use super::KubeCluster;
use super::names::known_plural;
use crate::cluster::wire::key;
use crate::cluster::{Cluster, Form, Object};
use crate::kube::Flavour;

/// Annotations that the CNI plugin writes only if the datastore is Kubernetes.
const WRITTEN_BY_CNI: [&str; 3] =
    ["cni.projectcalico.org/podIP", "cni.projectcalico.org/podIPs", "cni.projectcalico.org/containerID"];

impl Cluster {
    /// Creates the objects: nodes with their Kubernetes names, pods without the annotations of Calico's CNI plugin,
    /// services and machines. The expected findings are those of etcd and Kubernetes together.
    pub fn beside_etcd(&self) -> KubeCluster {
        let mut made = self.kubernetes(Flavour::Classic);
        // Containers of other orchestrators are not pods.
        let foreign: BTreeSet<String> = self
            .entries
            .iter()
            .filter(|(_, object)| matches!(object, Object::Endpoint(e) if e.spec.orchestrator != "k8s"))
            .filter_map(|(key, _)| made.subjects.get(&*String::from_utf8_lossy(key)).cloned())
            .collect();
        made.objects.retain(|object| {
            let path = object.path();
            known_plural(object.plural).is_some()
                && !foreign.contains(&path)
                && !self.kubernetes_only.is_only_in_kubernetes_datastore(&path)
        });
        for pod in made.objects.iter_mut().filter(|object| object.plural == "pods") {
            if let Some(annotations) = pod.json["metadata"]["annotations"].as_object_mut() {
                annotations.retain(|name, _| !WRITTEN_BY_CNI.contains(&name.as_str()));
            }
        }
        for object in &mut made.objects {
            let name = match object.plural {
                "pods" => &mut object.json["spec"]["nodeName"],
                "nodes" => &mut object.json["metadata"]["name"],
                _ => continue,
            };
            if let Some(Object::Node(node)) = self.get(&key::node(name.as_str().unwrap_or_default())) {
                *name = node.spec.orch_refs[0].node_name.clone().into();
            }
        }
        made.truth = self.truth_of(Form::EtcdWithKubernetes).clone();
        made.subjects.clear();
        made.left_out.clear();
        made
    }
}
