//! Doubts that etcd and Kubernetes belong to one cluster. Nothing in etcd names its cluster, and nodes in two clusters
//! may have the same names. Node ages and pod addresses tell the clusters apart.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use calipam_check::claim::Claim;
use calipam_model::pod::Pod;
use calipam_model::snapshot::{DatastoreKind, Snapshot, Source};

/// A sign that etcd and Kubernetes belong to different clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Doubt {
    #[error("most of its nodes were created after Calico recorded nodes with these names")]
    YoungerNodes,
    #[error("Calico knows none of its {0} pods with pool addresses")]
    UnknownPods(usize),
}

/// Returns a reason to doubt that etcd and Kubernetes belong to one cluster. `None` if a pod shows that they do, too
/// little is known, or there is no etcd.
pub fn doubt(snapshot: &Snapshot) -> Option<Doubt> {
    if snapshot.datastore == DatastoreKind::Kubernetes || !snapshot.has_read(Source::Pods) {
        return None;
    }
    let nodes = snapshot.nodes.iter().map(|node| &node.value);
    let nodes: HashSet<&str> = nodes
        .map(|node| node.kubernetes_name.as_deref().unwrap_or(&node.name))
        .collect();
    let is_pooled = |address: IpAddr| {
        snapshot
            .pools
            .iter()
            .any(|pool| pool.value.cidr.contains(&address))
    };
    let is_calico =
        |pod: &&Pod| pod.ready && !pod.deleting && nodes.contains(pod.node().to_string().as_str());
    let pods = snapshot.pods.iter().map(|pod| &pod.value).filter(is_calico);
    let mut owners: HashMap<IpAddr, [String; 2]> = HashMap::new();
    for pod in pods {
        let name = [pod.namespace(), pod.name()].map(|text| text.to_string());
        owners.extend(
            pod.addresses()
                .filter(|address| is_pooled(*address))
                .map(|a| (a, name.clone())),
        );
    }

    let endpoints = snapshot.endpoints.iter().map(|endpoint| &endpoint.value);
    let is_named = endpoints
        .flat_map(|endpoint| endpoint.addresses().map(move |address| (address, endpoint)))
        .any(|(address, endpoint)| {
            let owner = owners.get(&address);
            owner.is_some_and(|[space, name]| {
                endpoint.namespace() == *space.as_str() && endpoint.pod() == *name.as_str()
            })
        });
    let blocks = snapshot
        .blocks
        .iter()
        .filter_map(|block| block.value.content.usable());
    let is_recorded = || {
        blocks.flat_map(|block| block.allocations()).any(|held| {
            let named = Claim::of(&held.attribute).pod();
            named.is_some_and(|(space, name)| owners.get(&held.address) == Some(&[space, name]))
        })
    };
    let is_known = !owners.is_empty() && (is_named || is_recorded());
    match owners.len() {
        _ if is_known => None,
        _ if snapshot.kubernetes_is_younger => Some(Doubt::YoungerNodes),
        0 => None,
        pods => Some(Doubt::UnknownPods(pods)),
    }
}

#[cfg(test)]
mod tests {
    use calipam_model::key::{ENDPOINT_PREFIX, RESOURCE_PREFIX};
    use calipam_model::names::endpoint_name;
    use calipam_model::pod::PodParts;
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
    fn without_anything_to_compare_there_is_no_doubt() {
        let mut outside = cluster("192.0.2.1");
        assert_eq!(doubt(&outside), None, "of no pool");
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
