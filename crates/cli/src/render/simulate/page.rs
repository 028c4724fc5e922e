//! A self-contained HTML page: each answer as a table and, except for the result of a plain run, as charts. The page
//! has no script and loads no other files.

use std::io::{self, Write};

use calipam_simulate::Micros;
use calipam_simulate::answer::{Advice, BlockSizeRow, Clashes, Course, Failure, Point, Run, Scale, Times};
use maud::{Markup, html};

use super::runs::{scale_table, size_table};
use super::svg::{self, Line, Value};
use super::{Answers, advice, clashes, failure, single_run};
use crate::render::html::{Frame, NO_SERVER, facts, grid};
use crate::render::table::Grid;
use crate::render::text::thousands;
use crate::render::yaml;

/// Writes the answers as a page, with the assumed costs and the scenario.
pub(super) fn write(answers: &Answers, out: &mut dyn Write) -> io::Result<()> {
    let mut scenario = Vec::new();
    yaml::write(&answers.scenario, &mut scenario)?;
    let scenario = String::from_utf8_lossy(&scenario);
    let body = html! {
        header { h1 { "Simulation of Calico IPAM" } p.dim { (answers.headline()) } }
        main {
        @if let Some(run) = &answers.run { (run_section(run)) }
        @if let Some(scale) = &answers.scale { (scale_section(scale)) }
        @if let Some(sizes) = &answers.block_sizes { (sizes_section(&sizes.rows)) }
        @if let Some(failure) = &answers.failure { (failure_section(failure)) }
        @if let Some(clashes) = &answers.clashes { (clashes_section(clashes)) }
        @if let Some(advice) = &answers.advice { (advice_section(advice)) }
        h2 { "Assumptions" }
        p { "The cost of datastore requests (" code { "--latency" } "), and whether an option set it." }
        (table_with_names(&[], costs(answers)))
        h2 { "Scenario" }
        pre { (scenario) }
        }
    };
    Frame {
        title: "simulation",
        scripts: &[],
        server: NO_SERVER,
        version: None,
    }
    .write(&body, out)
}

/// Returns rows with the name and value of each cost, and whether an option gave it.
fn costs(answers: &Answers) -> impl Iterator<Item = Vec<String>> {
    answers.costs.by_text().into_iter().map(|(name, value)| {
        let origin = if answers.assumed_costs.contains(&name) {
            "assumed"
        } else {
            "given"
        };
        vec![name.to_owned(), value, origin.to_owned()]
    })
}

