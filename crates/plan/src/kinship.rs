//! Doubts that etcd and Kubernetes belong to one cluster. Nothing in etcd names its cluster, and nodes in two clusters
//! may have the same names. Node ages and pod addresses tell the clusters apart.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use calipam_check::claim::Claim;
use calipam_model::snapshot::{DatastoreKind, Snapshot, Source};

/// A sign that etcd and Kubernetes belong to different clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Doubt {
    #[error("most of its nodes were created after Calico recorded nodes with these names")]
    YoungerNodes,
    #[error("Calico knows none of its {0} pods with pool addresses")]
    UnknownPods(usize),
    #[error("none of its {0} pods has an address of Calico's pools, and Calico knows none of them")]
    PodsOutsidePools(usize),
}

/// Returns a reason to doubt that etcd and Kubernetes belong to one cluster. `None` if a pod shows that they do, too
/// little is known, or there is no etcd.
pub fn doubt(snapshot: &Snapshot) -> Option<Doubt> {
    if snapshot.datastore == DatastoreKind::Kubernetes || !snapshot.has_read(Source::Pods) {
        return None;
    }
    let RunningPods { owners, in_pools } = RunningPods::of_snapshot(snapshot);
    // One pod with the same address in both is proof enough.
    let is_recorded = |(address, pod): (IpAddr, [String; 2])| owners.get(&address) == Some(&pod);
    if has_endpoint(snapshot, &owners) || recorded_pods(snapshot).any(is_recorded) {
        return None;
    }

    if snapshot.kubernetes_is_younger {
        return Some(Doubt::YoungerNodes);
    }
    if in_pools > 0 {
        return Some(Doubt::UnknownPods(in_pools));
    }
    // Too little is known if no pod has an address, or no block records one.
    if owners.is_empty() || recorded_pods(snapshot).next().is_none() {
        return None;
    }
    Some(Doubt::PodsOutsidePools(owners.len()))
}

/// The pods that run on nodes of the snapshot.
#[derive(Default)]
struct RunningPods {
    /// The namespace and name of the pod with each address.
    owners: HashMap<IpAddr, [String; 2]>,
    /// The number of addresses in pools.
    in_pools: usize,
}

impl RunningPods {
    fn of_snapshot(snapshot: &Snapshot) -> Self {
        let mut nodes: HashSet<&str> = HashSet::new();
        for node in snapshot.nodes.iter().map(|stored| &stored.value) {
            nodes.insert(node.kubernetes_name.as_deref().unwrap_or(&node.name));
        }

        let mut running = Self::default();
        for pod in snapshot.pods.iter().map(|stored| &stored.value) {
            let runs = pod.ready && !pod.deleting;
            if !runs || !nodes.contains(pod.node().to_string().as_str()) {
                continue;
            }
            let name = [pod.namespace(), pod.name()].map(|text| text.to_string());
            for address in pod.addresses() {
                running.in_pools += usize::from(is_in_pool(snapshot, address));
                running.owners.insert(address, name.clone());
            }
        }
        running
    }
}

fn is_in_pool(snapshot: &Snapshot, address: IpAddr) -> bool {
    let mut pools = snapshot.pools.iter().map(|stored| &stored.value);
    pools.any(|pool| pool.cidr.contains(&address))
}

/// Returns true if one of the pods has an endpoint with its address.
fn has_endpoint(snapshot: &Snapshot, owners: &HashMap<IpAddr, [String; 2]>) -> bool {
    for endpoint in snapshot.endpoints.iter().map(|stored| &stored.value) {
        for address in endpoint.addresses() {
            if let Some([namespace, name]) = owners.get(&address)
                && endpoint.namespace() == *namespace.as_str()
                && endpoint.pod() == *name.as_str()
            {
                return true;
            }
        }
    }
    false
}

/// Returns the recorded addresses of pods, each with the namespace and name of its pod.
fn recorded_pods(snapshot: &Snapshot) -> impl Iterator<Item = (IpAddr, [String; 2])> {
    let contents = snapshot.blocks.iter().map(|stored| &stored.value.content);
    let blocks = contents.filter_map(|content| content.usable());
    let allocations = blocks.flat_map(|block| block.allocations());
    allocations.filter_map(|allocation| {
        let (namespace, name) = Claim::of(&allocation.attribute).pod()?;
        Some((allocation.address, [namespace, name]))
    })
}

#[cfg(test)]
mod tests {
    use calipam_model::key::{ENDPOINT_PREFIX, RESOURCE_PREFIX};
    use calipam_model::names::endpoint_name;
    use calipam_model::pod::{Pod, PodParts};
    use calipam_model::snapshot::{Revision, Versioned};
    use calipam_testkit::values;
    use serde_json::{Value, json};

