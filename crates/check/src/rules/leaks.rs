//! Addresses that are allocated although nothing uses them.

use std::collections::HashMap;

use calipam_model::attributes::AttributeRef;
use calipam_model::key::Key;
use calipam_model::names::endpoint_name;
use calipam_model::node::TunnelKind;
use calipam_model::service::Machine;
use calipam_model::snapshot::{DefectKind, Source};
use calipam_model::text::{Text, TextRef};

use super::addresses::Record;
use super::evidence::{name_of_claim, nodes_of, of_owner, of_record};
use crate::Context;
use crate::code::{Code, Severity};
use crate::finding::{AddressEvidence, Evidence, Finding, LeakReason, Subject};
use crate::index::{BrokenWorkload, Index, Owner, Use};
use crate::record::{Claim, machine_of, names_service, names_workload};

/// True where the allocation is younger than the grace period: its owner may not have appeared yet.
pub(crate) fn is_young(context: &Context<'_>, attribute: &AttributeRef<'_>) -> bool {
    let Some(allocated) = attribute.allocated_at() else { return false };
    context.snapshot.taken_at.duration_since(allocated) < context.grace
}

/// True where an unused allocation may turn out to be leaked: it is old enough, and everything that
/// could show its owner was read.
pub(crate) fn is_candidate(context: &Context<'_>, record: &Record<'_, '_>) -> bool {
    let attribute = &record.allocation.attribute;
    let snapshot = context.snapshot;
    let workloads_read = snapshot.has_read(Source::Endpoints) || snapshot.has_read(Source::Pods);
    workloads_read
        && snapshot.has_read(Source::Nodes)
        && !is_young(context, attribute)
        && !context.index.is_mentioned(record.allocation.address)
        && match Claim::of(attribute) {
            Claim::Cooling | Claim::WindowsReserved => false,
            claim => !claim.needs_unread_source(snapshot),
        }
}

/// Judges unused allocations.
pub(crate) fn judge(context: &Context<'_>, unused: &[Record<'_, '_>], out: &mut Vec<Finding>) {
    if unused.is_empty() {
        return;
    }
    let claims: Vec<Claim<'_>> = unused.iter().map(|r| Claim::of(&r.allocation.attribute)).collect();
    let found = Found::new(context, &claims);
    for (record, claim) in unused.iter().zip(&claims) {
        match verdict(context, record, claim, &found) {
            Verdict::Kept => {}
            Verdict::Leaked(reasons) => push(out, leak(context, record, claim, reasons, &found)),
            Verdict::Extra => push(out, extra(context, record)),
        }
    }
}

/// By record: why its owner is gone; `None` where it may live.
pub(super) fn reasons(context: &Context<'_>, records: &[Record<'_, '_>]) -> Vec<Option<Vec<LeakReason>>> {
    let claims: Vec<Claim<'_>> = records.iter().map(|r| Claim::of(&r.allocation.attribute)).collect();
    let found = Found::new(context, &claims);
    let judged = records.iter().zip(&claims).map(|(record, claim)| verdict(context, record, claim, &found));
    let reasons = |verdict| match verdict {
        Verdict::Leaked(reasons) => Some(reasons),
        Verdict::Kept | Verdict::Extra => None,
    };
    judged.map(reasons).collect()
}

/// Adds a finding. Where overlapping blocks both record the address, one finding tells of all records,
/// which follow each other.
fn push(out: &mut Vec<Finding>, finding: Finding) {
    let same = |last: &&mut Finding| last.code == finding.code && last.subject == finding.subject;
    let Some(last) = out.last_mut().filter(same) else {
        out.push(finding);
        return;
    };
    if let (Evidence::Address(all), Evidence::Address(more)) = (&mut last.evidence, finding.evidence) {
        all.reasons.extend(more.reasons);
        all.reasons.sort();
        all.reasons.dedup();
        all.owners.extend(more.owners);
        all.owners.sort();
        all.owners.dedup();
        all.records.extend(more.records);
    }
    last.severity = last.severity.min(finding.severity);
    last.nodes.extend(finding.nodes);
    last.nodes.sort();
    last.nodes.dedup();
    last.behind.extend(finding.behind);
}

