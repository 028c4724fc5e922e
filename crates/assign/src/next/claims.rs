//! The blocks that nodes and the virtual owner of LoadBalancer addresses may still claim.

use std::collections::BTreeMap;

use calipam_model::IpNet;
use calipam_model::affinity::{AffinityKey, AffinityType, LOAD_BALANCER};
use calipam_model::block::{BlockContent, BlockOwner};
use calipam_model::node::Node;
use calipam_model::pool::{Pool, PoolUse};

use super::Outlook;
use crate::family::Family;

static HOST: AffinityType = AffinityType::Host;
static VIRTUAL: AffinityType = AffinityType::Virtual;
static NO_LABELS: BTreeMap<String, String> = BTreeMap::new();

/// The limit of a node's blocks of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum BlockLimit {
    /// The node uses a single block (`windows_use_single_network`).
    SingleBlock,
    /// The limit in Calico's configuration, if it has one.
    Configured,
}

/// A holder of automatically assigned addresses: a node, or `None` for the virtual owner.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holder<'s>(Option<&'s Node>);

impl<'s> Holder<'s> {
    pub(super) fn key(self) -> (&'static AffinityType, &'s str) {
        match self.0 {
            Some(node) => (&HOST, &node.name),
            None => (&VIRTUAL, LOAD_BALANCER),
        }
    }

    /// The name of the node, or [`LOAD_BALANCER`].
    pub(super) fn name(self) -> &'s str {
        self.key().1
    }

    /// True for a Windows node.
    pub(super) fn is_windows(self) -> bool {
        self.0.is_some_and(Node::is_windows)
    }

    /// The labels to which node selectors are applied. The virtual owner has none.
    fn labels(self) -> &'s BTreeMap<String, String> {
        self.0.map_or(&NO_LABELS, |node| &node.labels)
    }
}

/// The type and name of the holder that owns a block; `None` if the owner is neither a node nor virtual.
pub(super) fn key_of_owner(owner: &BlockOwner) -> Option<(&'static AffinityType, &str)> {
    match owner {
        BlockOwner::Host(name) => Some((&HOST, name)),
        BlockOwner::Virtual(name) => Some((&VIRTUAL, name)),
        BlockOwner::Other(_) => None,
    }
}

