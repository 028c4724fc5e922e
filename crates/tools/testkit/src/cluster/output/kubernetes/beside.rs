//! The Kubernetes objects of a cluster with Calico in etcd: nodes, pods, services and machines.

use super::KubeCluster;
use super::names::foreign_kind;
use crate::cluster::wire::key::{self, FOREIGN_NAMESPACE};
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
        made.objects.retain(|object| {
            // Containers of other orchestrators are not pods.
            let is_foreign = object.plural == "pods" && object.namespace() == FOREIGN_NAMESPACE;
            foreign_kind(object.plural).is_some()
                && !is_foreign
                && !self.kubernetes_only.only_in_kubernetes_datastore.contains(&object.path())
        });
        for object in &mut made.objects {
            if object.plural == "pods"
                && let Some(annotations) = object.json["metadata"]["annotations"].as_object_mut()
            {
                annotations.retain(|name, _| !WRITTEN_BY_CNI.contains(&name.as_str()));
            }
            let name = match object.plural {
                "pods" => &mut object.json["spec"]["nodeName"],
                "nodes" => &mut object.json["metadata"]["name"],
                _ => continue,
            };
            if let Some(Object::Json(node)) = self.get(&key::node(name.as_str().unwrap_or_default())) {
                name.clone_from(&node["spec"]["orchRefs"][0]["nodeName"]);
            }
        }
        made.truth = self.truth_of(Form::EtcdWithKubernetes).clone();
        made.subjects.clear();
        made.left_out.clear();
        made
    }
}
