//! Nodes that cannot get one more address although their pools have free ones.
//!
//! This follows Calico's automatic assignment (facts 3.4): own blocks first, then a block that nobody
//! has, then an empty one of another, then single addresses of blocks of others. Where anything about a
//! node's chances is unknown, it counts as served.

use std::collections::HashSet;

use calipam_model::IpNet;
use calipam_model::affinity::{Affinity, AffinityType};
use calipam_model::config::IpamConfig;
use calipam_model::key::Key;
use calipam_model::node::Node;
use calipam_model::snapshot::Source;

use super::capacity::Capacity;
use super::quick_hash::QuickMap;
use super::supply::{Supply, supplies};
use super::wording::{addresses, short};
use crate::Context;
use crate::code::Code;
use crate::finding::{Evidence, Finding, NoFurtherAddress, NodeEvidence, NodePoolEvidence, Subject};
use crate::index::IndexedBlock;

/// Everything that decides whether a node gets an address.
pub(crate) const SOURCES: [Source; 6] = [
    Source::Blocks,
    Source::Affinities,
    Source::Pools,
    Source::Reservations,
    Source::Nodes,
    Source::IpamConfig,
];

/// Judges every node.
pub(crate) fn check(context: &Context<'_>, capacity: &Capacity<'_, '_>, out: &mut Vec<Finding>) {
    let snapshot = context.snapshot;
    let Some(config) = snapshot.effective_ipam_config() else { return };
    let is_reservation = |key: &Option<Key>| matches!(key, Some(Key::Reservation(_)));
    if !SOURCES.into_iter().all(|source| snapshot.has_read(source))
        || context.index.pools_incomplete
        || snapshot.defects.iter().any(|defect| is_reservation(&defect.key))
    {
        return;
    }
    let families = [true, false].map(|v4| supplies(context, capacity, v4));
    let holdings = Holdings::new(context);
    let nothing = Holding::default();
    for node in snapshot.nodes.iter().map(|n| &n.value) {
        let holding = holdings.by_node.get(node.name.as_str()).unwrap_or(&nothing);
        let unjudged = &holdings.unjudged;
        let stranded = Stranded { context, capacity, config: &config, node, holding, unjudged };
        let pools: Vec<NodePoolEvidence> =
            families.iter().flatten().flat_map(|pools| stranded.judge(pools)).collect();
        if !pools.is_empty() {
            out.push(finding(&node.name, pools));
        }
    }
}

fn finding(node: &str, pools: Vec<NodePoolEvidence>) -> Finding {
    let with_free = |p: &&NodePoolEvidence| p.free.is_some_and(|free| free > 0);
    let message = match pools.iter().find(with_free).or(pools.first()) {
        Some(pool) => format!(
            "{} cannot get one more address, although {} free in {} ({})",
            short(node),
            match pool.free {
                Some(1) => "1 address is".to_owned(),
                Some(free) => format!("{} are", addresses(free)),
                None => "some addresses are".to_owned(),
            },
            short(&pool.pool),
            pool.reason.unwrap_or(NoFurtherAddress::NoBlockLeft),
        ),
        None => format!("{} cannot get one more address", short(node)),
    };
    let evidence = Evidence::Node(Box::new(NodeEvidence { pools }));
    Finding::new(Code::StrandedAddresses, Subject::Node(node.to_owned()), message, evidence).on_nodes([node])
}

/// What the nodes hold.
struct Holdings<'c, 's> {
    by_node: QuickMap<&'s str, Holding<'c, 's>>,
    /// CIDRs of blocks about whose content nothing is known.
    unjudged: HashSet<IpNet>,
}

/// What one node holds.
#[derive(Default)]
struct Holding<'c, 's> {
    affinities: Vec<IpNet>,
    blocks: Vec<&'c IndexedBlock<'s>>,
    /// It has an affinity that does not decode: what it may use is unknown.
    unclear: bool,
}

impl<'c, 's> Holdings<'c, 's> {
    fn new(context: &'c Context<'s>) -> Self {
        let mut by_node: QuickMap<&str, Holding<'_, '_>> = QuickMap::default();
        let by_host = |a: &&Affinity| a.key.kind == AffinityType::Host && !a.deleted;
        for affinity in context.snapshot.affinities.iter().map(|a| &a.value).filter(by_host) {
            by_node.entry(&affinity.key.node).or_default().affinities.push(affinity.key.cidr);
        }
        for block in &context.index.blocks {
            if let Some(host) = block.owner.and_then(|o| o.host()) {
                by_node.entry(host).or_default().blocks.push(block);
            }
        }
        for defect in &context.snapshot.defects {
            if let Some(Key::Affinity(key)) = &defect.key {
                by_node.entry(&key.node).or_default().unclear = true;
            }
        }
        Self { by_node, unjudged: super::blocks::unjudged(context) }
    }
}

