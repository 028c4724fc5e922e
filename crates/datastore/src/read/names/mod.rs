//! Names with a given prefix, as suggestions while a user types. Finding them takes only a few small reads, regardless
//! of the size of the cluster, except that files and etcd v2 are read as a whole. The result need not be complete.

pub(crate) mod addresses;
pub(crate) mod page;

use std::collections::BTreeSet;

use calipam_model::affinity::AffinityType;
use calipam_model::snapshot::Snapshot;

/// Maximum names in most answers; a few more may be added to show the common prefix of all names.
pub(crate) const MOST: usize = 100;

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
        NameKind::Nodes => {
            let nodes = snapshot.nodes.iter().map(|node| node.value.name.clone());
            let hosts = snapshot
                .affinities
                .iter()
                .filter(|held| held.value.key.kind == AffinityType::Host);
            nodes
                .chain(hosts.map(|held| held.value.key.node.clone()))
                .collect()
        }
        NameKind::Pools => snapshot
            .pools
            .iter()
            .map(|pool| pool.value.name.clone())
            .collect(),
        NameKind::Blocks => snapshot
            .blocks
            .iter()
            .map(|block| block.value.key.to_string())
            .collect(),
        NameKind::Handles => handles(snapshot),
        NameKind::Namespaces => {
            let pods = snapshot.pods.iter().map(|pod| pod.value.namespace().to_string());
            pods.chain(
                snapshot
                    .endpoints
                    .iter()
                    .map(|one| one.value.namespace().to_string()),
            )
            .collect()
        }
        NameKind::Addresses => addresses::allocated(snapshot),
        NameKind::Pods => {
            let pods = snapshot
                .pods
                .iter()
                .map(|pod| (pod.value.namespace(), pod.value.name()));
            let endpoints = snapshot
                .endpoints
                .iter()
                .map(|one| (one.value.namespace(), one.value.pod()));
            let named = pods.chain(endpoints).filter(|(_, pod)| *pod != *"");
            named
                .map(|(namespace, pod)| format!("{namespace}/{pod}"))
                .collect()
        }
        NameKind::Services => {
            let services = snapshot
                .services
                .iter()
                .filter(|service| !service.value.is_internal);
            services.map(|service| service.value.full_name()).collect()
        }
    }
}

pub(crate) fn handles(snapshot: &Snapshot) -> BTreeSet<String> {
    snapshot
        .handles
        .iter()
        .map(|handle| handle.value.id().to_string())
        .collect()
}
