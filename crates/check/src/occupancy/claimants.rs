//! Who gets addresses by automatic assignment: nodes, and the virtual owner of LoadBalancer addresses;
//! which pools they may use, and which blocks they hold (facts 3.4).

use std::collections::BTreeMap;

use calipam_assign::{Family, NodeSelector};
use calipam_model::IpNet;
use calipam_model::affinity::{AffinityType, LOAD_BALANCER};
use calipam_model::block::BlockOwner;
use calipam_model::key::Key;
use calipam_model::pool::{Pool, PoolUse};

use crate::index::IndexedBlock;
use crate::{Context, FastMap};

/// A block from which a claimant gets addresses as its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldBlock<'c, 's> {
    pub cidr: IpNet,
    /// The block as it was read; `None` if it cannot be decoded, or does not exist: then Calico creates it when the
    /// holder needs an address.
    pub block: Option<&'c IndexedBlock<'s>>,
    /// There is no block.
    pub is_new: bool,
    /// There is an affinity. Calico counts affinities, not blocks, for the block limit.
    pub has_affinity: bool,
}

impl HeldBlock<'_, '_> {
    /// True if the block itself names the node as its owner.
    pub(crate) fn is_owned_by(&self, node: &str) -> bool {
        self.block.and_then(|block| block.owner?.host()) == Some(node)
    }

    fn has_room(&self) -> bool {
        self.block.and_then(|block| block.current()).is_some_and(|block| !block.free().is_empty())
    }
}

/// Blocks by the name of their holder.
#[derive(Default)]
struct HeldBlocks<'c, 's> {
    hosts: FastMap<&'s str, Vec<HeldBlock<'c, 's>>>,
    virtuals: FastMap<&'s str, Vec<HeldBlock<'c, 's>>>,
}

/// A pool and who may use it.
struct PoolEntry<'s> {
    pool: &'s Pool,
    /// `None` if the selector does not parse.
    selector: Option<NodeSelector>,
}

/// One who gets addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claimant<'t, 'c, 's> {
    /// The name of the node, or [`LOAD_BALANCER`].
    pub name: &'t str,
    /// The labels that node selectors look at. The virtual owner has none.
    pub labels: &'t BTreeMap<String, String>,
    /// The blocks that it may take addresses from as its own, ascending.
    pub held: &'t [HeldBlock<'c, 's>],
}

/// All who get addresses.
pub(crate) struct Claimants<'c, 's> {
    nodes: Vec<(&'s str, &'s BTreeMap<String, String>)>,
    pools: Vec<PoolEntry<'s>>,
    held: HeldBlocks<'c, 's>,
    no_labels: BTreeMap<String, String>,
    /// Most blocks that one of them may claim; `None` for any number.
    pub(crate) limit: Option<u32>,
}

impl<'c, 's> Claimants<'c, 's> {
    /// Gathers nodes, pools and affinities.
    pub(crate) fn new(context: &'c Context<'s>) -> Self {
        let snapshot = context.snapshot;
        let mut nodes: Vec<_> =
            snapshot.nodes.iter().map(|n| (n.value.name.as_str(), &n.value.labels)).collect();
        nodes.sort_unstable_by_key(|(name, _)| *name);
        let entry = |pool| PoolEntry { pool, selector: NodeSelector::of(pool).ok() };
        Self {
            nodes,
            pools: snapshot.pools.iter().map(|p| entry(&p.value)).collect(),
            held: held(context),
            no_labels: BTreeMap::new(),
            limit: snapshot.block_limit(),
        }
    }