enum Verdict {
    Kept,
    Leaked(Vec<LeakReason>),
    /// The recorded service exists, but does not name the address.
    Extra,
}

fn verdict(context: &Context<'_>, record: &Record<'_, '_>, claim: &Claim<'_>, found: &Found) -> Verdict {
    let index = &context.index;
    let attribute = &record.allocation.attribute;
    match claim {
        Claim::Tunnel { kind, node } if index.node_exists(node) => {
            let unreadable = index.node_is_broken(node) || has_broken_tunnel(context, node, *kind);
            if unreadable { Verdict::Kept } else { Verdict::Leaked(vec![LeakReason::TunnelMoved]) }
        }
        // The node may be alive although its object is gone: Calico's collector judges so, too.
        Claim::Tunnel { node, .. } if index.workloads_name_node(node) => Verdict::Kept,
        Claim::Tunnel { .. } => Verdict::Leaked(vec![LeakReason::NodeGone]),
        Claim::Anonymous | Claim::Unknown => {
            let host = record.block.owner.and_then(|o| o.host());
            let unreadable = host.is_some_and(|h| index.node_is_broken(h));
            if unreadable { Verdict::Kept } else { Verdict::Leaked(vec![LeakReason::UnknownOwner]) }
        }
        Claim::Service => {
            let exists = context.snapshot.services.iter().any(|s| names_service(attribute, &s.value));
            if exists { Verdict::Extra } else { Verdict::Leaked(vec![LeakReason::ServiceGone]) }
        }
        Claim::Machine => {
            let exists = |(namespace, name): (String, String)| {
                let same = |m: &Machine| m.namespace == namespace && m.name == name;
                context.snapshot.machines.iter().any(|m| same(&m.value))
            };
            let exists = machine_of(attribute).is_none_or(exists);
            if exists { Verdict::Kept } else { Verdict::Leaked(vec![LeakReason::VmGone]) }
        }
        claim if index.broken_workloads.iter().any(|e| protects(e, record, claim)) => Verdict::Kept,
        claim => by_workloads(context, record, claim, found.of(claim)),
    }
}

/// Judges the claim of a pod or container by the endpoints and pods of that name. Where pods were read,
/// they decide; an endpoint without a pod protects only the addresses that it names.
fn by_workloads(
    context: &Context<'_>,
    record: &Record<'_, '_>,
    claim: &Claim<'_>,
    found: &[Owner],
) -> Verdict {
    let index = &context.index;
    let pods_read = context.snapshot.has_read(Source::Pods);
    let decisive = found.iter().filter(|o| matches!(o, Owner::Pod(_)) == pods_read);
    let mut reasons = Vec::new();
    let node = record.allocation.attribute.get("node").map(|n| n.to_string());
    if node.is_some_and(|n| !index.node_exists(&n)) {
        reasons.push(LeakReason::NodeGone);
    }
    let mut exists = false;
    let mut is_here = false;
    for owner in decisive {
        exists = true;
        if !index.workload(*owner).is_some_and(|w| names_workload(claim, &w, index)) {
            continue;
        }
        match state_of(index, *owner) {
            // Whoever has no address yet may be about to name this one.
            State::Waiting => return Verdict::Kept,
            State::Finished => reasons.push(LeakReason::PodFinished),
            State::Elsewhere => reasons.push(LeakReason::PodHasOtherAddress),
        }
        is_here = true;
    }
    if !is_here && exists {
        reasons.push(LeakReason::PodMoved);
    } else if !exists && reasons.is_empty() {
        // A container ID alone names neither pod nor tunnel nor service.
        let named = !matches!(claim, Claim::Container(_));
        reasons.push(if named { LeakReason::NoOwner } else { LeakReason::UnknownOwner });
    }
    Verdict::Leaked(reasons)
}

/// What a workload that does not name the address is doing.
enum State {
    /// It has no address yet.
    Waiting,
    Finished,
    /// It has another address.
    Elsewhere,
}

