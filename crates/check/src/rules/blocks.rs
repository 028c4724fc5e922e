//! Blocks that are corrupt, are outside their pools or have no owner.

use std::collections::HashSet;

use calipam_model::IpNet;
use calipam_model::affinity::{AffinityKey, AffinityType};
use calipam_model::block::BlockOwner;
use calipam_model::key::Key;
use calipam_model::pool::Pool;
use calipam_model::snapshot::{Snapshot, Source};
use foldhash::fast::FixedState;

use crate::Context;
use crate::cidr_set::overlaps;
use crate::code::Code;
use crate::finding::{BlockEvidence, Conflicting, Detail, Evidence, Finding, PoolBlockSize, Subject};
use crate::index::{IndexedBlock, Stored};

/// Checks every block.
pub(crate) fn check(context: &Context<'_>, out: &mut Vec<Finding>) {
    let stored = context.index.stored();
    check_overlaps(&stored, out);
    for block in &stored {
        check_place(context, block, out);
    }
    let affinities = Affinities::new(context.snapshot);
    for block in &context.index.blocks {
        match block.sound {
            None => out.push(corrupt(block)),
            Some(_) => check_owner(context, block, &affinities, out),
        }
    }
}

fn finding(code: Code, block: &Stored<'_, '_>, fill: impl FnOnce(&mut BlockEvidence)) -> Finding {
    let read = block.block;
    let mut evidence = BlockEvidence {
        owner: read.and_then(|b| b.owner).cloned(),
        allocated: read.and_then(|b| b.sound).map(|b| b.allocated()),
        ..BlockEvidence::default()
    };
    fill(&mut evidence);
    Finding::new(code, Subject::Block(block.key), Evidence::Block(Box::new(evidence))).on_nodes(host(block))
}

fn about(block: &IndexedBlock<'_>, code: Code) -> Finding {
    finding(code, &Stored { key: block.key, block: Some(block) }, |_| {})
}

fn host<'s>(block: &Stored<'_, 's>) -> Option<&'s str> {
    block.block?.owner?.host()
}

fn corrupt(block: &IndexedBlock<'_>) -> Finding {
    let stored = Stored { key: block.key, block: Some(block) };
    finding(Code::CorruptBlock, &stored, |evidence| evidence.problems = block.problems.clone())
}

fn check_overlaps(stored: &[Stored<'_, '_>], out: &mut Vec<Finding>) {
    let keys: Vec<IpNet> = stored.iter().map(|s| s.key).collect();
    for (block, others) in stored.iter().zip(overlaps(&keys)) {
        if others.is_empty() {
            continue;
        }
        let overlapping = others.iter().map(|position| keys[*position]);
        let conflicting = overlapping.map(Conflicting::Block).collect();
        out.push(
            finding(Code::OverlappingBlocks, block, |evidence| evidence.others = conflicting)
                .on_nodes(others.iter().filter_map(|position| host(&stored[*position]))),
        );
    }
}

/// Compares a block with the pools around it.
fn check_place(context: &Context<'_>, block: &Stored<'_, '_>, out: &mut Vec<Finding>) {
    if !context.snapshot.has_read(Source::Pools) {
        return;
    }
    let pools: Vec<&Pool> = context.index.pools_around(block.key).collect();
    if pools.is_empty() {
        if !context.index.pools_incomplete {
            out.push(finding(Code::BlockOutsidePools, block, |_| {}));
        }
        return;
    }
    if pools.iter().all(|pool| pool.block_size != block.key.prefix_len()) {
        out.push(finding(Code::BlockSizeMismatch, block, |evidence| {
            let size = |pool: &&Pool| PoolBlockSize { name: pool.name.clone(), block_size: pool.block_size };
            evidence.pools = pools.iter().map(size).collect();
        }));
    }
}

fn check_owner(
    context: &Context<'_>,
    block: &IndexedBlock<'_>,
    affinities: &Affinities<'_>,
    out: &mut Vec<Finding>,
) {
    let snapshot = context.snapshot;
    let (kind, name) = match block.owner {
        Some(BlockOwner::Host(node)) => (AffinityType::Host, node),
        Some(BlockOwner::Virtual(name)) => (AffinityType::Virtual, name),
        Some(BlockOwner::Other(_)) => {
            out.push(about(block, Code::UnexpectedBlockOwner));
            return;
        }
        None => {
            if block.sound.is_some_and(|b| b.is_empty()) {
                out.push(about(block, Code::EmptyUnownedBlock));
            }
            return;
        }
    };
    let missing = kind == AffinityType::Host && !context.index.node_exists(name);
    if missing && snapshot.has_read(Source::Nodes) {
        let detail = left_behind(context, name);
        out.push(about(block, Code::BlockOfMissingNode).with_detail(detail));
    }
    let key = AffinityKey { kind, node: name.clone(), cidr: block.key };
    if snapshot.has_read(Source::Affinities) && !affinities.0.contains(&key) {
        let dependencies = [Key::Block(block.key), Key::Affinity(key)];
        out.push(about(block, Code::BlockWithoutAffinity).depending_on(dependencies));
    }
}

/// Returns the detail about a node that is gone and has left its object in Calico.
pub(super) fn left_behind(context: &Context<'_>, node: &str) -> Detail {
    if context.index.node(node).is_some() { Detail::LeftBehind } else { Detail::None }
}

/// The existing affinities, including undecodable ones and without those marked deleted.
struct Affinities<'s>(HashSet<&'s AffinityKey, FixedState>);

impl<'s> Affinities<'s> {
    fn new(snapshot: &'s Snapshot) -> Self {
        let read = snapshot.affinities.iter().filter(|a| !a.value.deleted).map(|a| &a.value.key);
        let broken = snapshot.defects.iter().filter_map(|defect| match &defect.key {
            Some(Key::Affinity(key)) => Some(key),
            _ => None,
        });
        Self(read.chain(broken).collect())
    }
}
