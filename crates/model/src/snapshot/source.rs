//! The sources of data, and how much of them was read.

use std::fmt;

/// A source of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Source {
    Blocks,
    Affinities,
    Handles,
    Pools,
    Reservations,
    /// Nodes with their tunnel addresses.
    Nodes,
    /// Kubernetes nodes, if Calico's own nodes are in etcd. They are read together with pods.
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
    /// Services (Kubernetes).
    Services,
    /// KubeVirt machines (Kubernetes).
    Machines,
    /// Namespaces (Kubernetes), with their labels and the pools in their annotations.
    Namespaces,
}

impl Source {
    /// All sources except [`Self::KubernetesNodes`] and [`Self::Namespaces`].
    pub fn all() -> impl Iterator<Item = Self> {
        ETCD_SOURCES
            .into_iter()
            .chain([Self::Pods, Self::Services, Self::Machines])
    }
}

/// The sources in an etcd datastore.
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

/// The sources that the allocator reads before it assigns an address on a node.
pub const ALLOCATION_SOURCES: [Source; 6] = [
    Source::Blocks,
    Source::Affinities,
    Source::Pools,
    Source::Reservations,
    Source::Nodes,
    Source::IpamConfig,
];

crate::display_serialized!(Source);

/// The part of a source that was read. An unread source never leads to a finding that depends on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Coverage {
    Read,
    /// Only some objects, as in `show --ip`.
    Partial,
    Skipped(WhySkipped),
}

/// The reason why a source was not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WhySkipped {
    /// The source is in Kubernetes, but no kubeconfig was given.
    #[error("no kubeconfig")]
    NoKubeconfig,
    #[error("not in the export")]
    NotInExport,
    #[error("not in the file")]
    NotInFile,
    /// The API server has no such resource.
    #[error("{0}{NOT_INSTALLED}")]
    NotInstalled(String),
    /// The Kubernetes datastore has no endpoints: pods are read instead.
    #[error("Kubernetes has none: pods are read instead")]
    PodsInstead,
    /// Calico 2.x has no such objects, so it is certain that there are none.
    #[error("Calico 2.x has none")]
    NotInCalico2,
    /// The request does not need the source.
    #[error("not needed")]
    NotNeeded,
    /// A reason from an export by another version of this program, as text.
    #[error("{0}")]
    Other(String),
}

impl<'de> serde::Deserialize<'de> for Coverage {
    /// Reads the form in which exports contain the coverage.
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text == "read" {
            return Ok(Self::Read);
        }
        Ok(Self::Skipped(WhySkipped::parse(&text)))
    }
}

impl WhySkipped {
    /// Reads the reason as it is written, with or without its prefix.
    fn parse(text: &str) -> Self {
        let text = text.strip_prefix("skipped: ").unwrap_or(text);
        for reason in [
            Self::NoKubeconfig,
            Self::NotInExport,
            Self::NotInFile,
            Self::PodsInstead,
            Self::NotInCalico2,
            Self::NotNeeded,
        ] {
            if reason.to_string() == text {
                return reason;
            }
        }
        match text.strip_suffix(NOT_INSTALLED) {
            Some(name) => Self::NotInstalled(name.to_owned()),
            None => Self::Other(text.to_owned()),
        }
    }
}

const NOT_INSTALLED: &str = " is not installed";

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read => f.write_str("read"),
            Self::Partial => f.write_str("partly read"),
            Self::Skipped(reason) => write!(f, "skipped: {reason}"),
        }
    }
}

crate::serialize_displayed!(Coverage);
