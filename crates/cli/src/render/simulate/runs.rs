//! Tables that compare simulation runs.

use calipam_simulate::answer::{BlockSizeRow, Run, Scale};

use super::bars::{self, Bar};
use super::{percentage, write_heading};
use crate::render::column::{HIDDEN_FIRST, left, right};
use crate::render::output::Text;
use crate::render::table::Grid;
use crate::render::text::thousands;

/// Writes the latency of an ADD by the number of nodes.
pub(super) fn write_scale(scale: &Scale, text: &mut Text) {
    write_heading(text, "ADD latency by cluster size");
    text.grid(scale_table(scale));
    let bars = scale.rows.iter().map(|run| Bar {
        name: thousands(run.nodes),
        length: run.adds.time.p99.0,
        label: run.adds.time.p99.to_string(),
    });
    bars::bars("99 % of ADDs finish within, by number of nodes", bars, text);
}

/// Returns the row of a result. If the result represents several runs, also returns the rows `lowest` and `highest`,
/// with the lowest and the highest value of each number.
fn with_range(run: &Run) -> impl Iterator<Item = (&'static str, &Run)> {
    let mut rows = vec![("", run)];
    if let Some(range) = &run.range {
        rows.push((LOWEST, &range.lowest));
        rows.push((HIGHEST, &range.highest));
    }
    rows.into_iter()
}

pub(super) const LOWEST: &str = "lowest";
pub(super) const HIGHEST: &str = "highest";

/// Creates the table of runs with different numbers of nodes.
pub(super) fn scale_table(scale: &Scale) -> Grid {
    type Row<'a> = (&'static str, &'a Run);
    // A narrow terminal hides this column before all others, but only if no pod waits.
    let mut not_running = right("NOT RUNNING", |(_, run): Row<'_>| thousands(run.waiting_pods));
    if scale.rows.iter().all(|run| run.waiting_pods == 0) {
        not_running = not_running.hidden(HIDDEN_FIRST);
    }
    let columns = vec![
        right("NODES", |(end, run): Row<'_>| {
            if end.is_empty() {
                thousands(run.nodes)
            } else {
                end.to_owned()
            }
        }),
        right("PODS", |(_, run): Row<'_>| thousands(run.pods)).hidden(2),
        right("MEDIAN", |(_, run): Row<'_>| run.adds.time.median),
        right("99 %", |(_, run): Row<'_>| run.adds.time.p99),
        right("WORST", |(_, run): Row<'_>| run.adds.time.worst).hidden(5),
        right("IN OWN BLOCK", |(_, run): Row<'_>| {
            run.adds.time_in_own_block.median
        })
        .hidden(3),
        right("WITH A NEW BLOCK", |(_, run): Row<'_>| {
            run.adds.time_with_list.median
        }),
        right("REQUESTS", |(_, run): Row<'_>| {
            run.adds.requests_in_own_block.median
        }),
        right("REQUESTS WITH A NEW BLOCK", |(_, run): Row<'_>| {
            run.adds.requests_with_list.median
        })
        .hidden(4),
        right("CONFLICTS", |(_, run): Row<'_>| thousands(run.adds.conflicts)),
        not_running,
    ];
    Grid::fixed(scale.rows.iter().flat_map(with_range), columns)
}

/// Writes the results of the same cluster with each block size.
pub(super) fn write_block_sizes(rows: &[BlockSizeRow], text: &mut Text) {
    write_heading(text, "The cluster with each block size");
    text.grid(size_table(rows.iter().map(|row| (row, None))));
    let wasted = rows
        .iter()
        .map(|row| (format!("/{}", row.block_size), row.run.blocks.wasted));
    bars::counts("Wasted addresses, by block size", wasted, text);
    let routes = rows
        .iter()
        .map(|row| (format!("/{}", row.block_size), row.run.blocks.routes));
    bars::counts("Routes, by block size", routes, text);
}

/// A row of the table of block sizes.
#[derive(Clone, Copy)]
struct SizeRow<'a> {
    /// [`LOWEST`] or [`HIGHEST`] for one end of a range of results; otherwise empty.
    end: &'static str,
    block_size: u8,
    run: &'a Run,
    /// The drawbacks of the block size; empty if there are none, or they are not known.
    drawbacks: &'a str,
}

/// Creates the table of block sizes, with the drawbacks of each if they are known.
pub(super) fn size_table<'a>(rows: impl Iterator<Item = (&'a BlockSizeRow, Option<String>)>) -> Grid {
    let rows: Vec<(&BlockSizeRow, Option<String>)> = rows.collect();
    let mut columns = vec![
        left("BLOCK SIZE", |row: SizeRow<'_>| {
            if row.end.is_empty() {
                format!("/{}", row.block_size)
            } else {
                row.end.to_owned()
            }
        }),
        right("MEDIAN", |row: SizeRow<'_>| row.run.adds.time.median),
        right("99 %", |row: SizeRow<'_>| row.run.adds.time.p99),
        right("WORST", |row: SizeRow<'_>| row.run.adds.time.worst).hidden(1),
        right("REQUESTS", |row: SizeRow<'_>| {
            format!("{:.2}", row.run.adds.requests.mean)
        })
        .hidden(3),
        right("BLOCKS", |row: SizeRow<'_>| thousands(row.run.blocks.blocks)).hidden(4),
        right("WASTED", |row: SizeRow<'_>| thousands(row.run.blocks.wasted)),
        right("WASTED %", |row: SizeRow<'_>| {
            percentage(row.run.blocks.wasted_percent)
        })
        .hidden(5),
        right("ROUTES", |row: SizeRow<'_>| thousands(row.run.blocks.routes)),
        right("BORROWED %", |row: SizeRow<'_>| {
            percentage(row.run.blocks.borrowed_percent)
        }),
        right("STRANDED", |row: SizeRow<'_>| {
            thousands(row.run.blocks.stranded_nodes)
        }),
        right("CONFLICTS", |row: SizeRow<'_>| thousands(row.run.adds.conflicts)).hidden(2),
        right("NOT RUNNING", |row: SizeRow<'_>| thousands(row.run.waiting_pods)),
    ];

    if rows.iter().any(|(_, drawbacks)| drawbacks.is_some()) {
        columns.push(left("DRAWBACKS", |row: SizeRow<'_>| {
            if !row.end.is_empty() {
                ""
            } else if row.drawbacks.is_empty() {
                "-"
            } else {
                row.drawbacks
            }
        }));
    }

    let rows = rows.iter().flat_map(|(row, drawbacks)| {
        with_range(&row.run).map(move |(end, run)| SizeRow {
            end,
            block_size: row.block_size,
            run,
            drawbacks: drawbacks.as_deref().unwrap_or_default(),
        })
    });
    Grid::fixed(rows, columns)
}
