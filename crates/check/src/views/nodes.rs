//! Nodes, with their addresses and the blocks that they can still claim.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;

use calipam_assign::{Family, Outlook, Reason};
use calipam_model::block::BlockOwner;
use calipam_model::plugin::Plugin;
use calipam_model::snapshot::Snapshot;
use jiff::Timestamp;
use serde::Serialize;

use super::blocks::pool_of;
use crate::answers::{Answers, Judge};
use crate::code::Severity;
use crate::index::IndexedBlock;
use crate::{Context, Options};

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeList {
    /// The nodes by name, including missing ones that own blocks or addresses.
    pub nodes: Vec<NodeView>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeView {
    /// The node's name in Calico.
    pub node: String,
    /// True if the node exists.
    pub exists: bool,
    pub plugin: NodePlugin,
    pub tunnels: Vec<TunnelView>,
    /// The node's blocks by pool and family, with the number of blocks that it can still claim. Pools that serve the
    /// node automatically are listed even if it has no block in them.
    pub pools: Vec<NodePool>,
    pub blocks: u32,
    /// The number of addresses that the node holds in any block.
    pub addresses: u32,
    /// The number of addresses that the node holds in blocks that it does not own, as in the list of borrowed
    /// addresses.
    pub borrowed: u32,
    /// The number of addresses in the node's blocks that other nodes hold.
    pub borrowed_by_others: u32,
    /// The number of free addresses in the node's blocks.
    pub free: u32,
    /// The families of the node's blocks, and those for which its next pod asks.
    pub families: Vec<NodeFamily>,
}

/// A node's CNI plugin.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodePlugin {
    /// The plugin that an installer has named in the node's annotation.
    pub installed: Option<String>,
    /// The plugin that assigned the node's newest address; `None` if no record has a time.
    pub assigned_by: Option<Plugin>,
    /// The time at which the node's newest address was assigned.
    pub assigned_at: Option<Timestamp>,
}

impl NodePlugin {
    /// Notes an assignment, if it is the newest.
    fn note(&mut self, (time, plugin): (Timestamp, Plugin)) {
        if self.assigned_at.is_none_or(|newest| newest < time) {
            self.assigned_by = Some(plugin);
            self.assigned_at = Some(time);
        }
    }
}

/// A node's free addresses in one family, and whether its next pod gets an address.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeFamily {
    /// `ipv4` or `ipv6`.
    pub family: &'static str,
    /// The number of free addresses in the node's blocks.
    pub free: u32,
    /// True if the node's next pod gets no address; `None` if that is not known.
    pub without_address: Option<bool>,
    /// The reason why the node's next pod gets no address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// True if the node may be meant to get no address: a check reports it as information.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub may_be_intended: bool,
}

/// A tunnel address.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TunnelView {
    /// The kind, as in allocation records.
    pub kind: &'static str,
    pub address: IpAddr,
}

/// A node's blocks in one pool.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodePool {
    /// The pool; `None` for blocks outside all pools.
    pub pool: Option<String>,
    /// `ipv4` or `ipv6`.
    pub family: &'static str,
    pub blocks: u32,
    /// The maximum number of blocks that the node may hold; `None` if there is no limit, as in Calico before 3.19. The
    /// limit applies to the blocks in all pools of a family that one request can use, so blocks in one pool lower
    /// `claimable` in the other pools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// The number of blocks that the node may still claim from this pool; `None` if it is not known. 0 if the pool does
    /// not serve the node, if automatic allocation of blocks is off, or if the node does not exist.
    pub claimable: Option<u32>,
}

