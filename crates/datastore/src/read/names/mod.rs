//! Names with a given prefix, as suggestions while a user types. Finding them takes only a few small reads, regardless
//! of the size of the cluster, except that files and etcd v2 are read as a whole. The result need not be complete.

pub(crate) mod addresses;
pub(crate) mod page;

use std::collections::BTreeSet;

use calipam_model::affinity::AffinityType;
use calipam_model::snapshot::Snapshot;
use calipam_model::text::TextRef;

/// Maximum names in most answers; a few more may be added to show the common prefix of all names.
pub(crate) const MAX_NAMES: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameKind {
    /// Existing nodes, and nodes with affinities.
    Nodes,
    /// IP pools, by name.
    Pools,
    Blocks,
    /// Allocated addresses; if there are many, their networks, such as `10.244.`.
    Addresses,
    Handles,
    /// Existing namespaces; in etcd and files, those with endpoints or pods.
    Namespaces,
    /// LoadBalancer services, as `namespace/name`.
    Services,
    /// Pods, as `namespace/name`; in etcd and files, those with endpoints or records as well.
    Pods,
}

/// All names of a kind in a snapshot.
pub(crate) fn all(snapshot: &Snapshot, kind: NameKind) -> BTreeSet<String> {
    match kind {
        NameKind::Nodes => nodes(snapshot),
        NameKind::Pools => snapshot
            .pools
            .iter()
            .map(|pool| pool.value.name.clone())
            .collect(),
        NameKind::Blocks => {
            let blocks = snapshot.blocks.iter();
            blocks.map(|block| block.value.key.to_string()).collect()
        }
        NameKind::Handles => handles(snapshot),
        NameKind::Namespaces => namespaces(snapshot),
        NameKind::Addresses => addresses::allocated(snapshot),
        NameKind::Pods => pods(snapshot),
        NameKind::Services => services(snapshot),
    }
}

/// The names of nodes, and of nodes that have affinities without existing.
fn nodes(snapshot: &Snapshot) -> BTreeSet<String> {
    let mut names: BTreeSet<String> = snapshot
        .nodes
        .iter()
        .map(|node| node.value.name.clone())
        .collect();
    for affinity in &snapshot.affinities {
        let key = &affinity.value.key;
        if key.kind == AffinityType::Host {
            names.insert(key.node.clone());
        }
    }
    names
}

/// The namespaces of pods and endpoints.
fn namespaces(snapshot: &Snapshot) -> BTreeSet<String> {
    let of_pods = snapshot.pods.iter().map(|pod| pod.value.namespace());
    let of_endpoints = snapshot
        .endpoints
        .iter()
        .map(|endpoint| endpoint.value.namespace());
    of_pods
        .chain(of_endpoints)
        .map(|namespace| namespace.to_string())
        .collect()
}

/// The names of pods, and of the pods of endpoints.
fn pods(snapshot: &Snapshot) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for pod in &snapshot.pods {
        names.extend(full_pod_name(pod.value.namespace(), pod.value.name()));
    }
    for endpoint in &snapshot.endpoints {
        names.extend(full_pod_name(endpoint.value.namespace(), endpoint.value.pod()));
    }
    names
}

/// The names of services, except internal ones.
fn services(snapshot: &Snapshot) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for service in &snapshot.services {
        if !service.value.is_internal {
            names.insert(service.value.full_name());
        }
    }
    names
}

/// The name `namespace/pod`; `None` for an endpoint without a pod.
fn full_pod_name(namespace: TextRef<'_>, pod: TextRef<'_>) -> Option<String> {
    if pod.is_empty() {
        return None;
    }
    Some(format!("{namespace}/{pod}"))
}

pub(crate) fn handles(snapshot: &Snapshot) -> BTreeSet<String> {
    snapshot
        .handles
        .iter()
        .map(|handle| handle.value.id().to_string())
        .collect()
}
