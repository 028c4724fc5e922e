//! The stories of `docs/repair.md`, from the first command to the last. The document shows their output.

mod document;
mod duplicate;
mod node_crash;
mod restore;
mod transcript;

use calipam_testkit::cluster::{Cluster, ClusterSpec};
use calipam_testkit::servers::Etcd;

use self::document::check_document;
use self::transcript::Story;

/// Lists the workload endpoints, each with its key, namespace, pod and handle.
fn endpoints(cluster: &Cluster) -> Vec<Living> {
    let keys = cluster.keys().filter_map(|key| std::str::from_utf8(key).ok());
    let living = |key: &str| {
        let stored = key.contains("/workloadendpoints/").then(|| cluster.json(key))?;
        let [namespace, pod, container] = ["/metadata/namespace", "/spec/pod", "/spec/containerID"]
            .map(|field| stored.pointer(field)?.as_str());
        Some(Living {
            key: key.to_owned(),
            namespace: namespace?.to_owned(),
            pod: pod?.to_owned(),
            handle: format!("k8s-pod-network.{}", container?),
        })
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
