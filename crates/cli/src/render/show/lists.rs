//! Nodes, borrowed addresses, configuration.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use calipam_check::views::{BorrowedList, ConfigurationView, NodeList, NodeView};
use calipam_model::snapshot::Snapshot;

use super::{or_dash, print};
use crate::args::Format;
use crate::exit::Failure;
use crate::output::Console;
use crate::render::table::{Align, Grid};
use crate::render::text::{count, thousands};

use Align::{Left, Right};

/// Prints nodes.
///
/// # Errors
/// Where stdout cannot be written.
pub fn nodes(list: &NodeList, snapshot: &Snapshot, console: &Console) -> Result<(), Failure> {
    print("NodeList", list, snapshot, console, || {
        let wide = console.format == Format::Wide;
        let mut columns = vec![
            ("NODE", Left),
            ("BLOCKS", Right),
            ("ADDRESSES", Right),
            ("BORROWED", Right),
            ("LENT", Right),
            ("FREE", Right),
            ("MAY STILL CLAIM", Left),
        ];
        if wide {
            columns.push(("TUNNELS", Left));
        }
        let mut grid = Grid::new(console, &columns);
        for node in &list.nodes {
            grid.row(node_row(node, wide));
        }
        (grid, Vec::new())
    })
}

fn node_row(node: &NodeView, wide: bool) -> Vec<String> {
    let headroom = if wide { headroom_by_pool(node) } else { headroom_by_family(node) };
    let mut row = vec![
        if node.exists { node.node.clone() } else { format!("{} (does not exist)", node.node) },
        thousands(node.blocks),
        thousands(node.addresses),
        thousands(node.borrowed),
        thousands(node.lent),
        thousands(node.free),
        or_dash(&headroom).to_owned(),
    ];
    if wide {
        let tunnels = node.tunnels.iter().map(|tunnel| format!("{} {}", tunnel.kind, tunnel.address));
        row.push(or_dash(&tunnels.collect::<Vec<_>>().join(", ")).to_owned());
    }
    row
}

/// `16 of 20 ipv4`: the limit is one for all pools of a family.
fn headroom_by_family(node: &NodeView) -> String {
    let mut families: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    for held in &node.pools {
        let most = families.entry(held.family).or_insert((0, held.limit));
        most.0 = most.0.max(held.headroom);
    }
    let families =
        families.into_iter().map(|(family, (headroom, limit))| format!("{headroom} of {limit} {family}"));
    families.collect::<Vec<_>>().join(", ")
}

/// `16 of 20 in default-ipv4-ippool, extra-5; 0 of 20 in old-ippool`.
fn headroom_by_pool(node: &NodeView) -> String {
    let mut groups: BTreeMap<(Reverse<u32>, u32), Vec<&str>> = BTreeMap::new();
    for held in &node.pools {
        let pool = held.pool.as_deref().unwrap_or("(no pool)");
        groups.entry((Reverse(held.headroom), held.limit)).or_default().push(pool);
    }
    let groups = groups
        .into_iter()
        .map(|((Reverse(headroom), limit), pools)| format!("{headroom} of {limit} in {}", pools.join(", ")));
    groups.collect::<Vec<_>>().join("; ")
}

/// Prints borrowed addresses.
///
/// # Errors
/// Where stdout cannot be written.
pub fn borrowed(list: &BorrowedList, snapshot: &Snapshot, console: &Console) -> Result<(), Failure> {
    print("BorrowedList", list, snapshot, console, || {
        let columns = [
            ("ADDRESS", Left),
            ("NODE", Left),
            ("BLOCK", Left),
            ("BLOCK OWNER", Left),
            ("TYPE", Left),
            ("ALLOCATED TO", Left),
        ];
        let mut grid = Grid::new(console, &columns);
        for address in &list.addresses {
            grid.row([
                address.address.as_str(),
                &address.node,
                &address.block,
                or_dash(address.block_owner.as_deref().unwrap_or_default()),
                address.kind,
                or_dash(&address.allocated_to),
            ]);
        }
        let mut notes = vec![count(list.addresses.len(), "borrowed address", "borrowed addresses")];
        if list.unknown > 0 {
            let unknown = count(list.unknown, "allocation records", "allocations record");
            notes.push(format!("{unknown} no node, so that it cannot be told"));
        }
        (grid, notes)
    })
}

/// Prints the configuration.
///
/// # Errors
/// Where stdout cannot be written.
pub fn configuration(
    view: &ConfigurationView,
    snapshot: &Snapshot,
    console: &Console,
) -> Result<(), Failure> {
    print("Configuration", view, snapshot, console, || {
        let differs = view.settings.iter().any(|setting| setting.resource.is_some());
        let mut columns = vec![("SETTING", Left), ("VALUE", Left), ("FROM", Left)];
        if differs {
            columns.push(("THE RESOURCE SAYS", Left));
        }
        let mut grid = Grid::new(console, &columns);
        for setting in &view.settings {
            let mut row = vec![setting.name, &setting.value, &setting.origin];
            if differs {
                row.push(or_dash(setting.resource.as_deref().unwrap_or_default()));
            }
            grid.row(row);
        }
        (grid, Vec::new())
    })
}