fn state_of(index: &Index<'_>, owner: Owner) -> State {
    let has_address = match owner {
        Owner::Pod(place) => {
            let pod = &index.snapshot.pods[place as usize].value;
            if pod.finished {
                return State::Finished;
            }
            pod.host_network || pod.mentioned().next().is_some()
        }
        Owner::Endpoint(place) => index.endpoint(place).addresses().next().is_some(),
        Owner::Tunnel(..) | Owner::Service(_) => true,
    };
    if has_address { State::Elsewhere } else { State::Waiting }
}

fn has_broken_tunnel(context: &Context<'_>, node: &str, kind: TunnelKind) -> bool {
    context.snapshot.defects.iter().any(|defect| match (&defect.key, &defect.kind) {
        (Some(Key::Node(name)), DefectKind::Fields(fields)) => {
            name == node && fields.iter().any(|f| f.field == kind.field())
        }
        _ => false,
    })
}

/// True where the endpoint or pod that does not decode may be the one whose address it is.
fn protects(broken: &BrokenWorkload<'_>, record: &Record<'_, '_>, claim: &Claim<'_>) -> bool {
    let is_pod = |namespace: &str, pod: &str| {
        namespace == broken.namespace && broken.name.as_ref().is_none_or(|name| name.workload == pod)
    };
    match claim {
        Claim::Pod { namespace, pod, .. } => is_pod(&namespace.to_string(), &pod.to_string()),
        Claim::LegacyPod { namespace, pod } => is_pod(namespace, pod),
        // Only endpoints of orchestrators other than Kubernetes name their container in the key; of a pod
        // there is no more to go by than its node.
        Claim::Container(id) => broken.name.as_ref().is_some_and(|name| {
            name.workload == *id || record.block.owner.and_then(|o| o.host()) == Some(name.node.as_str())
        }),
        _ => false,
    }
}

/// An address that is recorded for a service whose ingress does not name it.
fn extra(context: &Context<'_>, record: &Record<'_, '_>) -> Finding {
    let address = record.allocation.address;
    let message = format!("{address} held for {}, whose ingress does not name it", name_of_claim(record));
    let services = (0..).zip(&context.snapshot.services);
    let of_record_named = services.filter(|(_, s)| names_service(&record.allocation.attribute, &s.value));
    let owner = |(place, _)| of_owner(&context.index, &Use { address, owner: Owner::Service(place) });
    let evidence = AddressEvidence {
        pool: context.index.pools_around(address.into()).next().map(|p| p.name.clone()),
        owners: of_record_named.map(owner).collect(),
        records: vec![of_record(record)],
        ..AddressEvidence::default()
    };
    let evidence = Evidence::Address(Box::new(evidence));
    Finding::new(Code::ServiceAddressExtra, Subject::Address(address), message, evidence)
        .resting_on([Key::Block(record.block.key)])
}

fn leak(
    context: &Context<'_>,
    record: &Record<'_, '_>,
    claim: &Claim<'_>,
    reasons: Vec<LeakReason>,
    found: &Found,
) -> Finding {
    let address = record.allocation.address;
    let unknown = reasons == [LeakReason::UnknownOwner];
    let message =
        format!("{address} held for {}, {}", name_of_claim(record), explain(&reasons, record, claim));
    let evidence = AddressEvidence {
        reasons,
        pool: context.index.pools_around(address.into()).next().map(|p| p.name.clone()),
        owners: found
            .of(claim)
            .iter()
            .map(|owner| of_owner(&context.index, &Use { address, owner: *owner }))
            .collect(),
        records: vec![of_record(record)],
    };
    let nodes = nodes_of(&evidence);
    let finding = Finding::new(
        Code::LeakedAddress,
        Subject::Address(address),
        message,
        Evidence::Address(Box::new(evidence)),
    );
    let severity = if unknown { Severity::Warning } else { Severity::Error };
    finding.with_severity(severity).on_nodes(nodes).resting_on(behind(context, record, claim))
}

