//! Tables of runs.

use std::io::{self, Write};

use calipam_simulate::answer::{BlockSizeRow, Run, Scale};

use super::{bars, heading, share};
use crate::render::document::Detail;
use crate::render::table::{Grid, Page};
use crate::render::text::thousands;

/// Latency of an ADD by the number of nodes.
pub(super) fn scale(scale: &Scale, detail: Detail, page: Page, out: &mut dyn Write) -> io::Result<()> {
    heading("ADD latency by cluster size", page, out)?;
    let mut grid = Grid::new(
        page,
        detail,
        ">NODES  >PODS  >MEDIAN  >99 %  >WORST  >IN OWN BLOCK  >WITH A NEW BLOCK  >REQUESTS  >REQUESTS WITH A NEW BLOCK  >CONFLICTS  >NOT RUNNING",
    );
    grid.can_do_without(&["PODS", "IN OWN BLOCK", "REQUESTS WITH A NEW BLOCK", "WORST"]);
    if scale.rows.iter().all(|run| run.waiting_pods == 0) {
        grid.can_do_without(&["NOT RUNNING"]);
    }
    for run in &scale.rows {
        with_range(run, scale_cells).into_iter().for_each(|cells| grid.row(cells));
    }
    grid.write(out)?;
    let rows = scale.rows.iter().map(|run| (thousands(run.nodes), run.adds.time.p99));
    bars::times("99 % of all ADDs within, by nodes", rows, page, out)
}

/// What a row says of a run, and where there were several, what it says where each number is lowest and highest.
pub(super) fn with_range(run: &Run, cells: impl Fn(&Run) -> Vec<String>) -> Vec<Vec<String>> {
    let end = |name: &str, run: &Run| {
        let mut cells = cells(run);
        if let Some(first) = cells.first_mut() {
            *first = name.to_owned();
        }
        cells
    };
    let ends = run.range.iter().flat_map(|range| [end(LOWEST, &range.lowest), end(HIGHEST, &range.highest)]);
    [cells(run)].into_iter().chain(ends).collect()
}

pub(super) const LOWEST: &str = "lowest";
pub(super) const HIGHEST: &str = "highest";

/// A number of nodes and what a run with it gave, in the order of the columns.
pub(super) fn scale_cells(run: &Run) -> Vec<String> {
    let adds = &run.adds;
    vec![
        thousands(run.nodes),
        thousands(run.pods),
        adds.time.median.to_string(),
        adds.time.p99.to_string(),
        adds.time.worst.to_string(),
        adds.time_in_own_block.median.to_string(),
        adds.time_with_list.median.to_string(),
        adds.requests_in_own_block.median.to_string(),
        adds.requests_with_list.median.to_string(),
        thousands(adds.conflicts),
        thousands(run.waiting_pods),
    ]
}

/// The same cluster with each block size.
pub(super) fn block_sizes(
    rows: &[BlockSizeRow],
    detail: Detail,
    page: Page,
    out: &mut dyn Write,
) -> io::Result<()> {
    heading("The cluster with each block size", page, out)?;
    let with_drawbacks = false;
    size_table(rows.iter().map(|row| (row, String::new())), with_drawbacks, detail, page, out)?;
    let wasted = rows.iter().map(|row| (format!("/{}", row.block_size), row.run.blocks.wasted));
    bars::counts("Wasted addresses, by block size", wasted, page, out)?;
    let routes = rows.iter().map(|row| (format!("/{}", row.block_size), row.run.blocks.routes));
    bars::counts("Routes, by block size", routes, page, out)
}

/// The table of block sizes, with the drawbacks of each.
pub(super) fn size_table<'a>(
    rows: impl Iterator<Item = (&'a BlockSizeRow, String)>,
    with_drawbacks: bool,
    detail: Detail,
    page: Page,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut grid = Grid::new(
        page,
        detail,
        "BLOCK SIZE  >MEDIAN  >99 %  >WORST  >REQUESTS  >BLOCKS  >WASTED  >WASTED %  >ROUTES  >BORROWED %  >STRANDED  >CONFLICTS  >NOT RUNNING",
    );
    if with_drawbacks {
        grid.columns("DRAWBACKS");
    }
    grid.can_do_without(&["WORST", "CONFLICTS", "REQUESTS", "BLOCKS", "WASTED %"]);
    for (row, against) in rows {
        let mut lines = with_range(&row.run, |run| size_cells(row.block_size, run));
        if with_drawbacks {
            lines.iter_mut().for_each(|cells| cells.push(String::new()));
            if let Some(last) = lines.first_mut().and_then(|cells| cells.last_mut()) {
                *last = if against.is_empty() { "-".to_owned() } else { against };
            }
        }
        lines.into_iter().for_each(|cells| grid.row(cells));
    }
    grid.write(out)
}

/// A block size and what a run with it gave, in the order of the columns.
pub(super) fn size_cells(block_size: u8, run: &Run) -> Vec<String> {
    let (adds, blocks) = (&run.adds, &run.blocks);
    vec![
        format!("/{block_size}"),
        adds.time.median.to_string(),
        adds.time.p99.to_string(),
        adds.time.worst.to_string(),
        format!("{:.2}", adds.requests.mean),
        thousands(blocks.blocks),
        thousands(blocks.wasted),
        share(blocks.wasted_percent),
        thousands(blocks.routes),
        share(blocks.borrowed_percent),
        thousands(blocks.stranded_nodes),
        thousands(adds.conflicts),
        thousands(run.waiting_pods),
    ]
}
