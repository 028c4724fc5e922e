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
    let Some(limit) = snapshot
        .effective_ipam_config()
        .and_then(|_| snapshot.block_limit())
    else {
        return;
    };
    if ![Source::Nodes, Source::IpamConfig]
        .into_iter()
        .all(|source| snapshot.has_read(source))
    {
        return;
    }
    // If a pool's selector does not parse, its nodes are not known.
    let pools = context.snapshot.pools.iter().map(|p| &p.value);
    let mut pools: Vec<&Pool> = pools.filter(|p| p.selected_nodes().is_ok()).collect();
    pools.sort_by_key(|pool| &pool.name);
    let mut owned: FastMap<&str, Vec<IpNet>> = FastMap::default();
    for block in context.index.blocks.iter().filter(|block| block.sound.is_some()) {
        if let Some(node) = block.host() {
            owned.entry(node).or_default().push(block.key);
        }
    }
    // Most nodes stay below the limit even with their blocks in all pools together.
    owned.retain(|node, blocks| blocks.len() > limit as usize && context.index.node_exists(node));
    let mut over: BTreeMap<&str, Vec<NodePoolEvidence>> = BTreeMap::new();
    for (node, owned) in owned {
        for pool in &pools {
            let blocks = owned.iter().filter(|block| pool.cidr.contains(*block)).count() as u32;
            if blocks > limit {
                let evidence = NodePoolEvidence {
                    pool: pool.name.clone(),
                    blocks,
                    limit,
                };
                over.entry(node).or_default().push(evidence);
            }
        }
    }
    out.extend(over.into_iter().map(|(node, pools)| finding(node, pools)));
}

/// Reports a node that has more blocks in some pools than the limit. The message is about the first of these pools.
fn finding(node: &str, pools: Vec<NodePoolEvidence>) -> Finding {
    let says = match pools.first() {
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
    Finding::new(Code::NodeOverBlockLimit, subject, says, evidence).on_nodes([node])
}