pub fn nodes(snapshot: &Snapshot) -> NodeList {
    let context = Context::new(snapshot, &Options::default());
    let mut nodes: BTreeMap<String, NodeView> = BTreeMap::new();
    for node in snapshot.nodes.iter().map(|stored| &stored.value) {
        let view = nodes.entry(node.name.clone()).or_default();
        view.plugin.installed.clone_from(&node.plugin);
        let tunnels = node.tunnels.iter();
        view.tunnels.extend(tunnels.map(|(kind, address)| TunnelView {
            kind: kind.attribute(),
            address: *address,
        }));
    }
    let mut rows = Rows::new();
    for block in &context.index.blocks {
        add_block(&mut nodes, block);
        if let Some(host) = block.host() {
            let key = (
                host.to_owned(),
                pool_of(&context, block.key),
                Family::of(block.key),
            );
            let row = rows.entry(key).or_default();
            row.blocks += 1;
            row.free += block.current().map_or(0, |sound| sound.free().len() as u32);
        }
    }
    let judge = Answers::new(&context).map(Judge::new);
    // Without the configuration, no limit is known.
    let is_limit_known = snapshot.effective_ipam_config().is_some();
    let outlook = judge
        .as_ref()
        .filter(|_| is_limit_known)
        .map(|judge| &judge.answers.outlook);
    if let Some(outlook) = outlook {
        add_claimable(snapshot, outlook, &mut rows);
    }
    add_rows(&context, outlook, rows, &mut nodes);
    for (name, view) in &mut nodes {
        view.node.clone_from(name);
        view.exists = context.index.node_exists(name);
    }
    add_outlook(&context, judge.as_ref(), &mut nodes);
    for view in nodes.values_mut() {
        view.families.sort_unstable_by_key(|of_node| of_node.family);
    }
    NodeList {
        nodes: nodes.into_values().collect(),
    }
}

impl NodeFamily {
    fn refuse(&mut self, reason: &Reason, may_be_intended: bool) {
        self.without_address = Some(true);
        self.reason = Some(reason.to_string());
        self.may_be_intended = may_be_intended;
    }
}

impl NodeView {
    /// True if the node's next pod gets no address of a family, and that cannot be intended.
    pub fn is_without_address(&self) -> bool {
        let mut families = self.families.iter();
        families.any(|of_node| of_node.without_address == Some(true) && !of_node.may_be_intended)
    }

    /// Returns a family's part of the node, to be changed. Adds an empty part if the node has none yet.
    fn family(&mut self, family: Family) -> &mut NodeFamily {
        let name = family.name();
        let mut families = self.families.iter();
        if let Some(position) = families.position(|of_node| of_node.family == name) {
            return &mut self.families[position];
        }
        self.families.push(NodeFamily {
            family: name,
            free: 0,
            without_address: None,
            reason: None,
            may_be_intended: false,
        });
        let last = self.families.len() - 1;
        &mut self.families[last]
    }
}

/// Sets for every node whether its next pod gets an address of each family that it asks for. A node that does not exist
/// needs none.
fn add_outlook(context: &Context<'_>, judge: Option<&Judge<'_, '_>>, nodes: &mut BTreeMap<String, NodeView>) {
    let cluster_refusal = judge.and_then(|judge| judge.answers.outlook.cluster_refusal());
    let refusals = judge.map(|judge| judge.nodes().refusals).unwrap_or_default();
    let mut intended: HashSet<(&str, Family)> = HashSet::new();
    for refusal in &refusals {
        if refusal.severity == Severity::Info {
            intended.insert((&refusal.node.name, refusal.family));
        }
    }
    let serves_pods = context.serves_pods();

    for (name, view) in nodes {
        let node = context.index.node(name);
        if !view.exists || node.is_some_and(|node| node.is_virtual_kubelet()) {
            for of_node in &mut view.families {
                of_node.without_address = Some(false);
            }
            continue;
        }
        let (Some(judge), Some(node)) = (judge, node) else {
            continue;
        };
        let kind = judge.answers.next_kind(&judge.kinds, node);
        let refusals_of_next = judge.answers.refusals_of_kind(&kind, node);
        let mut asked_families = Family::BOTH.to_vec();
        asked_families.retain(|family| kind.families[*family as usize]);
        for family in &asked_families {
            let of_node = view.family(*family);
            of_node.without_address = if refusals_of_next.is_ok() {
                Some(false)
            } else {
                None
            };
        }
        for (family, refused) in refusals_of_next.into_iter().flatten() {
            let may_be_intended = !serves_pods || intended.contains(&(name.as_str(), family));
            view.family(family).refuse(&refused.reason, may_be_intended);
        }
        if let Some(refused) = &cluster_refusal {
            for family in asked_families {
                let may_be_intended = false;
                view.family(family).refuse(&refused.reason, may_be_intended);
            }
        }
    }
}

