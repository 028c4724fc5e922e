//! Whether the owner that a record names lives, by what was read of it.

use calipam_model::block::BlockOwner;
use calipam_model::key::Key;
use calipam_model::snapshot::{Coverage, Snapshot, Source};
use serde::Serialize;

use crate::Context;
use crate::index::{BrokenWorkload, Owner};
use crate::record::{Claim, is_on_machine, machine_of, names_owner, names_service, names_workload};
use crate::rules::addresses::Record;

/// Whether a recorded owner lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Life {
    /// It exists and uses the address.
    UsesIt,
    /// It exists, but does not name the address.
    NamesOthers,
    /// It does not exist.
    Gone,
    /// The record names nobody, or what could tell was not read or does not decode.
    Unknown,
}

/// How much of a source was looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Looked {
    Nowhere,
    /// Only at the objects whose key the record spells out.
    AtNamed,
    Everywhere,
}

fn looked(snapshot: &Snapshot, source: Source) -> Looked {
    match snapshot.coverage.get(&source) {
        Some(Coverage::Read) => Looked::Everywhere,
        Some(Coverage::Partial) => Looked::AtNamed,
        Some(Coverage::Skipped(_)) | None => Looked::Nowhere,
    }
}

/// Whether the owner of a record lives. What a narrow read cannot have found is not called gone.
pub(super) fn of_owner(context: &Context<'_>, record: &Record<'_, '_>) -> Life {
    let attribute = &record.allocation.attribute;
    let claim = Claim::of(attribute);
    let uses = context.index.uses_of(record.allocation.address);
    if matches!(claim, Claim::Cooling | Claim::WindowsReserved | Claim::Anonymous | Claim::Unknown) {
        return Life::Unknown;
    }
    let is_guest = |owner| context.index.workload(owner).is_some_and(|w| is_on_machine(attribute, &w));
    if claim.needs_unread_source(context.snapshot) {
        return if uses.iter().any(|used| is_guest(used.owner)) { Life::UsesIt } else { Life::Unknown };
    }
    if uses.iter().any(|used| names_owner(attribute, used.owner, &context.index)) {
        return Life::UsesIt;
    }
    match &claim {
        Claim::Tunnel { node, .. } => of_node(context, record, node),
        Claim::Service => {
            let services = &context.snapshot.services;
            existing(services.iter().any(|s| names_service(attribute, &s.value)))
        }
        Claim::Machine => existing(machine_of(attribute).is_none_or(|(namespace, name)| {
            let machines = context.snapshot.machines.iter().map(|m| &m.value);
            machines.into_iter().any(|m| m.namespace == namespace && m.name == name)
        })),
        claim => of_workload(context, claim),
    }
}

fn existing(exists: bool) -> Life {
    if exists { Life::NamesOthers } else { Life::Gone }
}

fn of_node(context: &Context<'_>, record: &Record<'_, '_>, node: &str) -> Life {
    let has_defect = |key: &Key| matches!(key, Key::Node(name) if name == node);
    if context.snapshot.defects.iter().any(|d| d.key.as_ref().is_some_and(has_defect)) {
        return Life::Unknown;
    }
    node_exists(context, record, node).map_or(Life::Unknown, existing)
}

/// Whether a node exists; `None` where it was not looked for.
pub(super) fn node_exists(context: &Context<'_>, record: &Record<'_, '_>, node: &str) -> Option<bool> {
    let is_named = record.allocation.attribute.get("node").is_some_and(|n| n == *node)
        || record.block.owner.and_then(BlockOwner::host) == Some(node);
    match looked(context.snapshot, Source::Nodes) {
        _ if context.index.node_exists(node) => Some(true),
        Looked::Everywhere => Some(false),
        Looked::AtNamed if is_named => Some(false),
        Looked::AtNamed | Looked::Nowhere => None,
    }
}

/// A pod or container, by endpoints and pods. Where pods were read, they decide.
fn of_workload(context: &Context<'_>, claim: &Claim<'_>) -> Life {
    let (snapshot, index) = (context.snapshot, &context.index);
    let pods_read = looked(snapshot, Source::Pods) == Looked::Everywhere;
    let is_claimed = |owner: Owner| index.workload(owner).is_some_and(|w| names_workload(claim, &w, index));
    let pods = 0..snapshot.pods.len() as u32;
    let endpoints = (0..snapshot.endpoints.len() as u32).filter(|_| !pods_read).map(Owner::Endpoint);
    if pods.map(Owner::Pod).chain(endpoints).any(is_claimed) {
        return Life::NamesOthers;
    }
    if index.broken_workloads.iter().any(|broken| may_be(broken, claim)) {
        return Life::Unknown;
    }
    let endpoints = looked(snapshot, Source::Endpoints);
    let pods = looked(snapshot, Source::Pods);
    // The keys of endpoints start with the node, those of pods with the namespace.
    let endpoint_named = matches!(claim, Claim::Pod { node: Some(_), .. });
    let known = pods == Looked::Everywhere
        || endpoints == Looked::Everywhere
        || endpoints == Looked::AtNamed && endpoint_named
        || pods == Looked::AtNamed && claim.pod().is_some();
    if known { Life::Gone } else { Life::Unknown }
}

/// True where the endpoint or pod that does not decode may be the one that the record names.
fn may_be(broken: &BrokenWorkload<'_>, claim: &Claim<'_>) -> bool {
    match claim.pod() {
        Some((namespace, pod)) => {
            broken.namespace == namespace && broken.name.as_ref().is_none_or(|name| name.workload == pod)
        }
        None => true,
    }
}
