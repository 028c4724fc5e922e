//! Kubernetes objects, with the fields that a migration needs.

use std::collections::BTreeMap;
use std::net::IpAddr;

use calipam_files::objects::{CNI_IP, CNI_IPS, FIXED, NO_IPAM, V4_POOLS, V6_POOLS};
use calipam_model::cidr::parse_go_address;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Deserialize;

use super::{AddressRequest, Budget, Controller, WorkloadPod};
use crate::kubernetes::client::object::{Address, Condition, Metadata, Object, Owner, Pod};

/// The annotations of Calico's CNI plugin with which pods and namespaces request pools, and pods request addresses.
const REQUEST_ANNOTATIONS: [&str; 4] = [V4_POOLS, V6_POOLS, FIXED, NO_IPAM];

pub(super) type DisruptionBudget = Object<BudgetSpec, BudgetStatus>;

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct BudgetSpec {
    selector: Option<LabelSelector>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct BudgetStatus {
    disruptions_allowed: i64,
}

impl From<DisruptionBudget> for Budget {
    fn from(
        DisruptionBudget {
            metadata,
            spec,
            status,
        }: DisruptionBudget,
    ) -> Self {
        Self {
            namespace: metadata.namespace,
            name: metadata.name,
            allowed: status.disruptions_allowed,
            selector: spec.selector.and_then(|selector| selector.try_into().ok()),
        }
    }
}

impl From<Pod> for WorkloadPod {
    fn from(
        Pod {
            metadata,
            spec,
            status,
        }: Pod,
    ) -> Self {
        let ready_condition = status
            .conditions
            .iter()
            .find(|condition| condition.kind == "Ready" && condition.status == "True");
        Self {
            addresses: addresses(&metadata, &status.addresses),
            ready_after: ready_condition.and_then(|condition| ready_after(condition, &metadata)),
            requests: requests(&metadata.annotations),
            controller: controller(&metadata),
            ready: ready_condition.is_some() && metadata.deletion_timestamp.is_none(),
            finished: matches!(status.phase.as_str(), "Succeeded" | "Failed"),
            host_network: spec.host_network,
            namespace: metadata.namespace,
            name: metadata.name,
            uid: metadata.uid,
            node: spec.node_name,
            labels: metadata.labels,
        }
    }
}

/// Time from a pod's creation until it became ready; `None` if one of these times is missing.
fn ready_after(ready_condition: &Condition, metadata: &Metadata) -> Option<SignedDuration> {
    let became_ready = timestamp(ready_condition.last_transition_time.as_deref())?;
    let created = timestamp(metadata.creation_timestamp.as_deref())?;
    Some(became_ready.duration_since(created))
}

fn timestamp(text: Option<&str>) -> Option<Timestamp> {
    text?.parse().ok()
}

/// The addresses in the annotations of Calico's plugin, or else those in the pod's status.
fn addresses(metadata: &Metadata, in_status: &[Address]) -> Vec<IpAddr> {
    let annotated_list = [CNI_IPS, CNI_IP]
        .into_iter()
        .filter_map(|annotation| metadata.annotations.get(annotation))
        .find(|list| !list.is_empty());
    let texts: Vec<&str> = match annotated_list {
        Some(list) => list.split(',').collect(),
        None => in_status.iter().map(|address| address.ip.as_str()).collect(),
    };

    let mut addresses = Vec::new();
    for text in texts {
        // An annotation has each address with a prefix length.
        let address = text.trim().split('/').next().unwrap_or_default();
        addresses.extend(parse_go_address(address));
    }
    addresses
}

/// The annotations in which a pod asks for addresses.
pub(super) fn requests(annotations: &BTreeMap<String, String>) -> Vec<AddressRequest> {
    let mut requests = Vec::new();
    for annotation in REQUEST_ANNOTATIONS {
        if let Some(value) = annotations.get(annotation) {
            requests.push(AddressRequest {
                annotation,
                value: value.clone(),
            });
        }
    }
    requests
}

/// A pod's controller, or the Deployment if one controls its ReplicaSet.
fn controller(metadata: &Metadata) -> Option<Controller> {
    // A static pod. Old versions of Kubernetes set no owner reference for it.
    if metadata.annotations.contains_key("kubernetes.io/config.mirror") {
        return Some(Controller {
            kind: "Node".into(),
            name: metadata.name.clone(),
        });
    }
    let owner = metadata.owner_references.iter().find(|owner| owner.controller)?;
    if let Some(deployment) = deployment(owner, &metadata.labels) {
        return Some(Controller {
            kind: "Deployment".into(),
            name: deployment.to_owned(),
        });
    }
    Some(Controller {
        kind: owner.kind.clone(),
        name: owner.name.clone(),
    })
}

/// The name of the Deployment that controls a pod's owner; `None` if the owner is not a ReplicaSet of a Deployment. The
/// name of such a ReplicaSet is the Deployment's name, a dash, and the hash in the pod's labels.
fn deployment<'o>(owner: &'o Owner, labels_of_pod: &BTreeMap<String, String>) -> Option<&'o str> {
    if owner.kind != "ReplicaSet" {
        return None;
    }
    let hash = labels_of_pod.get("pod-template-hash")?;
    owner.name.strip_suffix(hash.as_str())?.strip_suffix('-')
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use std::net::IpAddr;

    use super::*;

    fn pod(json: Value) -> WorkloadPod {
        serde_json::from_value::<Pod>(json).unwrap().into()
    }

    #[test]
    fn a_pod_of_a_replica_set_is_its_deployments() {
        let of = |kind: &str, name: &str, hash: &str| {
            let owners = json!([{"kind": kind, "name": name, "controller": true}]);
            let pod =
                pod(json!({"metadata": {"labels": {"pod-template-hash": hash}, "ownerReferences": owners}}));
            pod.controller
                .map(|controller| format!("{}/{}", controller.kind, controller.name))
        };
        assert_eq!(of("ReplicaSet", "web-5d9", "5d9").unwrap(), "Deployment/web");
        assert_eq!(of("ReplicaSet", "web-5d9", "x").unwrap(), "ReplicaSet/web-5d9");
        assert_eq!(of("DaemonSet", "agent", "5d9").unwrap(), "DaemonSet/agent");
        assert!(
            pod(json!({"metadata": {"ownerReferences": [{"kind": "X", "name": "y"}]}}))
                .controller
                .is_none()
        );
        let mirror = json!({"name": "etcd-n1", "annotations": {"kubernetes.io/config.mirror": "0a"}});
        assert_eq!(pod(json!({"metadata": mirror})).controller.unwrap().kind, "Node");
    }

    #[test]
    fn calicos_addresses_take_precedence_over_those_of_the_status() {
        let status =
            json!({"podIPs": [{"ip": "10.0.0.1"}], "conditions": [{"type": "Ready", "status": "True"}]});
        let plain = pod(json!({"metadata": {}, "status": status}));
        assert_eq!(
            (plain.addresses, plain.ready),
            (vec!["10.0.0.1".parse().unwrap()], true)
        );
        assert_eq!(plain.ready_after, None);
        let condition =
            json!({"type": "Ready", "status": "True", "lastTransitionTime": "2026-05-01T10:00:40Z"});
        let created = json!({"creationTimestamp": "2026-05-01T10:00:00Z"});
        let timed = pod(json!({"metadata": created, "status": {"conditions": [condition]}}));
        assert_eq!(timed.ready_after, Some(SignedDuration::from_secs(40)));
        let noted = json!({"cni.projectcalico.org/podIPs": "10.0.0.2/32, fd00::2/128"});
        let noted =
            pod(json!({"metadata": {"annotations": noted, "deletionTimestamp": "now"}, "status": status}));
        let addresses: Vec<IpAddr> = ["10.0.0.2", "fd00::2"].map(|text| text.parse().unwrap()).into();
        assert_eq!((noted.addresses, noted.ready), (addresses, false));
    }

    #[test]
    fn a_budget_selects_as_kubernetes_does() {
        let covers = |selector: Value, labels: Value| {
            let budget = json!({"metadata": {"namespace": "n"}, "spec": {"selector": selector}});
            let budget: Budget = serde_json::from_value::<DisruptionBudget>(budget).unwrap().into();
            budget.covers(&pod(json!({"metadata": {"namespace": "n", "labels": labels}})))
        };
        assert!(covers(
            json!({"matchLabels": {"a": "b"}}),
            json!({"a": "b", "c": "d"})
        ));
        assert!(!covers(json!({"matchLabels": {"a": "b"}}), json!({"a": "c"})));
        assert!(covers(json!({}), json!({})));
        assert!(!covers(Value::Null, json!({})));
        let expression = |operator: &str| json!({"matchExpressions": [{"key": "a", "operator": operator, "values": ["b"]}]});
        assert!(covers(expression("In"), json!({"a": "b"})) && !covers(expression("In"), json!({})));
        assert!(covers(expression("NotIn"), json!({})) && !covers(expression("NotIn"), json!({"a": "b"})));
        assert!(covers(expression("Exists"), json!({"a": "x"})) && !covers(expression("Exists"), json!({})));
        assert!(
            covers(expression("DoesNotExist"), json!({})) && !covers(expression("Other"), json!({"a": "b"}))
        );
    }
}
