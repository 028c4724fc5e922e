//! Which pools serve a request (facts 3.4).

use std::collections::BTreeMap;
use std::net::IpAddr;

use calipam_model::IpNet;
use calipam_model::pool::{Pool, PoolUse};
use calipam_model::selector::Selector;

use crate::error::{Error, Result};
use crate::family::Family;
use crate::record::Record;
use crate::store::Entry;

/// The pools of an answer, by name. Those that cannot be decoded serve no one.
pub(crate) fn pools(found: Vec<Entry>) -> Vec<Pool> {
    let pool = |entry: Entry| match entry.record {
        Record::Pool(pool) => Some(pool),
        _ => None,
    };
    let mut pools: Vec<Pool> = found.into_iter().filter_map(pool).collect();
    pools.sort_by(|a, b| a.name.cmp(&b.name));
    pools
}

/// The first pool that contains an address.
pub(crate) fn pool_of(pools: &[Pool], address: IpAddr) -> Option<&Pool> {
    pools.iter().find(|pool| pool.cidr.contains(&address))
}

/// The first enabled pool that contains an address.
pub(crate) fn enabled_pool_of(pools: &[Pool], address: IpAddr) -> Option<&Pool> {
    pools.iter().find(|pool| pool.is_enabled() && pool.cidr.contains(&address))
}

/// Who asks for addresses of pools.
pub(crate) struct Asking<'a> {
    pub family: Family,
    pub host: &'a str,
    pub node_labels: &'a BTreeMap<String, String>,
    pub namespace_labels: Option<&'a BTreeMap<String, String>>,
    /// The pools that it wants; empty for those that select it.
    pub requested: &'a [IpNet],
    pub intended_use: PoolUse,
    pub windows: bool,
}

/// The pools that serve a request.
#[derive(Debug, PartialEq)]
pub(crate) struct Serving {
    /// Those that were asked for, or select node and namespace, whatever their addresses may be used for.
    pub selecting: Vec<Pool>,
    /// Those of them whose addresses may be used.
    pub usable: Vec<Pool>,
}

impl Asking<'_> {
    /// The pools that serve the request.
    pub fn serving(&self, pools: &[Pool]) -> Result<Serving> {
        let enabled: Vec<&Pool> =
            pools.iter().filter(|pool| pool.is_enabled() && Family::of(pool.cidr) == self.family).collect();
        let eligible: Vec<&Pool> =
            enabled.iter().copied().filter(|pool| pool.block_size <= self.longest_prefix()).collect();
        if eligible.is_empty() {
            return Err(Error::NoQualifiedPool);
        }

        let selecting: Vec<Pool> = if self.requested.is_empty() {
            // Calico does not look at block sizes here, either: see `a Windows host claims a block with no room`.
            let roomy = enabled.into_iter().filter(|pool| pool.block_size <= self.longest_possible_prefix());
            let selected =
                roomy.filter_map(|pool| self.is_selected(pool).map(|yes| yes.then_some(pool)).transpose());
            selected.map(|pool| pool.cloned()).collect::<Result<_>>()?
        } else {
            let wanted = |cidr: &IpNet| eligible.iter().copied().find(|pool| pool.cidr == cidr.trunc());
            let found =
                self.requested.iter().map(|cidr| wanted(cidr).ok_or(Error::PoolNotEnabled(cidr.trunc())));
            found.map(|pool| pool.cloned()).collect::<Result<_>>()?
        };
        if selecting.is_empty() {
            return Err(Error::NoPoolForNode(self.host.to_owned()));
        }

        let usable: Vec<Pool> =
            selecting.iter().filter(|pool| pool.allows(self.intended_use)).cloned().collect();
        if usable.is_empty() {
            return Err(Error::NoPoolForUse(self.intended_use));
        }
        Ok(Serving { selecting, usable })
    }

    fn is_selected(&self, pool: &Pool) -> Result<bool> {
        let none = BTreeMap::new();
        Ok(pool.automatic
            && selects(pool, &pool.node_selector, self.node_labels)?
            && selects(pool, &pool.namespace_selector, self.namespace_labels.unwrap_or(&none))?)
    }

    /// The longest prefix of blocks that leave room beside what Windows reserves.
    fn longest_prefix(&self) -> u8 {
        self.family.bits() - if self.windows { 3 } else { 0 }
    }

    /// The longest prefix of blocks that hold at least what Windows reserves.
    fn longest_possible_prefix(&self) -> u8 {
        self.family.bits() - if self.windows { 2 } else { 0 }
    }
}

/// True where the selector of a pool selects an object with these labels.
pub(crate) fn selects(pool: &Pool, selector: &str, labels: &BTreeMap<String, String>) -> Result<bool> {
    Ok(parse(pool, selector)?.matches(labels))
}

/// True where a pool selects every node, whatever its labels.
pub(crate) fn selects_every_node(pool: &Pool) -> Result<bool> {
    Ok(parse(pool, &pool.node_selector)?.selects_all())
}

fn parse(pool: &Pool, selector: &str) -> Result<Selector> {
    Selector::parse(selector).map_err(|reason| Error::Selector { pool: pool.name.clone(), reason })
}
