//! Keys in etcd v3 (facts 1.1). docs/CONTRIBUTING.md lists every place to change for a new kind of record.

use std::fmt;

use ipnet::IpNet;

use crate::DecodeError;
use crate::affinity::{AffinityKey, AffinityType};
use crate::cidr::{dashed, is_v4, parse_dashed};
use crate::names::namespaced;
use crate::snapshot::Source;

/// The prefix of all of Calico's IPAM data.
pub const IPAM_PREFIX: &str = "/calico/ipam/v2/";
/// The prefix of allocation blocks of both families.
pub const BLOCK_PREFIX: &str = "/calico/ipam/v2/assignment/";
/// The prefix of handles.
pub const HANDLE_PREFIX: &str = "/calico/ipam/v2/handle/";
/// The prefix of v3 API resources.
pub const RESOURCE_PREFIX: &str = "/calico/resources/v3/projectcalico.org/";
/// The prefix of workload endpoints.
pub const ENDPOINT_PREFIX: &str = "/calico/resources/v3/projectcalico.org/workloadendpoints/";

/// The object name that Calico uses for kinds with a single object.
pub const DEFAULT: &str = "default";

/// The object that a key names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// An allocation block.
    Block(IpNet),
    /// A block affinity.
    Affinity(AffinityKey),
    /// A handle, by its ID.
    Handle(String),
    /// The configuration that the allocator uses.
    IpamConfig,
    /// The obsolete `/calico/ipam/v2/host/<node>`, which checks ignore.
    IpamHost(String),
    /// An IP pool, by name.
    Pool(String),
    /// An IP reservation, by name.
    Reservation(String),
    /// A Calico node, by name.
    Node(String),
    /// A workload endpoint.
    Endpoint {
        namespace: String,
        /// The name, which contains node, orchestrator, pod and interface (facts 1.10).
        name: String,
    },
    /// Cluster information; only `default` is used.
    ClusterInformation(String),
    /// The kube-controllers configuration; only `default` is used.
    KubeControllersConfiguration(String),
    /// The resource IPAMConfiguration. In etcd, nothing keeps it in sync with [`Key::IpamConfig`].
    IpamConfiguration(String),
    /// A pod, which is only in Kubernetes and has no path in etcd.
    Pod { namespace: String, name: String },
    /// A service, which is only in Kubernetes and has no path in etcd.
    Service { namespace: String, name: String },
}

/// Creates a cluster-scoped resource's key from its name.
type MakeKey = fn(String) -> Key;

/// Resources that are read: the plural in the key, the source, and the function that makes the [`Key`] from a name.
/// `None` for workload endpoints, which have a namespace.
const RESOURCES: [(&str, Source, Option<MakeKey>); 7] = [
    ("ippools", Source::Pools, Some(Key::Pool)),
    ("ipreservations", Source::Reservations, Some(Key::Reservation)),
    ("nodes", Source::Nodes, Some(Key::Node)),
    (
        "clusterinformations",
        Source::ClusterInformation,
        Some(Key::ClusterInformation),
    ),
    (
        "kubecontrollersconfigurations",
        Source::KubeControllersConfiguration,
        Some(Key::KubeControllersConfiguration),
    ),
    (
        "ipamconfigurations",
        Source::IpamConfiguration,
        Some(Key::IpamConfiguration),
    ),
    ("workloadendpoints", Source::Endpoints, None),
];

/// The source of resources, by the plural in their keys; `None` for resources that are not read.
pub fn source_of_resources(plural: &[u8]) -> Option<Source> {
    RESOURCES
        .iter()
        .find(|(resource, ..)| resource.as_bytes() == plural)
        .map(|(_, source, _)| *source)
}

impl Key {
    /// The only ClusterInformation of a cluster.
    pub fn cluster_information() -> Self {
        Self::ClusterInformation(DEFAULT.to_owned())
    }

    /// The only resource with the configuration of IPAM.
    pub fn ipam_configuration() -> Self {
        Self::IpamConfiguration(DEFAULT.to_owned())
    }

