//! Orphan handles that somebody needs. If blocks were lost, the handles of the workloads and tunnels in them look like
//! orphans, but a rebuild needs them.

use std::collections::HashSet;
use std::net::IpAddr;

use calipam_model::node::TunnelKind;
use calipam_model::snapshot::{DatastoreKind, Source};

use crate::claim::Claim;
use crate::code::Code;
use crate::context::Context;
use crate::finding::{Evidence, Finding, HandleEvidence, NeededBy, Subject};
use crate::owner::Owners;

/// Notes in each finding about an orphan handle who needs the handle, as far as that is known: an owner whose address
/// is not recorded, or the unknown owner of addresses in a block that is missing.
pub(super) fn note(context: &Context<'_>, findings: &mut [Finding]) {
    let mut claims: Vec<Claim<'_>> = Vec::new();
    let mut unrecorded: HashSet<IpAddr> = HashSet::new();
    for finding in findings.iter() {
        match (finding.code, &finding.subject) {
            (Code::OrphanHandle, Subject::Handle(id)) => claims.push(Claim::of_handle(id)),
            (Code::UnallocatedInUse, Subject::Address(address)) => {
                unrecorded.insert(*address);
            }
            _ => {}
        }
    }
    if claims.is_empty() {
        return;
    }

    let owners = Owners::new(context, &claims);
    for finding in findings {
        if finding.code != Code::OrphanHandle {
            continue;
        }
        if let Subject::Handle(id) = &finding.subject
            && let Evidence::Handle(evidence) = &mut finding.evidence
        {
            evidence.needed_by = match owner_of(context, &owners, &unrecorded, id) {
                Some(owner) => Some(NeededBy::Owner(owner)),
                None => missing_block(context, evidence),
            };
        }
    }
}

/// Returns the name of the owner of an orphan handle: a workload that uses an address, or a tunnel with an unrecorded
/// address. `None` if there is no such owner.
fn owner_of(
    context: &Context<'_>,
    owners: &Owners<'_, '_>,
    unrecorded: &HashSet<IpAddr>,
    id: &str,
) -> Option<String> {
    let claim = Claim::of_handle(id);
    if let Claim::Tunnel { kind, node } = claim {
        return unrecorded_tunnel(context, unrecorded, kind, &node);
    }
    let workload = context.index.workload(owners.user(&claim)?)?;
    match claim.pod() {
        Some((namespace, pod)) => Some(format!("{namespace}/{pod}")),
        None => Some(format!("{}/{}", workload.namespace, workload.pod)),
    }
}

/// Returns a tunnel whose address no block records. A tunnel with a recorded address does not need the orphan, even if
/// the record has no handle.
fn unrecorded_tunnel(
    context: &Context<'_>,
    unrecorded: &HashSet<IpAddr>,
    kind: TunnelKind,
    node: &str,
) -> Option<String> {
    let tunnels = &context.index.node(node)?.tunnels;
    for (other_kind, address) in tunnels {
        if *other_kind == kind && unrecorded.contains(address) {
            return Some(format!("a tunnel of {node}"));
        }
    }
    None
}

/// Returns a missing block that the handle counts, if no pods were read. In an etcd that was restored from a backup,
/// blocks and endpoints can be missing together, and then only pods show whose handle it is.
fn missing_block(context: &Context<'_>, evidence: &HandleEvidence) -> Option<NeededBy> {
    let snapshot = context.snapshot;
    if snapshot.datastore == DatastoreKind::Kubernetes || snapshot.has_read(Source::Pods) {
        return None;
    }
    let mut counted = evidence.blocks.iter().filter(|counts| counts.in_handle > 0);
    let missing = counted.find(|counts| context.index.block(counts.block).is_none())?;
    Some(NeededBy::Unknown(missing.block))
}
