//! The output of `show` for nodes, borrowed addresses, and the configuration.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use calipam_check::views::{
    AddressList, BorrowedAddress, BorrowedList, ConfigurationView, HeldAddress, NamespaceList, NamespaceView,
    NodeFamily, NodeList, NodePlugin, NodeView, Setting,
};
use calipam_model::plugin::Plugin;

use super::View;
use crate::render::column::{left, right};
use crate::render::output::Text;
use crate::render::text::{count, dash, or_dash, thousands};

impl View for NodeList {
    const KIND: &'static str = "NodeList";
    const NAME: &'static str = "node";

    fn names(&self) -> impl Iterator<Item = String> {
        self.nodes.iter().map(|node| node.node.clone())
    }

    /// Writes a table of nodes.
    fn text(&self, text: &mut Text) {
        // A list by pool can be long.
        let claimable = if text.page.wide {
            claimable_by_pool
        } else {
            claimable_by_family
        };
        let columns = vec![
            left("NODE", name_of_node),
            right("BLOCKS", |node: &NodeView| thousands(node.blocks)),
            right("ADDRESSES", |node: &NodeView| thousands(node.addresses)),
            right("BORROWED", |node: &NodeView| thousands(node.borrowed)).hidden(2),
            right("BORROWED BY OTHERS", |node: &NodeView| {
                thousands(node.borrowed_by_others)
            })
            .hidden(1),
            left("FREE", |node: &NodeView| dash(Some(free_by_family(node)))),
            left("CLAIMABLE BLOCKS", move |node: &NodeView| {
                dash(Some(claimable(node)))
            })
            .hidden(3),
            left("NO ADDRESS", |node: &NodeView| dash(Some(without_address(node)))),
            left("PLUGIN", |node: &NodeView| dash(Some(plugin(&node.plugin)))).wide(),
            left("TUNNELS", |node: &NodeView| dash(Some(tunnels(node)))).wide(),
        ];
        text.table(&self.nodes, columns);
    }
}

/// Formats the name of a node, with `(missing)` if only IPAM data mentions it.
fn name_of_node(node: &NodeView) -> String {
    if node.exists {
        return node.node.clone();
    }
    format!("{} (missing)", node.node)
}

/// Formats the installed plugin, or else the plugin that assigned the newest address. If they differ, formats both:
/// `calipam 0.1.0 (newest address: Calico)`.
fn plugin(plugin: &NodePlugin) -> String {
    let assigned_by = match plugin.assigned_by {
        Some(Plugin::Calico) => "Calico",
        Some(Plugin::Calipam) => "calipam",
        None => "",
    };
    let Some(installed) = &plugin.installed else {
        return assigned_by.to_owned();
    };
    // The installed plugin comes with a version, the other does not.
    let is_same = installed.starts_with("calipam") == (assigned_by == "calipam");
    if assigned_by.is_empty() || is_same {
        return installed.clone();
    }
    format!("{installed} (newest address: {assigned_by})")
}

/// Formats `60 ipv4, 0 ipv6`.
fn free_by_family(node: &NodeView) -> String {
    let mut parts = Vec::new();
    for family in &node.families {
        parts.push(format!("{} {}", thousands(family.free), family.family));
    }
    parts.join(", ")
}

/// Formats why a node gets no address, by family: `ipv4: the block limit is reached`, with `(may be intended)` if a
/// check reports that as information. Empty if it gets one.
fn without_address(node: &NodeView) -> String {
    let parts: Vec<String> = node.families.iter().filter_map(reason_of_family).collect();
    parts.join("; ")
}

/// Formats why a node gets no address of a family; `None` if it gets one.
fn reason_of_family(family: &NodeFamily) -> Option<String> {
    let name = family.family;
    let Some(is_without_address) = family.without_address else {
        return Some(format!("{name}: unknown"));
    };
    if !is_without_address {
        return None;
    }
    let reason = family.reason.as_ref()?;
    let note = if family.may_be_intended {
        " (may be intended)"
    } else {
        ""
    };
    Some(format!("{name}: {reason}{note}"))
}

/// Formats `16`, or `any number`.
fn claimable(blocks: Option<u32>, limit: Option<u32>) -> String {
    let Some(blocks) = blocks else {
        return "unknown".to_owned();
    };
    let is_unbounded = blocks == u32::MAX && limit.is_none();
    if is_unbounded {
        return "any number".to_owned();
    }
    thousands(blocks)
}

/// Formats `, limit 20`; empty without a limit.
fn limited(limit: Option<u32>) -> String {
    match limit {
        Some(limit) => format!(", limit {limit}"),
        None => String::new(),
    }
}

/// Formats `16 ipv4, limit 20`. All pools of a family have the same limit.
fn claimable_by_family(node: &NodeView) -> String {
    // The largest number of claimable blocks, and the limit.
    let mut families: BTreeMap<&str, (Option<u32>, Option<u32>)> = BTreeMap::new();
    for pool in &node.pools {
        let (largest, _) = families.entry(pool.family).or_insert((None, pool.limit));
        *largest = (*largest).max(pool.claimable);
    }
    let mut parts = Vec::new();
    for (family, (blocks, limit)) in families {
        let blocks = claimable(blocks, limit);
        parts.push(format!("{blocks} {family}{}", limited(limit)));
    }
    parts.join("; ")
}

