//! Allocated addresses that nothing uses, if they are old enough and everything that could use them was read.
//! [`owner`] determines whether the recorded owner is gone, elsewhere or finished.

use std::sync::Arc;

use calipam_model::attributes::AttributeRef;
use calipam_model::key::Key;
use calipam_model::names::pod_endpoint_name;
use calipam_model::service::Service;
use calipam_model::snapshot::Source;

use crate::Context;
use crate::claim::{Claim, names_service, unread};
use crate::code::{Code, Severity};
use crate::finding::{AddressEvidence, Evidence, Finding, LeakReason, OwnerEvidence, Subject};
use crate::index::{Owner, Record};
use crate::names::name_of_claim;
use crate::owner::{Owners, RecordedOwner};

/// Returns true if an unused allocation could be leaked: it is old enough, no object names its address, and everything
/// that could show its owner was read.
pub(crate) fn is_candidate(context: &Context<'_>, record: &Record<'_, '_>) -> bool {
    let attribute = &record.allocation.attribute;
    !context.is_young(attribute)
        && !context.index.is_mentioned(record.allocation.address)
        && unread(context.snapshot, &Claim::of(attribute)).is_none()
}

/// Reports the records of unused addresses whose owner is gone or has moved, and those of services without a status.
pub(crate) fn check(context: &Context<'_>, unused: &[Record<'_, '_>], out: &mut Vec<Finding>) {
    let attributes = unused.iter().map(|record| &record.allocation.attribute);
    let claims: Vec<Claim<'_>> = attributes.map(Claim::of).collect();
    let owners = Owners::new(context, &claims);
    for (record, claim) in unused.iter().zip(&claims) {
        let reasons = match owners.state_of_unused(record, claim) {
            RecordedOwner::Elsewhere(reasons) | RecordedOwner::Gone(reasons) => reasons,
            RecordedOwner::Unnamed => vec![LeakReason::UnknownOwner],
            RecordedOwner::Idle => {
                if *claim == Claim::Service && !awaits_status(context, record) {
                    push_merged(out, extra_address(context, record));
                }
                continue;
            }
            // The owner exists or could exist, or the address has no owner.
            _ => continue,
        };
        let workloads = owners.workloads(claim);
        push_merged(out, leaked_address(context, record, claim, reasons, &workloads));
    }
}

/// Adds a finding. If overlapping blocks record the address, their findings come one after another and are merged.
fn push_merged(out: &mut Vec<Finding>, finding: Finding) {
    let previous = out
        .last_mut()
        .filter(|previous| previous.code == finding.code && previous.subject == finding.subject);
    let Some(previous) = previous else {
        out.push(finding);
        return;
    };

    if let Evidence::Address(evidence) = &mut previous.evidence
        && let Evidence::Address(added) = finding.evidence
    {
        extend_sorted(&mut evidence.reasons, added.reasons);
        extend_sorted(&mut evidence.owners, added.owners);
        evidence.records.extend(added.records);
    }
    previous.severity = previous.severity.min(finding.severity);
    extend_sorted(&mut previous.nodes, finding.nodes);
    previous.depends_on.extend(finding.depends_on);
}

/// Adds elements to a sorted list, each once.
fn extend_sorted<T: Ord>(list: &mut Vec<T>, added: Vec<T>) {
    list.extend(added);
    list.sort();
    list.dedup();
}

/// Returns true if the recorded service's status names no address yet, so it could still name the recorded address.
fn awaits_status(context: &Context<'_>, record: &Record<'_, '_>) -> bool {
    let snapshot = context.snapshot;
    let controller = snapshot.serves_services().and_then(Result::ok);
    let is_managed = |service: &Service| controller.is_none_or(|controller| service.is_managed(controller));
    let mut services = snapshot.services.iter().map(|service| &service.value);
    services.any(|service| {
        service.ingress.is_empty()
            && is_managed(service)
            && names_service(&record.allocation.attribute, service)
    })
}

/// Reports an address that is recorded for a service whose ingress does not name it.
fn extra_address(context: &Context<'_>, record: &Record<'_, '_>) -> Finding {
    let attribute = &record.allocation.attribute;
    let mut owners = Vec::new();
    for (position, service) in (0..).zip(&context.snapshot.services) {
        if names_service(attribute, &service.value) {
            owners.push(context.index.describe_owner(Owner::Service(position)));
        }
    }
    let message = format!(
        "is allocated to {}, whose status.loadBalancer does not list it",
        name_of_claim(attribute)
    );
    let evidence = evidence_of_unused(context, record, owners);
    Finding::new(
        Code::ServiceAddressExtra,
        Subject::Address(record.allocation.address),
        message,
        Evidence::Address(Box::new(evidence)),
    )
    .depending_on([Key::Block(record.block.key)])
}

