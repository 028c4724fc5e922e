//! Where data comes from, and what of it was read.

use std::fmt;

use serde::{Serialize, Serializer};

/// Where data can come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Source {
    /// Allocation blocks.
    Blocks,
    /// Block affinities.
    Affinities,
    Handles,
    /// IP pools.
    Pools,
    /// IP reservations.
    Reservations,
    /// Nodes with their tunnel addresses.
    Nodes,
    /// The names of the nodes of Kubernetes, where Calico's own are in etcd. They are read with pods.
    KubernetesNodes,
    /// Workload endpoints (etcd).
    Endpoints,
    ClusterInformation,
    KubeControllersConfiguration,
    /// The allocator's configuration.
    IpamConfig,
    /// The resource IPAMConfiguration.
    IpamConfiguration,
    /// Pods (Kubernetes).
    Pods,
    /// LoadBalancer services (Kubernetes).
    Services,
    /// KubeVirt machines (Kubernetes).
    Machines,
    /// The labels of namespaces (Kubernetes). They are read after pools that ask for them.
    Namespaces,
}

impl Source {
    /// Those of which a read says whether it covers them.
    pub const ALL: [Self; 14] = [
        Self::Blocks,
        Self::Affinities,
        Self::Handles,
        Self::Pools,
        Self::Reservations,
        Self::Nodes,
        Self::Endpoints,
        Self::ClusterInformation,
        Self::KubeControllersConfiguration,
        Self::IpamConfig,
        Self::IpamConfiguration,
        Self::Pods,
        Self::Services,
        Self::Machines,
    ];
}

/// The sources that an etcd datastore holds.
pub const ETCD_SOURCES: [Source; 11] = [
    Source::Blocks,
    Source::Affinities,
    Source::Handles,
    Source::Pools,
    Source::Reservations,
    Source::Nodes,
    Source::Endpoints,
    Source::ClusterInformation,
    Source::KubeControllersConfiguration,
    Source::IpamConfig,
    Source::IpamConfiguration,
];

/// What decides whether a node gets an address: the sources that the allocator looks at.
pub const ALLOCATION_SOURCES: [Source; 6] = [
    Source::Blocks,
    Source::Affinities,
    Source::Pools,
    Source::Reservations,
    Source::Nodes,
    Source::IpamConfig,
];

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// Whether a source was read. A source that was not never yields a finding that depends on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Coverage {
    Read,
    /// Some objects only, as `show --ip` does.
    Partial,
    /// None of it, and why.
    Skipped(WhySkipped),
}

/// Why a source was not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhySkipped {
    /// Kubernetes could have been read, but nothing says where it is.
    NoKubeconfig,
    NotInExport,
    NotInFile,
    /// The API server has no such resource.
    NotInstalled(String),
    /// With the Kubernetes datastore there are no endpoints: pods are read instead.
    PodsInstead,
    /// Calico 2.x does not know such objects: that there are none is certain.
    NotInCalico2,
    /// Nothing of it is needed for what was asked.
    NotNeeded,
    /// What another version of this program wrote into an export.
    Other(String),
}

impl WhySkipped {
    /// Reads what an export says.
    pub fn parse(text: &str) -> Self {
        let known = [
            Self::NoKubeconfig,
            Self::NotInExport,
            Self::NotInFile,
            Self::PodsInstead,
            Self::NotInCalico2,
            Self::NotNeeded,
        ];
        let not_installed =
            || text.strip_suffix(NOT_INSTALLED).map(|name| Self::NotInstalled(name.to_owned()));
        let known = known.into_iter().find(|reason| reason.to_string() == text);
        known.or_else(not_installed).unwrap_or_else(|| Self::Other(text.to_owned()))
    }
}

const NOT_INSTALLED: &str = " is not installed";

impl fmt::Display for WhySkipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoKubeconfig => f.write_str("no kubeconfig"),
            Self::NotInExport => f.write_str("not in the export"),
            Self::NotInFile => f.write_str("not in the file"),
            Self::NotInstalled(name) => write!(f, "{name}{NOT_INSTALLED}"),
            Self::PodsInstead => f.write_str("Kubernetes has none: pods are read instead"),
            Self::NotInCalico2 => f.write_str("Calico 2.x has none"),
            Self::NotNeeded => f.write_str("not needed"),
            Self::Other(text) => f.write_str(text),
        }
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read => f.write_str("read"),
            Self::Partial => f.write_str("partly read"),
            Self::Skipped(reason) => write!(f, "skipped: {reason}"),
        }
    }
}

impl Serialize for Coverage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
