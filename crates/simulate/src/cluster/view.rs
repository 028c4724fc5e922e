//! The cluster as `calipam check` reads it.

use calipam_model::block::{Block, BlockContent};
use calipam_model::endpoint::{Endpoint, EndpointParts};
use calipam_model::names::{KUBERNETES, POD_INTERFACE, pod_endpoint_name};
use calipam_model::pod::{Pod as ModelPod, PodParts};
use calipam_model::snapshot::{
    ALLOCATION_SOURCES, DatastoreKind, Revision, Snapshot, Source, StoredBlock, Versioned,
};

use super::World;
use super::plugin::NAMESPACE;
use super::pods::Pod;

impl World {
    /// Takes a snapshot of the data that a check would read now. On etcd, it contains endpoints in addition to
    /// Kubernetes pods.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let mut snapshot = self.snapshot_of_blocks();
        snapshot.mark_read([Source::Pods, Source::Handles]);
        let is_etcd = self.server.kind == DatastoreKind::Etcd;
        if is_etcd {
            snapshot.mark_read([Source::Endpoints]);
        }

        let data = self.server.data();
        // Sorted by ID, as in the list of a datastore.
        snapshot.handles = data.handles().map(|handle| versioned(handle.clone())).collect();
        snapshot
            .handles
            .sort_by_cached_key(|handle| handle.value.id().to_string());

        let pods = self.pods.borrow();
        let nodes = self.nodes.borrow();
        for (id, pod) in pods.all() {
            let node = &*nodes.get(pod.node).name;
            if pod.is_in_api {
                snapshot.pods.push(versioned(model_pod(id, pod, node)));
            }
            if is_etcd && pod.has_endpoint {
                snapshot.endpoints.push(versioned(endpoint(id, pod, node)));
            }
        }
        snapshot
    }

    /// Takes a snapshot of the objects that decide whether a node can get an address, such as blocks, affinities and
    /// pools.
    pub(crate) fn snapshot_of_blocks(&self) -> Snapshot {
        let data = self.server.data();
        let mut snapshot = Snapshot {
            datastore: self.server.kind,
            taken_at: self.engine.now().timestamp(),
            // Nothing changes during the read.
            rechecked: true,
            ipam_config: data.config(),
            ..Snapshot::default()
        };
        snapshot.mark_read(ALLOCATION_SOURCES);
        for block in data.blocks() {
            let content = BlockContent::Sound(Box::new(Block::clone(block)));
            snapshot.blocks.push(versioned(StoredBlock {
                key: block.cidr(),
                content,
            }));
        }
        for affinity in data.affinities() {
            snapshot.affinities.push(versioned(affinity.clone()));
        }
        for pool in &data.pools {
            snapshot.pools.push(versioned(pool.clone()));
        }
        for reservation in &data.reservations {
            snapshot.reservations.push(versioned(reservation.clone()));
        }
        for node in data.nodes.values() {
            snapshot.nodes.push(versioned(node.clone()));
        }
        snapshot
    }
}

fn versioned<T>(value: T) -> Versioned<T> {
    Versioned {
        value,
        revision: Revision::Etcd(1),
    }
}

/// Returns the object of a pod in the API server, with the annotations and the status that it has now.
fn model_pod(id: u32, pod: &Pod, node: &str) -> ModelPod {
    let name = Pod::name(id);
    let container = pod.container(id);
    // The plugin has emptied the annotations of a pod that is stopping, except on a failed node, where it does not run.
    let is_stopping = pod.started.is_some() && !pod.runs && !pod.is_of_failed_node;
    let mut addresses: Vec<String> = Vec::new();
    if !is_stopping {
        addresses.extend(pod.addresses.iter().map(ToString::to_string));
    }
    let has_addresses = !addresses.is_empty();
    let first_address = addresses.first().map(String::as_str);
    let annotation = addresses.join(",");
    let parts = PodParts {
        namespace: NAMESPACE,
        name: &name,
        node,
        phase: if has_addresses { "Running" } else { "Pending" },
        ready: has_addresses,
        status_ip: first_address.unwrap_or_default(),
        status_ips: addresses.iter().map(String::as_str).collect(),
        cni_ip: if is_stopping { Some("") } else { first_address },
        deleting: is_stopping,
        cni_ips: has_addresses.then_some(annotation.as_str()),
        container_id: if has_addresses { &container } else { "" },
        ..PodParts::default()
    };
    ModelPod::new(&parts).0
}

/// Returns the workload endpoint of a pod, with the names that Calico's plugin gives it.
fn endpoint(id: u32, pod: &Pod, node: &str) -> Endpoint {
    let name = Pod::name(id);
    let container = pod.container(id);
    let parts = EndpointParts {
        namespace: NAMESPACE,
        name: &pod_endpoint_name(node, &name),
        node,
        orchestrator: KUBERNETES,
        pod: &name,
        endpoint: POD_INTERFACE,
        container_id: &container,
        workload: "",
    };
    Endpoint::new(&parts, &pod.addresses)
}
