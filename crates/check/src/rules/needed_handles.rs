//! Orphan handles that somebody needs. If blocks were lost, the handles of the workloads and tunnels in them look like
//! orphans, but a rebuild needs them.

use std::collections::HashSet;
use std::net::IpAddr;

use calipam_model::node::TunnelKind;
use calipam_model::snapshot::{DatastoreKind, Source};

use crate::claim::Claim;
use crate::code::Code;
use crate::context::Context;
use crate::finding::{Evidence, Finding, HandleEvidence, NeededBy};
use crate::owner::Owners;

/// Notes in the findings about orphan handles who needs the handle.
pub(super) fn note(context: &Context<'_>, findings: &mut [Finding]) {
    let orphans = || {
        findings.iter().enumerate().filter_map(|(place, finding)| {
            if finding.code != Code::OrphanHandle {
                return None;
            }
            let Evidence::Handle(evidence) = &finding.evidence else {
                return None;
            };
            Some((place, finding.subject.handle()?, &**evidence))
        })
    };
    let claims: Vec<Claim<'_>> = orphans().map(|(_, id, _)| Claim::of_handle(id)).collect();
    if claims.is_empty() {
        return;
    }
    let owners = Owners::new(context, &claims);
    let lost = findings
        .iter()
        .filter(|finding| finding.code == Code::UnallocatedInUse);
    let lost: HashSet<IpAddr> = lost.filter_map(|finding| finding.subject.address()).collect();

    let needed_by = |(place, id, evidence): (usize, &str, &HandleEvidence)| {
        let owner = owner_of(context, &owners, &lost, id).map(NeededBy::Owner);
        Some((place, owner.or_else(|| unknown(context, evidence))?))
    };
    let needed: Vec<(usize, NeededBy)> = orphans().filter_map(needed_by).collect();
    for (place, by) in needed {
        if let Evidence::Handle(evidence) = &mut findings[place].evidence {
            evidence.needed_by = Some(by);
        }
    }
}

/// Returns the owner of an orphan handle: a workload that uses an address, or a tunnel with an unrecorded address.
fn owner_of(
    context: &Context<'_>,
    owners: &Owners<'_, '_>,
    lost: &HashSet<IpAddr>,
    id: &str,
) -> Option<String> {
    match Claim::of_handle(id) {
        Claim::Tunnel { kind, node } => unrecorded_tunnel(context, lost, kind, &node),
        claim => {
            let workload = context.index.workload(owners.user(&claim)?)?;
            let by_workload = || (workload.namespace.to_string(), workload.pod.to_string());
            let (namespace, pod) = claim.pod().unwrap_or_else(by_workload);
            Some(format!("{namespace}/{pod}"))
        }
    }
}

/// Returns a tunnel whose address no block records. A tunnel with a recorded address does not need the orphan, even if
/// the record has no handle.
fn unrecorded_tunnel(
    context: &Context<'_>,
    lost: &HashSet<IpAddr>,
    kind: TunnelKind,
    node: &str,
) -> Option<String> {
    let tunnels = &context.index.node(node)?.tunnels;
    for (other_kind, address) in tunnels {
        if *other_kind == kind && lost.contains(address) {
            return Some(format!("a tunnel of {node}"));
        }
    }
    None
}

/// Returns a missing block that the handle counts, if no pods were read. In an etcd that was restored from a backup,
/// blocks and endpoints can be missing together, and then only pods show whose handle it is.
fn unknown(context: &Context<'_>, evidence: &HandleEvidence) -> Option<NeededBy> {
    let snapshot = context.snapshot;
    if snapshot.datastore == DatastoreKind::Kubernetes || snapshot.has_read(Source::Pods) {
        return None;
    }
    let mut counted = evidence.blocks.iter().filter(|counts| counts.in_handle > 0);
    let missing = counted.find(|counts| context.index.block(counts.block).is_none())?;
    Some(NeededBy::Unknown(missing.block))
}
