//! Findings that only one kind of datastore can have, with the reasons.

use calipam_check::Finding;

use super::findings::evidence;

/// The only kind of datastore in which a finding occurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Etcd,
    Kubernetes,
}

/// The differences. Each entry is a kind of datastore, a finding code, a string in the evidence (empty for any
/// evidence), and the reason.
const DIFFERENCES: &[(Side, &str, &str, &str)] = &[
    (
        Side::Etcd,
        "configuration-mismatch",
        "",
        "etcd holds the settings twice, Kubernetes once",
    ),
    (
        Side::Etcd,
        "duplicate-address",
        "virt-launcher-",
        "where no block records the address, an endpoint does not say that its pod is a machine's; the pod itself does",
    ),
    (
        Side::Etcd,
        "unallocated-in-use",
        "",
        "only the pod says that its address bypasses IPAM",
    ),
    (
        Side::Etcd,
        "leaked-address",
        "no-owner",
        "a pod that waits for its address has no endpoint yet",
    ),
    (
        Side::Etcd,
        "overlapping-pools",
        "",
        "in the native group a controller sees to it that one of the pools is used",
    ),
    (
        Side::Kubernetes,
        "leaked-address",
        "no-owner",
        "the endpoint that a pod leaves names its address",
    ),
    (
        Side::Kubernetes,
        "affinity-labels",
        "",
        "keys of etcd have no labels",
    ),
    (
        Side::Kubernetes,
        "handle-case-collision",
        "",
        "keys of etcd keep the case, names of objects do not",
    ),
    (
        Side::Kubernetes,
        "leaked-address",
        "pod-finished",
        "an endpoint does not say that its pod has finished",
    ),
    (
        Side::Kubernetes,
        "pod-address-disagreement",
        "",
        "an endpoint names its addresses once, a pod twice",
    ),
    (
        Side::Kubernetes,
        "leaked-address",
        "service-gone",
        "without a kubeconfig services are not read",
    ),
    (Side::Kubernetes, "service-address-extra", "", "as before"),
    (Side::Kubernetes, "service-without-address", "", "as before"),
    (Side::Kubernetes, "unallocated-in-use", "\"service\"", "as before"),
    (
        Side::Kubernetes,
        "wrong-node-recorded",
        "",
        "only the pod says on which node it runs",
    ),
    (
        Side::Kubernetes,
        "unrecorded-address",
        "",
        "without a kubeconfig pods are not read",
    ),
    (Side::Kubernetes, "pod-without-address", "", "as before"),
    (
        Side::Kubernetes,
        "block-of-missing-node",
        "",
        "Calico's object of a node outlives that of Kubernetes",
    ),
    (Side::Kubernetes, "affinity-of-missing-node", "", "as before"),
    (Side::Kubernetes, "leaked-address", "node-gone", "as before"),
    (
        Side::Kubernetes,
        "leaked-address",
        "tunnel-moved",
        "Calico's object of a node is lost, that of Kubernetes is not",
    ),
    (Side::Etcd, "block-of-missing-node", "", "as before"),
    (Side::Etcd, "affinity-of-missing-node", "", "as before"),
    (Side::Etcd, "endpoint-of-missing-node", "", "as before"),
    (Side::Kubernetes, "pool-overlaps-services", "", "as before"),
    (
        Side::Kubernetes,
        "pods-without-calico-ipam",
        "",
        "nodes in etcd do not state the ranges of their pods",
    ),
    (
        Side::Kubernetes,
        "tunnel-address-missing",
        "",
        "etcd has no object of the node whose tunnels are lost",
    ),
    (
        Side::Kubernetes,
        "leaked-address",
        "vm-gone",
        "without a kubeconfig machines are not read",
    ),
];

/// Defects that only Kubernetes objects can have. Each entry is a string in the evidence, and the reason.
const UNDECODABLE: [(&str, &str); 2] = [
    (
        "metadata.name",
        "keys of etcd are what they name; an object may have another name than its content says",
    ),
    (
        "neither true nor false",
        "etcd holds a truth value, the classic API group a text",
    ),
];

/// Returns true if the tables explain why the finding occurs only in this kind of datastore.
pub(super) fn is_explained(side: Side, finding: &Finding) -> bool {
    let (code, evidence) = (finding.code.name(), evidence(finding));
    let line = |(of, rule, part, _): &(Side, &str, &str, &str)| {
        *of == side && *rule == code && evidence.contains(part)
    };
    let object = |(part, _): &(&str, &str)| {
        side == Side::Kubernetes && code == "undecodable-object" && evidence.contains(part)
    };
    DIFFERENCES.iter().any(line) || UNDECODABLE.iter().any(object)
}
