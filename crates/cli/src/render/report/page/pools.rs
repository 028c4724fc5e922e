//! The sections of the page about pools: their usage, and a map of each pool.

use calipam_check::views::{AddressState, MapCell, MappedBlock, PoolList, PoolMap, PoolView};
use maud::{Markup, PreEscaped, html};
use serde_json::{Value, json};

use crate::render::html::{compact, head, long, notice};
use crate::render::show::percent;
use crate::render::text::{escape, thousands};

/// The columns with numbers.
const NUMBERS: [&str; 9] = [
    "Blocks",
    "Size",
    "In use",
    "%",
    "Cooling",
    "Reserved",
    "Unknown",
    "Free",
    "Allocatable",
];
/// The smallest number that is written as a power. In full, the numbers of IPv6 pools would have twenty digits.
const LONG_NUMBER: u128 = 100_000_000;

/// Formats `65,536`, `2⁶⁴`, `1.84×10¹⁹`: a number that fits a column.
fn short(number: u128) -> String {
    if number < LONG_NUMBER {
        return thousands(number);
    }
    if number.is_power_of_two() {
        return format!("2{}", superscript(number.ilog2()));
    }
    let digits = number.to_string();
    let exponent = superscript(number.ilog10());
    format!("{}.{}×10{exponent}", &digits[..1], &digits[1..3])
}

fn superscript(number: u32) -> String {
    let mut text = String::new();
    for digit in number.to_string().bytes() {
        text.extend("⁰¹²³⁴⁵⁶⁷⁸⁹".chars().nth(usize::from(digit - b'0')));
    }
    text
}

/// Draws the table of pools. Below it, says which pools have free addresses that cannot be allocated, and how many
/// blocks are in no pool.
pub(super) fn section(list: &PoolList) -> Markup {
    html! {
        section #pools {
            h2 { "Pools" }
            @if list.pools.is_empty() {
                p { "There are no pools." }
            } @else {
                div.scroll { (table_of_pools(&list.pools)) }
            }
            @for pool in list.pools.iter().filter(|pool| !pool.limited_by.is_empty()) {
                p.dim {
                    (escape(&pool.name))
                    ": not all free addresses can be allocated: "
                    (escape(&pool.limited_by.join("; ")))
                }
            }
            @if let Some(outside) = &list.outside {
                (notice(format!(
                    "{} blocks are in no pool, with {} addresses in use.",
                    thousands(outside.blocks),
                    thousands(outside.in_use)
                )))
            }
        }
    }
}

/// Creates the table of pools.
fn table_of_pools(pools: &[PoolView]) -> Markup {
    html! {
        table.cards {
            (head(&["Pool", "CIDR"], &NUMBERS, &["Use"]))
            tbody { @for pool in pools { (row(pool)) } }
        }
    }
}

/// Draws the row of a pool: its numbers, and a bar with the shares of its addresses.
fn row(pool: &PoolView) -> Markup {
    let total = pool.total.0.max(1) as f64;
    let reserved = pool.reserved.0 + pool.windows_reserved.0;
    let parts = [
        ("used", pool.in_use.0),
        ("cooling", pool.cooling.0),
        ("reserved", reserved),
        ("unknown", pool.unknown.0),
    ];

    let allocatable = match &pool.allocatable {
        Some(number) => short_and_full(number.0),
        None => ("?".to_owned(), None),
    };
    let numbers = [
        short_and_full(pool.blocks as u128),
        short_and_full(pool.total.0),
        short_and_full(pool.in_use.0),
        (percent(pool.usable_taken, pool.usable), None),
        short_and_full(pool.cooling.0),
        short_and_full(reserved),
        short_and_full(pool.unknown.0),
        short_and_full(pool.free.0),
        allocatable,
    ];

    let share = |number: u128| format!("width:{:.2}%", number as f64 * 100.0 / total);
    html! {
        tr {
            td class={ "name " (long(&pool.name).unwrap_or_default()) } {
                (escape(&pool.name))
                @if let Some(why) = &pool.closed { " " span.dim { "(" (escape(why)) ")" } }
            }
            td.name.mono { (pool.cidr) }
            @for (head, (number, digits)) in NUMBERS.into_iter().zip(numbers) {
                td.number data-head=(head) title=[digits] { (number) }
            }
            td {
                span.bar aria-hidden="true" {
                    @for (class, number) in parts {
                        @if number > 0 { i class=(class) style=(share(number)) {} }
                    }
                }
            }
        }
    }
}

