//! Tables that compare simulation runs.

use calipam_simulate::answer::{BlockSizeRow, Run, Scale};

use super::bars::{self, Bar};
use super::{heading, share};
use crate::render::column::{left, right};
use crate::render::output::Text;
use crate::render::table::Grid;
use crate::render::text::thousands;

/// Writes the latency of an ADD by the number of nodes.
pub(super) fn scale(scale: &Scale, text: &mut Text) {
    heading(text, "ADD latency by cluster size");
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
    let ends = run
        .range
        .iter()
        .flat_map(|range| [(LOWEST, &range.lowest), (HIGHEST, &range.highest)]);
    [("", run)].into_iter().chain(ends)
}

pub(super) const LOWEST: &str = "lowest";
pub(super) const HIGHEST: &str = "highest";

/// Creates the table of runs with different numbers of nodes.
pub(super) fn scale_table(scale: &Scale) -> Grid {
    type Row<'a> = (&'static str, &'a Run);
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
        right("NOT RUNNING", |(_, run): Row<'_>| thousands(run.waiting_pods))
            .hidden(u8::from(scale.rows.iter().all(|run| run.waiting_pods == 0))),
    ];
    Grid::new(false, scale.rows.iter().flat_map(with_range), columns)
}

/// Writes the results of the same cluster with each block size.
pub(super) fn block_sizes(rows: &[BlockSizeRow], text: &mut Text) {
    heading(text, "The cluster with each block size");
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

/// Creates the table of block sizes, with the drawbacks of each if they are known.
pub(super) fn size_table<'a>(rows: impl Iterator<Item = (&'a BlockSizeRow, Option<String>)>) -> Grid {
    type Row<'a> = (&'static str, u8, &'a Run, &'a str);
    let rows: Vec<(&BlockSizeRow, Option<String>)> = rows.collect();
    let mut columns = vec![
        left("BLOCK SIZE", |(end, size, ..): Row<'_>| {
            if end.is_empty() {
                format!("/{size}")
            } else {
                end.to_owned()
            }
        }),
        right("MEDIAN", |(_, _, run, _): Row<'_>| run.adds.time.median),
        right("99 %", |(_, _, run, _): Row<'_>| run.adds.time.p99),
        right("WORST", |(_, _, run, _): Row<'_>| run.adds.time.worst).hidden(1),
        right("REQUESTS", |(_, _, run, _): Row<'_>| {
            format!("{:.2}", run.adds.requests.mean)
        })
        .hidden(3),
        right("BLOCKS", |(_, _, run, _): Row<'_>| thousands(run.blocks.blocks)).hidden(4),
        right("WASTED", |(_, _, run, _): Row<'_>| thousands(run.blocks.wasted)),
        right("WASTED %", |(_, _, run, _): Row<'_>| {
            share(run.blocks.wasted_percent)
        })
        .hidden(5),
        right("ROUTES", |(_, _, run, _): Row<'_>| thousands(run.blocks.routes)),
        right("BORROWED %", |(_, _, run, _): Row<'_>| {
            share(run.blocks.borrowed_percent)
        }),
        right("STRANDED", |(_, _, run, _): Row<'_>| {
            thousands(run.blocks.stranded_nodes)
        }),
        right("CONFLICTS", |(_, _, run, _): Row<'_>| {
            thousands(run.adds.conflicts)
        })
        .hidden(2),
        right("NOT RUNNING", |(_, _, run, _): Row<'_>| {
            thousands(run.waiting_pods)
        }),
    ];
    if rows.iter().any(|(_, against)| against.is_some()) {
        columns.push(left("DRAWBACKS", |(end, _, _, against): Row<'_>| {
            match (end, against) {
                ("", "") => "-",
                ("", against) => against,
                _ => "",
            }
        }));
    }
    let rows = rows.iter().flat_map(|(row, against)| {
        let against = against.as_deref().unwrap_or_default();
        with_range(&row.run).map(move |(end, run)| (end, row.block_size, run, against))
    });
    Grid::new(false, rows, columns)
}
