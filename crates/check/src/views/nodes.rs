//! Nodes: what they hold, and how much more they may claim.

use std::collections::{BTreeMap, BTreeSet};

use calipam_model::cidr;
use calipam_model::snapshot::Snapshot;
use serde::Serialize;

use super::blocks::pool_of;
use crate::{Context, Options};

/// All nodes.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeList {
    /// The nodes, by name; those that own blocks or addresses without existing as well.
    pub nodes: Vec<NodeView>,
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeView {
    /// Its name in Calico.
    pub node: String,
    /// Whether there is such a node.
    pub exists: bool,
    /// Its tunnel addresses.
    pub tunnels: Vec<TunnelView>,
    /// Its blocks by pool and family.
    pub pools: Vec<NodePool>,
    /// Blocks in all.
    pub blocks: u32,
    /// Addresses that are held on it, wherever they lie.
    pub addresses: u32,
    /// Of these, addresses of blocks that are not its own.
    pub borrowed: u32,
    /// Addresses of its blocks that are held on other nodes.
    pub lent: u32,
    /// Free addresses of its blocks.
    pub free: u32,
}

/// A tunnel address.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TunnelView {
    /// The kind, as allocations record it.
    pub kind: &'static str,
    /// The address.
    pub address: String,
}

/// What a node holds of a pool.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodePool {
    /// The pool; `None` for blocks outside all pools.
    pub pool: Option<String>,
    /// `ipv4` or `ipv6`.
    pub family: &'static str,
    /// Blocks.
    pub blocks: u32,
    /// Most blocks that it may hold.
    pub limit: u32,
    /// Blocks that it may still claim.
    pub headroom: u32,
}

/// The nodes of a snapshot.
pub fn nodes(snapshot: &Snapshot) -> NodeList {
    let context = Context::new(snapshot, &Options::default());
    let limit = snapshot.effective_ipam_config().unwrap_or_default().block_limit();
    let mut nodes: BTreeMap<String, NodeView> = BTreeMap::new();
    for node in snapshot.nodes.iter().map(|n| &n.value) {
        let view = nodes.entry(node.name.clone()).or_default();
        let tunnels = node.tunnels.iter();
        view.tunnels.extend(
            tunnels
                .map(|(kind, address)| TunnelView { kind: kind.attribute(), address: address.to_string() }),
        );
    }
    let mut pools: BTreeMap<(String, Option<String>, bool), u32> = BTreeMap::new();
    for block in &context.index.blocks {
        let host = block.owner.and_then(|o| o.host());
        if let Some(host) = host {
            let place = (host.to_owned(), pool_of(&context, block.key), cidr::is_v4(block.key));
            *pools.entry(place).or_default() += 1;
            nodes.entry(host.to_owned()).or_default().blocks += 1;
        }
        let Some(sound) = block.sound else { continue };
        if let Some(host) = host {
            nodes.entry(host.to_owned()).or_default().free += sound.free().len() as u32;
        }
        for allocation in sound.allocations().filter(|a| !a.attribute.is_cooling()) {
            let Some(node) = allocation.attribute.get("node").map(|n| n.to_string()) else {
                // Old records name no node: the address counts for the owner of the block.
                if let Some(host) = host.filter(|_| !allocation.attribute.is_windows_reserved()) {
                    nodes.entry(host.to_owned()).or_default().addresses += 1;
                }
                continue;
            };
            let is_own = host == Some(node.as_str());
            let view = nodes.entry(node).or_default();
            view.addresses += 1;
            view.borrowed += u32::from(!is_own);
            if let Some(host) = host.filter(|_| !is_own) {
                nodes.entry(host.to_owned()).or_default().lent += 1;
            }
        }
    }
    for ((node, pool, v4), blocks) in pools {
        let family = if v4 { "ipv4" } else { "ipv6" };
        let headroom = limit.saturating_sub(blocks);
        nodes.entry(node).or_default().pools.push(NodePool { pool, family, blocks, limit, headroom });
    }
    let exists: BTreeSet<&String> = nodes.keys().filter(|name| context.index.node_exists(name)).collect();
    let exists: BTreeSet<String> = exists.into_iter().cloned().collect();
    let views =
        nodes.into_iter().map(|(node, view)| NodeView { exists: exists.contains(&node), node, ..view });
    NodeList { nodes: views.collect() }
}