/// Returns a number as a cell shows it, and all its digits if these are left out there.
fn short_and_full(number: u128) -> (String, Option<String>) {
    let digits = (number >= LONG_NUMBER).then(|| thousands(number));
    (short(number), digits)
}

/// Creates the section with the maps of pools, and their legend.
pub(super) fn maps(maps: &[PoolMap]) -> Markup {
    html! {
        section #maps {
            h2 { "Maps" }
            ul.legend.script {
                li { i.unclaimed {} " no block" }
                li { i.scale {} " a block, from empty to full" }
                li { i.unknown {} " unknown: corrupt or cannot be decoded" }
                li { i.corner {} " findings: a corner in the color of the worst" }
            }
            ul.legend.script {
                li { "In an open block:" }
                @for (class, words) in
                    [("free", "free"), ("used", "allocated"), ("cooling", "cooling"), ("reserved", "reserved for Windows")]
                { li { i class=(class) {} " " (words) } }
                li { "a frame: findings" }
            }
            @for (index, map) in maps.iter().enumerate() { (figure(index, map)) }
        }
    }
}

/// Creates the map of a pool, with a table of its blocks for readers without the script.
fn figure(index: usize, map: &PoolMap) -> Markup {
    let label = format!(
        "Map of the pool {}: arrow keys move, Enter opens the block",
        escape(&map.name)
    );
    html! {
        figure id={ "map-" (index) } {
            h3 { (escape(&map.name)) " " span.mono { (map.cidr) } }
            figcaption.dim {
                "A cell is a /" (map.cell_size) "; " (with_blocks(map)) " hold blocks."
            }
            div.script {
                canvas tabindex="0" role="img" aria-label=(label) {}
                p.cell aria-live="polite" {}
                div.block {}
            }
            @match &map.blocks {
                Some(blocks) => details { summary { "Blocks as a table" } div.scroll { (compact(table(blocks))) } },
                None => p.dim { "It has too many blocks for this page: " code { "calipam show --blocks" } },
            }
        }
    }
}

/// Formats how many cells have blocks: `26 of 1,024`, `all 1,024`.
fn with_blocks(map: &PoolMap) -> String {
    let number = map.cells.iter().filter(|cell| cell.blocks > 0).count();
    let with_blocks = thousands(number);
    let all = thousands(map.size);
    if with_blocks == all {
        format!("all {all}")
    } else {
        format!("{with_blocks} of {all}")
    }
}

/// Creates the table of blocks.
fn table(blocks: &[MappedBlock]) -> Markup {
    html! {
        table.blocks {
            (head(&["Block", "Owner"], &["In use", "Cooling", "Free"], &[]))
            tbody { @for block in blocks { (block_row(block)) } }
        }
    }
}

/// Creates a short row, since a page has thousands of rows. The script takes the block and its owner from the cells.
fn block_row(block: &MappedBlock) -> Markup {
    let owner = block.owner.as_ref().map(ToString::to_string).unwrap_or_default();
    let number = |wanted| block.states.iter().filter(|state| **state == wanted).count();
    html! {
        tr data-states=(run_lengths(&block.states)) {
            td { (block.cidr) }
            td class=[long(&owner)] { (escape(&owner)) }
            @if block.states.is_empty() { td colspan="3" { "cannot be decoded, or corrupt" } } @else {
                @for state in [AddressState::Allocated, AddressState::Cooling, AddressState::Free] { td { (number(state)) } }
            }
        }
    }
}

/// Encodes the states of a block's addresses as run lengths, such as `u40f24` for 40 in use and then 24 free. The
/// script decodes them.
fn run_lengths(states: &[AddressState]) -> String {
    let mut text = String::new();
    for run in states.chunk_by(|state, next| state == next) {
        text.push_str(&format!("{}{}", letter(run[0]), run.len()));
    }
    text
}

/// Returns the letter that stands for a state in the data of the script. An address in a block has no other states
/// than these four.
fn letter(state: AddressState) -> char {
    match state {
        AddressState::Allocated => 'u',
        AddressState::Cooling => 'c',
        AddressState::WindowsReserved => 'w',
        AddressState::Free | AddressState::NoBlock | AddressState::Unknown => 'f',
    }
}

