//! What happens to a cluster.

use calipam_model::IpNet;
use serde::{Deserialize, Serialize};

use super::PoolSpec;
use crate::time::Micros;

/// Something that happens at a time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Planned {
    pub at: Micros,
    /// In YAML a map of one entry: `what: {failNode: node-3}`.
    #[serde(with = "serde_yaml::with::singleton_map_recursive")]
    pub what: Event,
}

/// What can happen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Event {
    /// The machine stops at once.
    FailNode(String),
    /// All machines of a zone stop at once. Zones are counted from 1.
    FailZone(u32),
    /// The pods of the node are moved to others.
    DrainNode(String),
    /// All pods are replaced, `batch` at a time: each is deleted when another runs in its place.
    Restart {
        batch: u32,
    },
    /// So many pods arrive at once.
    Burst(u32),
    /// etcd is restored from a backup that was taken so long before.
    RestoreBackup {
        age: Micros,
    },
    /// Addresses of so many running pods are released by hand.
    FreeAddresses(u32),
    /// So many running pods are virtual machines that keep their addresses (Calico 3.32 and later), and are migrated live to
    /// other nodes.
    MigrateMachines(u32),
    /// So many pods of a plugin of Calico 2, whose handle is the pod's name, are moved to another node while the node
    /// they leave is slow: its DEL comes after the ADD of the new pod.
    ShareHandles(u32),
    /// The node is cut off from the control plane, and its pods run on.
    PartitionNode(String),
    /// The machine stops and is back after a while: its pods that were not replaced start again.
    RebootNode {
        node: String,
        away: Micros,
    },
    /// So many nodes join, called `new-node-1` and so on.
    AddNodes(u32),
    /// All nodes are replaced by new ones, `batch` at a time: those join, the old ones are drained and removed.
    ReplaceNodes {
        batch: u32,
    },
    /// Requests take so many times as long for a while.
    SlowDatastore {
        times: u32,
        lasting: Micros,
    },
    /// The datastore does nothing for a while; requests wait for it.
    StopDatastore {
        lasting: Micros,
    },
    /// The plugin of the next so many ADDs is killed.
    KillPlugins(u32),
    /// Settings of IPAM change; those that are not named stay.
    Configure {
        strict_affinity: Option<bool>,
        max_blocks_per_host: Option<u32>,
        cooldown: Option<Micros>,
    },
    AddPool(PoolSpec),
    /// The pool is disabled: nothing new comes from it.
    DisablePool(IpNet),
}

impl Event {
    /// The node that it names.
    pub fn node(&self) -> Option<&str> {
        match self {
            Self::FailNode(name) | Self::DrainNode(name) | Self::PartitionNode(name) => Some(name),
            Self::RebootNode { node, .. } => Some(node),
            _ => None,
        }
    }
}
