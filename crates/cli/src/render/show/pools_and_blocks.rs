//! The output of `show` for pools and blocks.

use calipam_check::occupancy::whole_percent;
use calipam_check::views::{BlockList, BlockView, Count, OutsidePools, PoolList, PoolView};
use calipam_model::block::Cooling;

use super::View;
use crate::hints;
use crate::render::bar::bar;
use crate::render::column::{Column, left, right};
use crate::render::output::Text;
use crate::render::page::Page;
use crate::render::table::Grid;
use crate::render::text::{dash, thousands};

/// A row in the list of pools: a pool, or the blocks outside all pools.
#[derive(Clone, Copy)]
enum PoolRow<'a> {
    Pool(&'a PoolView),
    Outside(&'a OutsidePools),
}

impl<'a> PoolRow<'a> {
    /// Formats a cell that only pools have. For blocks outside all pools, returns a dash.
    fn pool<T: ToString>(self, cell: impl Fn(&'a PoolView) -> T) -> String {
        match self {
            Self::Pool(pool) => cell(pool).to_string(),
            Self::Outside(_) => "-".to_owned(),
        }
    }

    /// Returns the numbers of taken and usable addresses.
    fn taken_and_usable(self) -> [Count; 2] {
        match self {
            Self::Pool(pool) => [pool.usable_taken, pool.usable],
            Self::Outside(outside) => [
                Count(outside.in_use.0.saturating_add(outside.cooling.0)),
                outside.total,
            ],
        }
    }

    /// Returns the numbers of addresses in total, in use, cooling down and free.
    fn addresses(self) -> [Count; 4] {
        match self {
            Self::Pool(pool) => [pool.total, pool.in_use, pool.cooling, pool.free],
            Self::Outside(outside) => [outside.total, outside.in_use, outside.cooling, outside.free],
        }
    }
}

impl View for PoolList {
    const KIND: &'static str = "PoolList";
    const NAME: &'static str = "pool";

    fn names(&self) -> impl Iterator<Item = String> {
        self.pools.iter().map(|pool| pool.name.clone())
    }

    /// Writes a table of pools, with notes on what limits them.
    fn text(&self, text: &mut Text) {
        let mut rows: Vec<PoolRow<'_>> = self.pools.iter().map(PoolRow::Pool).collect();
        rows.extend(self.outside.as_ref().map(PoolRow::Outside));
        text.table(rows, pool_columns(text.page));

        // The notes are in the order of their kinds, and not of the pools.
        let mut notes: Vec<String> = Vec::new();
        notes.extend(self.pools.iter().filter_map(note_on_unknown));
        notes.extend(self.pools.iter().filter_map(note_on_cooldown));
        notes.extend(self.pools.iter().filter_map(note_on_limits));
        text.notes(&notes);
    }
}

/// Formats how many addresses of a pool have an unknown state; `None` if none has.
fn note_on_unknown(pool: &PoolView) -> Option<String> {
    let name = &pool.name;
    let number = thousands(pool.unknown);
    match pool.unknown.0 {
        0 => None,
        1 => Some(format!(
            "{name}: {number} address is in a block that is corrupt or cannot be decoded"
        )),
        _ => Some(format!(
            "{name}: {number} addresses are in blocks that are corrupt or cannot be decoded"
        )),
    }
}

/// Formats how long addresses of a pool cool down; `None` if none does.
fn note_on_cooldown(pool: &PoolView) -> Option<String> {
    let [first, last] = pool.cooled?;
    let cooling = Cooling {
        addresses: usize::try_from(pool.cooling.0).unwrap_or(usize::MAX),
        first,
        last,
    };
    Some(format!("{}: {}", pool.name, cool_down(&cooling)))
}

/// Formats what limits a pool; `None` if nothing does, or if it is disabled anyway.
fn note_on_limits(pool: &PoolView) -> Option<String> {
    if !pool.enabled || pool.limited_by.is_empty() {
        return None;
    }
    Some(format!("{}: {}", pool.name, limits(pool)))
}

/// Formats how many of the free addresses of a pool can be allocated, and the reasons why not all.
fn limits(pool: &PoolView) -> String {
    let reasons = pool.limited_by.join("; ");
    let Some(by_name) = pool.by_name else {
        return reasons;
    };
    if by_name.0 == 0 {
        return format!("not even pods that name the pool get an address: {reasons}");
    }
    let number = thousands(by_name);
    let mut addresses = format!("its {number} free addresses");
    if by_name.0 < pool.free.0 {
        addresses = format!("{number} of its {} free addresses", thousands(pool.free));
    }
    format!("only pods that name the pool can get {addresses}: {reasons}")
}

/// Formats how long addresses cool down, and the command that ends the cooldown at once.
pub(crate) fn cool_down(cooling: &Cooling) -> String {
    let end = hints::command(&["configure", "--ip-cooldown-seconds", "0"]);
    format!("{cooling}; {end} ends the cooldown at once")
}

fn pool_columns<'a>(page: Page) -> Vec<Column<'a, PoolRow<'a>>> {
    let name = |pool: &PoolView| match &pool.closed {
        Some(why) => format!("{} ({why})", pool.name),
        None => pool.name.clone(),
    };
    vec![
        left("POOL", move |row: PoolRow<'_>| match row {
            PoolRow::Pool(pool) => name(pool),
            PoolRow::Outside(_) => "(in no pool)".to_owned(),
        }),
        left("CIDR", |row: PoolRow<'_>| row.pool(|pool| pool.cidr)),
        right("TOTAL", |row: PoolRow<'_>| thousands(row.addresses()[0])).hidden(5),
        right("IN USE", |row: PoolRow<'_>| thousands(row.addresses()[1])).hidden(4),
        right("%", |row: PoolRow<'_>| {
            percent(row.taken_and_usable()[0], row.taken_and_usable()[1])
        }),
        right("COOLING", |row: PoolRow<'_>| thousands(row.addresses()[2])).hidden(3),
        right("RESERVED", |row: PoolRow<'_>| {
            row.pool(|pool| thousands(pool.reserved))
        })
        .hidden(2),
        right("FREE", |row: PoolRow<'_>| thousands(row.addresses()[3])),
        right("ALLOCATABLE", |row: PoolRow<'_>| match row {
            PoolRow::Pool(pool) => pool.allocatable.map_or_else(|| "unknown".to_owned(), thousands),
            PoolRow::Outside(_) => "0".to_owned(),
        }),
        left("USE", move |row: PoolRow<'_>| {
            bar(row.taken_and_usable()[0], row.taken_and_usable()[1], page)
        })
        .wide(),
        right("BLOCKS", |row: PoolRow<'_>| match row {
            PoolRow::Pool(pool) => thousands(pool.blocks),
            PoolRow::Outside(outside) => thousands(outside.blocks),
        })
        .wide(),
        right("BLOCK SIZE", |row: PoolRow<'_>| {
            row.pool(|pool| format!("/{}", pool.block_size))
        })
        .wide(),
        right("WINDOWS", |row: PoolRow<'_>| {
            row.pool(|pool| thousands(pool.windows_reserved))
        })
        .wide()
        .if_any()
        .hidden(1),
        right("UNKNOWN", |row: PoolRow<'_>| {
            row.pool(|pool| thousands(pool.unknown))
        })
        .wide(),
        left("USES", |row: PoolRow<'_>| {
            row.pool(|pool| pool.allowed_uses.join(", "))
        })
        .wide(),
        left("ASSIGNMENT", |row: PoolRow<'_>| {
            row.pool(|pool| if pool.automatic { "automatic" } else { "manual" })
        })
        .wide(),
        left("NODE SELECTOR", |row: PoolRow<'_>| {
            row.pool(|pool| &pool.node_selector)
        })
        .wide(),
    ]
}