/// Reports a leaked address. It is only a warning if the record does not tell whose address it is.
fn leaked_address(
    context: &Context<'_>,
    record: &Record<'_, '_>,
    claim: &Claim<'_>,
    reasons: Vec<LeakReason>,
    workloads: &[Owner],
) -> Finding {
    let address = record.allocation.address;
    let attribute = &record.allocation.attribute;
    let message = format!(
        "is allocated to {}, {}",
        name_of_claim(attribute),
        reason_clause(reasons.first().copied(), attribute)
    );
    let owners = workloads
        .iter()
        .map(|owner| context.index.describe_owner(*owner))
        .collect();
    let evidence = AddressEvidence {
        reasons,
        ..evidence_of_unused(context, record, owners)
    };
    let nodes = evidence.nodes();
    let severity = if evidence.is_owner_unknown() {
        Severity::Warning
    } else {
        Severity::Error
    };
    Finding::new(
        Code::LeakedAddress,
        Subject::Address(address),
        message,
        Evidence::Address(Box::new(evidence)),
    )
    .with_severity(severity)
    .on_nodes(nodes)
    .depending_on(dependencies(context, record, claim))
}

/// Collects the evidence about an unused address: its pool, its record, and the given workloads.
fn evidence_of_unused(
    context: &Context<'_>,
    record: &Record<'_, '_>,
    owners: Vec<Arc<OwnerEvidence>>,
) -> AddressEvidence {
    let address = record.allocation.address;
    let pool = context.index.pools_around(address.into()).next();
    AddressEvidence {
        pool: pool.map(|pool| pool.name.clone()),
        owners,
        records: vec![record.evidence()],
        ..AddressEvidence::default()
    }
}

/// Returns the clause of a message with the reason why nothing uses a recorded address, such as `which is gone`.
fn reason_clause(reason: Option<LeakReason>, record: &AttributeRef<'_>) -> String {
    let recorded_node = record.get("node").map(|node| node.to_string());
    match reason {
        Some(LeakReason::NodeGone) => {
            let node = match Claim::of(record) {
                Claim::Tunnel { node, .. } => Some(node),
                _ => recorded_node,
            };
            format!("but {} does not exist", node.as_deref().unwrap_or("its node"))
        }
        Some(LeakReason::PodMoved) => {
            let node = recorded_node.as_deref().unwrap_or("its node");
            format!("which is no longer on {node}")
        }
        Some(LeakReason::NoOwner) => match recorded_node {
            Some(node) => format!("which is gone from {node}"),
            None => "which is gone".to_owned(),
        },
        Some(LeakReason::ServiceGone | LeakReason::VmGone) => "which is gone".to_owned(),
        Some(LeakReason::PodHasOtherAddress) => "which has another address".to_owned(),
        Some(LeakReason::PodFinished) => "which has finished".to_owned(),
        Some(LeakReason::SandboxGone) => "whose sandbox was torn down".to_owned(),
        Some(LeakReason::TunnelMoved) => "which has another address or none".to_owned(),
        Some(LeakReason::UnknownOwner) | None => "but nothing uses it".to_owned(),
    }
}

/// Returns the keys of the objects that a normal deletion or creation would change: the block, and the pod, endpoint or
/// node that the record names as the owner. Pods and endpoints are left out if they were not read.
fn dependencies(context: &Context<'_>, record: &Record<'_, '_>, claim: &Claim<'_>) -> Vec<Key> {
    let mut keys = vec![Key::Block(record.block.key)];
    if context.snapshot.has_read(Source::Pods)
        && let Some((namespace, name)) = claim.pod()
    {
        keys.push(Key::Pod { namespace, name });
    }
    // An endpoint's name begins with its node, so only a record with a node shows it.
    if context.snapshot.has_read(Source::Endpoints)
        && let Claim::Pod { namespace, pod, node } = claim
        && let Some(node) = node
    {
        keys.push(Key::Endpoint {
            namespace: namespace.to_string(),
            name: pod_endpoint_name(&node.to_string(), &pod.to_string()),
        });
    }
    if let Claim::Tunnel { node, .. } = claim {
        keys.push(Key::Node(node.clone()));
    }
    keys
}
