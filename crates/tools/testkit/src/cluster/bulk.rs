//! Clusters of any size, generated entry by entry.

use super::{Cluster, ClusterSpec};

/// Number of pods on a node. With the three IPv4 tunnel addresses, they nearly fill the block.
const PODS: u32 = 58;
const TUNNELS: u64 = 3;
/// Number of allocations on a node.
const PER_NODE: u64 = PODS as u64 + TUNNELS;

impl Cluster {
    /// Creates a healthy cluster with about `allocations` allocations. Each node has one block of 64 addresses, of
    /// which 61 are taken. Each allocation has a handle, and each pod has an endpoint. Its nodes are in the
    /// [filled](Self::filled) part, which most methods do not see.
    pub fn sized(spec: ClusterSpec, allocations: u64) -> Self {
        Self::with_configuration(spec.wide().v4_only()).filled(allocations)
    }

    /// Creates a healthy cluster with a number of pods.
    pub fn of_pods(spec: ClusterSpec, pods: u64) -> Self {
        Self::sized(spec, pods + pods.div_ceil(PODS.into()) * TUNNELS)
    }

    /// Fills a cluster, which must be [wide](ClusterSpec::wide), up to about `allocations` with healthy nodes. They are
    /// not kept in memory: [`for_each_entry`](Self::for_each_entry) generates them, node by node, for itself and for
    /// all outputs (etcd, exports, snapshots and Kubernetes objects). All other methods, such as [`get`](Self::get),
    /// [`blocks`](Self::blocks) and [`nodes`](Self::nodes), see only the part in memory.
    pub fn filled(self, allocations: u64) -> Self {
        assert!(self.spec.wide, "a cluster that grows needs a wide specification");
        Self {
            size: allocations,
            ..self
        }
    }

    /// Number of addresses that intact blocks in memory record.
    pub fn allocations(&self) -> u64 {
        self.blocks()
            .map(|b| b.allocations.iter().flatten().count() as u64)
            .sum()
    }

    /// Visits every key and value: first those in memory, ascending by key, then those of each node that
    /// [fills](Self::filled) the cluster.
    pub fn for_each_entry(&self, mut visit: impl FnMut(&[u8], &[u8])) {
        self.for_each_part(|part| {
            part.entries
                .iter()
                .for_each(|(key, object)| visit(key, &object.value()))
        });
    }

    /// Visits the part in memory, then each generated node.
    pub(super) fn for_each_part(&self, mut visit: impl FnMut(&Self)) {
        if self.size == 0 {
            return visit(self);
        }
        visit(&Self {
            size: 0,
            ..self.clone()
        });

        let mut missing = self.size.saturating_sub(self.allocations());
        let first = self.next_node;
        for number in first.. {
            if missing == 0 {
                break;
            }
            let mut node = Self::bare(self.spec.v4_only());
            node.next_node = number;
            // No pod in memory has a number in this range.
            node.next_pod = self.next_pod + u64::from(number - first) * u64::from(PODS);
            let place = node.add_node();
            for _ in TUNNELS..missing.clamp(TUNNELS, PER_NODE) {
                node.add_pod_on(place);
            }
            missing = missing.saturating_sub(PER_NODE);
            visit(&node);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_sized_cluster_has_the_size_and_no_key_twice() {
        let cluster = Cluster::sized(ClusterSpec::new(1), 1_000);
        let mut keys = BTreeSet::new();
        let (mut handles, mut endpoints, mut bytes) = (0, 0, 0);
        cluster.for_each_entry(|key, value| {
            let text = String::from_utf8_lossy(key);
            handles += u32::from(text.contains("/handle/"));
            if text.contains("/workloadendpoints/") {
                endpoints += 1;
                bytes += value.len();
            }
            assert!(keys.insert(key.to_vec()), "{text}");
        });
        assert_eq!(handles, 1_000);
        assert_eq!(endpoints, 1_000 - 17 * 3);
        assert!(
            (700..1000).contains(&(bytes / endpoints)),
            "{} bytes an endpoint",
            bytes / endpoints
        );
    }

    #[test]
    fn a_sized_cluster_has_a_number_of_pods() {
        let mut pods = 0;
        Cluster::of_pods(ClusterSpec::new(1), 100).for_each_entry(|key, _| {
            pods += u32::from(String::from_utf8_lossy(key).contains("/workloadendpoints/"));
        });
        assert_eq!(pods, 100);
    }
}