/// Creates a table of rows that begin with a name.
fn table_with_names(titles: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> Markup {
    let mut facts_of_rows = Vec::new();
    for row in rows {
        let mut cells = row.into_iter();
        let name = cells.next().unwrap_or_default();
        let values: Vec<Markup> = cells.map(|cell| html! { (cell) }).collect();
        facts_of_rows.push((name, values));
    }
    facts(titles, facts_of_rows)
}

fn time(time: Micros) -> Value {
    Value {
        number: time.0 as f64,
        text: time.to_string(),
    }
}

fn number(number: u64) -> Value {
    Value {
        number: number as f64,
        text: thousands(number),
    }
}

fn values_of_times(times: &Times) -> Vec<Value> {
    vec![time(times.median), time(times.p99), time(times.worst)]
}

/// The names of the series of a chart of times, in the order of [`values_of_times`].
const TIMES: [&str; 3] = ["median", "99 %", "worst"];

/// The names of the series of a chart with only one series.
const UNNAMED: [&str; 1] = [""];

/// Creates the section of one scenario.
fn run_section(run: &Run) -> Markup {
    let heads: &[&str] = if run.range.is_some() {
        &["Median", "Lowest", "Highest"]
    } else {
        &[]
    };
    html! {
        h2 { "Result" }
        @for line in single_run::lines(run) { p { (line) } }
        (table_with_names(heads, single_run::facts_with_range(run)))
    }
}

/// Creates the section of different numbers of nodes.
fn scale_section(scale: &Scale) -> Markup {
    let mut times = Vec::new();
    let mut requests = Vec::new();
    for run in &scale.rows {
        let adds = &run.adds;
        times.push((thousands(run.nodes), values_of_times(&adds.time)));
        let in_own_block = number(adds.requests_in_own_block.median);
        let with_new_block = number(adds.requests_with_list.median);
        requests.push((thousands(run.nodes), vec![in_own_block, with_new_block]));
    }
    html! {
        h2 { "ADD latency by cluster size" }
        (grid(scale_table(scale)))
        (svg::bars("Time per ADD, by number of nodes", &TIMES, &times))
        (svg::bars("Requests per ADD, by number of nodes", &["in own block", "with a new block"], &requests))
    }
}

/// Creates the section of different block sizes.
fn sizes_section(rows: &[BlockSizeRow]) -> Markup {
    html! {
        h2 { "The cluster with each block size" }
        (grid(size_table(rows.iter().map(|row| (row, None)))))
        (size_charts(rows.iter()))
    }
}

/// Draws charts of the costs of each block size.
fn size_charts<'a>(rows: impl Iterator<Item = &'a BlockSizeRow>) -> Markup {
    let mut times = Vec::new();
    let mut wasted = Vec::new();
    let mut routes = Vec::new();
    for BlockSizeRow { block_size, run, .. } in rows {
        let name = format!("/{block_size}");
        times.push((name.clone(), values_of_times(&run.adds.time)));
        wasted.push((name.clone(), vec![number(run.blocks.wasted)]));
        routes.push((name, vec![number(run.blocks.routes)]));
    }
    html! {
        (svg::bars("Time per ADD, by block size", &TIMES, &times))
        (svg::bars("Wasted addresses, by block size", &UNNAMED, &wasted))
        (svg::bars("Routes, by block size", &UNNAMED, &routes))
    }
}

/// Draws the course of a node's failure, with the collector and without it.
fn failure_section(failure: &Failure) -> Markup {
    let end = failure::end(failure);
    let curves = |value: fn(&Point) -> u64| {
        [
            curve("collector on", &failure.with_collector, end, value),
            curve("collector off", &failure.without_collector, end, value),
        ]
    };
    let held = curves(|point| point.held);
    let waiting = curves(|point| point.waiting);
    html! {
        h2 { "Addresses of a node that fails" }
        p { (failure.node) ": " (thousands(failure.held)) " addresses held when it failed." }
        (grid(failure::table(failure)))
        (svg::lines("Addresses that the node holds after its failure", &end.to_string(), &held))
        (svg::lines("Pods that should be running but are not", &end.to_string(), &waiting))
    }
}

/// Creates the curve of a number. The positions of its points are from 0 at the failure to 1 at the end.
fn curve(name: &str, course: &Course, end: Micros, value: fn(&Point) -> u64) -> Line {
    let mut points = Vec::new();
    for point in &course.points {
        let position = point.after.0 as f64 / end.0.max(1) as f64;
        points.push((position, number(value(point))));
    }
    Line {
        name: name.to_owned(),
        points,
    }
}

/// Creates the section of duplicate addresses.
fn clashes_section(Clashes { causes, .. }: &Clashes) -> Markup {
    let mut bars = Vec::new();
    for row in causes {
        bars.push((row.cause.to_string(), vec![number(row.runs_with_clash)]));
    }
    html! {
        h2 { "Causes of duplicate addresses" }
        (grid(Grid::fixed(causes, clashes::columns())))
        (svg::bars("Runs in which an address had two owners", &UNNAMED, &bars))
        @for row in causes.iter().filter(|row| !row.findings.is_empty()) {
            h3 { "Checks after: " (clashes::words_of_cause(row.cause)) }
            (grid(Grid::fixed(&row.findings, clashes::finding_columns())))
        }
    }
}

/// Creates the section of advice.
fn advice_section(advice: &Advice) -> Markup {
    let rows = advice
        .candidates
        .iter()
        .map(|candidate| (&candidate.row, Some(advice::drawbacks(candidate))));
    html! {
        h2 { "Advice" }
        @for line in advice::lines(advice) { p { (line) } }
        (grid(size_table(rows)))
        (size_charts(advice.candidates.iter().map(|candidate| &candidate.row)))
    }
}