    /// Reads an etcd path. `Ok(None)` for paths that calipam does not use.
    ///
    /// # Errors
    /// If the path is under the IPAM prefix, or under the prefix of a resource that is read, but not in a form that
    /// Calico uses.
    pub fn parse(path: &str) -> Result<Option<Self>, DecodeError> {
        if let Some(rest) = path.strip_prefix(IPAM_PREFIX) {
            return parse_ipam(rest).map(Some);
        }
        let Some(rest) = path.strip_prefix(RESOURCE_PREFIX) else {
            return Ok(None);
        };
        let Some((plural, name)) = rest.split_once('/') else {
            return Ok(None);
        };
        let Some((.., make_key)) = RESOURCES.iter().find(|(resource, ..)| *resource == plural) else {
            return Ok(None);
        };
        // Only endpoints have a namespace before their name.
        let Some(make_key) = make_key else {
            return parse_endpoint(name).map(Some);
        };
        if name.is_empty() || name.contains('/') {
            return Err(DecodeError(format!(
                "`{plural}` is followed by {name:?}, which is not a single name"
            )));
        }
        Ok(Some(make_key(name.to_owned())))
    }
}

/// Parses the part of a key after the prefix of IPAM data, such as `assignment/ipv4/block/10.244.1.0-26`.
fn parse_ipam(rest: &str) -> Result<Key, DecodeError> {
    let segments: Vec<&str> = rest.split('/').collect();
    match segments.as_slice() {
        ["config"] => Ok(Key::IpamConfig),
        ["assignment", family, "block", cidr] => parse_family(family, cidr).map(Key::Block),
        ["host", node] if !node.is_empty() => Ok(Key::IpamHost((*node).to_owned())),
        ["handle", id] if !id.is_empty() => Ok(Key::Handle((*id).to_owned())),
        [kind @ ("host" | "virtual" | "@"), node, family, "block", cidr] if !node.is_empty() => {
            let cidr = parse_family(family, cidr)?;
            Ok(Key::Affinity(AffinityKey {
                kind: AffinityType::parse(kind),
                node: (*node).to_owned(),
                cidr,
            }))
        }
        ["handle", ..] => Err("a handle ID must not be empty or contain a slash".into()),
        _ => Err("Calico writes no such key".into()),
    }
}

/// Parses a CIDR, and checks that it is stored under its family.
fn parse_family(family: &str, cidr: &str) -> Result<IpNet, DecodeError> {
    let net = parse_dashed(cidr).ok_or_else(|| DecodeError(format!("{cidr:?} is not a CIDR")))?;
    let expected = if is_v4(net) { "ipv4" } else { "ipv6" };
    if family != expected {
        return Err(DecodeError(format!(
            "{cidr:?} is stored under {family:?} instead of {expected:?}"
        )));
    }
    Ok(net)
}

/// Parses the part of an endpoint's key after the prefix.
fn parse_endpoint(rest: &str) -> Result<Key, DecodeError> {
    let Some((namespace, name)) = namespaced(rest) else {
        return Err("a workload endpoint is named by namespace and name".into());
    };
    Ok(Key::Endpoint {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    })
}

/// An object as people name it, whatever datastore it is in.
#[derive(Clone, Copy, Debug)]
pub struct Named<'k>(&'k Key);

impl Key {
    /// Names the object in messages about any datastore: `block 10.244.1.0/26`, `pool default-ipv4-ippool`.
    pub fn named(&self) -> Named<'_> {
        Named(self)
    }
}

impl fmt::Display for Named<'_> {
    /// Writes the kind and the name of the object.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Key::Block(cidr) => write!(f, "block {cidr}"),
            Key::Affinity(key) => write!(f, "affinity {key}"),
            Key::Handle(id) => write!(f, "handle {id}"),
            Key::IpamConfig => f.write_str("the configuration of the allocator"),
            Key::Pool(name) => write!(f, "pool {name}"),
            Key::Reservation(name) => write!(f, "IP reservation {name}"),
            Key::IpamHost(name) | Key::Node(name) => write!(f, "node {name}"),
            Key::Endpoint { namespace, name } => write!(f, "endpoint {namespace}/{name}"),
            Key::ClusterInformation(name) => write!(f, "ClusterInformation {name}"),
            Key::KubeControllersConfiguration(name) => write!(f, "KubeControllersConfiguration {name}"),
            Key::IpamConfiguration(name) => write!(f, "IPAMConfiguration {name}"),
            Key::Pod { namespace, name } => write!(f, "pod {namespace}/{name}"),
            Key::Service { namespace, name } => write!(f, "service {namespace}/{name}"),
        }
    }
}

