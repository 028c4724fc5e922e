//! How many addresses changed, by pool and by node.

use std::collections::BTreeMap;
use std::hash::Hash;
use std::net::IpAddr;

use calipam_check::Scope;
use calipam_model::IpNet;
use calipam_model::attributes::AttributeRef;
use calipam_model::block::{Block, BlockOwner};
use calipam_model::snapshot::Snapshot;
use calipam_model::text::TextRef;
use serde::Serialize;

use super::addresses::{AddressChangeKind, Held};
use crate::FastMap;

/// Allocated addresses before and after. What cools down or is reserved by Windows is not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Sum {
    pub before: usize,
    pub after: usize,
    pub assigned: usize,
    pub released: usize,
    /// Of another owner now, or assigned again to the same. If pool or node differ it counts in both.
    pub moved: usize,
}

/// The sum of a pool or node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NamedSum {
    /// Empty for addresses outside all pools, or of no known node.
    pub name: String,
    #[serde(flatten)]
    pub sum: Sum,
}

/// Sums in all, by pool and by node. Of pools and nodes, those of which an address differs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Sums {
    pub total: Sum,
    pub by_pool: Vec<NamedSum>,
    pub by_node: Vec<NamedSum>,
}

/// An allocated address on one side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'s> {
    pub held: Held<'s>,
    pub pool: Option<&'s str>,
}

/// The node that holds an address: the one that the record names, else the owner of the block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum NodeName<'s> {
    Recorded(TextRef<'s>),
    Host(&'s str),
    Unknown,
}

impl<'s> NodeName<'s> {
    pub(crate) fn of(record: &AttributeRef<'s>, block: &'s Block) -> Self {
        let host = || block.owner().and_then(BlockOwner::host).map_or(Self::Unknown, Self::Host);
        record.get("node").filter(|node| !node.is_empty()).map_or_else(host, Self::Recorded)
    }

    pub(crate) fn is_in(self, scope: &Scope) -> bool {
        scope.nodes.is_empty() || self != Self::Unknown && scope.nodes.contains(&self.text())
    }

    pub(crate) fn text(self) -> String {
        match self {
            Self::Recorded(name) => name.to_string(),
            Self::Host(name) => name.to_owned(),
            Self::Unknown => String::new(),
        }
    }
}

/// Sums that are being counted.
#[derive(Debug, Default)]
pub(crate) struct Tally<'s> {
    /// The one sum of all.
    total: FastMap<(), Sum>,
    pools: FastMap<&'s str, Sum>,
    nodes: FastMap<NodeName<'s>, Sum>,
    /// The last addresses without a change: their pool, their node, and how many follow each other.
    same: Option<(&'s str, NodeName<'s>, usize)>,
}

impl<'s> Tally<'s> {
    /// Counts an address that is allocated on both sides without a change.
    pub(super) fn both(&mut self, node: NodeName<'s>, pool: Option<&'s str>) {
        let pool = pool.unwrap_or_default();
        match &mut self.same {
            Some((last_pool, last_node, number)) if *last_node == node && *last_pool == pool => *number += 1,
            _ => {
                self.count_same();
                self.same = Some((pool, node, 1));
            }
        }
    }

    fn count_same(&mut self) {
        let Some((pool, node, number)) = self.same.take() else { return };
        let total = self.total.entry(()).or_default();
        for sum in [total, self.pools.entry(pool).or_default(), self.nodes.entry(node).or_default()] {
            sum.before += number;
            sum.after += number;
        }
    }

    /// Counts an address that is allocated on one side or both.
    pub(super) fn change(
        &mut self,
        kind: Option<AddressChangeKind>,
        before: Option<Part<'s>>,
        after: Option<Part<'s>>,
    ) {
        let pool = |part: Part<'s>| part.pool.unwrap_or_default();
        let node = |part: Part<'s>| part.held.node_name();
        count(&mut self.total, before.map(drop), after.map(drop), kind);
        count(&mut self.pools, before.map(pool), after.map(pool), kind);
        count(&mut self.nodes, before.map(node), after.map(node), kind);
    }

    pub(super) fn finish(mut self) -> Sums {
        self.count_same();
        let mut pools = BTreeMap::new();
        self.pools.into_iter().for_each(|(name, sum)| add(pools.entry(name.to_owned()).or_default(), sum));
        let mut nodes = BTreeMap::new();
        self.nodes.into_iter().for_each(|(name, sum)| add(nodes.entry(name.text()).or_default(), sum));
        Sums {
            total: self.total.into_values().next().unwrap_or_default(),
            by_pool: changed(pools),
            by_node: changed(nodes),
        }
    }
}

/// Counts under the names of both sides.
fn count<N: Copy + Eq + Hash>(
    sums: &mut FastMap<N, Sum>,
    before: Option<N>,
    after: Option<N>,
    kind: Option<AddressChangeKind>,
) {
    use AddressChangeKind::{Assigned, Moved, Released, Renewed};
    let moved = usize::from(matches!(kind, Some(Moved | Renewed)));
    if let Some(name) = before {
        let sum = sums.entry(name).or_default();
        sum.before += 1;
        sum.released += usize::from(kind == Some(Released));
        sum.moved += moved;
    }
    if let Some(name) = after {
        let sum = sums.entry(name).or_default();
        sum.after += 1;
        sum.assigned += usize::from(kind == Some(Assigned));
        sum.moved += if before == after { 0 } else { moved };
    }
}

fn add(to: &mut Sum, sum: Sum) {
    to.before += sum.before;
    to.after += sum.after;
    to.assigned += sum.assigned;
    to.released += sum.released;
    to.moved += sum.moved;
}

fn changed(sums: BTreeMap<String, Sum>) -> Vec<NamedSum> {
    let differs = |sum: &Sum| sum.assigned + sum.released + sum.moved > 0;
    let differing = sums.into_iter().filter(|(_, sum)| differs(sum));
    differing.map(|(name, sum)| NamedSum { name, sum }).collect()
}

/// The pools of one side.
pub(crate) struct Pools<'s> {
    /// The smallest first.
    pools: Vec<(IpNet, &'s str)>,
    /// The last block, and its pool where one contains all of it.
    last: Option<(IpNet, Option<&'s str>)>,
}

impl<'s> Pools<'s> {
    pub(super) fn new(snapshot: &'s Snapshot) -> Self {
        let mut pools: Vec<(IpNet, &'s str)> =
            snapshot.pools.iter().map(|pool| (pool.value.cidr, pool.value.name.as_str())).collect();
        pools.sort_by_key(|(cidr, name)| (std::cmp::Reverse(cidr.prefix_len()), *name));
        Self { pools, last: None }
    }

    /// The smallest pool around an address of a block.
    pub(super) fn of(&mut self, address: IpAddr, block: IpNet) -> Option<&'s str> {
        match self.last {
            Some((last, pool)) if last == block => pool,
            _ => {
                let around = |cidr: IpNet| self.pools.iter().find(|(pool, _)| pool.contains(&cidr));
                let splits = self.pools.iter().any(|(pool, _)| *pool != block && block.contains(pool));
                if splits {
                    return around(address.into()).map(|(_, name)| *name);
                }
                let pool = around(block).map(|(_, name)| *name);
                self.last = Some((block, pool));
                pool
            }
        }
    }
}
