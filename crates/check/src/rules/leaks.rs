//! Addresses that are allocated although nothing uses them.

use std::collections::HashMap;

use calipam_model::attributes::AttributeRef;
use calipam_model::key::Key;
use calipam_model::names::endpoint_name;
use calipam_model::node::TunnelKind;
use calipam_model::snapshot::{DefectKind, Source};
use calipam_model::text::{Text, TextRef};

use super::addresses::Record;
use super::evidence::{name_of_claim, nodes_of, of_endpoint, of_record};
use crate::Context;
use crate::code::{Code, Severity};
use crate::finding::{AddressEvidence, Evidence, Finding, LeakReason, Subject};
use crate::index::BrokenEndpoint;
use crate::record::{Claim, names_endpoint};

/// True where the allocation is younger than the grace period: its owner may not have appeared yet.
pub(crate) fn is_young(context: &Context<'_>, attribute: &AttributeRef<'_>) -> bool {
    let Some(allocated) = attribute.allocated_at() else { return false };
    context.snapshot.taken_at.duration_since(allocated) < context.grace
}

/// True where an unused allocation may turn out to be leaked: it is old enough, and everything that
/// could show its owner was read.
pub(crate) fn is_candidate(context: &Context<'_>, record: &Record<'_, '_>) -> bool {
    let attribute = &record.allocation.attribute;
    context.snapshot.has_read(Source::Endpoints)
        && context.snapshot.has_read(Source::Nodes)
        && !is_young(context, attribute)
        && match Claim::of(attribute) {
            Claim::Cooling | Claim::WindowsReserved => false,
            claim => !claim.needs_unread_source(),
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
        if let Verdict::Leaked(reasons) = verdict(context, record, claim, &found) {
            out.push(leak(context, record, claim, reasons, &found));
        }
    }
}

enum Verdict {
    Kept,
    Leaked(Vec<LeakReason>),
}

fn verdict(context: &Context<'_>, record: &Record<'_, '_>, claim: &Claim<'_>, found: &Found) -> Verdict {
    let index = &context.index;
    match claim {
        Claim::Tunnel { kind, node } if index.node_exists(node) => {
            let unreadable = index.node_is_broken(node) || has_broken_tunnel(context, node, *kind);
            if unreadable { Verdict::Kept } else { Verdict::Leaked(vec![LeakReason::TunnelMoved]) }
        }
        // The node may be alive although its object is gone: Calico's collector judges so, too.
        Claim::Tunnel { node, .. } if index.endpoints_name_node(node) => Verdict::Kept,
        Claim::Tunnel { .. } => Verdict::Leaked(vec![LeakReason::NodeGone]),
        Claim::Anonymous | Claim::Unknown => {
            let host = record.block.owner.and_then(|o| o.host());
            let unreadable = host.is_some_and(|h| index.node_is_broken(h));
            if unreadable { Verdict::Kept } else { Verdict::Leaked(vec![LeakReason::UnknownOwner]) }
        }
        claim if index.broken_endpoints.iter().any(|e| protects(e, claim)) => Verdict::Kept,
        claim => by_endpoints(context, record, claim, found.of(claim)),
    }
}

/// Judges the claim of a pod or container by the endpoints of that pod or container.
fn by_endpoints(context: &Context<'_>, record: &Record<'_, '_>, claim: &Claim<'_>, found: &[u32]) -> Verdict {
    let index = &context.index;
    let mut reasons = Vec::new();
    let node = record.allocation.attribute.get("node").map(|n| n.to_string());
    if node.is_some_and(|n| !index.node_exists(&n)) {
        reasons.push(LeakReason::NodeGone);
    }
    let mut here =
        found.iter().filter(|place| names_endpoint(claim, index.endpoint(**place), index)).peekable();
    if here.peek().is_some() {
        // An endpoint that has no address yet may be about to name this one.
        if here.any(|place| index.endpoint(*place).addresses().next().is_none()) {
            return Verdict::Kept;
        }
        reasons.push(LeakReason::PodHasOtherAddress);
    } else if !found.is_empty() {
        reasons.push(LeakReason::PodMoved);
    } else if reasons.is_empty() {
        reasons.push(LeakReason::NoOwner);
    }
    Verdict::Leaked(reasons)
}

fn has_broken_tunnel(context: &Context<'_>, node: &str, kind: TunnelKind) -> bool {
    context.snapshot.defects.iter().any(|defect| match (&defect.key, &defect.kind) {
        (Some(Key::Node(name)), DefectKind::Fields(fields)) => {
            name == node && fields.iter().any(|f| f.field == kind.field())
        }
        _ => false,
    })
}

/// True where the endpoint that does not decode may be the one whose address it is.
fn protects(endpoint: &BrokenEndpoint<'_>, claim: &Claim<'_>) -> bool {
    let pod_of = |namespace: &str, pod: &str| {
        namespace == endpoint.namespace && endpoint.name.as_ref().is_none_or(|name| name.workload == pod)
    };
    match claim {
        Claim::Pod { namespace, pod, .. } => pod_of(&namespace.to_string(), &pod.to_string()),
        Claim::LegacyPod { namespace, pod } => pod_of(namespace, pod),
        // Only endpoints of orchestrators other than Kubernetes name their container in the key.
        Claim::Container(id) => {
            endpoint.name.as_ref().is_none_or(|n| n.orchestrator == "k8s" || n.workload == *id)
        }
        _ => false,
    }
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
        owners: found.of(claim).iter().map(|place| of_endpoint(&context.index, *place)).collect(),
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
    finding.with_severity(severity).on_nodes(nodes).resting_on(behind(record, claim))
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
        Some(LeakReason::TunnelMoved) => "which has another address or none",
        Some(LeakReason::UnknownOwner) | None => "and nothing uses it",
    };
    match (reasons.first(), node) {
        (Some(LeakReason::NoOwner), Some(node)) => format!("{what} from {node}"),
        _ => what.to_owned(),
    }
}

/// What a normal deletion or creation would change: the block, and the endpoint that the record names.
fn behind(record: &Record<'_, '_>, claim: &Claim<'_>) -> Vec<Key> {
    let mut keys = vec![Key::Block(record.block.key)];
    match claim {
        Claim::Pod { namespace, pod, node: Some(node) } => {
            let name = endpoint_name(&node.to_string(), "k8s", &pod.to_string(), "eth0");
            keys.push(Key::Endpoint { namespace: namespace.to_string(), name });
        }
        Claim::Tunnel { node, .. } => keys.push(Key::Node(node.clone())),
        _ => {}
    }
    keys
}

/// Endpoints of the pods and containers that unused allocations name, by [`identity`].
struct Found(HashMap<Vec<u8>, Vec<u32>>);

impl Found {
    fn new(context: &Context<'_>, claims: &[Claim<'_>]) -> Self {
        let identities = claims.iter().filter_map(claimed_identity);
        let mut found: HashMap<Vec<u8>, Vec<u32>> =
            identities.map(|identity| (identity, Vec::new())).collect();
        let mut key = Vec::new();
        for (place, endpoint) in (0..).zip(&context.snapshot.endpoints) {
            let endpoint = &endpoint.value;
            for (namespace, name) in
                [(endpoint.namespace(), endpoint.pod()), (NO_NAMESPACE, endpoint.container_id())]
            {
                identity(&mut key, namespace, name);
                if let Some(places) = found.get_mut(&key) {
                    places.push(place);
                }
            }
        }
        Self(found)
    }

    fn of(&self, claim: &Claim<'_>) -> &[u32] {
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