fn explain(reasons: &[LeakReason], record: &Record<'_, '_>, claim: &Claim<'_>) -> String {
    let node = record.allocation.attribute.get("node").map(|n| n.to_string());
    let on = node.as_deref().unwrap_or("its node");
    let what = match reasons.first() {
        Some(LeakReason::NodeGone) => match claim {
            Claim::Tunnel { node, .. } => return format!("but {node} does not exist"),
            _ => return format!("but {on} does not exist"),
        },
        Some(LeakReason::NoOwner) => "which is gone",
        Some(LeakReason::PodMoved) => return format!("which is not on {on} any more"),
        Some(LeakReason::PodHasOtherAddress) => "which has another address",
        Some(LeakReason::PodFinished) => "which has finished",
        Some(LeakReason::ServiceGone | LeakReason::VmGone) => "which is gone",
        Some(LeakReason::TunnelMoved) => "which has another address or none",
        Some(LeakReason::UnknownOwner) | None => "and nothing uses it",
    };
    match (reasons.first(), node) {
        (Some(LeakReason::NoOwner), Some(node)) => format!("{what} from {node}"),
        _ => what.to_owned(),
    }
}

/// What a normal deletion or creation would change: the block, and the endpoint that the record names.
fn behind(context: &Context<'_>, record: &Record<'_, '_>, claim: &Claim<'_>) -> Vec<Key> {
    let mut keys = vec![Key::Block(record.block.key)];
    if context.snapshot.has_read(Source::Pods)
        && let Some((namespace, name)) = claim.pod()
    {
        keys.push(Key::Pod { namespace, name });
    }
    match claim {
        Claim::Pod { namespace, pod, node: Some(node) } if context.snapshot.has_read(Source::Endpoints) => {
            let name = endpoint_name(&node.to_string(), "k8s", &pod.to_string(), "eth0");
            keys.push(Key::Endpoint { namespace: namespace.to_string(), name });
        }
        Claim::Tunnel { node, .. } => keys.push(Key::Node(node.clone())),
        _ => {}
    }
    keys
}

/// Endpoints of the pods and containers that unused allocations name, by [`identity`].
struct Found(HashMap<Vec<u8>, Vec<Owner>>);

impl Found {
    fn new(context: &Context<'_>, claims: &[Claim<'_>]) -> Self {
        let identities = claims.iter().filter_map(claimed_identity);
        let mut found: HashMap<Vec<u8>, Vec<Owner>> =
            identities.map(|identity| (identity, Vec::new())).collect();
        let mut key = Vec::new();
        let endpoints = (0..context.snapshot.endpoints.len() as u32).map(Owner::Endpoint);
        let pods = (0..context.snapshot.pods.len() as u32).map(Owner::Pod);
        for owner in endpoints.chain(pods) {
            let Some(workload) = context.index.workload(owner) else { continue };
            for (namespace, name) in
                [(workload.namespace, workload.pod), (NO_NAMESPACE, workload.container_id)]
            {
                identity(&mut key, namespace, name);
                if let Some(owners) = found.get_mut(&key) {
                    owners.push(owner);
                }
            }
        }
        Self(found)
    }

    fn of(&self, claim: &Claim<'_>) -> &[Owner] {
        claimed_identity(claim).and_then(|identity| self.0.get(&identity)).map_or(&[], Vec::as_slice)
    }
}

/// Stands where a container is named: it has no namespace.
const NO_NAMESPACE: TextRef<'static> = TextRef::EMPTY;

/// Writes the bytes that name a pod, or a container, into `key`.
fn identity(key: &mut Vec<u8>, namespace: TextRef<'_>, name: TextRef<'_>) {
    key.clear();
    key.extend_from_slice(&namespace.packed().len().to_be_bytes());
    key.extend_from_slice(namespace.packed());
    key.extend_from_slice(name.packed());
}

fn claimed_identity(claim: &Claim<'_>) -> Option<Vec<u8>> {
    let mut key = Vec::new();
    match claim {
        Claim::Pod { namespace, pod, .. } => identity(&mut key, *namespace, *pod),
        Claim::LegacyPod { namespace, pod } => {
            identity(&mut key, Text::new(namespace).as_ref(), Text::new(pod).as_ref());
        }
        Claim::Container(id) => identity(&mut key, NO_NAMESPACE, Text::new(id).as_ref()),
        _ => return None,
    }
    Some(key)
}
