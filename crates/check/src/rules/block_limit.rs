//! Nodes with more blocks than the block limit.

use std::collections::BTreeMap;

use calipam_model::IpNet;
use calipam_model::pool::Pool;
use calipam_model::snapshot::Source;

use crate::code::Code;
use crate::finding::{Evidence, Finding, NodeEvidence, NodePoolEvidence, Subject};
use crate::names::short;
use crate::{Context, FastMap};

/// Compares every node's blocks with the block limit, pool by pool.
pub(crate) fn check(context: &Context<'_>, out: &mut Vec<Finding>) {
    let snapshot = context.snapshot;
    if snapshot.effective_ipam_config().is_none() {
        return;
    }
    let Some(limit) = snapshot.block_limit() else {
        return;
    };
    if !snapshot.has_read(Source::Nodes) || !snapshot.has_read(Source::IpamConfig) {
        return;
    }

    // If a pool's selector does not parse, its nodes are not known.
    let mut pools: Vec<&Pool> = snapshot.pools.iter().map(|stored| &stored.value).collect();
    pools.retain(|pool| pool.selected_nodes().is_ok());
    pools.sort_by_key(|pool| &pool.name);

    let mut blocks_of_nodes: FastMap<&str, Vec<IpNet>> = FastMap::default();
    for block in &context.index.blocks {
        if block.sound.is_none() {
            continue;
        }
        if let Some(node) = block.host() {
            blocks_of_nodes.entry(node).or_default().push(block.key);
        }
    }
    // Most nodes stay below the limit even with their blocks in all pools together.
    blocks_of_nodes.retain(|node, blocks| blocks.len() > limit as usize && context.index.node_exists(node));

    let mut pools_over_limit: BTreeMap<&str, Vec<NodePoolEvidence>> = BTreeMap::new();
    for (node, cidrs) in blocks_of_nodes {
        for pool in &pools {
            let blocks = cidrs.iter().filter(|block| pool.cidr.contains(*block)).count() as u32;
            if blocks > limit {
                let evidence = NodePoolEvidence {
                    pool: pool.name.clone(),
                    blocks,
                    limit,
                };
                pools_over_limit.entry(node).or_default().push(evidence);
            }
        }
    }
    for (node, pools) in pools_over_limit {
        out.push(new_finding(node, pools));
    }
}

/// Reports a node that has more blocks in some pools than the limit. The message is about the first of these pools.
fn new_finding(node: &str, pools: Vec<NodePoolEvidence>) -> Finding {
    let message = match pools.first() {
        Some(first) => format!(
            "{} has {} blocks in {}, more than the limit of {}",
            short(node),
            first.blocks,
            short(&first.pool),
            first.limit
        ),
        None => String::new(),
    };
    let subject = Subject::Node(node.to_owned());
    let evidence = Evidence::Node(Box::new(NodeEvidence { pools }));
    Finding::new(Code::NodeOverBlockLimit, subject, message, evidence).on_nodes([node])
}
