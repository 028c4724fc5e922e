//! Undecodable objects that could own an address.

use calipam_model::key::Key;
use calipam_model::node::TunnelKind;
use calipam_model::snapshot::DefectKind;

use crate::claim::Claim;
use crate::context::Context;
use crate::index::{BrokenWorkload, Record};

/// Returns true if a node's tunnel address cannot be decoded.
pub(super) fn has_broken_tunnel(context: &Context<'_>, node: &str, kind: TunnelKind) -> bool {
    for defect in &context.snapshot.defects {
        if let Some(Key::Node(name)) = &defect.key
            && name == node
            && let DefectKind::Fields(fields) = &defect.kind
            && fields.iter().any(|defect| defect.field == kind.field())
        {
            return true;
        }
    }
    false
}

/// Returns true if the key of an undecodable endpoint or pod could be the recorded owner's. Such a key usually lacks
/// the container ID, so it could belong to any container with an address in its node's blocks.
pub(super) fn protects(broken: &BrokenWorkload<'_>, record: &Record<'_, '_>, claim: &Claim<'_>) -> bool {
    let Some(key) = &broken.name else {
        return claim
            .pod()
            .is_some_and(|(namespace, _)| namespace == broken.namespace);
    };
    match claim {
        Claim::Pod { namespace, pod, .. } => {
            *namespace == *broken.namespace && *pod == *key.workload.as_str()
        }
        Claim::LegacyPod { namespace, pod } => {
            let by_pod = namespace == broken.namespace && *pod == key.workload;
            by_pod || key.workload == format!("{namespace}.{pod}")
        }
        Claim::Container(id) => key.workload == *id || record.block.host() == Some(key.node.as_str()),
        _ => false,
    }
}

/// Returns true if an undecodable endpoint or pod could have any container ID. Only the keys of endpoints with the
/// orchestrator `cni` contain the ID (facts 1.10).
pub(super) fn may_be_any_container(broken: &BrokenWorkload<'_>) -> bool {
    broken.name.as_ref().is_none_or(|key| key.orchestrator != "cni")
}