impl View for BlockList {
    const KIND: &'static str = "BlockList";
    const NAME: &'static str = "block";

    fn names(&self) -> impl Iterator<Item = String> {
        self.blocks.iter().map(|block| block.cidr.to_string())
    }

    /// Writes a table of blocks.
    fn text(&self, text: &mut Text) {
        let page = text.page;
        let columns = vec![
            left("BLOCK", |block: &BlockView| block.cidr),
            left("POOL", |block: &BlockView| dash(block.pool.as_ref())).hidden(6),
            left("BLOCK OWNER", |block: &BlockView| dash(block.owner.as_ref())),
            right("TOTAL", |block: &BlockView| thousands(block.total)).hidden(4),
            number_unless_corrupt("IN USE", |block| block.in_use),
            number_unless_corrupt("BORROWED BY OTHERS", |block| block.borrowed).hidden(5),
            number_unless_corrupt("COOLING", |block| block.cooling).hidden(3),
            number_unless_corrupt("RESERVED", |block| block.reserved).hidden(2),
            number_unless_corrupt("FREE", |block| block.free),
            number_unless_corrupt("WINDOWS", |block| block.windows_reserved)
                .wide()
                .if_any()
                .hidden(1),
            left("USE", move |block: &BlockView| use_of_block(block, page)).wide(),
            left("CLAIMED", |block: &BlockView| dash(block.claimed_at.as_ref())).wide(),
            left("SEQUENCE NUMBER", |block: &BlockView| dash(block.sequence_number)).wide(),
            left("PROBLEMS", |block: &BlockView| block.problems.join("; ")).if_any(),
        ];
        text.table(&self.blocks, columns);
    }
}

/// Creates a column with a number of addresses in each block. Those of a corrupt block are unknown.
fn number_unless_corrupt<'a>(
    title: &'static str,
    number: fn(&BlockView) -> u32,
) -> Column<'a, &'a BlockView> {
    right(title, move |block: &BlockView| {
        if block.problems.is_empty() {
            thousands(number(block))
        } else {
            "-".to_owned()
        }
    })
}

/// Draws the share of a block's usable addresses that is taken; a dash for a corrupt block.
fn use_of_block(block: &BlockView, page: Page) -> String {
    if !block.problems.is_empty() {
        return "-".to_owned();
    }
    let usable = Count(block.total.0.saturating_sub(block.reserved.into()));
    let taken = Count(usable.0.saturating_sub(block.free.into()));
    bar(taken, usable, page)
}

/// Creates the table of pool usage that is shown with the findings of a check.
pub(crate) fn use_of_pools(list: &PoolList, page: Page) -> Grid {
    let mut columns = pool_columns(page);
    columns.retain(|column| ["POOL", "CIDR", "TOTAL", "IN USE", "%", "USE"].contains(&column.title));
    Grid::new(page.wide, list.pools.iter().map(PoolRow::Pool), columns)
}

/// Formats a percentage, rounded down to an integer, so that 100 means all.
pub(crate) fn percent(part: Count, whole: Count) -> String {
    dash(whole_percent(part.0, whole.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percents_are_whole_and_never_overflow() {
        let of = |part, whole| percent(Count(part), Count(whole));
        assert_eq!(of(1, 3), "33");
        assert_eq!(of(999, 1000), "99");
        assert_eq!(of(0, 0), "-");
        assert_eq!(of(u128::MAX, u128::MAX), "100");
        assert_eq!(of(5, 1 << 64), "0");
    }
}