/// Formats `16 in default-ipv4-ippool or extra-5, 0 in old-ippool, limit 20`.
fn claimable_by_pool(node: &NodeView) -> String {
    // The names of the pools by their limit, and then by the number of claimable blocks, the largest first.
    let mut by_limit: BTreeMap<_, BTreeMap<_, Vec<&str>>> = BTreeMap::new();
    for pool in &node.pools {
        let name = pool.pool.as_deref().unwrap_or("(no pool)");
        let by_blocks = by_limit.entry(pool.limit).or_default();
        by_blocks.entry(Reverse(pool.claimable)).or_default().push(name);
    }

    let mut parts = Vec::new();
    for (limit, by_blocks) in by_limit {
        let mut groups = Vec::new();
        for (Reverse(blocks), names) in by_blocks {
            groups.push(format!("{} in {}", claimable(blocks, limit), names.join(" or ")));
        }
        parts.push(format!("{}{}", groups.join(", "), limited(limit)));
    }
    parts.join("; ")
}

/// Lists the tunnel addresses of a node.
fn tunnels(node: &NodeView) -> String {
    let mut parts = Vec::new();
    for tunnel in &node.tunnels {
        parts.push(format!("{} {}", tunnel.kind, tunnel.address));
    }
    parts.join(", ")
}

impl View for NamespaceList {
    const KIND: &'static str = "NamespaceList";
    const NAME: &'static str = "namespace";

    fn names(&self) -> impl Iterator<Item = String> {
        self.namespaces.iter().filter_map(|view| view.namespace.clone())
    }

    /// Writes a table of namespaces, and the number of all addresses.
    fn text(&self, text: &mut Text) {
        let columns = vec![
            left("NAMESPACE", |view: &NamespaceView| {
                view.namespace
                    .clone()
                    .unwrap_or_else(|| "(tunnels, others)".to_owned())
            }),
            right("ADDRESSES", |view: &NamespaceView| thousands(view.addresses)),
            right("LEAKED", |view: &NamespaceView| thousands(view.leaked)),
        ];
        text.table(&self.namespaces, columns);
        let addresses: usize = self.namespaces.iter().map(|view| view.addresses).sum();
        text.notes(&[count(addresses, "address", "addresses")]);
    }
}

impl View for BorrowedList {
    const KIND: &'static str = "BorrowedList";
    const NAME: &'static str = "address";

    fn names(&self) -> impl Iterator<Item = String> {
        self.addresses.iter().map(|address| address.address.to_string())
    }

    /// Writes a table of borrowed addresses, and their number.
    fn text(&self, text: &mut Text) {
        let columns = vec![
            left("ADDRESS", |address: &BorrowedAddress| address.address),
            left("NODE", |address: &BorrowedAddress| &address.node),
            left("BLOCK", |address: &BorrowedAddress| address.block).hidden(2),
            left("BLOCK OWNER", |address: &BorrowedAddress| {
                dash(address.block_owner.as_ref())
            }),
            left("TYPE", |address: &BorrowedAddress| address.kind).hidden(1),
            left("ALLOCATED TO", |address: &BorrowedAddress| {
                or_dash(&address.allocated_to)
            }),
        ];
        text.table(&self.addresses, columns);
        let mut notes = vec![count(
            self.addresses.len(),
            "borrowed address",
            "borrowed addresses",
        )];
        if self.unknown > 0 {
            let unknown = count(self.unknown, "allocation has", "allocations have");
            notes.push(format!("{unknown} no recorded node, and could be borrowed"));
        }
        text.notes(&notes);
    }
}

impl View for ConfigurationView {
    const KIND: &'static str = "Configuration";
    const NAME: &'static str = "configuration";

    fn names(&self) -> impl Iterator<Item = String> {
        self.settings.iter().map(|setting| setting.name.to_owned())
    }

    /// Writes a table of the settings, and notes about those that are ignored.
    fn text(&self, text: &mut Text) {
        let columns = vec![
            left("SETTING", |setting: &Setting| setting.name),
            left("VALUE", |setting: &Setting| &setting.value),
            left("FROM", |setting: &Setting| &setting.origin).hidden(1),
            left("IN IPAMConfiguration", |setting: &Setting| {
                dash(setting.resource.as_ref())
            })
            .if_any(),
        ];
        text.table(&self.settings, columns);

        let mut notes = Vec::new();
        for name in &self.ignored {
            notes.push(calipam_check::note_of_ignored_config(name));
        }
        text.notes(&notes);
    }
}

impl View for AddressList {
    const KIND: &'static str = "AddressList";
    const NAME: &'static str = "address";

    fn names(&self) -> impl Iterator<Item = String> {
        self.addresses.iter().map(|held| held.address.to_string())
    }

    /// Writes a table of addresses, and their number.
    fn text(&self, text: &mut Text) {
        let columns = vec![
            left("ADDRESS", |held: &HeldAddress| held.address),
            left("NODE", |held: &HeldAddress| dash(held.node.as_ref())),
            left("BLOCK", |held: &HeldAddress| dash(held.block)).hidden(1),
            left("TYPE", |held: &HeldAddress| held.kind).hidden(2),
            left("ALLOCATED TO", |held: &HeldAddress| or_dash(&held.allocated_to)),
            left("POOL", |held: &HeldAddress| dash(held.pool.as_ref())).wide(),
            left("HANDLE", |held: &HeldAddress| dash(held.handle.as_ref())).wide(),
        ];
        text.table(&self.addresses, columns);
        text.notes(&[count(self.addresses.len(), "address", "addresses")]);
    }
}
