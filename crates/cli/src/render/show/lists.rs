//! Nodes, borrowed addresses, configuration.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, Write};

use calipam_check::views::{AddressList, BorrowedList, ConfigurationView, NodeList, NodePlugin, NodeView};
use calipam_model::plugin::Plugin;

use super::{View, or_dash, table, text_or_dash};
use crate::render::document::Detail;
use crate::render::table::{Grid, Page};
use crate::render::text::{count, thousands};

impl View for NodeList {
    const KIND: &'static str = "NodeList";
    const NAMED: [&'static str; 3] = ["node", "nodes", "node"];

    fn text(&self, detail: Detail, page: Page, out: &mut dyn Write) -> io::Result<()> {
        let wide = detail == Detail::Full;
        let mut grid = Grid::new(
            page,
            detail,
            "NODE  >BLOCKS  >ADDRESSES  >BORROWED  >BORROWED BY OTHERS  FREE  CLAIMABLE  NO ADDRESS",
        );
        if wide {
            grid.columns("PLUGIN  TUNNELS");
        }
        grid.can_do_without(&["BORROWED BY OTHERS", "BORROWED", "CLAIMABLE"]);
        for node in &self.nodes {
            grid.row(node_row(node, wide));
        }
        table(grid, &[], page, out)
    }
}

fn node_row(node: &NodeView, wide: bool) -> Vec<String> {
    let headroom = if wide { headroom_by_pool(node) } else { headroom_by_family(node) };
    let mut row = vec![
        if node.exists { node.node.clone() } else { format!("{} (missing)", node.node) },
        thousands(node.blocks),
        thousands(node.addresses),
        thousands(node.borrowed),
        thousands(node.borrowed_by_others),
        or_dash(&free_by_family(node)).to_owned(),
        or_dash(&headroom).to_owned(),
        or_dash(&without_address(node)).to_owned(),
    ];
    if wide {
        row.push(or_dash(&plugin(&node.plugin)).to_owned());
        let tunnels = node.tunnels.iter().map(|tunnel| format!("{} {}", tunnel.kind, tunnel.address));
        row.push(or_dash(&tunnels.collect::<Vec<_>>().join(", ")).to_owned());
    }
    row
}

/// `calipam 0.1.0`, as it is noted; else by its newest address. If that is another one's: `calipam 0.1.0 (newest address: Calico)`.
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

/// `60 ipv4, 0 ipv6`.
fn free_by_family(node: &NodeView) -> String {
    let free = node.families.iter().map(|of_node| format!("{} {}", thousands(of_node.free), of_node.family));
    free.collect::<Vec<_>>().join(", ")
}

/// `ipv4: the block limit is reached`.
fn without_address(node: &NodeView) -> String {
    let without =
        node.families.iter().filter_map(|of_node| match (of_node.without_address, &of_node.reason) {
            (Some(true), Some(reason)) => Some(format!("{}: {reason}", of_node.family)),
            (None, _) => Some(format!("{}: unknown", of_node.family)),
            _ => None,
        });
    without.collect::<Vec<_>>().join("; ")
}

/// `16 of 20`, or `any number`.
fn claimable(headroom: Option<u32>, limit: Option<u32>) -> String {
    let Some(headroom) = headroom else { return "unknown".to_owned() };
    match limit {
        Some(limit) => format!("{headroom} of {limit}"),
        None if headroom == u32::MAX => "any number".to_owned(),
        None => thousands(headroom),
    }
}

/// `16 of 20 ipv4`: the limit is one for all pools of a family.
fn headroom_by_family(node: &NodeView) -> String {
    let mut families: BTreeMap<&str, (Option<u32>, Option<u32>)> = BTreeMap::new();
    for held in &node.pools {
        let most = families.entry(held.family).or_insert((None, held.limit));
        most.0 = most.0.max(held.headroom);
    }
    let families = families
        .into_iter()
        .map(|(family, (headroom, limit))| format!("{} {family}", claimable(headroom, limit)));
    families.collect::<Vec<_>>().join(", ")
}

/// `16 of 20 in default-ipv4-ippool, extra-5; 0 of 20 in old-ippool`.
fn headroom_by_pool(node: &NodeView) -> String {
    let mut groups: BTreeMap<_, Vec<&str>> = BTreeMap::new();
    for held in &node.pools {
        let pool = held.pool.as_deref().unwrap_or("(no pool)");
        groups.entry((Reverse(held.headroom), held.limit)).or_default().push(pool);
    }
    let groups = groups.into_iter().map(|((Reverse(headroom), limit), pools)| {
        format!("{} in {}", claimable(headroom, limit), pools.join(", "))
    });
    groups.collect::<Vec<_>>().join("; ")
}

impl View for BorrowedList {
    const KIND: &'static str = "BorrowedList";
    const NAMED: [&'static str; 3] = ["address", "addresses", "address"];

    fn text(&self, detail: Detail, page: Page, out: &mut dyn Write) -> io::Result<()> {
        let mut grid = Grid::new(page, detail, "ADDRESS  NODE  BLOCK  BLOCK OWNER  TYPE  ALLOCATED TO");
        grid.can_do_without(&["TYPE", "BLOCK"]);
        for address in &self.addresses {
            grid.row([
                address.address.to_string(),
                address.node.clone(),
                address.block.to_string(),
                text_or_dash(address.block_owner.as_ref()),
                address.kind.to_owned(),
                or_dash(&address.allocated_to).to_owned(),
            ]);
        }
        let mut notes = vec![count(self.addresses.len(), "borrowed address", "borrowed addresses")];
        if self.unknown > 0 {
            let unknown = count(self.unknown, "allocation has", "allocations have");
            notes.push(format!("{unknown} no recorded node: unknown whether borrowed"));
        }
        table(grid, &notes, page, out)
    }
}

impl View for ConfigurationView {
    const KIND: &'static str = "Configuration";
    const NAMED: [&'static str; 3] = ["configuration", "settings", "name"];

    fn text(&self, detail: Detail, page: Page, out: &mut dyn Write) -> io::Result<()> {
        let differs = self.settings.iter().any(|setting| setting.resource.is_some());
        let mut grid = Grid::new(page, detail, "SETTING  VALUE  FROM");
        if differs {
            grid.columns("IN IPAMConfiguration");
        }
        grid.can_do_without(&["FROM"]);
        for setting in &self.settings {
            let mut row = vec![setting.name, &setting.value, &setting.origin];
            if differs {
                row.push(or_dash(setting.resource.as_deref().unwrap_or_default()));
            }
            grid.row(row);
        }
        let ignored = self.ignored.iter().map(|name| calipam_check::says_ignored(name));
        table(grid, &ignored.collect::<Vec<_>>(), page, out)
    }
}

impl View for AddressList {
    const KIND: &'static str = "AddressList";
    const NAMED: [&'static str; 3] = ["address", "addresses", "address"];

    fn text(&self, detail: Detail, page: Page, out: &mut dyn Write) -> io::Result<()> {
        let wide = detail == Detail::Full;
        let mut grid = Grid::new(page, detail, "ADDRESS  NODE  BLOCK  TYPE  ALLOCATED TO");
        if wide {
            grid.columns("POOL  HANDLE");
        }
        grid.can_do_without(&["BLOCK", "TYPE"]);
        for held in &self.addresses {
            let mut row = vec![
                held.address.to_string(),
                text_or_dash(held.node.as_ref()),
                text_or_dash(held.block),
                held.kind.to_owned(),
                or_dash(&held.allocated_to).to_owned(),
            ];
            if wide {
                row.extend([text_or_dash(held.pool.as_ref()), text_or_dash(held.handle.as_ref())]);
            }
            grid.row(row);
        }
        table(grid, &[count(self.addresses.len(), "address", "addresses")], page, out)
    }
}
