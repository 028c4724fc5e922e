//! The pools that serve a request (facts 3.4).

use std::collections::BTreeMap;
use std::net::IpAddr;

use calipam_model::IpNet;
use calipam_model::key::Key;
use calipam_model::node::Node;
use calipam_model::pool::{Pool, PoolUse};
use calipam_model::selector::SelectorError;
use calipam_model::snapshot::Versioned;

use crate::allocator::{self, Allocator};
use crate::error::{Error, Result};
use crate::event::{Event, PoolPassedOver, Trace};
use crate::family::Family;
use crate::store::{Entry, Query, Store};

/// The number of host bits of a block whose addresses are all reserved for Windows.
const WINDOWS_RESERVED_BITS: u8 = 2;

/// The pools in an answer, sorted by name, without those that cannot be decoded.
pub(crate) fn pools(entries: Vec<Entry>) -> Vec<Pool> {
    let mut pools = Vec::new();
    for entry in entries {
        let decoded: Option<Pool> = entry.record.into();
        pools.extend(decoded);
    }
    pools.sort_by(|a, b| a.name.cmp(&b.name));
    pools
}

impl<S: Store> Allocator<S> {
    /// Reads the pools, sorted by name.
    pub async fn pools(&self) -> Result<Vec<Pool>> {
        let [found] = self.read([Query::Pools]).await?;
        Ok(pools(found))
    }

    /// Reads the pools and the node that a request for its workloads needs.
    ///
    /// # Errors
    /// If the datastore has no such node, or the node or the configuration cannot be decoded: then every such request
    /// fails.
    pub async fn pools_for_node(&self, host: &str) -> Result<PoolsForNode> {
        let queries = [
            Query::Get(Key::IpamConfig),
            Query::Get(Key::Node(host.to_owned())),
            Query::Pools,
        ];
        let [config, node, found] = self.read(queries).await?;
        allocator::config(config)?;
        let node: Option<Versioned<Node>> = allocator::one(node)?;
        let node = node.ok_or_else(|| Error::NoNode(host.to_owned()))?.value;
        let pools = pools(found);
        Ok(PoolsForNode { pools, node })
    }
}

/// The pools, and a node whose workloads want addresses.
#[derive(Debug)]
pub struct PoolsForNode {
    pools: Vec<Pool>,
    node: Node,
}

impl PoolsForNode {
    /// All pools of the datastore, in the form that [`Allocator::pools`] returns.
    pub fn pools(&self) -> &[Pool] {
        &self.pools
    }

    /// Checks that a pool serves the node's workloads in some namespace.
    ///
    /// # Errors
    /// The reason why requests in all namespaces are refused. `requested` are the CIDRs of the pools that they name.
    pub fn check(&self, family: Family, requested: &[IpNet]) -> Result<()> {
        let request = PoolRequest {
            family,
            host: &self.node.name,
            node_labels: &self.node.labels,
            namespace: NamespaceOfRequest::Any,
            requested,
            intended_use: PoolUse::Workload,
            windows: false,
            is_calico: false,
        };
        request.serving(&self.pools, &Trace::default())?;
        Ok(())
    }
}

/// The first pool that contains an address.
pub(crate) fn pool_of(pools: &[Pool], address: IpAddr) -> Option<&Pool> {
    pools.iter().find(|pool| pool.cidr.contains(&address))
}

/// The first enabled pool that contains an address.
pub(crate) fn enabled_pool_of(pools: &[Pool], address: IpAddr) -> Option<&Pool> {
    pools
        .iter()
        .find(|pool| pool.is_enabled() && pool.cidr.contains(&address))
}

/// A request for the pools that serve a node.
pub(crate) struct PoolRequest<'a> {
    pub family: Family,
    pub host: &'a str,
    pub node_labels: &'a BTreeMap<String, String>,
    pub namespace: NamespaceOfRequest<'a>,
    /// The CIDRs of the requested pools. If empty, all pools that select the node and the namespace serve the request.
    pub requested: &'a [IpNet],
    pub intended_use: PoolUse,
    pub windows: bool,
    /// True if the request is answered as Calico does, which uses pools with impossible blocks.
    pub is_calico: bool,
}

/// The namespace of a request, to which the namespace selectors of pools apply.
pub(crate) enum NamespaceOfRequest<'a> {
    /// Every namespace selector that parses may select it.
    Any,
    /// The labels of the namespace. Without labels, only selectors that match no labels select it.
    Labelled(Option<&'a BTreeMap<String, String>>),
}

/// The pools that serve a request.
#[derive(Debug, PartialEq)]
pub(crate) struct ServingPools {
    /// The pools that were requested or, without such a request, select the node and the namespace, whatever their
    /// allowed uses.
    pub selecting: Vec<Pool>,
    /// The pools in [`Self::selecting`] that allow the intended use.
    pub usable: Vec<Pool>,
}

