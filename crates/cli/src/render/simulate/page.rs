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
        @if let Some(run) = &answers.run { (one(run)) }
        @if let Some(scale) = &answers.scale { (of_scale(scale)) }
        @if let Some(sizes) = &answers.block_sizes { (of_sizes(&sizes.rows)) }
        @if let Some(failure) = &answers.failure { (of_failure(failure)) }
        @if let Some(clashes) = &answers.clashes { (of_clashes(clashes)) }
        @if let Some(advice) = &answers.advice { (of_advice(advice)) }
        h2 { "Assumptions" }
        p { "The cost of datastore requests (" code { "--latency" } "), and whether an option set it." }
        (named(&[], costs(answers)))
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

/// Lists the costs, and whether an option gave them.
fn costs(answers: &Answers) -> impl Iterator<Item = Vec<String>> {
    answers.costs.by_text().into_iter().map(|(name, value)| {
        let is_assumed = answers.assumed_costs.contains(&name);
        vec![
            name.to_owned(),
            value,
            if is_assumed { "assumed" } else { "given" }.to_owned(),
        ]
    })
}

/// Creates a table of rows that begin with a name.
fn named(titles: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> Markup {
    let row = |row: Vec<String>| {
        let mut cells = row.into_iter();
        (
            cells.next().unwrap_or_default(),
            cells.map(|cell| html! { (cell) }).collect(),
        )
    };
    facts(titles, rows.into_iter().map(row))
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

fn three(times: &Times) -> Vec<Value> {
    vec![time(times.median), time(times.p99), time(times.worst)]
}

const THREE: [&str; 3] = ["median", "99 %", "worst"];

/// Creates the section of one scenario.
fn one(run: &Run) -> Markup {
    let heads: &[&str] = if run.range.is_some() {
        &["Median", "Lowest", "Highest"]
    } else {
        &[]
    };
    html! {
        h2 { "Result" }
        @for line in single_run::lines(run) { p { (line) } }
        (named(heads, single_run::facts_with_range(run)))
    }
}

/// Creates the section of different numbers of nodes.
fn of_scale(scale: &Scale) -> Markup {
    let times: Vec<_> = scale
        .rows
        .iter()
        .map(|run| (thousands(run.nodes), three(&run.adds.time)))
        .collect();
    let requests: Vec<_> = scale
        .rows
        .iter()
        .map(|run| {
            let own = run.adds.requests_in_own_block.median;
            let listed = run.adds.requests_with_list.median;
            (thousands(run.nodes), vec![number(own), number(listed)])
        })
        .collect();
    html! {
        h2 { "ADD latency by cluster size" }
        (grid(scale_table(scale)))
        (svg::bars("Time per ADD, by number of nodes", &THREE, &times))
        (svg::bars("Requests per ADD, by number of nodes", &["in own block", "with a new block"], &requests))
    }
}

fn of_sizes(rows: &[BlockSizeRow]) -> Markup {
    html! {
        h2 { "The cluster with each block size" }
        (grid(size_table(rows.iter().map(|row| (row, None)))))
        (size_charts(rows.iter()))
    }
}

fn size_charts<'a>(rows: impl Iterator<Item = &'a BlockSizeRow> + Clone) -> Markup {
    let by = |value: fn(&BlockSizeRow) -> Vec<Value>| -> Vec<(String, Vec<Value>)> {
        rows.clone()
            .map(|row| (format!("/{}", row.block_size), value(row)))
            .collect()
    };
    html! {
        (svg::bars("Time per ADD, by block size", &THREE, &by(|row| three(&row.run.adds.time))))
        (svg::bars("Wasted addresses, by block size", &[""], &by(|row| vec![number(row.run.blocks.wasted)])))
        (svg::bars("Routes, by block size", &[""], &by(|row| vec![number(row.run.blocks.routes)])))
    }
}

/// Draws the course of a node's failure, with the collector and without it.
fn of_failure(failure: &Failure) -> Markup {
    let end = match failure.with_collector.points.last() {
        Some(point) => point.after,
        None => Default::default(),
    };
    let line = |name: &str, course: &Course, value: fn(&Point) -> u64| {
        let along = |point: &Point| point.after.0 as f64 / end.0.max(1) as f64;
        Line {
            name: name.to_owned(),
            points: course
                .points
                .iter()
                .map(|point| (along(point), number(value(point))))
                .collect(),
        }
    };
    let lines = |value: fn(&Point) -> u64| {
        [
            line("collector on", &failure.with_collector, value),
            line("collector off", &failure.without_collector, value),
        ]
    };

    let held = lines(|point| point.held);
    let waiting = lines(|point| point.waiting);
    html! {
        h2 { "Addresses of a node that fails" }
        p { (failure.node) ": " (thousands(failure.held)) " addresses held when it failed." }
        (grid(failure::table(failure)))
        (svg::lines("Addresses that the node holds after its failure", &end.to_string(), &held))
        (svg::lines("Pods that should be running but are not", &end.to_string(), &waiting))
    }
}

/// Creates the section of duplicate addresses.
fn of_clashes(found: &Clashes) -> Markup {
    let bars: Vec<_> = found
        .causes
        .iter()
        .map(|row| (row.cause.to_string(), vec![number(row.runs_with_clash)]))
        .collect();
    html! {
        h2 { "Causes of duplicate addresses" }
        (grid(Grid::fixed(&found.causes, clashes::columns())))
        (svg::bars("Runs in which an address had two owners", &[""], &bars))
        @for row in found.causes.iter().filter(|row| !row.findings.is_empty()) {
            h3 { "Checks after: " (clashes::words(row.cause)) }
            (grid(Grid::fixed(&row.findings, clashes::finding_columns())))
        }
    }
}

/// Creates the section of advice.
fn of_advice(found: &Advice) -> Markup {
    let rows = found
        .candidates
        .iter()
        .map(|candidate| (&candidate.row, Some(advice::against(candidate))));
    html! {
        h2 { "Advice" }
        @for line in advice::lines(found) { p { (line) } }
        (grid(size_table(rows)))
        (size_charts(found.candidates.iter().map(|candidate| &candidate.row)))
    }
}