/// One node.
struct Stranded<'a, 'c, 's> {
    context: &'a Context<'s>,
    capacity: &'a Capacity<'c, 's>,
    config: &'a IpamConfig,
    node: &'s Node,
    holding: &'a Holding<'c, 's>,
    unjudged: &'a HashSet<IpNet>,
}

/// Whether the node gets one more address.
enum Verdict {
    Served,
    Stranded(NoFurtherAddress),
}

impl Stranded<'_, '_, '_> {
    /// The pools of one family that could help the node and do not; empty where it is served.
    fn judge(&self, pools: &[Supply<'_>]) -> Vec<NodePoolEvidence> {
        let selecting: Vec<&Supply<'_>> =
            pools.iter().filter(|p| p.selector.matches(&self.node.labels)).collect();
        if selecting.iter().all(|pool| pool.free == 0) {
            return Vec::new();
        }
        let mut reason = NoFurtherAddress::NoBlockLeft;
        for request in requests(&selecting) {
            match self.request(&request) {
                Verdict::Served => return Vec::new(),
                Verdict::Stranded(why) => reason = why,
            }
        }
        selecting.iter().map(|pool| self.evidence(pool, reason)).collect()
    }

    /// What becomes of a request that may use these pools.
    fn request(&self, pools: &[&Supply<'_>]) -> Verdict {
        if self.holding.unclear {
            return Verdict::Served;
        }
        let usable = |block: IpNet| pools.iter().any(|p| p.pool.cidr.contains(&block.network()));
        let free = |b: &&IndexedBlock<'_>| b.sound.is_none_or(|block| self.capacity.has_free(block));
        if self.holding.blocks.iter().filter(|b| usable(b.key)).any(free) {
            return Verdict::Served;
        }
        let mut held = 0;
        for block in self.holding.affinities.iter().copied().filter(|block| usable(*block)) {
            match self.context.index.block(block) {
                // Calico creates a block that an affinity names, or cannot: then it is not judged.
                None => return Verdict::Served,
                Some(_) if self.unjudged.contains(&block) => return Verdict::Served,
                Some(stored) if stored.owner.and_then(|o| o.host()) == Some(self.node.name.as_str()) => {
                    held += 1
                }
                // Calico removes the stale affinity and goes on.
                Some(_) => {}
            }
        }
        self.beyond_own_blocks(pools, held)
    }

    /// The own blocks are full: whether there is another way.
    fn beyond_own_blocks(&self, pools: &[&Supply<'_>], held: u32) -> Verdict {
        if held >= self.config.block_limit() {
            return Verdict::Stranded(NoFurtherAddress::BlockLimit);
        }
        if !self.config.auto_allocate_blocks {
            // Without any block the node may be meant to have none.
            return match held {
                0 => Verdict::Served,
                _ => Verdict::Stranded(NoFurtherAddress::AutoAllocationOff),
            };
        }
        if pools.iter().any(|pool| pool.claimable || pool.reclaimable) {
            return Verdict::Served;
        }
        if self.config.strict_affinity {
            return Verdict::Stranded(NoFurtherAddress::StrictAffinity);
        }
        match pools.iter().any(|pool| pool.borrowable) {
            true => Verdict::Served,
            false => Verdict::Stranded(NoFurtherAddress::NoBlockLeft),
        }
    }

    fn evidence(&self, pool: &Supply<'_>, reason: NoFurtherAddress) -> NodePoolEvidence {
        let blocks = self.holding.blocks.iter().filter(|b| pool.pool.cidr.contains(&b.key)).count();
        NodePoolEvidence {
            pool: pool.pool.name.clone(),
            blocks: u32::try_from(blocks).unwrap_or(u32::MAX),
            limit: self.config.block_limit(),
            free: Some(pool.free),
            reason: Some(reason),
        }
    }
}

/// The sets of pools that requests may use: those for all namespaces, and with them each of those for
/// some only. A node that is served in one of them is not stranded.
fn requests<'a, 's>(selecting: &[&'a Supply<'s>]) -> Vec<Vec<&'a Supply<'s>>> {
    let (general, special): (Vec<_>, Vec<_>) =
        selecting.iter().copied().partition(|p| p.pool.namespace_selector.is_empty());
    let mut requests: Vec<Vec<&Supply<'_>>> = Vec::new();
    for pool in special {
        requests.push(general.iter().copied().chain([pool]).collect());
    }
    if !general.is_empty() {
        requests.push(general);
    }
    requests
}