/// Rows by node, pool and family.
type Rows = BTreeMap<(String, Option<String>, Family), Row>;

#[derive(Default)]
struct Row {
    blocks: u32,
    claimable: u32,
    free: u32,
}

/// Adds a block's addresses to the counts of the nodes that hold them, and to the owner those that others have
/// borrowed.
fn add_block(nodes: &mut BTreeMap<String, NodeView>, block: &IndexedBlock<'_>) {
    let host = block.host();
    let mut own = NodeView::default();
    if let Some(sound) = block.current() {
        for record in sound.allocations().map(|allocation| allocation.attribute) {
            if record.is_cooling() || record.is_windows_reserved() {
                continue;
            }
            // Old records name no node, so the block's owner counts as the holder.
            let other_holder = record
                .get("node")
                .filter(|node| host.is_none_or(|host| *node != *host));
            let holder = match other_holder {
                Some(node) => {
                    own.borrowed_by_others += 1;
                    let borrower = nodes.entry(node.to_string()).or_default();
                    // A block of services has no node as its owner, from which another could borrow.
                    if !matches!(block.owner, Some(BlockOwner::Virtual(_))) {
                        borrower.borrowed += 1;
                    }
                    borrower
                }
                None => &mut own,
            };
            holder.addresses += 1;
            if let Some(assignment) = Plugin::of(record) {
                holder.plugin.note(assignment);
            }
        }
    }
    if let Some(host) = host {
        let owner = nodes.entry(host.to_owned()).or_default();
        owner.borrowed_by_others += own.borrowed_by_others;
        owner.addresses += own.addresses;
        if let Some(assignment) = own.plugin.assigned_at.zip(own.plugin.assigned_by) {
            owner.plugin.note(assignment);
        }
    }
}

/// Adds each node's blocks and free addresses, by pool and family, with the limit and the number of blocks that it may
/// still claim. The latter is not known without `outlook`.
fn add_rows(
    context: &Context<'_>,
    outlook: Option<&Outlook<'_>>,
    rows: Rows,
    nodes: &mut BTreeMap<String, NodeView>,
) {
    for ((name, pool, family), row) in rows {
        let mut limit = context.snapshot.block_limit();
        if let Some(outlook) = outlook
            && let Some(node) = context.index.node(&name)
        {
            let limit_of_node = outlook.block_limit(node, family);
            if limit_of_node != u32::MAX {
                limit = Some(limit_of_node);
            }
        }
        let claimable = outlook.map(|_| row.claimable);
        let node = nodes.entry(name).or_default();
        node.blocks += row.blocks;
        node.free += row.free;
        node.pools.push(NodePool {
            pool,
            family: family.name(),
            blocks: row.blocks,
            limit,
            claimable,
        });
        node.family(family).free += row.free;
    }
}

/// Adds the number of blocks that each node may claim from each pool.
fn add_claimable(snapshot: &Snapshot, outlook: &Outlook<'_>, rows: &mut Rows) {
    for pool in snapshot.pools.iter().map(|stored| &stored.value) {
        for (node, claimable) in outlook.claimable(pool) {
            let key = (node.to_owned(), Some(pool.name.clone()), Family::of(pool.cidr));
            // A manual pool serves only requests that name it, so it is not shown for every node.
            if pool.automatic {
                rows.entry(key).or_default().claimable = claimable;
            } else if let Some(row) = rows.get_mut(&key) {
                row.claimable = claimable;
            }
        }
    }
}