/// Creates the data for the script that draws the maps: the pools, and the owners in each block by ordinal. `<` is
/// escaped, since it could end the element.
pub(super) fn data(maps: &[PoolMap]) -> Markup {
    let mut owners: serde_json::Map<String, Value> = serde_json::Map::new();
    for block in maps.iter().flat_map(|map| map.blocks.iter().flatten()) {
        if !block.owners.is_empty() {
            owners.insert(block.cidr.to_string(), owners_of_block(block));
        }
    }
    let pools: Vec<Value> = maps.iter().map(pool).collect();
    let data = json!({ "pools": pools, "owners": owners });
    let text = data.to_string().replace('<', "\\u003c");
    html! { script type="application/json" #map-data { (PreEscaped(text)) } }
}

/// Converts the owners in a block to a list of pairs: the ordinal of an address, and its owner.
fn owners_of_block(block: &MappedBlock) -> Value {
    let mut owners = Vec::new();
    for (ordinal, owner) in &block.owners {
        owners.push(json!([ordinal, escape(owner)]));
    }
    owners.into()
}

/// Converts a map to data for the script.
fn pool(map: &PoolMap) -> Value {
    json!({
        "cidr": map.cidr,
        "cellSize": map.cell_size,
        "cellTotal": number(map.cells.first().map_or(0, |cell| cell.total.0)),
        "size": map.size,
        "cells": map.cells.iter().map(cell).collect::<Vec<_>>(),
    })
}

/// Converts a cell to a list of numbers, whose order the script knows. Trailing zeros are left out, since a page has
/// thousands of cells.
fn cell(cell: &MapCell) -> Value {
    let mut values = vec![
        cell.index.into(),
        cell.blocks.into(),
        number(cell.in_use.0),
        cell.findings.into(),
        json!(cell.worst),
        number(cell.cooling.0),
        number(cell.reserved.0),
        number(cell.unknown.0),
    ];
    // The index stays even if it is 0.
    while values.len() > 1
        && let Some(last) = values.last()
        && (last.is_null() || *last == json!(0))
    {
        values.pop();
    }
    values.into()
}

/// Converts a number for drawing. Doubles are exact enough, even for IPv6.
fn number(count: u128) -> Value {
    match u64::try_from(count) {
        Ok(count) => Value::from(count),
        Err(_) => json!(count as f64),
    }
}

#[cfg(test)]
mod tests {
    use calipam_check::views::Count;

    use super::*;

    #[test]
    fn numbers_that_only_ipv6_has_are_powers() {
        assert_eq!([0, 65_536, 99_999_999].map(short), ["0", "65,536", "99,999,999"]);
        assert_eq!([1 << 27, 1 << 64, 1 << 120].map(short), ["2²⁷", "2⁶⁴", "2¹²⁰"]);
        let expected = ["1.00×10⁸", "1.84×10¹⁹", "3.40×10³⁸"];
        assert_eq!([100_000_000, (1 << 64) - 5, u128::MAX].map(short), expected);
    }

    #[test]
    fn states_are_packed_in_runs() {
        use AddressState::{Allocated, Cooling, Free};
        let states = [Allocated, Allocated, Cooling, Free, Free, Free];
        assert_eq!(run_lengths(&states), "u2c1f3");
        assert_eq!(run_lengths(&[]), "");
    }

    #[test]
    fn trailing_zeros_of_a_cell_are_left_out() {
        let full = MapCell {
            index: 7,
            blocks: 1,
            total: Count(64),
            in_use: Count(64),
            ..MapCell::default()
        };
        assert_eq!(cell(&full), json!([7, 1, 64]));
        let worst = Some(calipam_check::Severity::Error);
        assert_eq!(
            cell(&MapCell {
                findings: 2,
                worst,
                ..full
            }),
            json!([7, 1, 64, 2, "error"])
        );
        let unknown = MapCell {
            in_use: Count(0),
            unknown: Count(1 << 70),
            ..full
        };
        assert_eq!(cell(&unknown), json!([7, 1, 0, 0, null, 0, 0, 2f64.powi(70)]));
        assert_eq!(cell(&MapCell::default()), json!([0]));
    }

    #[test]
    fn names_cannot_end_the_script_element() {
        let cidr: calipam_model::IpNet = "10.0.0.0/30".parse().unwrap();
        let owners = vec![(0, "</script><script>alert(1)".to_owned())];
        let block = MappedBlock {
            cidr,
            cells: 0..1,
            owner: None,
            states: vec![AddressState::Allocated],
            owners,
        };
        let name = "p".into();
        let cells = Vec::new();
        let blocks = Some(vec![block]);
        let map = PoolMap {
            name,
            cidr,
            cell_size: 30,
            size: 1,
            cells,
            blocks,
        };
        let text = data(&[map]).into_string();
        assert_eq!(text.matches('<').count(), 2, "{text}");
    }
}
