//! The output of `show` for nodes, borrowed addresses, and the configuration.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use calipam_check::views::{
    AddressList, BorrowedAddress, BorrowedList, ConfigurationView, HeldAddress, NamespaceList, NamespaceView,
    NodeList, NodePlugin, NodeView, Setting,
};
use calipam_model::plugin::Plugin;

use super::View;
use crate::render::column::{left, right};
use crate::render::output::Text;
use crate::render::text::{count, dash, joined, or_dash, thousands};

impl View for NodeList {
    const KIND: &'static str = "NodeList";
    const NAME: &'static str = "node";

    fn names(&self) -> impl Iterator<Item = String> {
        self.nodes.iter().map(|node| node.node.clone())
    }

    /// Writes a table of nodes.
    fn text(&self, text: &mut Text) {
        let claimable = if text.page.wide {
            claimable_by_pool
        } else {
            claimable_by_family
        };
        let columns = vec![
            left("NODE", |node: &NodeView| {
                format!("{}{}", node.node, if node.exists { "" } else { " (missing)" })
            }),
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

/// Formats the installed plugin, or else the plugin that assigned the newest address. If they differ, formats both:
/// `calipam 0.1.0 (newest address: Calico)`.
fn plugin(plugin: &NodePlugin) -> String {
    let by = plugin.assigned_by.map_or("", |by| match by {
        Plugin::Calico => "Calico",
        Plugin::Calipam => "calipam",
    });
    match &plugin.installed {
        None => by.to_owned(),
        Some(noted) if by.is_empty() || noted.starts_with("calipam") == (by == "calipam") => noted.clone(),
        Some(noted) => format!("{noted} (newest address: {by})"),
    }
}

/// Formats `60 ipv4, 0 ipv6`.
fn free_by_family(node: &NodeView) -> String {
    let free = node
        .families
        .iter()
        .map(|of_node| format!("{} {}", thousands(of_node.free), of_node.family));
    joined(free, ", ")
}

/// Formats `ipv4: the block limit is reached`, with `(may be intended)` if a check reports that as information.
fn without_address(node: &NodeView) -> String {
    let without =
        node.families
            .iter()
            .filter_map(|of_node| match (of_node.without_address, &of_node.reason) {
                (Some(true), Some(reason)) => {
                    let intent = if of_node.may_be_intended {
                        " (may be intended)"
                    } else {
                        ""
                    };
                    Some(format!("{}: {reason}{intent}", of_node.family))
                }
                (None, _) => Some(format!("{}: unknown", of_node.family)),
                _ => None,
            });
    joined(without, "; ")
}

/// Formats `16`, or `any number`.
fn claimable(blocks: Option<u32>, limit: Option<u32>) -> String {
    match (blocks, limit) {
        (None, _) => "unknown".to_owned(),
        (Some(u32::MAX), None) => "any number".to_owned(),
        (Some(blocks), _) => thousands(blocks),
    }
}

/// Formats `, limit 20`; empty without a limit.
fn limited(limit: Option<u32>) -> String {
    limit.map(|limit| format!(", limit {limit}")).unwrap_or_default()
}

/// Formats `16 ipv4, limit 20`. All pools of a family have the same limit.
fn claimable_by_family(node: &NodeView) -> String {
    let mut families: BTreeMap<&str, (Option<u32>, Option<u32>)> = BTreeMap::new();
    for held in &node.pools {
        let most = families.entry(held.family).or_insert((None, held.limit));
        most.0 = most.0.max(held.claimable);
    }
    let families = families.into_iter();
    let families = families
        .map(|(family, (most, limit))| format!("{} {family}{}", claimable(most, limit), limited(limit)));
    joined(families, "; ")
}

/// Formats `16 in default-ipv4-ippool or extra-5, 0 in old-ippool, limit 20`.
fn claimable_by_pool(node: &NodeView) -> String {
    let mut limits: BTreeMap<_, BTreeMap<_, Vec<&str>>> = BTreeMap::new();
    for held in &node.pools {
        let pool = held.pool.as_deref().unwrap_or("(no pool)");
        limits
            .entry(held.limit)
            .or_default()
            .entry(Reverse(held.claimable))
            .or_default()
            .push(pool);
    }
    let limits = limits.into_iter().map(|(limit, groups)| {
        let groups = groups.into_iter().map(|(Reverse(blocks), pools)| {
            format!("{} in {}", claimable(blocks, limit), pools.join(" or "))
        });
        format!("{}{}", joined(groups, ", "), limited(limit))
    });
    joined(limits, "; ")
}

/// Lists the tunnel addresses of a node.
fn tunnels(node: &NodeView) -> String {
    let tunnels = node.tunnels.iter();
    let words = tunnels.map(|tunnel| format!("{} {}", tunnel.kind, tunnel.address));
    joined(words, ", ")
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
        let addresses = self.namespaces.iter().map(|view| view.addresses).sum();
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
