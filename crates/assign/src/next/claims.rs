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
        let mut open_pools = self.open[Family::of(pool.cidr) as usize].iter().flatten();
        open_pools.any(|open| std::ptr::eq(open.pool, pool) && open.nodes.matches(holder.labels()))
    }

    /// True if the node has a block of the family, or is about to create one.
    pub fn holds_some(&self, node: &Node, family: Family) -> bool {
        let holder = Holder(Some(node));
        let is_of_family = |cidr: IpNet| Family::of(cidr) == family;
        if self.held(holder).any(is_of_family) {
            return true;
        }
        match self.without_affinity.get(&holder.key()) {
            Some(cidrs) => cidrs.iter().any(|cidr| is_of_family(*cidr)),
            None => false,
        }
    }

    /// True if the owner of a block has no affinity for it.
    pub(super) fn lacks_affinity(&self, owner: (&AffinityType, &str), block: IpNet) -> bool {
        self.without_affinity
            .get(&owner)
            .is_some_and(|blocks| blocks.binary_search(&block).is_ok())
    }

    /// True for a node that uses a single block per family (`windows_use_single_network`). If the setting is not known,
    /// assumes that Windows nodes use a single block, as is usual, except for one that already holds several blocks.
    pub(super) fn has_single_block(&self, node: &Node, family: Family) -> bool {
        if let Some(setting) = self.single_block {
            return setting;
        }
        if !node.is_windows() {
            return false;
        }
        let mut held_blocks = 0;
        for stored in self.indexed.affinities_of(&AffinityType::Host, &node.name) {
            let affinity = &stored.value;
            if !affinity.deleted && Family::of(affinity.key.cidr) == family {
                held_blocks += 1;
            }
        }
        held_blocks <= 1
    }

    /// The number of blocks of a family that a node may hold; `u32::MAX` for no limit.
    pub fn block_limit(&self, node: &Node, family: Family) -> u32 {
        self.limit(self.has_single_block(node, family))
    }

    /// The number of blocks of a family that a node may hold, if it uses a single block or not.
    pub(super) fn limit(&self, single_block: bool) -> u32 {
        if single_block {
            1
        } else {
            self.limit.unwrap_or(u32::MAX)
        }
    }

    /// The block limit to set in a request; 0 for the configured one.
    pub(super) fn most_blocks(&self, single_block: bool) -> u32 {
        if single_block {
            1
        } else if self.limit.is_some() {
            0
        } else {
            u32::MAX
        }
    }

    /// The number of blocks that the holder may still claim for requests that `pool` serves. The holder's blocks in
    /// other pools that can serve the same requests count towards its limit, too. If requests must name `pool`, only
    /// blocks in `pool` count. `u32::MAX` for no limit.
    pub(super) fn claimable_by(&self, holder: Holder<'_>, pool: &Pool, wanted: PoolUse) -> u32 {
        let family = Family::of(pool.cidr);
        let single_block = holder.0.is_some_and(|node| self.has_single_block(node, family));
        let limit = self.limit(single_block);
        if limit == u32::MAX {
            return limit;
        }

        let mut pools = vec![pool.cidr];
        if self.serves(pool, holder) {
            for open in self.open[family as usize].iter().flatten() {
                if !open.is_special && open.pool.allows(wanted) && open.nodes.matches(holder.labels()) {
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