impl PoolRequest<'_> {
    /// Returns the pools that serve the request, and records why other pools are passed over.
    pub(crate) fn serving(&self, pools: &[Pool], trace: &Trace) -> Result<ServingPools> {
        let mut enabled = Vec::new();
        for pool in pools {
            match self.closed(pool) {
                Some(why) => pass_over(trace, pool, why),
                None => enabled.push(pool),
            }
        }
        // Blocks must have more addresses than are reserved for Windows.
        let fewest_host_bits = if self.windows {
            WINDOWS_RESERVED_BITS + 1
        } else {
            0
        };
        let longest = self.family.bits() - fewest_host_bits;
        let mut eligible = enabled.clone();
        eligible.retain(|pool| pool.block_size <= longest);
        if eligible.is_empty() {
            for pool in enabled {
                pass_over(trace, pool, PoolPassedOver::of_block_size(pool));
            }
            return Err(Error::NoQualifiedPool);
        }

        let selecting = if self.requested.is_empty() {
            self.selecting(&enabled, trace)?
        } else {
            self.requested(&enabled, &eligible, trace)?
        };
        if selecting.is_empty() {
            return Err(Error::NoPoolForNode(self.host.to_owned()));
        }
        let usable = self.usable(&selecting, trace);
        if usable.is_empty() {
            return Err(Error::NoPoolForUse(self.intended_use));
        }
        Ok(ServingPools { selecting, usable })
    }

    /// Returns the pools that select the node and the namespace.
    fn selecting(&self, enabled: &[&Pool], trace: &Trace) -> Result<Vec<Pool>> {
        let mut selecting = Vec::new();
        for pool in enabled {
            match self.unselected(pool)? {
                Some(why) => pass_over(trace, pool, why),
                None => selecting.push(Pool::clone(pool)),
            }
        }
        Ok(selecting)
    }

    /// Returns the requested pools, which must be among those with eligible blocks.
    fn requested(&self, enabled: &[&Pool], eligible: &[&Pool], trace: &Trace) -> Result<Vec<Pool>> {
        let mut found: Vec<Pool> = Vec::new();
        for cidr in self.requested {
            // If two pools have the same CIDR, Calico takes the last one.
            let pool = eligible.iter().rfind(|pool| pool.cidr == cidr.trunc());
            let pool = pool.ok_or(Error::PoolNotEnabled(cidr.trunc()))?;
            found.push(Pool::clone(pool));
        }

        // The trace names the pools that the request leaves out.
        for pool in enabled {
            if !found.iter().any(|other| other.name == pool.name) {
                pass_over(trace, pool, PoolPassedOver::NotRequested);
            }
        }
        Ok(found)
    }

    /// Returns the pools that allow the intended use.
    fn usable(&self, selecting: &[Pool], trace: &Trace) -> Vec<Pool> {
        let mut usable = Vec::new();
        for pool in selecting {
            if !pool.allows(self.intended_use) {
                pass_over(trace, pool, PoolPassedOver::Use(self.intended_use));
                continue;
            }
            trace.record(|| Event::PoolServes {
                pool: pool.name.clone(),
                cidr: pool.cidr,
            });
            usable.push(pool.clone());
        }
        usable
    }

    /// The reason why a pool cannot serve the request even if the request names the pool.
    fn closed(&self, pool: &Pool) -> Option<PoolPassedOver> {
        if Family::of(pool.cidr) != self.family {
            return Some(PoolPassedOver::OtherFamily);
        }
        PoolPassedOver::of_state(pool)
    }

    /// Returns the reason why an open pool does not serve the request if the request names no pool; `None` if it does.
    ///
    /// # Errors
    /// If a selector of the pool does not parse: Calico refuses the request then.
    fn unselected(&self, pool: &Pool) -> Result<Option<PoolPassedOver>> {
        // Like Calico, accepts blocks whose addresses are all reserved: see `windows` in `tests/traces/README.md`.
        let reserved_bits = if self.windows { WINDOWS_RESERVED_BITS } else { 0 };
        let crashes_calico = self.is_calico && (self.windows || pool.has_impossible_blocks());
        if pool.block_size > self.family.bits() - reserved_bits && !crashes_calico {
            return Ok(Some(PoolPassedOver::of_block_size(pool)));
        }
        if !pool.automatic {
            return Ok(Some(PoolPassedOver::Manual));
        }
        let broken = |reason| broken_selector(pool, reason);
        if !pool.selected_nodes().map_err(broken)?.matches(self.node_labels) {
            return Ok(Some(PoolPassedOver::NodeSelector(pool.node_selector.clone())));
        }
        let namespaces = pool.selected_namespaces().map_err(broken)?;
        let none = BTreeMap::new();
        let is_selected = match self.namespace {
            NamespaceOfRequest::Any => true,
            NamespaceOfRequest::Labelled(labels) => namespaces.matches(labels.unwrap_or(&none)),
        };
        if !is_selected {
            return Ok(Some(PoolPassedOver::NamespaceSelector(
                pool.namespace_selector.clone(),
            )));
        }
        Ok(None)
    }
}

fn pass_over(trace: &Trace, pool: &Pool, why: PoolPassedOver) {
    trace.record(|| Event::PoolPassedOver {
        pool: pool.name.clone(),
        cidr: pool.cidr,
        why,
    });
}

/// The error for a pool's selector that does not parse.
pub(crate) fn broken_selector(pool: &Pool, reason: SelectorError) -> Error {
    Error::Selector {
        pool: pool.name.clone(),
        reason,
    }
}
