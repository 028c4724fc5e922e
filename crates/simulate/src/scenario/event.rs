//! Events that disturb a cluster.

use serde::Serialize;

use crate::time::Micros;

/// An event and its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Planned {
    pub at: Micros,
    pub what: Event,
}

/// An event in a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Event {
    /// The machine stops at once.
    FailNode(String),
    /// The node is cut off from the control plane, but its pods keep running.
    PartitionNode(String),
    /// etcd is restored from a backup.
    RestoreBackup,
    /// Pods move to another node. As with a plugin of Calico 2, their handle is the pod's name. Their old node is slow:
    /// its DEL comes after the new pod's ADD.
    ShareHandles,
    /// Someone releases addresses of running pods by hand.
    FreeAddresses,
}

impl Event {
    pub fn node(&self) -> Option<&str> {
        match self {
            Self::FailNode(name) | Self::PartitionNode(name) => Some(name),
            Self::RestoreBackup | Self::ShareHandles | Self::FreeAddresses => None,
        }
    }
}