    use super::*;

    /// node-1 in etcd with a pool of each family, and a pod in Kubernetes.
    fn cluster(address: &str) -> Snapshot {
        let mut snapshot = Snapshot::default();
        put(
            &mut snapshot,
            &format!("{RESOURCE_PREFIX}nodes/node-1"),
            json!({}),
        );
        put(
            &mut snapshot,
            &format!("{RESOURCE_PREFIX}ippools/v4"),
            json!({"cidr": "10.0.0.0/16"}),
        );
        put(
            &mut snapshot,
            &format!("{RESOURCE_PREFIX}ippools/v6"),
            json!({"cidr": "fd00::/64"}),
        );
        snapshot.mark_read([Source::Pods]);
        let parts = PodParts {
            namespace: "default",
            name: "web-0",
            node: "node-1",
            phase: "Running",
            ready: true,
            status_ip: address,
            ..PodParts::default()
        };
        let value = Pod::new(&parts).0;
        snapshot.pods.push(Versioned {
            value,
            revision: Revision::Etcd(1),
        });
        snapshot
    }

    fn put(snapshot: &mut Snapshot, key: &str, spec: Value) {
        snapshot.add_entry(key.as_bytes(), json!({"spec": spec}).to_string().as_bytes(), 1);
    }

    fn endpoint(snapshot: &mut Snapshot, pod: &str, address: &str) {
        let name = endpoint_name("node-1", "k8s", pod, "eth0");
        let spec = json!({"node": "node-1", "orchestrator": "k8s", "pod": pod, "endpoint": "eth0",
            "ipNetworks": [address]});
        put(snapshot, &format!("{ENDPOINT_PREFIX}default/{name}"), spec);
    }

    #[test]
    fn a_pod_known_to_calico_shows_one_cluster() {
        for address in ["10.0.0.1", "fd00::1"] {
            let mut other = cluster(address);
            assert_eq!(
                doubt(&other),
                Some(Doubt::UnknownPods(1)),
                "nothing is known of it"
            );
            endpoint(&mut other, "web-0", "10.0.0.9/32");
            endpoint(&mut other, "web-1", address);
            assert_eq!(
                doubt(&other),
                Some(Doubt::UnknownPods(1)),
                "with another address, or name"
            );
            other.kubernetes_is_younger = true;
            assert_eq!(doubt(&other), Some(Doubt::YoungerNodes));
            let mut same = other.clone();
            same.endpoints.clear();
            endpoint(&mut same, "web-0", address);
            assert_eq!(doubt(&same), None, "whatever the ages of nodes");
        }
        let mut recorded = cluster("10.0.0.1");
        let owner =
            json!({"handle_id": "k8s-pod-network.x", "secondary": {"namespace": "default", "pod": "web-0"}});
        let block = values::block("10.0.0.0/31", Value::Null, [Value::Null, owner]);
        let key = values::block_key("10.0.0.0/31");
        recorded.add_entry(key.as_bytes(), block.to_string().as_bytes(), 1);
        assert_eq!(doubt(&recorded), None);
    }

    #[test]
    fn pods_outside_of_all_pools_belong_to_another_cluster_if_calico_records_pods() {
        let mut foreign = cluster("192.0.2.1");
        let owner =
            json!({"handle_id": "k8s-pod-network.x", "secondary": {"namespace": "default", "pod": "web-0"}});
        let block = values::block("10.0.0.0/31", Value::Null, [Value::Null, owner]);
        let key = values::block_key("10.0.0.0/31");
        foreign.add_entry(key.as_bytes(), block.to_string().as_bytes(), 1);
        assert_eq!(doubt(&foreign), Some(Doubt::PodsOutsidePools(1)));

        // Calico knows a pod whose address is another IPAM's.
        endpoint(&mut foreign, "web-0", "192.0.2.1");
        assert_eq!(doubt(&foreign), None);
    }

    #[test]
    fn without_anything_to_compare_there_is_no_doubt() {
        let mut outside = cluster("192.0.2.1");
        assert_eq!(doubt(&outside), None, "nothing is recorded");
        outside.kubernetes_is_younger = true;
        assert_eq!(doubt(&outside), Some(Doubt::YoungerNodes));
        let mut kubernetes = cluster("10.0.0.1");
        kubernetes.datastore = DatastoreKind::Kubernetes;
        assert_eq!(doubt(&kubernetes), None);
        let mut alone = cluster("10.0.0.1");
        alone.coverage.clear();
        assert_eq!(doubt(&alone), None);
    }
}
