//! The settings of an eviction, and the pods that it moves.

use std::time::Duration;

use calipam_datastore::workloads::WorkloadPod;
use calipam_model::IpNet;
use jiff::SignedDuration;

/// The kind of the controller of a virtual machine's pods.
pub(super) const MACHINE: &str = "VirtualMachineInstance";

/// The settings of an eviction.
#[derive(Clone, Debug)]
pub struct Eviction {
    /// The maximum number of pods that are evicted and not yet back.
    pub batch: usize,
    /// The pause between two batches.
    pub pause: SignedDuration,
    /// The time to wait for evicted pods to be back, and for budgets to allow evictions.
    pub patience: SignedDuration,
    /// Evicts only pods on these nodes; on all nodes if empty.
    pub nodes: Vec<String>,
    pub namespace: Option<String>,
}

impl Eviction {
    /// True for a pod on the requested nodes and in the requested namespace.
    pub(super) fn is_selected(&self, pod: &WorkloadPod) -> bool {
        let is_of_node = self.nodes.is_empty() || self.nodes.contains(&pod.node);
        let is_of_namespace = match &self.namespace {
            Some(namespace) => *namespace == pod.namespace,
            None => true,
        };
        is_of_node && is_of_namespace
    }

    pub(super) fn patience(&self) -> Duration {
        Duration::try_from(self.patience).unwrap_or_default()
    }
}

/// The kinds of pods that get another address by an eviction or a live migration.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moves {
    /// True if virtual machines get other addresses as well. Since Calico 3.32, they keep their addresses.
    pub machines: bool,
}

impl Moves {
    /// True for a pod of the old pool that a controller recreates after its eviction, unlike static pods and pods of jobs.
    pub(super) fn can_move(self, pod: &WorkloadPod, old: IpNet) -> bool {
        let Some(controller) = &pod.controller else {
            return false;
        };
        if pod.finished || pod.host_network || !moves(&controller.kind, self.machines) {
            return false;
        }
        pod.addresses.iter().any(|address| old.contains(address))
    }
}

/// Returns true for kinds of controllers that recreate a pod after its eviction, with another address.
pub(super) fn moves(kind: &str, machines: bool) -> bool {
    match kind {
        "Node" | "Job" => false,
        MACHINE => machines,
        _ => true,
    }
}