impl fmt::Display for Key {
    /// Prints the etcd path, or `<plural>/<namespace>/<name>` for objects that are only in Kubernetes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = |cidr: &IpNet| if is_v4(*cidr) { "ipv4" } else { "ipv6" };
        match self {
            Self::Block(cidr) => write!(f, "{BLOCK_PREFIX}{}/block/{}", family(cidr), dashed(*cidr)),
            Self::Affinity(AffinityKey { kind, node, cidr }) => {
                write!(
                    f,
                    "{IPAM_PREFIX}{kind}/{node}/{}/block/{}",
                    family(cidr),
                    dashed(*cidr)
                )
            }
            Self::Handle(id) => write!(f, "{HANDLE_PREFIX}{id}"),
            Self::IpamConfig => write!(f, "{IPAM_PREFIX}config"),
            Self::IpamHost(node) => write!(f, "{IPAM_PREFIX}host/{node}"),
            Self::Pool(name) => write!(f, "{RESOURCE_PREFIX}ippools/{name}"),
            Self::Reservation(name) => write!(f, "{RESOURCE_PREFIX}ipreservations/{name}"),
            Self::Node(name) => write!(f, "{RESOURCE_PREFIX}nodes/{name}"),
            Self::Endpoint { namespace, name } => write!(f, "{ENDPOINT_PREFIX}{namespace}/{name}"),
            Self::ClusterInformation(name) => write!(f, "{RESOURCE_PREFIX}clusterinformations/{name}"),
            Self::KubeControllersConfiguration(name) => {
                write!(f, "{RESOURCE_PREFIX}kubecontrollersconfigurations/{name}")
            }
            Self::IpamConfiguration(name) => write!(f, "{RESOURCE_PREFIX}ipamconfigurations/{name}"),
            Self::Pod { namespace, name } => write!(f, "pods/{namespace}/{name}"),
            Self::Service { namespace, name } => write!(f, "services/{namespace}/{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_of_the_facts_reads_and_prints() {
        for path in [
            "/calico/ipam/v2/assignment/ipv4/block/10.244.1.0-26",
            "/calico/ipam/v2/assignment/ipv6/block/fd00:10:244::-122",
            "/calico/ipam/v2/host/node-1/ipv4/block/10.244.1.0-26",
            "/calico/ipam/v2/virtual/load-balancer/ipv6/block/fd00:10:244::40-122",
            "/calico/ipam/v2/@/node-1/ipv4/block/10.244.1.0-26",
            "/calico/ipam/v2/handle/k8s-pod-network.3f9a",
            "/calico/ipam/v2/handle/k8s-pod-network.3f9a\r\neth0",
            "/calico/ipam/v2/config",
            "/calico/ipam/v2/host/node-1",
            "/calico/resources/v3/projectcalico.org/ippools/default-ipv4-ippool",
            "/calico/resources/v3/projectcalico.org/ipreservations/infra",
            "/calico/resources/v3/projectcalico.org/nodes/node-1",
            "/calico/resources/v3/projectcalico.org/workloadendpoints/default/node--1-k8s-nginx-eth0",
            "/calico/resources/v3/projectcalico.org/clusterinformations/default",
            "/calico/resources/v3/projectcalico.org/kubecontrollersconfigurations/default",
            "/calico/resources/v3/projectcalico.org/ipamconfigurations/default",
        ] {
            let key = Key::parse(path).unwrap().unwrap();
            assert_eq!(key.to_string(), path);
        }
    }

    #[test]
    fn unexpected_ipam_keys_are_errors_and_other_keys_are_ignored() {
        for path in [
            "/calico/ipam/v2/assignment/ipv4/block/10.244.1.0-99",
            "/calico/ipam/v2/assignment/ipv6/block/10.244.1.0-26",
            "/calico/ipam/v2/assignment/ipv4/10.244.1.0-26",
            "/calico/ipam/v2/handle/",
            "/calico/ipam/v2/handle/a/b",
            "/calico/ipam/v2/guest/node-1/ipv4/block/10.244.1.0-26",
            "/calico/ipam/v2/",
            "/calico/resources/v3/projectcalico.org/ippools/a/b",
            "/calico/resources/v3/projectcalico.org/workloadendpoints/default",
        ] {
            assert!(Key::parse(path).is_err(), "{path}");
        }
        for path in [
            "/registry/pods/default/web-0",
            "/calico/resources/v3/projectcalico.org/profiles/kns.default",
            "",
        ] {
            assert_eq!(Key::parse(path), Ok(None), "{path}");
        }
    }

    #[test]
    fn cidrs_of_keys_are_masked() {
        let key = Key::parse("/calico/ipam/v2/assignment/ipv4/block/10.244.1.7-26")
            .unwrap()
            .unwrap();
        assert_eq!(
            key.to_string(),
            "/calico/ipam/v2/assignment/ipv4/block/10.244.1.0-26"
        );
    }
}
