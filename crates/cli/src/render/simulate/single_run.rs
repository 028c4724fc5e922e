//! The result of one run: the time that pods wait, and the use of blocks.

use calipam_simulate::answer::{Requests, Run, Times};

use super::{percentage, write_heading};
use crate::render::column::{left, right};
use crate::render::output::Text;
use crate::render::text::{escape, thousands};

/// Writes the result of one scenario; of several runs, in a table.
pub(super) fn write(run: &Run, text: &mut Text) {
    write_heading(text, "Result");
    let indent = 2;
    for line in lines(run) {
        text.hanging(indent, line);
    }
    if run.range.is_some() {
        text.blank();
        let columns = vec![
            left("RESULT", |fact: &Vec<String>| &fact[0]),
            right("MEDIAN", |fact: &Vec<String>| &fact[1]),
            right("LOWEST", |fact: &Vec<String>| &fact[2]),
            right("HIGHEST", |fact: &Vec<String>| &fact[3]),
        ];
        text.table(&facts_with_range(run), columns);
    }
}

/// Describes the results of a run, the most important ones first.
pub(super) fn lines(run: &Run) -> Vec<String> {
    let adds = &run.adds;
    let blocks = &run.blocks;
    let pods = thousands(run.pods + run.waiting_pods);
    let running = if run.waiting_pods == 0 {
        format!("{pods} pods are running")
    } else {
        format!("{} of {pods} pods are not running", thousands(run.waiting_pods))
    };
    let mut lines = vec![
        running,
        format!("From pod creation to address: {}", in_words(&run.time_to_address)),
        format!(
            "ADDs that succeed: {}; {} fail",
            in_words(&adds.time),
            thousands(adds.failed + adds.too_long)
        ),
        format!(
            "Requests per ADD, median: {} if the node's own block has a free address, {} if the node needs another block; \
             conflicts in all ADDs: {}",
            median(&adds.requests_in_own_block),
            median(&adds.requests_with_list),
            thousands(adds.conflicts)
        ),
        format!(
            "Blocks: {}, with {} addresses in total, {} % of them wasted; {} routes; {} addresses borrowed; maximum blocks on a node: {}",
            thousands(blocks.blocks),
            thousands(blocks.addresses),
            percentage(blocks.wasted_percent),
            thousands(blocks.routes),
            thousands(blocks.borrowed),
            blocks.max_blocks_of_node
        ),
    ];

    if blocks.stranded_nodes > 0 {
        lines.push(format!("Stranded nodes: {}", thousands(blocks.stranded_nodes)));
    }
    if run.clashes > 0 {
        lines.push(format!("Addresses with two owners: {}", thousands(run.clashes)));
    }
    for (reason, count) in &adds.reasons {
        lines.push(format!("{} × {}", thousands(count), escape(reason.trim())));
    }
    lines
}

fn in_words(times: &Times) -> String {
    format!(
        "median {}, 90 % within {}, 99 % within {}, worst {}",
        times.median, times.p90, times.p99, times.worst
    )
}

/// Returns the results of a run, each with its name.
pub(super) fn facts(run: &Run) -> Vec<(&'static str, String)> {
    let wait = &run.time_to_address;
    let adds = &run.adds;
    let blocks = &run.blocks;
    vec![
        ("Pods that are not running", thousands(run.waiting_pods)),
        ("Pods that are running", thousands(run.pods)),
        ("From creation to address, median", wait.median.to_string()),
        ("From creation to address, 90 %", wait.p90.to_string()),
        ("From creation to address, 99 %", wait.p99.to_string()),
        ("From creation to address, worst", wait.worst.to_string()),
        ("ADD, median", adds.time.median.to_string()),
        ("ADD, 99 %", adds.time.p99.to_string()),
        ("ADD, worst", adds.time.worst.to_string()),
        ("ADDs that failed", thousands(adds.failed + adds.too_long)),
        ("Blocks", thousands(blocks.blocks)),
        ("Wasted addresses", thousands(blocks.wasted)),
        ("Routes", thousands(blocks.routes)),
        ("Borrowed addresses", thousands(blocks.borrowed)),
        ("Stranded nodes", thousands(blocks.stranded_nodes)),
        ("Conflicts", thousands(adds.conflicts)),
        ("Requests to the datastore", thousands(run.datastore_requests)),
    ]
}

/// Formats the median number of requests; `-` if there was no such ADD.
fn median(requests: &Requests) -> String {
    if requests.most == 0 {
        "-".to_owned()
    } else {
        requests.median.to_string()
    }
}

/// Returns a row for each result: its name, the median of all runs and, if there are several, the lowest and the
/// highest value.
pub(super) fn facts_with_range(run: &Run) -> Vec<Vec<String>> {
    let mut rows: Vec<Vec<String>> = Vec::new();
    for (name, median) in facts(run) {
        rows.push(vec![name.to_owned(), median]);
    }
    if let Some(range) = &run.range {
        add_column(&mut rows, &range.lowest);
        add_column(&mut rows, &range.highest);
    }
    rows
}

/// Adds the results of `run` to the rows, which are in the same order as the results of every run.
fn add_column(rows: &mut [Vec<String>], run: &Run) {
    for (row, (_, value)) in rows.iter_mut().zip(facts(run)) {
        row.push(value);
    }
}
