//! The blocks that nodes and the virtual owner of LoadBalancer addresses may still claim.

use std::collections::BTreeMap;

use calipam_model::IpNet;
use calipam_model::affinity::{AffinityType, LOAD_BALANCER};
use calipam_model::block::{Block, BlockContent, BlockOwner};
use calipam_model::node::Node;
use calipam_model::pool::{Pool, PoolUse};

use super::Outlook;
use crate::family::Family;

static HOST: AffinityType = AffinityType::Host;
static VIRTUAL: AffinityType = AffinityType::Virtual;
static NO_LABELS: BTreeMap<String, String> = BTreeMap::new();

/// A holder of automatically assigned addresses: a node, or `None` for the virtual owner.
#[derive(Clone, Copy, Debug)]
pub struct Holder<'s>(Option<&'s Node>);

impl<'s> Holder<'s> {
    fn key(self) -> (&'static AffinityType, &'s str) {
        self.0.map_or((&VIRTUAL, LOAD_BALANCER), |node| (&HOST, node.name.as_str()))
    }

    /// The name of the node, or [`LOAD_BALANCER`].
    pub fn name(self) -> &'s str {
        self.key().1
    }

    /// The labels that node selectors look at. The virtual owner has none.
    fn labels(self) -> &'s BTreeMap<String, String> {
        self.0.map_or(&NO_LABELS, |node| &node.labels)
    }
}

/// A block of a holder.
struct HeldBlock {
    cidr: IpNet,
    /// The block does not exist yet: Calico creates it when the holder needs an address.
    is_new: bool,
    /// The block counts towards the block limit: it has an affinity, or Calico claims it on finding it.
    counts: bool,
}

/// The type and name of the holder that owns a block.
pub(super) fn key_of(owner: &BlockOwner) -> Option<(&'static AffinityType, &str)> {
    match owner {
        BlockOwner::Host(name) => Some((&HOST, name)),
        BlockOwner::Virtual(name) => Some((&VIRTUAL, name)),
        BlockOwner::Other(_) => None,
    }
}

impl<'s> Outlook<'s> {
    /// Returns the holders that get addresses for a use.
    pub fn holders(&self, wanted: PoolUse) -> Vec<Holder<'s>> {
        if wanted == PoolUse::LoadBalancer {
            return vec![Holder(None)];
        }
        self.indexed.snapshot.nodes.iter().map(|stored| Holder(Some(&stored.value))).collect()
    }

    /// True if the selectors of all open pools parse. Otherwise Calico refuses all requests that name no pool.
    pub fn selectors_parse(&self, family: Family) -> bool {
        self.open[family as usize].is_some()
    }

    /// True if this pool can serve the holder's requests that name no pool.
    pub fn serves(&self, pool: &Pool, holder: Holder<'_>) -> bool {
        let open = self.open[Family::of(pool.cidr) as usize].iter().flatten();
        open.into_iter().any(|open| std::ptr::eq(open.pool, pool) && open.selector.selects(holder.labels()))
    }

    /// True if the node has a block of the family, or is about to create one.
    pub fn holds_some(&self, node: &Node, family: Family) -> bool {
        self.held(Holder(Some(node))).any(|held| Family::of(held.cidr) == family)
    }

    /// True for a Windows node that uses one block per family, the usual setting there (`windows_use_single_network`).
    /// False if the node holds several blocks, which shows another setting.
    pub(super) fn has_single_block(&self, node: &Node, family: Family) -> bool {
        let held = self.indexed.affinities_of(&AffinityType::Host, &node.name).map(|stored| &stored.value);
        let held = held.filter(|affinity| !affinity.deleted && Family::of(affinity.key.cidr) == family);
        node.is_windows() && held.take(2).count() < 2
    }

    /// The number of blocks of a family that a node may hold.
    pub fn block_limit(&self, node: &Node, family: Family) -> u32 {
        self.limit(self.has_single_block(node, family))
    }

    pub(super) fn limit(&self, single_block: bool) -> u32 {
        match (single_block, self.limit) {
            (true, _) => 1,
            (false, limit) => limit.unwrap_or(u32::MAX),
        }
    }

    /// The block limit to set in a request; 0 for the configured one.
    pub(super) fn most_blocks(&self, single_block: bool) -> u32 {
        match (single_block, self.limit) {
            (true, _) => 1,
            (false, None) => u32::MAX,
            (false, Some(_)) => 0,
        }
    }

    /// The number of blocks that the holder may still claim for requests that `pool` serves. Its blocks in other pools
    /// that can serve the same requests count, too. If requests must name `pool`, only blocks in `pool` count.
    pub fn claimable(&self, holder: Holder<'_>, pool: &Pool, wanted: PoolUse) -> u32 {
        let family = Family::of(pool.cidr);
        let single = holder.0.is_some_and(|node| self.has_single_block(node, family));
        let limit = self.limit(single);
        if limit == u32::MAX {
            return limit;
        }
        let by_name = !self.serves(pool, holder);
        let open = self.open[family as usize].iter().flatten().filter(|_| !by_name);
        let joins = open.filter(|open| {
            !open.is_special && open.pool.allows(wanted) && open.selector.selects(holder.labels())
        });
        let pools: Vec<IpNet> = joins.map(|open| open.pool.cidr).chain([pool.cidr]).collect();
        let counts =
            |held: &HeldBlock| held.counts && pools.iter().any(|pool| pool.contains(&held.cidr.network()));
        limit.saturating_sub(u32::try_from(self.held(holder).filter(counts).count()).unwrap_or(u32::MAX))
    }

    /// The number of blocks of the pool that the holder has claimed but not created yet.
    pub fn to_come(&self, holder: Holder<'_>, pool: &Pool) -> usize {
        self.held(holder).filter(|held| held.is_new && pool.cidr.contains(&held.cidr)).count()
    }

    /// The blocks of a holder, with or without an affinity. Includes affinities that cannot be decoded, but not those
    /// for a block of another holder or none, which Calico removes when it finds them.
    fn held<'a>(&'a self, holder: Holder<'a>) -> impl Iterator<Item = HeldBlock> {
        let (kind, name) = holder.key();
        let affinities = self.indexed.affinities_of(kind, name).map(|stored| &stored.value);
        let read = affinities.filter(|affinity| !affinity.deleted).map(|affinity| &affinity.key);
        let broken = self.unclear.get(&(kind, name)).into_iter().flatten().copied();
        let with_affinity = read.chain(broken).filter_map(|key| {
            let content = self.indexed.block(key.cidr).map(|block| &block.value.content);
            let content = content.filter(|content| !content.is_deleted());
            if let Some(BlockContent::Sound(block)) = content
                && !key.is_of(block.owner())
            {
                return None;
            }
            let is_new = content.is_none() && !self.indexed.hides_block(key.cidr);
            Some(HeldBlock { cidr: key.cidr, is_new, counts: true })
        });
        let without = self.odd.get(&(kind, name)).into_iter().flatten().map(|(cidr, block)| HeldBlock {
            cidr: *cidr,
            is_new: false,
            counts: block.is_some_and(|block| !self.current(block).free().is_empty()),
        });
        with_affinity.chain(without)
    }

    /// A block as an allocator sees it: addresses whose cooldown is over are free.
    fn current<'b>(&self, block: &'b Block) -> std::borrow::Cow<'b, Block> {
        block.without_cooled(self.indexed.snapshot.taken_at, self.config.cooldown())
    }
}