    /// Those who get addresses for a use.
    pub(crate) fn of_use(&self, wanted: PoolUse) -> Vec<Claimant<'_, 'c, 's>> {
        if wanted == PoolUse::LoadBalancer {
            return vec![self.claimant(&AffinityType::Virtual, LOAD_BALANCER, &self.no_labels)];
        }
        self.nodes.iter().map(|(name, labels)| self.claimant(&AffinityType::Host, name, labels)).collect()
    }

    /// The nodes that hold blocks, in no order, those that do not exist included.
    pub(crate) fn holding_nodes(&self) -> impl Iterator<Item = (&'s str, &[HeldBlock<'c, 's>])> {
        self.held.hosts.iter().map(|(node, held)| (*node, held.as_slice()))
    }

    /// The blocks that a holder may take addresses from as its own, ascending.
    pub(crate) fn held_by(&self, kind: &AffinityType, name: &str) -> &[HeldBlock<'c, 's>] {
        let by_name = match kind {
            AffinityType::Host => self.held.hosts.get(name),
            AffinityType::Virtual => self.held.virtuals.get(name),
            AffinityType::Other(_) => None,
        };
        by_name.map_or(&[], Vec::as_slice)
    }

    fn claimant<'t>(
        &'t self,
        kind: &AffinityType,
        name: &'t str,
        labels: &'t BTreeMap<String, String>,
    ) -> Claimant<'t, 'c, 's> {
        Claimant { name, labels, held: self.held_by(kind, name) }
    }

    /// True if all selectors of the pools parse that a request without a pool's name looks at. If one
    /// does not, Calico refuses every such request.
    pub(crate) fn selectors_parse(&self, family: Family) -> bool {
        let looked_at = |e: &&PoolEntry<'_>| e.pool.is_enabled() && Family::of(e.pool.cidr) == family;
        self.pools.iter().filter(looked_at).filter(|e| e.pool.automatic).all(|e| e.selector.is_some())
    }

    /// True if the claimant may use the pool. A manual pool serves those who ask for it by name.
    pub(crate) fn selects(&self, pool: &Pool, claimant: &Claimant<'_, '_, '_>) -> bool {
        let entry = self.pools.iter().find(|e| std::ptr::eq(e.pool, pool));
        !pool.automatic || entry.and_then(|e| e.selector.as_ref()).is_some_and(|s| s.selects(claimant.labels))
    }

    /// The pools of a request that may end up in `pool`: with it all others for any namespace. Blocks in
    /// these count for the block limit. Whether they select a node is another question.
    pub(crate) fn request(&self, pool: &Pool, wanted: PoolUse) -> Vec<&'s Pool> {
        let is_same = |other: &Pool| std::ptr::eq(other, pool);
        let joins = |other: &Pool| {
            pool.automatic
                && other.automatic
                && other.is_enabled()
                && other.allows(wanted)
                && other.namespace_selector.is_empty()
                && Family::of(other.cidr) == Family::of(pool.cidr)
        };
        self.pools.iter().map(|e| e.pool).filter(|other| is_same(other) || joins(other)).collect()
    }

    /// How many blocks a claimant may still claim in a request.
    pub(crate) fn headroom(&self, claimant: &Claimant<'_, '_, '_>, request: &[&Pool]) -> u32 {
        let usable: Vec<&Pool> = match claimant.held {
            [] => Vec::new(),
            _ => request.iter().copied().filter(|pool| self.selects(pool, claimant)).collect(),
        };
        self.headroom_in(claimant.held, &usable)
    }

    /// The same of a holder who may use all of these pools. Its affinities in them count for the limit, and its blocks
    /// without affinity that have room: Calico claims such a block when it comes across it. Without a limit it is a number
    /// that no pool reaches.
    pub(crate) fn headroom_in(&self, held: &[HeldBlock<'_, '_>], usable: &[&Pool]) -> u32 {
        let counts = |held: &&HeldBlock<'_, '_>| {
            (held.has_affinity || held.has_room())
                && usable.iter().any(|pool| pool.cidr.contains(&held.cidr.network()))
        };
        let Some(limit) = self.limit else { return u32::MAX };
        limit.saturating_sub(u32::try_from(held.iter().filter(counts).count()).unwrap_or(u32::MAX))
    }
}

/// Affinities by holder, but for those whose block belongs to another: Calico removes these when it comes
/// across them. One that cannot be decoded exists. A block without affinity is its owner's anyway.
fn held<'c, 's>(context: &'c Context<'s>) -> HeldBlocks<'c, 's> {
    let snapshot = context.snapshot;
    let read = snapshot.affinities.iter().filter(|a| !a.value.deleted).map(|a| &a.value.key);
    let broken = snapshot.defects.iter().filter_map(|defect| match &defect.key {
        Some(Key::Affinity(key)) => Some(key),
        _ => None,
    });

    let mut held = HeldBlocks::default();
    for key in read.chain(broken) {
        let block = context.index.block(key.cidr);
        if block.is_some_and(|b| b.sound.is_some() && !key.is_of(b.owner)) {
            continue;
        }
        let by_name = match &key.kind {
            AffinityType::Host => &mut held.hosts,
            AffinityType::Virtual => &mut held.virtuals,
            AffinityType::Other(_) => continue,
        };
        let is_new = block.is_none() && !context.index.is_unchecked(key.cidr);
        let found = HeldBlock { cidr: key.cidr, block, is_new, has_affinity: true };
        by_name.entry(&key.node).or_default().push(found);
    }
    for block in &context.index.blocks {
        let by_name = match block.owner {
            Some(BlockOwner::Host(node)) => held.hosts.entry(node.as_str()),
            Some(BlockOwner::Virtual(name)) => held.virtuals.entry(name.as_str()),
            Some(BlockOwner::Other(_)) | None => continue,
        };
        let found = HeldBlock { cidr: block.key, block: Some(block), is_new: false, has_affinity: false };
        by_name.or_default().push(found);
    }

    // Of a block that has an affinity, that one comes first and stays.
    for blocks in held.hosts.values_mut().chain(held.virtuals.values_mut()) {
        blocks.sort_unstable_by_key(|held| (held.cidr, !held.has_affinity));
        blocks.dedup_by_key(|held| held.cidr);
    }
    held
}