impl<'s> Outlook<'s> {
    /// Returns the holders that get addresses for a use.
    pub(super) fn holders(&self, wanted: PoolUse) -> Vec<Holder<'s>> {
        if wanted == PoolUse::LoadBalancer {
            return vec![Holder(None)];
        }
        self.indexed
            .snapshot
            .nodes
            .iter()
            .map(|stored| Holder(Some(&stored.value)))
            .collect()
    }

    /// True if this pool can serve the holder's requests that name no pool.
    pub(super) fn serves(&self, pool: &Pool, holder: Holder<'_>) -> bool {
        let mut open_pools = self.open_pools[Family::of(pool.cidr) as usize].iter().flatten();
        open_pools.any(|open| std::ptr::eq(open.pool, pool) && open.nodes.matches(holder.labels()))
    }

    /// True if the node has a block of the family, or is about to create one.
    pub fn holds_some(&self, node: &Node, family: Family) -> bool {
        let holder = Holder(Some(node));
        let is_of_family = |cidr: IpNet| Family::of(cidr) == family;
        if self.held(holder).any(is_of_family) {
            return true;
        }
        match self.blocks_lacking_affinity.get(&holder.key()) {
            Some(cidrs) => cidrs.iter().any(|cidr| is_of_family(*cidr)),
            None => false,
        }
    }

    /// True if the owner of a block has no affinity for it.
    pub(super) fn lacks_affinity(&self, owner: (&AffinityType, &str), block: IpNet) -> bool {
        self.blocks_lacking_affinity
            .get(&owner)
            .is_some_and(|blocks| blocks.binary_search(&block).is_ok())
    }

    /// Returns the limit of a node's blocks of a family. If it is not known whether nodes use a single block, assumes
    /// that Windows nodes do, as is usual, except for one that already holds several blocks.
    pub(super) fn limit_of_node(&self, node: &Node, family: Family) -> BlockLimit {
        if let Some(uses_single_block) = self.uses_single_block {
            return if uses_single_block {
                BlockLimit::SingleBlock
            } else {
                BlockLimit::Configured
            };
        }
        if !node.is_windows() {
            return BlockLimit::Configured;
        }

        let mut held_blocks = 0;
        for stored in self.indexed.affinities_of(&AffinityType::Host, &node.name) {
            let affinity = &stored.value;
            if !affinity.deleted && Family::of(affinity.key.cidr) == family {
                held_blocks += 1;
            }
        }
        if held_blocks <= 1 {
            BlockLimit::SingleBlock
        } else {
            BlockLimit::Configured
        }
    }

    /// The number of blocks of a family that a node may hold; `u32::MAX` for no limit.
    pub fn block_limit(&self, node: &Node, family: Family) -> u32 {
        self.most_blocks(self.limit_of_node(node, family))
    }

    /// The number of blocks that a limit allows; `u32::MAX` for no limit.
    pub(super) fn most_blocks(&self, limit: BlockLimit) -> u32 {
        match limit {
            BlockLimit::SingleBlock => 1,
            BlockLimit::Configured => self.configured_limit.unwrap_or(u32::MAX),
        }
    }

    /// The `max_blocks_per_host` of a request; 0 for the configured number.
    pub(super) fn max_blocks_per_host(&self, limit: BlockLimit) -> u32 {
        match limit {
            BlockLimit::SingleBlock => 1,
            BlockLimit::Configured if self.configured_limit.is_some() => 0,
            BlockLimit::Configured => u32::MAX,
        }
    }

    /// The number of blocks that the holder may still claim for requests that `pool` serves. The holder's blocks in
    /// other pools that can serve the same requests count towards its limit, too. If requests must name `pool`, only
    /// blocks in `pool` count. `u32::MAX` for no limit.
    pub(super) fn claimable_by(&self, holder: Holder<'_>, pool: &Pool, wanted: PoolUse) -> u32 {
        let family = Family::of(pool.cidr);
        let limit = match holder.0 {
            Some(node) => self.block_limit(node, family),
            None => self.most_blocks(BlockLimit::Configured),
        };
        if limit == u32::MAX {
            return limit;
        }

        let mut pools = vec![pool.cidr];
        if self.serves(pool, holder) {
            for open in self.open_pools[family as usize].iter().flatten() {
                if !open.needs_labels && open.pool.allows(wanted) && open.nodes.matches(holder.labels()) {
                    pools.push(open.pool.cidr);
                }
            }
        }
        let is_counted = |block: &IpNet| pools.iter().any(|pool| pool.contains(&block.network()));
        let held = self.held(holder).filter(is_counted).count();
        limit.saturating_sub(u32::try_from(held).unwrap_or(u32::MAX))
    }

    /// The blocks for which a holder has an affinity, even one that cannot be decoded. Leaves out a block that belongs
    /// to another holder or to none. Calico removes the affinity for such a block when it finds it.
    pub(super) fn held<'a>(&'a self, holder: Holder<'a>) -> impl Iterator<Item = IpNet> {
        let (kind, name) = holder.key();
        let listed = self
            .indexed
            .affinities_of(kind, name)
            .filter(|stored| self.is_listed(stored) && !stored.value.deleted);
        let decoded_keys = listed.map(|stored| &stored.value.key);

        let undecodable = self.undecodable_affinities.get(&(kind, name));
        let undecodable_keys = undecodable.into_iter().flatten().copied();
        decoded_keys
            .chain(undecodable_keys)
            .filter(|key| self.can_be_of_holder(key))
            .map(|key| key.cidr)
    }

    /// False if the block of an affinity belongs to another holder or to none.
    fn can_be_of_holder(&self, key: &AffinityKey) -> bool {
        match self.indexed.block(key.cidr).map(|stored| &stored.value.content) {
            Some(BlockContent::Sound(block)) if !block.is_deleted() => key.is_of(block.owner()),
            _ => true,
        }
    }
}
