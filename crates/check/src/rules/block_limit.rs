//! Nodes with more blocks than they may claim.

use std::collections::BTreeMap;

use calipam_assign::NodeSelector;
use calipam_model::pool::Pool;
use calipam_model::snapshot::Source;

use crate::Context;
use crate::code::Code;
use crate::finding::{Evidence, Finding, NodeEvidence, NodePoolEvidence, Subject};
use crate::occupancy::Claimants;

/// Compares the blocks of every node with the block limit, pool by pool.
pub(crate) fn check(context: &Context<'_>, out: &mut Vec<Finding>) {
    let snapshot = context.snapshot;
    let Some(limit) = snapshot.effective_ipam_config().and_then(|_| snapshot.block_limit()) else { return };
    if ![Source::Nodes, Source::IpamConfig].into_iter().all(|source| snapshot.has_read(source)) {
        return;
    }
    let mut over: BTreeMap<&str, Vec<NodePoolEvidence>> = BTreeMap::new();
    for ((node, pool), blocks) in blocks_of_nodes(context) {
        if blocks > limit && context.index.node_exists(node) {
            let pool = pool.to_owned();
            over.entry(node).or_default().push(NodePoolEvidence {
                pool,
                blocks,
                limit: Some(limit),
                ..NodePoolEvidence::default()
            });
        }
    }
    out.extend(over.into_iter().map(|(node, pools)| finding(node, pools)));
}

/// Number of blocks by node and pool. Pools with a selector that does not parse say nothing about nodes.
fn blocks_of_nodes<'s>(context: &Context<'s>) -> BTreeMap<(&'s str, &'s str), u32> {
    let pools = context.snapshot.pools.iter().map(|p| &p.value);
    let pools: Vec<&'s Pool> = pools.filter(|p| NodeSelector::of(p).is_ok()).collect();
    let mut numbers = BTreeMap::new();
    for (node, held) in Claimants::new(context).holding_nodes() {
        for block in held.iter().filter(|held| held.is_owned_by(node)).filter_map(|held| held.block) {
            for pool in pools.iter().filter(|p| block.sound.is_some() && p.cidr.contains(&block.key)) {
                *numbers.entry((node, pool.name.as_str())).or_default() += 1;
            }
        }
    }
    numbers
}

fn finding(node: &str, pools: Vec<NodePoolEvidence>) -> Finding {
    let evidence = Evidence::Node(Box::new(NodeEvidence { pools }));
    Finding::new(Code::NodeOverBlockLimit, Subject::Node(node.to_owned()), evidence).on_nodes([node])
}
