//! Two other forms of a cluster in Kubernetes: the classic one as `kubectl get` with short names returns it, through
//! Calico's aggregated API, and the objects of a cluster with Calico in etcd: nodes, pods, services and machines.

use serde_json::Value;

use super::{KubeCluster, METADATA};
use crate::cluster::wire::key::{self, FOREIGN_NAMESPACE};
use crate::cluster::{Cluster, Form, Object};
use crate::kube::{Flavour, foreign_kind};

/// The kinds that the aggregated API serves; blocks and handles are not among them.
const SERVED: [&str; 5] = [
    "blockaffinities",
    "ippools",
    "ipreservations",
    "clusterinformations",
    "kubecontrollersconfigurations",
];

impl KubeCluster {
    /// Returns the same objects in the form in which the aggregated API serves them. This API uses the native group and
    /// omits the type of affinities.
    pub fn through_aggregated_api(&self) -> Self {
        assert_eq!(
            self.flavour,
            Flavour::Classic,
            "where the group is native, there is no such API"
        );
        let mut shown = self.clone();
        for object in shown
            .objects
            .iter_mut()
            .filter(|object| SERVED.contains(&object.plural))
        {
            object.json["apiVersion"] = Flavour::Native.api_version().into();
            if let Some(annotations) = object.json["metadata"]["annotations"].as_object_mut() {
                annotations.remove(METADATA);
            }
            if object.plural == "blockaffinities"
                && let Some(spec) = object.json["spec"].as_object_mut()
            {
                spec.remove("type");
                // Any other string stays, so that this form has every fault of the classic one.
                let deleted = spec
                    .get("deleted")
                    .and_then(Value::as_str)
                    .map(str::parse::<bool>);
                if let Some(Ok(deleted)) = deleted {
                    spec.insert("deleted".to_owned(), deleted.into());
                }
            }
        }
        shown
    }
}

/// Annotations that the CNI plugin writes only if the datastore is Kubernetes.
const WRITTEN_BY_CNI: [&str; 3] = [
    "cni.projectcalico.org/podIP",
    "cni.projectcalico.org/podIPs",
    "cni.projectcalico.org/containerID",
];

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
                && !self
                    .kubernetes_only
                    .only_in_kubernetes_datastore
                    .contains(&object.path())
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
