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
    let mut names = BTreeSet::new();
    match kind {
        NameKind::Nodes => {
            names.extend(snapshot.nodes.iter().map(|node| node.value.name.clone()));
            for affinity in &snapshot.affinities {
                let key = &affinity.value.key;
                if key.kind == AffinityType::Host {
                    names.insert(key.node.clone());
                }
            }
        }
        NameKind::Pools => names.extend(snapshot.pools.iter().map(|pool| pool.value.name.clone())),
        NameKind::Blocks => names.extend(snapshot.blocks.iter().map(|block| block.value.key.to_string())),
        NameKind::Handles => return handles(snapshot),
        NameKind::Namespaces => {
            for pod in &snapshot.pods {
                names.insert(pod.value.namespace().to_string());
            }
            for endpoint in &snapshot.endpoints {
                names.insert(endpoint.value.namespace().to_string());
            }
        }
        NameKind::Addresses => return addresses::allocated(snapshot),
        NameKind::Pods => {
            let pods = snapshot.pods.iter().map(|stored| &stored.value);
            let pods = pods.map(|pod| (pod.namespace(), pod.name()));
            let endpoints = snapshot.endpoints.iter().map(|stored| &stored.value);
            let endpoints = endpoints.map(|endpoint| (endpoint.namespace(), endpoint.pod()));
            for (namespace, pod) in pods.chain(endpoints) {
                if pod != *"" {
                    names.insert(format!("{namespace}/{pod}"));
                }
            }
        }
        NameKind::Services => {
            for service in &snapshot.services {
                if !service.value.is_internal {
                    names.insert(service.value.full_name());
                }
            }
        }
    }
    names
}

pub(crate) fn handles(snapshot: &Snapshot) -> BTreeSet<String> {
    snapshot
        .handles
        .iter()
        .map(|handle| handle.value.id().to_string())
        .collect()
}
