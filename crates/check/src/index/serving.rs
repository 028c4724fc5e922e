//! Calico IPAM in the cluster: does it give pods their addresses?

use calipam_model::pod::{Pod, evidence};
use calipam_model::snapshot::{DatastoreKind, Snapshot, Source};

use super::Index;

impl Index<'_> {
    /// Returns true if Calico IPAM gives pods their addresses. `uses_ipam` is true if any block, handle or affinity is
    /// stored.
    pub(crate) fn serves_pods(&self, uses_ipam: bool) -> bool {
        let snapshot = self.snapshot;
        let other_ipam_serves_pods =
            self.services_only || self.host_local_pods > 0 || keeps_data_elsewhere(snapshot);
        if other_ipam_serves_pods {
            return false;
        }
        if uses_ipam || !snapshot.endpoints.is_empty() {
            return true;
        }

        let pods = || snapshot.pods.iter().map(|stored| &stored.value);
        if pods().any(has_address) {
            // Calico's plugin annotates its pods. The pods of other plugins have no such annotations.
            return pods().any(|pod| self.is_networked(pod));
        }
        // No pod has an address yet, so only the preparations of Calico IPAM can show that it will serve pods.
        let mut nodes = snapshot.nodes.iter().map(|stored| &stored.value);
        !snapshot.pools.is_empty() || nodes.any(|node| !node.tunnels.is_empty())
    }

    /// True for a pod with an address that Calico's plugin set up.
    fn is_networked(&self, pod: &Pod) -> bool {
        self.snapshot.datastore == DatastoreKind::Kubernetes && pod.is_annotated() && !pod.host_network
    }
}

/// True if a pod that runs has an address of its own.
fn has_address(pod: &Pod) -> bool {
    !pod.host_network && !pod.finished && pod.named_by(evidence::STATUS | evidence::CNI).next().is_some()
}

/// Returns true if this etcd is not where the cluster's Calico keeps its data: it has no node and no endpoint, and pods
/// have the annotations that Calico's plugin writes with the Kubernetes datastore.
pub(crate) fn keeps_data_elsewhere(snapshot: &Snapshot) -> bool {
    let sources = [Source::Nodes, Source::Endpoints, Source::Pods];
    matches!(snapshot.datastore, DatastoreKind::Etcd | DatastoreKind::EtcdV2)
        && sources.into_iter().all(|source| snapshot.has_read(source))
        && snapshot.nodes.is_empty()
        && snapshot.endpoints.is_empty()
        && snapshot
            .pods
            .iter()
            .any(|stored| stored.value.has_cni_annotation && !stored.value.container_id().is_empty())
}
