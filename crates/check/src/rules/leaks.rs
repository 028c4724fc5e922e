//! Allocated addresses that nothing uses, if they are old enough and everything that could use them was read.
//! [`owner`] determines whether the recorded owner is gone, elsewhere or finished.

use std::sync::Arc;

use calipam_model::attributes::AttributeRef;
use calipam_model::key::Key;
use calipam_model::names::endpoint_name;
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
        let reasons = match owners.of_unused(record, claim) {
            RecordedOwner::Elsewhere(reasons) | RecordedOwner::Gone(reasons) => reasons,
            RecordedOwner::Unnamed => vec![LeakReason::UnknownOwner],
            RecordedOwner::Idle => {
                if *claim == Claim::Service && !awaits_status(context, record) {
                    push(out, extra(context, record));
                }
                continue;
            }
            // The owner exists or could exist, or the address has no owner.
            _ => continue,
        };
        let workloads = owners.workloads(claim);
        push(out, leak(context, record, claim, reasons, &workloads));
    }
}

/// Adds a finding. If overlapping blocks record the address, their findings come one after another and are merged.
fn push(out: &mut Vec<Finding>, finding: Finding) {
    let same = |last: &&mut Finding| last.code == finding.code && last.subject == finding.subject;
    let Some(last) = out.last_mut().filter(same) else {
        out.push(finding);
        return;
    };
    if let (Evidence::Address(all), Evidence::Address(more)) = (&mut last.evidence, finding.evidence) {
        merge(&mut all.reasons, more.reasons);
        merge(&mut all.owners, more.owners);
        all.records.extend(more.records);
    }
    last.severity = last.severity.min(finding.severity);
    merge(&mut last.nodes, finding.nodes);
    last.depends_on.extend(finding.depends_on);
}

/// Adds elements to a sorted list, each once.
fn merge<T: Ord>(all: &mut Vec<T>, more: Vec<T>) {
    all.extend(more);
    all.sort();
    all.dedup();
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
fn extra(context: &Context<'_>, record: &Record<'_, '_>) -> Finding {
    let address = record.allocation.address;
    let services = (0..).zip(&context.snapshot.services);
    let of_record_named = services.filter(|(_, s)| names_service(&record.allocation.attribute, &s.value));
    let owner = |(position, _)| context.index.describe_owner(Owner::Service(position));
    let message = format!(
        "is allocated to {}, whose status.loadBalancer does not list it",
        name_of_claim(&record.allocation.attribute)
    );
    let evidence = evidence(context, record, of_record_named.map(owner).collect());
    let evidence = Evidence::Address(Box::new(evidence));
    Finding::new(
        Code::ServiceAddressExtra,
        Subject::Address(address),
        message,
        evidence,
    )
    .depending_on([Key::Block(record.block.key)])
}

/// Reports a leaked address. It is only a warning if the record does not tell whose address it is.
fn leak(
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
        why(reasons.first().copied(), attribute)
    );
    let owners = workloads
        .iter()
        .map(|owner| context.index.describe_owner(*owner))
        .collect();
    let evidence = AddressEvidence {
        reasons,
        ..evidence(context, record, owners)
    };
    let nodes = evidence.nodes();
    let severity = if evidence.is_owner_unknown() {
        Severity::Warning
    } else {
        Severity::Error
    };
    let evidence = Evidence::Address(Box::new(evidence));
    let finding = Finding::new(Code::LeakedAddress, Subject::Address(address), message, evidence);
    finding
        .with_severity(severity)
        .on_nodes(nodes)
        .depending_on(dependencies(context, record, claim))
}

/// Collects the evidence about an unused address: its pool, its record, and the given workloads.
fn evidence(
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

/// The clause with the reason why nothing uses a recorded address.
fn why(reason: Option<LeakReason>, record: &AttributeRef<'_>) -> String {
    let node = record.get("node").map(|node| node.to_string());
    match (reason, node) {
        (Some(LeakReason::NodeGone), node) => match (Claim::of(record), node) {
            (Claim::Tunnel { node, .. }, _) | (_, Some(node)) => format!("but {node} does not exist"),
            _ => "but its node does not exist".to_owned(),
        },
        (Some(LeakReason::PodMoved), node) => {
            format!("which is no longer on {}", node.as_deref().unwrap_or("its node"))
        }
        (Some(LeakReason::NoOwner), Some(node)) => format!("which is gone from {node}"),
        (Some(LeakReason::NoOwner | LeakReason::ServiceGone | LeakReason::VmGone), _) => {
            "which is gone".to_owned()
        }
        (Some(LeakReason::PodHasOtherAddress), _) => "which has another address".to_owned(),
        (Some(LeakReason::PodFinished), _) => "which has finished".to_owned(),
        (Some(LeakReason::SandboxGone), _) => "whose sandbox was torn down".to_owned(),
        (Some(LeakReason::TunnelMoved), _) => "which has another address or none".to_owned(),
        (Some(LeakReason::UnknownOwner) | None, _) => "but nothing uses it".to_owned(),
    }
}

/// Returns the objects that a normal deletion or creation would change: the block, and the recorded owner.
fn dependencies(context: &Context<'_>, record: &Record<'_, '_>, claim: &Claim<'_>) -> Vec<Key> {
    let mut keys = vec![Key::Block(record.block.key)];
    if context.snapshot.has_read(Source::Pods)
        && let Some((namespace, name)) = claim.pod()
    {
        keys.push(Key::Pod { namespace, name });
    }
    match claim {
        Claim::Pod {
            namespace,
            pod,
            node: Some(node),
        } if context.snapshot.has_read(Source::Endpoints) => {
            let name = endpoint_name(&node.to_string(), "k8s", &pod.to_string(), "eth0");
            keys.push(Key::Endpoint {
                namespace: namespace.to_string(),
                name,
            });
        }
        Claim::Tunnel { node, .. } => keys.push(Key::Node(node.clone())),
        _ => {}
    }
    keys
}
