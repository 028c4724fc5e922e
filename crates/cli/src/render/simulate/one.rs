//! One run: what people wait for, by phase and over time, and whether the datastore is sound at the end.

use std::io::{self, Write};

use calipam_simulate::answer::{AtEnd, Phase, Run, Times};

use super::{bars, heading, share};
use crate::render::document::Detail;
use crate::render::table::{Grid, Page};
use crate::render::text::{escape, thousands};
use crate::render::wrap::on_page;

pub(super) fn write(run: &Run, detail: Detail, page: Page, out: &mut dyn Write) -> io::Result<()> {
    heading("Result", page, out)?;
    for line in lines(run) {
        writeln!(out, "{}", on_page(&line, 2, page))?;
    }
    if run.range.is_some() {
        writeln!(out)?;
        range(run, detail, page, out)?;
    }
    let rows = phase_rows(run);
    if rows.len() > 1 {
        writeln!(out)?;
        let mut grid = Grid::new(
            page,
            detail,
            "PHASE  >BEGIN  >END  >CREATED  >MEDIAN WAIT  >90 % WAIT  >99 % WAIT  >WORST WAIT  >NO ADDRESS  >FAILED ADDS",
        );
        rows.into_iter().for_each(|cells| grid.row(cells));
        grid.write(out)?;
    }
    curve(run, page, out)
}

/// The answer in words.
pub(super) fn lines(run: &Run) -> Vec<String> {
    let (adds, blocks) = (&run.adds, &run.blocks);
    let pods = thousands(run.pods + run.waiting_pods);
    let mut lines = vec![
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
        lines.push(format!("Stranded nodes: {}", thousands(blocks.stranded_nodes)));
    }
    if run.clashes > 0 {
        lines.push(format!("Addresses with two owners: {}", thousands(run.clashes)));
    }
    lines.extend(
        adds.reasons
            .iter()
            .map(|(reason, count)| format!("{} × {}", thousands(count), escape(reason.trim()))),
    );
    lines.push(at_end(&run.at_end));
    lines
}

fn in_words(times: &Times) -> String {
    format!(
        "median {}, 90 % within {}, 99 % within {}, worst {}",
        times.median, times.p90, times.p99, times.worst
    )
}

/// Whether the datastore is sound.
fn at_end(found: &AtEnd) -> String {
    let named = [
        (found.blocks, "blocks that overlap or do not fit their affinities"),
        (found.handles, "addresses in which handles and blocks differ"),
        (found.leaked, "addresses of pods that are gone"),
        (found.unallocated, "addresses in use that are not allocated to their pods"),
    ];
    let found: Vec<String> = named
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{} {what}", thousands(*count)))
        .collect();
    if found.is_empty() {
        return "The datastore at the end: blocks, handles and pods agree, nothing is leaked".to_owned();
    }
    format!("The datastore at the end: {}", found.join(", "))
}

/// The facts of a run, with their names.
pub(super) fn facts(run: &Run) -> Vec<(&'static str, String)> {
    let (wait, adds, blocks) = (&run.time_to_address, &run.adds, &run.blocks);
    vec![
        ("Pods that do not run", thousands(run.waiting_pods)),
        ("Pods that run", thousands(run.pods)),
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
        ("Lists at the same time, most", format!("{} KiB", thousands(run.most_listed_bytes.div_ceil(1024)))),
    ]
}

/// Each fact of several runs: the median, and how far it went.
pub(super) fn facts_with_range(run: &Run) -> Vec<Vec<String>> {
    let mut rows: Vec<Vec<String>> =
        facts(run).into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    for end in run.range.iter().flat_map(|range| [&range.lowest, &range.highest]) {
        rows.iter_mut().zip(facts(end)).for_each(|(row, (_, value))| row.push(value));
    }
    rows
}

fn range(run: &Run, detail: Detail, page: Page, out: &mut dyn Write) -> io::Result<()> {
    let mut grid = Grid::new(page, detail, "RESULT  >IN THE MEDIAN  >LOWEST  >HIGHEST");
    facts_with_range(run).into_iter().for_each(|cells| grid.row(cells));
    grid.write(out)
}

/// The phases in which pods were created.
pub(super) fn phase_rows(run: &Run) -> Vec<Vec<String>> {
    let phases = [("fill", &run.phases.fill), ("storm", &run.phases.storm), ("after", &run.phases.after)];
    let cells = |(name, phase): (&str, &Phase)| {
        let wait = &phase.time_to_address;
        vec![
            name.to_owned(),
            phase.from.to_string(),
            phase.to.to_string(),
            thousands(phase.pods),
            wait.median.to_string(),
            wait.p90.to_string(),
            wait.p99.to_string(),
            wait.worst.to_string(),
            thousands(phase.never),
            thousands(phase.failed),
        ]
    };
    phases.into_iter().filter(|(_, phase)| phase.pods > 0).map(cells).collect()
}

fn curve(run: &Run, page: Page, out: &mut dyn Write) -> io::Result<()> {
    if run.curve.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nOver {}:", run.simulated)?;
    let line = |name: &str, values: Vec<u64>, most: String, out: &mut dyn Write| {
        let drawn = bars::curve(&values, values.iter().copied().max().unwrap_or(0), bars::room(page));
        writeln!(out, "  {name:<19}  {drawn}| at most {most}")
    };
    let waiting: Vec<u64> = run.curve.iter().map(|moment| moment.waiting).collect();
    let most = thousands(waiting.iter().copied().max().unwrap_or(0));
    line("pods without address", waiting, most, out)?;
    let wait = run.curve.iter().map(|moment| moment.p99).collect::<Vec<_>>();
    let most = wait.iter().max().copied().unwrap_or_default().to_string();
    line("99 % wait", wait.iter().map(|time| time.0).collect(), most, out)?;
    let failed: Vec<u64> = run.curve.iter().map(|moment| moment.failed).collect();
    let most = failed.iter().copied().max().unwrap_or(0);
    if most > 0 {
        line("ADDs that fail", failed, thousands(most), out)?;
    }
    Ok(())
}
