//! Clauses of messages that give a reason.

use super::names::short;
use crate::claim::Claim;
use crate::code::Code;
use crate::finding::{LeakReason, NodeEvidence, NodePoolEvidence, RecordEvidence};

/// The clause that says why nothing uses a recorded address.
pub(super) fn of_leak(reason: Option<LeakReason>, record: &RecordEvidence) -> String {
    let attribute = record.record.as_ref();
    let node = attribute.get("node").map(|node| node.to_string());
    match (reason, node) {
        (Some(LeakReason::NodeGone), node) => match (Claim::of(&attribute), node) {
            (Claim::Tunnel { node, .. }, _) | (_, Some(node)) => format!("but {node} does not exist"),
            _ => "but its node does not exist".to_owned(),
        },
        (Some(LeakReason::PodMoved), node) => {
            format!("which is not on {} any more", node.as_deref().unwrap_or("its node"))
        }
        (Some(LeakReason::NoOwner), Some(node)) => format!("which is gone from {node}"),
        (Some(LeakReason::NoOwner | LeakReason::ServiceGone | LeakReason::VmGone), _) => {
            "which is gone".to_owned()
        }
        (Some(LeakReason::PodHasOtherAddress), _) => "which has another address".to_owned(),
        (Some(LeakReason::PodFinished), _) => "which has finished".to_owned(),
        (Some(LeakReason::TunnelMoved), _) => "which has another address or none".to_owned(),
        (Some(LeakReason::UnknownOwner) | None, _) => "and nothing uses it".to_owned(),
    }
}

/// The clause about a node that has too many blocks, or no object.
pub(super) fn of_node(code: Code, evidence: &NodeEvidence) -> String {
    if code == Code::NodeObjectMissing {
        return "is a node of Kubernetes and holds blocks, but Calico has no object of it".to_owned();
    }
    let Some(NodePoolEvidence { pool, blocks, limit }) = evidence.pools.first() else {
        return "has too many blocks".to_owned();
    };
    format!("has {blocks} blocks in {}, more than the limit of {}", short(pool), limit.unwrap_or_default())
}
