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

/// Checks all blocks: that they do not overlap, that they can be decoded, and that their pools and owners agree.
pub(crate) fn check(context: &Context<'_>, out: &mut Vec<Finding>) {
    let stored = context.index.stored();
    check_overlaps(&stored, out);

    // An affinity that cannot be decoded exists all the same.
    let mut affinities = Affinities::default();
    for affinity in &context.snapshot.affinities {
        if !affinity.value.deleted {
            affinities.insert(&affinity.value.key);
        }
    }
    for defect in &context.snapshot.defects {
        if let Some(Key::Affinity(key)) = &defect.key {
            affinities.insert(key);
        }
    }

    for block in &stored {
        check_pools(context, block, out);
        let Some(indexed) = block.block else {
            continue;
        };
        if indexed.sound.is_none() {
            out.push(corrupt(block, &indexed.problems));
        } else {
            check_owner(context, block, indexed, &affinities, out);
        }
    }
}

/// The existing affinities, including undecodable ones, but not those that are marked deleted.
type Affinities<'s> = HashSet<&'s AffinityKey, FixedState>;

/// Makes a finding. Its message begins with the block, and continues with `problem`.
fn new_finding(code: Code, block: &Stored<'_, '_>, problem: impl Display) -> Finding {
    with_evidence(code, block, problem, block_evidence(block.block))
}

/// Like [`new_finding`], but with evidence that says more.
fn with_evidence(
    code: Code,
    block: &Stored<'_, '_>,
    problem: impl Display,
    evidence: BlockEvidence,
) -> Finding {
    let subject = Subject::Block(block.key);
    let message = format!("{} {problem}", block.key);
    Finding::new(code, subject, message, Evidence::Block(Box::new(evidence)))
        .on_nodes(block.block.and_then(IndexedBlock::host))
}

/// Returns a block's owner and its number of allocated addresses, as far as they are known.
pub(super) fn block_evidence(block: Option<&IndexedBlock<'_>>) -> BlockEvidence {
    BlockEvidence {
        owner: block.and_then(|block| block.owner).cloned(),
        allocated: block.and_then(|block| block.sound).map(|sound| sound.allocated()),
        ..BlockEvidence::default()
    }
}

/// Reports a corrupt block. The message names its first problem.
fn corrupt(block: &Stored<'_, '_>, problems: &[BlockProblem]) -> Finding {
    let first = match problems.first() {
        Some(problem) => short(&problem.to_string()),
        None => String::new(),
    };
    let further = and_more(problems.len(), "problem", "problems");
    let problem = format!("is corrupt: {first}{further}");
    let evidence = BlockEvidence {
        problems: problems.to_vec(),
        ..block_evidence(block.block)
    };
    with_evidence(Code::CorruptBlock, block, problem, evidence)
}

/// Reports each block that overlaps others, on the nodes that own one of them.
fn check_overlaps(stored: &[Stored<'_, '_>], out: &mut Vec<Finding>) {
    let keys: Vec<IpNet> = stored.iter().map(|block| block.key).collect();
    for (block, positions) in stored.iter().zip(overlaps(&keys)) {
        if positions.is_empty() {
            continue;
        }
        let others: Vec<_> = positions.iter().map(|position| &stored[*position]).collect();
        let cidrs: Vec<String> = others.iter().map(|other| other.key.to_string()).collect();
        let owners = others.iter().filter_map(|other| other.block?.host());
        let problem = format!("overlaps {}", list(&cidrs));
        let evidence = BlockEvidence {
            others: cidrs,
            ..block_evidence(block.block)
        };
        let finding = with_evidence(Code::OverlappingBlocks, block, problem, evidence);
        out.push(finding.on_nodes(owners));
    }
}

/// Reports a block that no pool contains, or whose size differs from the block sizes of all pools that contain it.
fn check_pools(context: &Context<'_>, block: &Stored<'_, '_>, out: &mut Vec<Finding>) {
    if !context.snapshot.has_read(Source::Pools) {
        return;
    }
    let pools: Vec<&Pool> = context.index.pools_around(block.key).collect();
    let Some(first) = pools.first() else {
        // The block may be in a pool that cannot be decoded.
        if !context.index.pools_incomplete {
            out.push(new_finding(Code::BlockOutsidePools, block, "is in no pool"));
        }
        return;
    };
    if pools.iter().any(|pool| pool.block_size == block.key.prefix_len()) {
        return;
    }

    let problem = format!(
        "is in the pool {}, whose blocks are /{}",
        short(&first.name),
        first.block_size
    );
    let mut evidence = block_evidence(block.block);
    for pool in &pools {
        evidence.pools.push(format!("{} /{}", pool.name, pool.block_size));
    }
    out.push(with_evidence(Code::BlockSizeMismatch, block, problem, evidence));
}

/// Checks that a block has an owner that exists, and an affinity of this owner.
fn check_owner(
    context: &Context<'_>,
    block: &Stored<'_, '_>,
    indexed: &IndexedBlock<'_>,
    affinities: &Affinities<'_>,
    out: &mut Vec<Finding>,
) {
    let snapshot = context.snapshot;
    let Some(owner) = indexed.owner else {
        if indexed.sound.is_some_and(|sound| sound.is_empty()) {
            let problem = "has no owner and no allocated address";
            out.push(new_finding(Code::EmptyUnownedBlock, block, problem));
        }
        return;
    };
    let Some(key) = AffinityKey::of_owner(owner, block.key) else {
        let problem = format!(
            "belongs to {:?}, which is neither host:<node> nor virtual:<name>",
            short(&owner.to_string())
        );
        out.push(new_finding(Code::UnexpectedBlockOwner, block, problem));
        return;
    };

    let name = &key.node;
    let is_of_missing_node = key.kind == AffinityType::Host && !context.index.node_exists(name);
    if is_of_missing_node && snapshot.has_read(Source::Nodes) {
        let problem = format!("belongs to {}, which {}", short(name), is_missing(context, name));
        out.push(new_finding(Code::BlockOfMissingNode, block, problem));
    }
    if snapshot.has_read(Source::Affinities) && !affinities.contains(&key) {
        let problem = format!("belongs to {}, which has no affinity for it", short(name));
        let dependencies = [Key::Block(block.key), Key::Affinity(key)];
        out.push(new_finding(Code::BlockWithoutAffinity, block, problem).depending_on(dependencies));
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
