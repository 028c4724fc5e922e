//! Affinities that disagree with their block, with each other or with nodes.

use std::collections::{BTreeSet, HashSet};

use calipam_model::affinity::{Affinity, AffinityKey, AffinityState, AffinityType};

use calipam_model::key::Key;
use calipam_model::snapshot::{Source, Versioned};

use super::blocks::{block_evidence, is_missing};
use crate::Context;
use crate::code::Code;
use crate::finding::{AffinityEvidence, BlockEvidence, Evidence, Finding, Subject};
use crate::index::IndexedBlock;
use crate::names::{list, short};

/// Checks every affinity except those that are marked deleted, or whose block is corrupt or cannot be decoded.
pub(crate) fn check(context: &Context<'_>, out: &mut Vec<Finding>) {
    let stored = context.snapshot.affinities.iter();
    let mut affinities: Vec<&Versioned<Affinity>> = stored
        .filter(|stored| !stored.value.deleted && !context.index.unchecked.contains(&stored.value.key.cidr))
        .collect();
    affinities.sort_by_key(|stored| (stored.value.key.cidr, &stored.value.key));

    let mut seen = HashSet::new();
    for same_block in affinities.chunk_by(|a, b| a.value.key.cidr == b.value.key.cidr) {
        check_conflict(context, same_block, out);
        // A holder can have several kinds of affinity for one block; they share one finding.
        seen.clear();
        for affinity in same_block {
            let mut findings = Vec::new();
            check_one(context, affinity, &mut findings);
            findings.retain(|finding| seen.insert(finding.key()));
            out.append(&mut findings);
        }
    }
}

/// Checks an affinity by itself: its type and state, and whether its node and block agree with it.
fn check_one(context: &Context<'_>, affinity: &Versioned<Affinity>, out: &mut Vec<Finding>) {
    let value = &affinity.value;
    let node = &value.key.node;
    let new_finding = |code, problem: &str| about_node(context, affinity, code, problem);
    let dependencies = || [Key::Affinity(value.key.clone()), Key::Block(value.key.cidr)];
    if matches!(value.key.kind, AffinityType::Other(_)) {
        let kind = short(&value.key.kind.to_string());
        let problem = format!("is of the type {kind:?}, which Calico never writes");
        out.push(new_finding(Code::UnexpectedAffinityType, &problem));
        return;
    }

    let is_confirmed = value.state == AffinityState::Confirmed;
    let is_in_state = format!("is {}", short(&value.state.to_string()));
    if !is_confirmed {
        out.push(new_finding(Code::UnsettledAffinity, &is_in_state).depending_on(dependencies()));
    }

    let is_of_node = value.key.kind == AffinityType::Host;
    if is_of_node && context.snapshot.has_read(Source::Nodes) && !context.index.node_exists(node) {
        let mut keys = dependencies().to_vec();
        keys.push(Key::Node(node.clone()));
        let problem = format!("names a node that {}", is_missing(context, node));
        out.push(new_finding(Code::AffinityOfMissingNode, &problem).depending_on(keys));
    }

    match context.index.block(value.key.cidr) {
        Some(block) if !value.key.is_of(block.owner) => {
            let problem = format!("{is_in_state}, but the block belongs to {}", owner_of(block));
            let mismatch = new_finding(Code::AffinityBlockMismatch, &problem);
            out.push(mismatch.depending_on(dependencies()).on_nodes(block.host()));
        }
        None if is_confirmed && context.snapshot.has_read(Source::Blocks) => {
            let problem = "is confirmed, but its block does not exist";
            out.push(new_finding(Code::AffinityWithoutBlock, problem).depending_on(dependencies()));
        }
        Some(_) | None => {}
    }
}

/// Returns the owner of a block in words: the node, or the whole owner if it is not a node.
fn owner_of(block: &IndexedBlock<'_>) -> String {
    match block.owner {
        Some(owner) => short(owner.host().unwrap_or(&owner.to_string())),
        None => "no one".to_owned(),
    }
}

/// Makes a finding that concerns the affinity's node, if it has one.
fn about_node(context: &Context<'_>, affinity: &Versioned<Affinity>, code: Code, problem: &str) -> Finding {
    let key = &affinity.value.key;
    let finding = about_affinity(context, affinity, code, problem);
    if key.kind == AffinityType::Virtual {
        return finding;
    }
    finding.on_nodes([&key.node])
}

/// Makes a finding. Its message begins with the affinity, and continues with `problem`.
pub(super) fn about_affinity(
    context: &Context<'_>,
    affinity: &Versioned<Affinity>,
    code: Code,
    problem: &str,
) -> Finding {
    let subject = Subject::affinity(&affinity.value.key);
    let message = format!("{} {problem}", short(&subject.to_string()));
    let block = context.index.block(affinity.value.key.cidr);
    let evidence = AffinityEvidence {
        kind: affinity.value.key.kind.clone(),
        state: affinity.value.state.clone(),
        block_exists: block.is_some(),
        block_owner: block.and_then(|block| block.owner).cloned(),
        revision: affinity.revision.to_string(),
    };
    Finding::new(code, subject, message, Evidence::Affinity(Box::new(evidence)))
}

/// Checks whether several nodes hold an affinity for one block. A pending affinity of a node that did not get the block
/// does not count: it announces no route, and Calico deletes it when the node comes across it.
fn check_conflict(context: &Context<'_>, same_block: &[&Versioned<Affinity>], out: &mut Vec<Finding>) {
    let [first, _, ..] = same_block else {
        return;
    };
    let cidr = first.value.key.cidr;
    let block = context.index.block(cidr);
    let owner = block.and_then(|block| block.owner);

    let mut claims: Vec<&AffinityKey> = Vec::new();
    for affinity in same_block.iter().map(|stored| &stored.value) {
        let has_lost_block = affinity.state == AffinityState::Pending && !affinity.key.is_of(owner);
        if affinity.key.kind == AffinityType::Host && !has_lost_block {
            claims.push(&affinity.key);
        }
    }
    let nodes: BTreeSet<&str> = claims.iter().map(|key| key.node.as_str()).collect();
    if nodes.len() < 2 {
        return;
    }

    let evidence = BlockEvidence {
        others: claims.iter().map(|key| key.to_string()).collect(),
        ..block_evidence(block)
    };
    let mut dependencies: Vec<Key> = claims.into_iter().cloned().map(Key::Affinity).collect();
    dependencies.push(Key::Block(cidr));
    let finding = Finding::new(
        Code::AffinityConflict,
        Subject::Block(cidr),
        format!("{cidr} is claimed by {}", list(&nodes)),
        Evidence::Block(Box::new(evidence)),
    );
    out.push(finding.on_nodes(nodes).depending_on(dependencies));
}
