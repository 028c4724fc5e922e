//! The stories of `docs/repair.md`, from the first command to the last. The document shows their output.

mod document;
mod duplicate;
mod node_crash;
mod restore;
mod transcript;

use calipam_testkit::cluster::{Cluster, ClusterSpec, Object};
use calipam_testkit::servers::Etcd;

use self::document::check_document;
use self::transcript::Story;

/// Lists the workload endpoints, each with its key, namespace, pod and handle.
fn endpoints(cluster: &Cluster) -> Vec<Living> {
    let keys = cluster.keys().filter_map(|key| std::str::from_utf8(key).ok());
    let living = |key: &str| match cluster.get(key) {
        Some(Object::Endpoint(endpoint)) => Some(Living {
            key: key.to_owned(),
            namespace: endpoint.metadata.namespace.clone(),
            pod: endpoint.spec.pod.clone(),
            handle: format!("k8s-pod-network.{}", endpoint.spec.container_id),
        }),
        _ => None,
    };
    keys.filter_map(living).collect()
}

/// A running pod.
struct Living {
    key: String,
    namespace: String,
    pod: String,
    handle: String,
}
