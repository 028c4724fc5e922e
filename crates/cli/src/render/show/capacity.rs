//! Pools and blocks.

use std::io::{self, Write};

use calipam_check::occupancy::whole_percent;
use calipam_check::views::{BlockList, BlockView, Count, OutsidePools, PoolList, PoolView};
use calipam_model::block::Cooling;

use super::{View, or_dash, table, text_or_dash};
use crate::hints;
use crate::render::bar::bar;
use crate::render::document::Detail;
use crate::render::table::{Grid, Page};
use crate::render::text::thousands;

impl View for PoolList {
    const KIND: &'static str = "PoolList";
    const NAMED: [&'static str; 3] = ["pool", "pools", "name"];

    fn text(&self, detail: Detail, page: Page, out: &mut dyn Write) -> io::Result<()> {
        let mut grid = Grid::new(
            page,
            detail,
            "POOL  CIDR  >TOTAL  >IN USE  >%  >COOLING  >RESERVED  >FREE  >ALLOCATABLE",
        );
        let wide = detail == Detail::Full;
        let windows = !wide && self.pools.iter().any(|pool| pool.windows_reserved.0 > 0);
        if windows {
            grid.columns(">WINDOWS");
        }
        if wide {
            grid.columns("USE  >BLOCKS  >BLOCK SIZE  >WINDOWS  >UNKNOWN  USES  ASSIGNMENT  NODE SELECTOR");
        }
        grid.can_do_without(&["WINDOWS", "RESERVED", "COOLING", "IN USE", "TOTAL"]);
        for pool in &self.pools {
            let mut row = pool_row(pool, wide.then_some(page));
            if windows {
                row.push(number(pool.windows_reserved));
            }
            grid.row(row);
        }
        if let Some(outside) = &self.outside {
            let mut row = outside_row(outside, wide.then_some(page));
            if windows {
                row.push("-".to_owned());
            }
            grid.row(row);
        }
        let mut notes: Vec<String> = Vec::new();
        for pool in self.pools.iter().filter(|pool| pool.unknown.0 > 0) {
            notes.push(format!(
                "{}: {} addresses in blocks that are corrupt",
                pool.name,
                number(pool.unknown)
            ));
        }
        for (pool, [first, last]) in self.pools.iter().filter_map(|pool| Some((pool, pool.cooled?))) {
            let addresses = usize::try_from(pool.cooling.0).unwrap_or(usize::MAX);
            notes.push(format!("{}: {}", pool.name, cool_down(&Cooling { addresses, first, last })));
        }
        let limited = self.pools.iter().filter(|pool| pool.enabled && !pool.limited_by.is_empty());
        notes.extend(limited.map(|pool| match pool.by_name {
            Some(free) => {
                let why = pool.limited_by.join("; ");
                format!("{}: {} for pods that name it, none for others: {why}", pool.name, number(free))
            }
            None => format!("{}: {}", pool.name, pool.limited_by.join("; ")),
        }));
        table(grid, &notes, page, out)
    }
}

/// How long addresses cool down, and what ends it.
pub(crate) fn cool_down(cooling: &Cooling) -> String {
    let end = hints::command(&["configure", "--ip-cooldown-seconds", "0"]);
    format!("{cooling}; {end} ends that at once")
}

/// A row; with a page, that of a wide table.
pub(crate) fn pool_row(pool: &PoolView, wide: Option<Page>) -> Vec<String> {
    let name = if pool.enabled { pool.name.clone() } else { format!("{} (disabled)", pool.name) };
    let mut row = vec![
        name,
        pool.cidr.to_string(),
        number(pool.total),
        number(pool.in_use),
        percent(pool.usable_taken, pool.usable),
        number(pool.cooling),
        number(pool.reserved),
        number(pool.free),
        pool.allocatable.map_or_else(|| "unknown".to_owned(), number),
    ];
    if let Some(page) = wide {
        row.extend([
            bar(pool.usable_taken, pool.usable, page),
            thousands(pool.blocks),
            format!("/{}", pool.block_size),
            number(pool.windows_reserved),
            number(pool.unknown),
            pool.allowed_uses.join(", "),
            if pool.automatic { "automatic" } else { "manual" }.to_owned(),
            pool.node_selector.clone(),
        ]);
    }
    row
}

fn outside_row(outside: &OutsidePools, wide: Option<Page>) -> Vec<String> {
    let taken = Count(outside.in_use.0.saturating_add(outside.cooling.0));
    let mut row = vec![
        "(in no pool)".to_owned(),
        "-".to_owned(),
        number(outside.total),
        number(outside.in_use),
        percent(taken, outside.total),
        number(outside.cooling),
        "-".to_owned(),
        number(outside.free),
        "0".to_owned(),
    ];
    if let Some(page) = wide {
        row.extend([
            bar(taken, outside.total, page),
            thousands(outside.blocks),
            "-".into(),
            "-".into(),
            "-".into(),
            "-".into(),
            "-".into(),
            "-".into(),
        ]);
    }
    row
}

impl View for BlockList {
    const KIND: &'static str = "BlockList";
    const NAMED: [&'static str; 3] = ["block", "blocks", "cidr"];

    fn text(&self, detail: Detail, page: Page, out: &mut dyn Write) -> io::Result<()> {
        let wide = detail == Detail::Full;
        let mut grid = Grid::new(
            page,
            detail,
            "BLOCK  POOL  BLOCK OWNER  >TOTAL  >IN USE  >BORROWED BY OTHERS  >COOLING  >RESERVED  >FREE",
        );
        let windows = wide || self.blocks.iter().any(|block| block.windows_reserved > 0);
        if windows {
            grid.columns(">WINDOWS");
        }
        if wide {
            grid.columns("USE  CLAIMED  SEQUENCE NUMBER");
        }
        let corrupt = self.blocks.iter().any(|block| !block.problems.is_empty());
        if corrupt {
            grid.columns("PROBLEMS");
        }
        grid.can_do_without(&["WINDOWS", "RESERVED", "COOLING", "TOTAL", "BORROWED BY OTHERS", "POOL"]);
        for block in &self.blocks {
            let mut row = block_row(block, windows, wide.then_some(page));
            if corrupt {
                row.push(block.problems.join("; "));
            }
            grid.row(row);
        }
        table(grid, &[], page, out)
    }
}

fn block_row(block: &BlockView, windows: bool, wide: Option<Page>) -> Vec<String> {
    // Nothing is known of the addresses of a corrupt block.
    let known = |number: u32| if block.problems.is_empty() { thousands(number) } else { "-".to_owned() };
    let mut row = vec![
        block.cidr.to_string(),
        or_dash(block.pool.as_deref().unwrap_or_default()).to_owned(),
        text_or_dash(block.owner.as_ref()),
        number(block.total),
        known(block.in_use),
        known(block.borrowed),
        known(block.cooling),
        known(block.reserved),
        known(block.free),
    ];
    if windows {
        row.push(known(block.windows_reserved));
    }
    if let Some(page) = wide {
        let is_known = block.problems.is_empty();
        let usable = Count(block.total.0.saturating_sub(block.reserved.into()));
        let taken = Count(usable.0.saturating_sub(block.free.into()));
        row.extend([
            if is_known { bar(taken, usable, page) } else { "-".to_owned() },
            or_dash(block.claimed_at.as_deref().unwrap_or_default()).to_owned(),
            text_or_dash(block.sequence_number),
        ]);
    }
    row
}

/// How full the pools are, besides the findings of a check.
pub(crate) fn pools_with_bars(list: &PoolList, page: Page) -> Grid {
    let mut grid = Grid::new(page, Detail::Full, "POOL  CIDR  >TOTAL  >IN USE  >%  USE");
    for pool in &list.pools {
        let mut row = pool_row(pool, None);
        row.truncate(5);
        row.push(bar(pool.usable_taken, pool.usable, page));
        grid.row(row);
    }
    grid
}

fn number(count: Count) -> String {
    thousands(count)
}

/// Whole percents, rounded down; so that 100 means all.
pub(crate) fn percent(part: Count, whole: Count) -> String {
    whole_percent(part.0, whole.0).map_or_else(|| "-".to_owned(), |percent| percent.to_string())
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
