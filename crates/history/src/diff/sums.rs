//! The numbers of allocated and of changed addresses: in total, by pool and by node.

use std::collections::BTreeMap;
use std::net::IpAddr;

use calipam_model::IpNet;
use calipam_model::snapshot::Snapshot;
use serde::Serialize;

use crate::FastMap;
use crate::block_change::{Change, NodeName};

/// Numbers of addresses that were allocated before and after, and numbers of changed addresses. Addresses that are
/// cooling down or reserved for Windows are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Sum {
    pub before: usize,
    pub after: usize,
    pub assigned: usize,
    pub released: usize,
    /// Addresses that moved to another owner, or were assigned again. If the pool or node of an address has changed,
    /// the address counts for both the old and the new one.
    pub moved: usize,
}

/// The sum of a pool or node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NamedSum {
    /// The name of the pool or node; empty for addresses outside all pools, or on an unknown node.
    pub name: String,
    #[serde(flatten)]
    pub sum: Sum,
}

/// The total sum, and the sums of pools and nodes with changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Sums {
    pub total: Sum,
    pub by_pool: Vec<NamedSum>,
    pub by_node: Vec<NamedSum>,
}

/// The sums of the addresses that were counted so far.
#[derive(Debug, Default)]
pub(crate) struct Tally<'s> {
    total: Sum,
    pools: FastMap<&'s str, Sum>,
    nodes: FastMap<NodeName<'s>, Sum>,
}

/// The node and pool of an allocated address.
type Place<'s> = (NodeName<'s>, &'s str);

impl<'s> Tally<'s> {
    /// Counts an address. `before` and `after` are its node and pool in the old and the new snapshot, or `None` if it
    /// is not allocated there.
    pub(super) fn count(
        &mut self,
        change: Option<Change>,
        before: Option<Place<'s>>,
        after: Option<Place<'s>>,
    ) {
        use Change::{Assigned, Moved, Released, Renewed};
        let is_move = matches!(change, Some(Moved | Renewed));
        let Self { total, pools, nodes } = self;
        if let Some((node, pool)) = before {
            for sum in [
                &mut *total,
                nodes.entry(node).or_default(),
                pools.entry(pool).or_default(),
            ] {
                sum.before += 1;
                if change == Some(Released) {
                    sum.released += 1;
                }
                if is_move {
                    sum.moved += 1;
                }
            }
        }
        if let Some((node, pool)) = after {
            // The sums in which the move was counted above.
            let has_counted_move = match before {
                Some((old_node, old_pool)) => [true, is_same(old_node, node), old_pool == pool],
                None => [false; 3],
            };
            let sums = [
                total,
                nodes.entry(node).or_default(),
                pools.entry(pool).or_default(),
            ];
            for (sum, has_counted_move) in sums.into_iter().zip(has_counted_move) {
                sum.after += 1;
                if change == Some(Assigned) {
                    sum.assigned += 1;
                }
                if is_move && !has_counted_move {
                    sum.moved += 1;
                }
            }
        }
    }

    pub(super) fn finish(self) -> Sums {
        Sums {
            total: self.total,
            by_pool: sums_with_changes(self.pools, str::to_owned),
            by_node: sums_with_changes(self.nodes, NodeName::text),
        }
    }
}

/// True for one node. The same node can occur as both `Recorded` and `Host`.
fn is_same(one: NodeName<'_>, other: NodeName<'_>) -> bool {
    one == other || one.text() == other.text()
}

/// Returns the sums with changes, by name. Sums whose names have the same text are added up.
fn sums_with_changes<N>(sums: FastMap<N, Sum>, text: impl Fn(N) -> String) -> Vec<NamedSum> {
    let mut by_name: BTreeMap<String, Sum> = BTreeMap::new();
    for (name, sum) in sums {
        let total = by_name.entry(text(name)).or_default();
        total.before += sum.before;
        total.after += sum.after;
        total.assigned += sum.assigned;
        total.released += sum.released;
        total.moved += sum.moved;
    }

    let mut named = Vec::new();
    for (name, sum) in by_name {
        if sum.assigned + sum.released + sum.moved > 0 {
            named.push(NamedSum { name, sum });
        }
    }
    named
}

/// The pools of the old or the new snapshot.
pub(crate) struct Pools<'s> {
    /// The pools, the smallest first.
    pools: Vec<(IpNet, &'s str)>,
    /// The block of the last lookup, and the pool that contains all of it, if there is one.
    last: Option<(IpNet, Option<&'s str>)>,
}

impl<'s> Pools<'s> {
    /// Sorts the pools, the smallest first.
    pub(super) fn new(snapshot: &'s Snapshot) -> Self {
        let mut pools: Vec<(IpNet, &'s str)> = snapshot
            .pools
            .iter()
            .map(|pool| (pool.value.cidr, pool.value.name.as_str()))
            .collect();
        pools.sort_by_key(|(cidr, name)| (std::cmp::Reverse(cidr.prefix_len()), *name));
        Self { pools, last: None }
    }

    /// Returns the name of the smallest pool that contains `address`, which is in `block`; `None` if no pool does. The
    /// answer is kept for the other addresses of the block.
    pub(super) fn pool_of(&mut self, address: IpAddr, block: IpNet) -> Option<&'s str> {
        if let Some((last_block, pool)) = self.last
            && last_block == block
        {
            return pool;
        }
        let pool_around = |cidr: IpNet| {
            let pool = self.pools.iter().find(|(pool, _)| pool.contains(&cidr));
            pool.map(|(_, name)| *name)
        };
        // If a pool is smaller than the block, addresses of the block are in different pools.
        let mut pools = self.pools.iter();
        if pools.any(|(pool, _)| *pool != block && block.contains(pool)) {
            return pool_around(address.into());
        }

        let pool = pool_around(block);
        self.last = Some((block, pool));
        pool
    }
}
