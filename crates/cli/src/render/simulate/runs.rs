//! Tables of runs.

use std::io::{self, Write};

use calipam_simulate::answer::{BlockSizeRow, Run, Scale, Times};

use super::{bars, heading, share};
use crate::render::document::Detail;
use crate::render::table::{Grid, Page};
use crate::render::text::{escape, thousands};
use crate::render::wrap::on_page;

/// One run, fact by fact.
pub(super) fn one(run: &Run, page: Page, out: &mut dyn Write) -> io::Result<()> {
    let (adds, blocks) = (&run.adds, &run.blocks);
    heading("Result", page, out)?;
    let pods = thousands(run.pods + run.waiting_pods);
    let mut facts = vec![
        match run.waiting_pods {
            0 => format!("{pods} pods run"),
            waiting => format!("{} of {pods} pods do not run", thousands(waiting)),
        },
        format!("From the creation of a pod to its address: {}", in_words(&run.time_to_address)),
        format!(
            "ADDs that succeed: {}; {} fail",
            in_words(&adds.time),
            thousands(adds.failed + adds.too_long)
        ),
        format!(
            "Requests of an ADD: {} in a block of the node, {} if another block is needed; {} conflicts in all",
            adds.requests_in_own_block.median,
            adds.requests_with_list.median,
            thousands(adds.conflicts)
        ),
        format!(
            "Blocks: {} with {} addresses, {} % of them wasted; {} routes; {} addresses borrowed; maximum blocks of a node: {}",
            thousands(blocks.blocks),
            thousands(blocks.addresses),
            share(blocks.wasted_percent),
            thousands(blocks.routes),
            thousands(blocks.borrowed),
            blocks.max_blocks_of_node
        ),
    ];
    if blocks.stranded_nodes > 0 {
        facts.push(format!("Stranded nodes: {}", thousands(blocks.stranded_nodes)));
    }
    if run.clashes > 0 {
        facts.push(format!("Addresses with two owners: {}", thousands(run.clashes)));
    }
    facts.extend(
        adds.reasons
            .iter()
            .map(|(reason, count)| format!("{} × {}", thousands(count), escape(reason.trim()))),
    );
    facts.iter().try_for_each(|fact| writeln!(out, "{}", on_page(fact, 2, page)))
}

fn in_words(times: &Times) -> String {
    format!("median {}, 99 % within {}, worst {}", times.median, times.p99, times.worst)
}

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
        grid.row(scale_cells(run).into_iter().chain([thousands(run.waiting_pods)]));
    }
    grid.write(out)?;
    let rows = scale.rows.iter().map(|run| (thousands(run.nodes), run.adds.time.p99));
    bars::times("99 % of all ADDs within, by nodes", rows, page, out)
}

/// A number of nodes and what a run with it gave, in the order of the columns.
pub(super) fn scale_cells(run: &Run) -> [String; 10] {
    let adds = &run.adds;
    [
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
        let mut cells = size_cells(row);
        if with_drawbacks {
            cells.push(if against.is_empty() { "-".to_owned() } else { against });
        }
        grid.row(cells);
    }
    grid.write(out)
}

/// A block size and what a run with it gave, in the order of the columns.
pub(super) fn size_cells(row: &BlockSizeRow) -> Vec<String> {
    let (adds, blocks) = (&row.run.adds, &row.run.blocks);
    vec![
        format!("/{}", row.block_size),
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
        thousands(row.run.waiting_pods),
    ]
}
