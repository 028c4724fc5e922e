//! Nodes that cannot get one more address although their pools have free ones.
//!
//! This follows Calico's automatic assignment (facts 3.4): own blocks first, then a block that nobody
//! has, then an empty one of another, then single addresses of blocks of others. Where anything about a
//! node's chances is unknown, it counts as served.

use std::collections::{BTreeMap, HashSet};

use calipam_model::IpNet;
use calipam_model::affinity::{Affinity, AffinityType};
use calipam_model::config::IpamConfig;
use calipam_model::key::Key;
use calipam_model::node::Node;
use calipam_model::snapshot::Source;

use super::capacity::Capacity;
use super::supply::{Supply, supplies};
use super::wording::{addresses, short};
use crate::Context;
use crate::code::Code;
use crate::finding::{Evidence, Finding, NodeEvidence, NodePoolEvidence, Subject};
use crate::index::IndexedBlock;

/// Everything that decides whether a node gets an address.
const SOURCES: [Source; 6] = [
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
    for node in &snapshot.nodes {
        let stranded =
            Stranded { context, capacity, config: &config, node: &node.value, holdings: &holdings };
        let pools: Vec<NodePoolEvidence> =
            families.iter().flatten().flat_map(|pools| stranded.judge(pools)).collect();
        if !pools.is_empty() {
            out.push(finding(&node.value.name, pools));
        }
    }
}

fn finding(node: &str, pools: Vec<NodePoolEvidence>) -> Finding {
    let with_free = |p: &&NodePoolEvidence| p.free.as_deref().is_some_and(|free| free != "0");
    let message = match pools.iter().find(with_free).or(pools.first()) {
        Some(pool) => format!(
            "{} cannot get one more address, although {} free in {} ({})",
            short(node),
            match pool.free.as_deref() {
                Some("1") => "1 address is".to_owned(),
                free => format!("{} are", addresses(free.unwrap_or("some"))),
            },
            short(&pool.pool),
            pool.reason.as_deref().unwrap_or("no block left"),
        ),
        None => format!("{} cannot get one more address", short(node)),
    };
    let evidence = Evidence::Node(Box::new(NodeEvidence { pools }));
    Finding::new(Code::StrandedAddresses, Subject::Node(node.to_owned()), message, evidence).on_nodes([node])
}

/// What nodes hold.
struct Holdings<'c, 's> {
    affinities: BTreeMap<&'s str, Vec<IpNet>>,
    blocks: BTreeMap<&'s str, Vec<&'c IndexedBlock<'s>>>,
    /// Nodes with an affinity that does not decode: what they may use is unknown.
    unclear: HashSet<&'s str>,
    /// CIDRs of blocks about whose content nothing is known.
    unjudged: HashSet<IpNet>,
}

impl<'c, 's> Holdings<'c, 's> {
    fn new(context: &'c Context<'s>) -> Self {
        let mut affinities: BTreeMap<&str, Vec<IpNet>> = BTreeMap::new();
        let by_host = |a: &&Affinity| a.key.kind == AffinityType::Host && !a.deleted;
        for affinity in context.snapshot.affinities.iter().map(|a| &a.value).filter(by_host) {
            affinities.entry(&affinity.key.node).or_default().push(affinity.key.cidr);
        }
        let mut blocks: BTreeMap<&str, Vec<&IndexedBlock<'_>>> = BTreeMap::new();
        for block in &context.index.blocks {
            if let Some(host) = block.owner.and_then(|o| o.host()) {
                blocks.entry(host).or_default().push(block);
            }
        }
        let unclear = context.snapshot.defects.iter().filter_map(|defect| match &defect.key {
            Some(Key::Affinity(key)) => Some(key.node.as_str()),
            _ => None,
        });
        Self { affinities, blocks, unclear: unclear.collect(), unjudged: super::blocks::unjudged(context) }
    }
}

/// One node.
struct Stranded<'a, 'c, 's> {
    context: &'a Context<'s>,
    capacity: &'a Capacity<'c, 's>,
    config: &'a IpamConfig,
    node: &'s Node,
    holdings: &'a Holdings<'c, 's>,
}

/// Whether the node gets one more address.
enum Verdict {
    Served,
    Stranded(&'static str),
}

impl Stranded<'_, '_, '_> {
    /// The pools of one family that could help the node and do not; empty where it is served.
    fn judge(&self, pools: &[Supply<'_>]) -> Vec<NodePoolEvidence> {
        let selecting: Vec<&Supply<'_>> =
            pools.iter().filter(|p| p.selector.matches(&self.node.labels)).collect();
        if selecting.iter().all(|pool| pool.free == 0) {
            return Vec::new();
        }
        let mut reason = "";
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
        let name = self.node.name.as_str();
        if self.holdings.unclear.contains(name) {
            return Verdict::Served;
        }
        let usable = |block: IpNet| pools.iter().any(|p| p.pool.cidr.contains(&block.network()));
        let owned = self.holdings.blocks.get(name).map_or(&[][..], Vec::as_slice);
        let free = |b: &&IndexedBlock<'_>| b.sound.is_none_or(|block| self.capacity.has_free(block));
        if owned.iter().filter(|b| usable(b.key)).any(free) {
            return Verdict::Served;
        }
        let mut held = 0;
        let affinities = self.holdings.affinities.get(name).into_iter().flatten().copied();
        for block in affinities.filter(|block| usable(*block)) {
            match self.context.index.block(block) {
                // Calico creates a block that an affinity names, or cannot: then it is not judged.
                None => return Verdict::Served,
                Some(_) if self.holdings.unjudged.contains(&block) => return Verdict::Served,
                Some(stored) if stored.owner.and_then(|o| o.host()) == Some(name) => held += 1,
                // Calico removes the stale affinity and goes on.
                Some(_) => {}
            }
        }
        self.beyond_own_blocks(pools, held)
    }

    /// The own blocks are full: whether there is another way.
    fn beyond_own_blocks(&self, pools: &[&Supply<'_>], held: u32) -> Verdict {
        if held >= self.config.block_limit() {
            return Verdict::Stranded("the block limit is reached");
        }
        if !self.config.auto_allocate_blocks {
            // Without any block the node may be meant to have none.
            return match held {
                0 => Verdict::Served,
                _ => Verdict::Stranded("automatic allocation of blocks is off"),
            };
        }
        if pools.iter().any(|pool| pool.claimable || pool.reclaimable) {
            return Verdict::Served;
        }
        if self.config.strict_affinity {
            return Verdict::Stranded("no block is left to claim, and strict affinity forbids borrowing");
        }
        match pools.iter().any(|pool| pool.borrowable) {
            true => Verdict::Served,
            false => Verdict::Stranded("no block is left to claim or to borrow from"),
        }
    }

    fn evidence(&self, pool: &Supply<'_>, reason: &str) -> NodePoolEvidence {
        let owned = self.holdings.blocks.get(self.node.name.as_str());
        let blocks = owned.into_iter().flatten().filter(|b| pool.pool.cidr.contains(&b.key)).count();
        NodePoolEvidence {
            pool: pool.pool.name.clone(),
            blocks: u32::try_from(blocks).unwrap_or(u32::MAX),
            limit: self.config.block_limit(),
            free: Some(pool.free.to_string()),
            reason: Some(reason.to_owned()),
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
