//! Affinities that disagree with their block, with each other or with nodes.

use std::collections::{BTreeSet, HashSet};

use calipam_model::IpNet;
use calipam_model::affinity::{Affinity, AffinityKey, AffinityState, AffinityType};
use calipam_model::block::BlockOwner;
use calipam_model::key::Key;
use calipam_model::snapshot::{Source, Versioned};

use super::blocks::{evidence, is_missing};
use crate::Context;
use crate::code::Code;
use crate::finding::{AffinityEvidence, BlockEvidence, Evidence, Finding, Subject};
use crate::names::{list, short};

/// Checks every affinity except those that are marked deleted, or whose block is corrupt or cannot be decoded.
pub(crate) fn check(context: &Context<'_>, out: &mut Vec<Finding>) {
    let stored = context.snapshot.affinities.iter();
    let mut affinities: Vec<&Versioned<Affinity>> = stored
        .filter(|a| !a.value.deleted && !context.index.unchecked.contains(&a.value.key.cidr))
        .collect();
    affinities.sort_by_key(|a| (a.value.key.cidr, &a.value.key));
    let mut seen = HashSet::new();
    for same_block in affinities.chunk_by(|a, b| a.value.key.cidr == b.value.key.cidr) {
        check_conflict(context, same_block, out);
        // A holder can have several kinds of affinity for one block; they share one finding.
        seen.clear();
        for affinity in same_block {
            let mut found = Vec::new();
            check_one(context, affinity, &mut found);
            found.retain(|f| seen.insert(f.key()));
            out.append(&mut found);
        }
    }
}

fn check_one(context: &Context<'_>, affinity: &Versioned<Affinity>, out: &mut Vec<Finding>) {
    let value = &affinity.value;
    let finding = |code, says: &str| finding(context, affinity, code, says);
    let dependencies = || [Key::Affinity(value.key.clone()), Key::Block(value.key.cidr)];
    if matches!(value.key.kind, AffinityType::Other(_)) {
        let kind = short(&value.key.kind.to_string());
        let says = format!("is of the type {kind:?}, which Calico never writes");
        out.push(finding(Code::UnexpectedAffinityType, &says));
        return;
    }

    let settled = value.state == AffinityState::Confirmed;
    let is_state = format!("is {}", short(&value.state.to_string()));
    if !settled {
        out.push(finding(Code::UnsettledAffinity, &is_state).depending_on(dependencies()));
    }
    let by_host = value.key.kind == AffinityType::Host;
    if by_host && context.snapshot.has_read(Source::Nodes) && !context.index.node_exists(&value.key.node) {
        let keys = dependencies()
            .into_iter()
            .chain([Key::Node(value.key.node.clone())]);
        let says = format!("names a node that {}", is_missing(context, &value.key.node));
        out.push(finding(Code::AffinityOfMissingNode, &says).depending_on(keys));
    }

    match context.index.block(value.key.cidr) {
        None if settled && context.snapshot.has_read(Source::Blocks) => {
            let says = "is confirmed, but its block does not exist";
            out.push(finding(Code::AffinityWithoutBlock, says).depending_on(dependencies()));
        }
        Some(block) if !value.key.is_of(block.owner) => {
            let name = |owner: &BlockOwner| short(owner.host().unwrap_or(&owner.to_string()));
            let owner = block.owner.map_or("no one".to_owned(), name);
            let says = format!("{is_state}, but the block belongs to {owner}");
            let finding = finding(Code::AffinityBlockMismatch, &says).depending_on(dependencies());
            out.push(finding.on_nodes(block.host()));
        }
        _ => {}
    }
}

fn finding(context: &Context<'_>, affinity: &Versioned<Affinity>, code: Code, says: &str) -> Finding {
    let key = &affinity.value.key;
    about_affinity(context, affinity, code, says)
        .on_nodes((key.kind != AffinityType::Virtual).then_some(&key.node))
}

/// Makes a finding. Its message begins with the affinity, and continues with `says`.
pub(super) fn about_affinity(
    context: &Context<'_>,
    affinity: &Versioned<Affinity>,
    code: Code,
    says: &str,
) -> Finding {
    let subject = Subject::affinity(&affinity.value.key);
    let says = format!("{} {says}", short(&subject.to_string()));
    let block = context.index.block(affinity.value.key.cidr);
    let evidence = AffinityEvidence {
        kind: affinity.value.key.kind.clone(),
        state: affinity.value.state.clone(),
        block_exists: block.is_some(),
        block_owner: block.and_then(|b| b.owner).cloned(),
        revision: affinity.revision.to_string(),
    };
    Finding::new(code, subject, says, Evidence::Affinity(Box::new(evidence)))
}

/// Checks whether several nodes hold an affinity for one block. A pending affinity of a node that did not get the block
/// does not count: it announces no route, and Calico deletes it when the node comes across it.
fn check_conflict(context: &Context<'_>, same_block: &[&Versioned<Affinity>], out: &mut Vec<Finding>) {
    if same_block.len() < 2 {
        return;
    }
    let owner = |cidr: IpNet| context.index.block(cidr).and_then(|block| block.owner);
    let is_ignored = |affinity: &Affinity| {
        affinity.state == AffinityState::Pending && !affinity.key.is_of(owner(affinity.key.cidr))
    };
    let claims = same_block
        .iter()
        .map(|a| &a.value)
        .filter(|affinity| !is_ignored(affinity));
    let hosts = claims
        .map(|affinity| &affinity.key)
        .filter(|key| key.kind == AffinityType::Host);
    let nodes: BTreeSet<&str> = hosts.clone().map(|key| key.node.as_str()).collect();
    let Some(cidr) = same_block
        .first()
        .map(|a| a.value.key.cidr)
        .filter(|_| nodes.len() > 1)
    else {
        return;
    };
    let dependencies = hosts
        .clone()
        .map(|key| Key::Affinity(key.clone()))
        .chain([Key::Block(cidr)]);
    let others = hosts.map(AffinityKey::to_string).collect();
    let evidence = BlockEvidence {
        others,
        ..evidence(context.index.block(cidr))
    };
    let says = format!("{cidr} is claimed by {}", list(&nodes));
    out.push(
        Finding::new(
            Code::AffinityConflict,
            Subject::Block(cidr),
            says,
            Evidence::Block(Box::new(evidence)),
        )
        .on_nodes(nodes)
        .depending_on(dependencies),
    );
}
