//! Blocks that are corrupt, overlap, do not fit their pools, or lack an owner, the owner's node or the owner's
//! affinity.

use std::collections::HashSet;
use std::fmt::Display;

use calipam_model::IpNet;
use calipam_model::affinity::{AffinityKey, AffinityType};
use calipam_model::block::BlockProblem;
use calipam_model::cidr_set::overlaps;
use calipam_model::key::Key;
use calipam_model::pool::Pool;
use calipam_model::snapshot::Source;
use foldhash::fast::FixedState;

use crate::Context;
use crate::code::Code;
use crate::finding::{BlockEvidence, Evidence, Finding, Subject};
use crate::index::{IndexedBlock, Stored};
use crate::names::{and_more, list, short};

pub(crate) fn check(context: &Context<'_>, out: &mut Vec<Finding>) {
    let stored = context.index.stored();
    check_overlaps(&stored, out);
    let affinities = context
        .snapshot
        .affinities
        .iter()
        .filter(|a| !a.value.deleted)
        .map(|a| &a.value.key);
    let broken = context
        .snapshot
        .defects
        .iter()
        .filter_map(|defect| match &defect.key {
            Some(Key::Affinity(key)) => Some(key),
            _ => None,
        });
    let affinities: Affinities<'_> = affinities.chain(broken).collect();
    for block in &stored {
        check_place(context, block, out);
        match block.block {
            Some(indexed) if indexed.sound.is_none() => out.push(corrupt(block, &indexed.problems)),
            Some(indexed) => check_owner(context, block, indexed, &affinities, out),
            None => {}
        }
    }
}

/// The existing affinities, including undecodable ones, but not those that are marked deleted.
type Affinities<'s> = HashSet<&'s AffinityKey, FixedState>;

/// Makes a finding. Its message begins with the block, and continues with `says`.
fn finding(
    code: Code,
    block: &Stored<'_, '_>,
    says: impl Display,
    fill: impl FnOnce(&mut BlockEvidence),
) -> Finding {
    let mut evidence = evidence(block.block);
    fill(&mut evidence);
    let subject = Subject::Block(block.key);
    let says = format!("{} {says}", block.key);
    Finding::new(code, subject, says, Evidence::Block(Box::new(evidence)))
        .on_nodes(block.block.and_then(IndexedBlock::host))
}

pub(super) fn evidence(block: Option<&IndexedBlock<'_>>) -> BlockEvidence {
    BlockEvidence {
        owner: block.and_then(|b| b.owner).cloned(),
        allocated: block.and_then(|b| b.sound).map(|b| b.allocated()),
        ..BlockEvidence::default()
    }
}

fn corrupt(block: &Stored<'_, '_>, problems: &[BlockProblem]) -> Finding {
    let first = problems
        .first()
        .map(|problem| short(&problem.to_string()))
        .unwrap_or_default();
    let more = and_more(problems.len(), "problem", "problems");
    let says = format!("is corrupt: {first}{more}");
    finding(Code::CorruptBlock, block, says, |evidence| {
        evidence.problems = problems.to_vec()
    })
}

fn check_overlaps(stored: &[Stored<'_, '_>], out: &mut Vec<Finding>) {
    let keys: Vec<IpNet> = stored.iter().map(|s| s.key).collect();
    for (block, others) in stored.iter().zip(overlaps(&keys)) {
        if others.is_empty() {
            continue;
        }
        let overlapping = others.iter().map(|position| keys[*position]);
        let says = format!("overlaps {}", list(overlapping.clone()));
        let conflicting = overlapping.map(|cidr| cidr.to_string()).collect();
        out.push(
            finding(Code::OverlappingBlocks, block, says, |evidence| {
                evidence.others = conflicting
            })
            .on_nodes(
                others
                    .iter()
                    .filter_map(|position| stored[*position].block?.host()),
            ),
        );
    }
}

/// Compares a block with the pools that contain it.
fn check_place(context: &Context<'_>, block: &Stored<'_, '_>, out: &mut Vec<Finding>) {
    if !context.snapshot.has_read(Source::Pools) {
        return;
    }
    let pools: Vec<&Pool> = context.index.pools_around(block.key).collect();
    if pools.is_empty() {
        if !context.index.pools_incomplete {
            out.push(finding(Code::BlockOutsidePools, block, "is in no pool", |_| {}));
        }
        return;
    }
    if pools.iter().all(|pool| pool.block_size != block.key.prefix_len()) {
        let first = pools[0];
        let says = format!(
            "is in the pool {}, whose blocks are /{}",
            short(&first.name),
            first.block_size
        );
        out.push(finding(Code::BlockSizeMismatch, block, says, |evidence| {
            let size = |pool: &&Pool| format!("{} /{}", pool.name, pool.block_size);
            evidence.pools = pools.iter().map(size).collect();
        }));
    }
}

fn check_owner(
    context: &Context<'_>,
    block: &Stored<'_, '_>,
    indexed: &IndexedBlock<'_>,
    affinities: &Affinities<'_>,
    out: &mut Vec<Finding>,
) {
    let snapshot = context.snapshot;
    let finding = |code, says: String| finding(code, block, says, |_| {});
    let Some(owner) = indexed.owner else {
        if indexed.sound.is_some_and(|b| b.is_empty()) {
            let says = "has no owner and no allocated address".to_owned();
            out.push(finding(Code::EmptyUnownedBlock, says));
        }
        return;
    };
    let Some(key) = AffinityKey::of_owner(owner, block.key) else {
        let says = format!(
            "belongs to {:?}, which is neither host:<node> nor virtual:<name>",
            short(&owner.to_string())
        );
        out.push(finding(Code::UnexpectedBlockOwner, says));
        return;
    };
    let name = &key.node;
    let missing = key.kind == AffinityType::Host && !context.index.node_exists(name);
    if missing && snapshot.has_read(Source::Nodes) {
        let says = format!("belongs to {}, which {}", short(name), is_missing(context, name));
        out.push(finding(Code::BlockOfMissingNode, says));
    }
    if snapshot.has_read(Source::Affinities) && !affinities.contains(&key) {
        let says = format!("belongs to {}, which has no affinity for it", short(name));
        let dependencies = [Key::Block(block.key), Key::Affinity(key)];
        out.push(finding(Code::BlockWithoutAffinity, says).depending_on(dependencies));
    }
}

/// Returns the clause about a missing node, which can still have an object in Calico.
pub(super) fn is_missing(context: &Context<'_>, node: &str) -> &'static str {
    if context.index.node(node).is_some() {
        "does not exist in Kubernetes"
    } else {
        "does not exist"
    }
}
