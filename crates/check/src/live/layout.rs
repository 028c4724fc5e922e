//! What is found in the layout of a cluster, for as long as no change reaches it: pods that come and go do so only where a block
//! becomes full or empty.

use std::collections::{BTreeSet, HashSet};

use calipam_model::IpNet;
use calipam_model::block::BlockOwner;
use calipam_model::snapshot::Snapshot;

use crate::Context;
use crate::code::Code;
use crate::finding::Finding;
use crate::occupancy::{Claimants, Occupancy, Stranded};
use crate::rules;

/// What the [rules about the layout](rules::run_layout) have found, and what they saw of each block and pool.
#[derive(Debug, Default)]
pub(super) struct Layout {
    pub findings: Vec<Finding>,
    seen: Vec<u8>,
    /// No node is stranded however full blocks are.
    is_ample: bool,
}

/// What a change may do to the layout.
#[derive(Debug, Default)]
pub(super) struct Reach {
    /// Blocks or affinities have come or gone, or have become another node's.
    pub is_rearranged: bool,
    /// Blocks that have changed.
    pub blocks: BTreeSet<IpNet>,
    /// Nodes whose workloads have changed.
    pub nodes: HashSet<String>,
}

impl Layout {
    /// Nothing was seen so far: whatever is seen next is something else.
    pub(super) fn new(findings: Vec<Finding>) -> Self {
        Self { findings, seen: vec![u8::MAX], is_ample: false }
    }

    /// The same, or that of a cluster in which the change may have come to others.
    pub(super) fn renewed(
        &self,
        context: &Context<'_>,
        occupancy: &Occupancy<'_, '_>,
        reach: &Reach,
    ) -> Option<Self> {
        let stays = !reach.is_rearranged
            && !self.shows(reach)
            && (self.is_ample || !is_tainted(context, reach))
            && seen(context, occupancy, self.is_ample) == self.seen;
        (!stays).then(|| {
            let claimants = Claimants::new(context);
            let is_ample = is_ample(context, occupancy, &claimants);
            let findings = rules::run_layout(context, occupancy, &claimants);
            Self { findings, seen: seen(context, occupancy, is_ample), is_ample }
        })
    }

    /// True if a finding says how many addresses are taken or free.
    fn shows(&self, reach: &Reach) -> bool {
        self.findings.iter().any(|finding| {
            finding.code == Code::StrandedAddresses
                || finding.subject.network().is_some_and(|network| reach.blocks.contains(&network))
        })
    }
}

fn is_ample(context: &Context<'_>, occupancy: &Occupancy<'_, '_>, claimants: &Claimants<'_, '_>) -> bool {
    let nodes = context.snapshot.nodes.iter().map(|node| &node.value);
    Stranded::new(context, occupancy, claimants).is_none_or(|stranded| stranded.is_impossible(nodes))
}

/// Of each block whether it is sound, has room and is empty, and of each pool whether an address is free; in an ample cluster only of
/// blocks without owner.
fn seen(context: &Context<'_>, occupancy: &Occupancy<'_, '_>, is_ample: bool) -> Vec<u8> {
    let is_owned =
        |owner: Option<&BlockOwner>| matches!(owner, Some(BlockOwner::Host(_) | BlockOwner::Virtual(_)));
    let blocks = context.index.blocks.iter().filter(|block| !is_ample || !is_owned(block.owner));
    let blocks = blocks.map(|block| match block.current() {
        None => 0,
        Some(current) => {
            let bits = [!current.free().is_empty(), occupancy.open(current) > 0, current.is_empty()];
            bits.into_iter().fold(1, |seen, bit| seen << 1 | u8::from(bit))
        }
    });
    let pools = context.snapshot.pools.iter().filter(|_| !is_ample);
    let pools = pools.map(|pool| occupancy.total_tally(pool.value.cidr).free > 0);
    blocks.chain(pools.map(u8::from)).collect()
}

/// A tainted node is checked while it has pods.
fn is_tainted(context: &Context<'_>, reach: &Reach) -> bool {
    let nodes = context.snapshot.nodes.iter().map(|node| &node.value);
    nodes.filter(|node| node.tainted).any(|node| reach.nodes.contains(&node.name))
}

/// True if the change of these objects rearranges them.
pub(super) fn is_rearranged(before: &Snapshot, now: &Snapshot) -> bool {
    let has_affinities = |objects: &Snapshot| !objects.affinities.is_empty();
    has_affinities(before) || has_affinities(now) || arrangement(before) != arrangement(now)
}

/// Whose the blocks are, and which are marked deleted.
fn arrangement(objects: &Snapshot) -> Vec<(IpNet, Option<&BlockOwner>, bool)> {
    let blocks = objects.blocks.iter().map(|block| (block.value.key, &block.value.content));
    let mut blocks: Vec<_> =
        blocks.map(|(key, content)| (key, content.owner(), content.is_deleted())).collect();
    blocks.sort();
    blocks
}
