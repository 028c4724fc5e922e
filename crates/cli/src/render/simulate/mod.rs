//! The output of `simulate`.

mod advice;
mod bars;
mod clashes;
mod failure;
mod page;
mod runs;
mod single_run;
mod svg;

use std::io::{self, Write};

use calipam_check::list;
use calipam_simulate::answer::{Advice, BlockSizes, Clashes, Failure, Run, SPREAD, Scale};
use calipam_simulate::{Costs, Scenario, ScenarioError};
use serde::Serialize;

use super::document::{Document, unsupported};
use super::output::Text;
use super::text::{count, thousands};
use crate::format::Format;

/// The results of all simulations that the options request.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Answers {
    version: &'static str,
    scenario: Scenario,
    /// The costs of requests to the datastore.
    costs: Costs,
    /// The names of the costs that no option has set.
    assumed_costs: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<Run>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale: Option<Scale>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_sizes: Option<BlockSizes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clashes: Option<Clashes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<Advice>,
}

impl Answers {
    /// Creates the answers for a scenario, without results yet.
    pub(crate) fn of(scenario: &Scenario) -> Result<Self, ScenarioError> {
        Ok(Self {
            version: env!("CARGO_PKG_VERSION"),
            costs: scenario.costs()?,
            assumed_costs: Costs::names_not_in(&scenario.latency),
            scenario: scenario.clone(),
            run: None,
            scale: None,
            block_sizes: None,
            failure: None,
            clashes: None,
            advice: None,
        })
    }

    /// Returns the number of runs of each scenario: the largest that any answer has. Clashes are left out, since they
    /// have a number of their own.
    fn number_of_runs(&self) -> u64 {
        let mut runs = 1;
        for run in self.sample_runs() {
            // A single run has no range.
            if let Some(range) = &run.range {
                runs = runs.max(range.runs);
            }
        }
        if let Some(failure) = &self.failure
            && let Some(range) = &failure.range
        {
            runs = runs.max(range.runs);
        }
        if let Some(advice) = &self.advice {
            runs = runs.max(advice.runs);
        }
        runs
    }

    /// Returns a run of each answer. All rows of an answer have the same number of runs, so the first stands for them.
    fn sample_runs(&self) -> Vec<&Run> {
        let mut runs: Vec<&Run> = Vec::new();
        if let Some(run) = &self.run {
            runs.push(run);
        }
        if let Some(scale) = &self.scale {
            runs.extend(scale.rows.first());
        }
        if let Some(block_sizes) = &self.block_sizes {
            runs.extend(block_sizes.rows.first().map(|row| &row.run));
        }
        runs
    }

    /// Formats the scenario in one line: nodes, pods, pools, seeds and latency.
    fn headline(&self) -> String {
        let scenario = &self.scenario;
        let nodes = count(scenario.node_count() as usize, "node", "nodes");
        let latency = if scenario.latency.is_empty() {
            "latency assumed".to_owned()
        } else {
            format!("latency {}, else assumed", scenario.latency)
        };
        format!(
            "Simulated by calipam {}: {nodes} on {}, {}; {}; {}; {latency}",
            self.version,
            scenario.datastore,
            words_of_pods(scenario),
            words_of_pools(scenario),
            self.words_of_seeds(),
        )
    }

    /// Formats `seed 1` or, if each scenario ran several times, their number with the first seed.
    fn words_of_seeds(&self) -> String {
        let seed = self.scenario.seed;
        match self.number_of_runs() {
            1 => format!("seed {seed}"),
            runs => format!("{runs} runs with seeds from {seed}, pods per node vary by {SPREAD} %"),
        }
    }
}

/// Formats `1,000 pods created at …`, with the number of pods that run before.
fn words_of_pods(scenario: &Scenario) -> String {
    let pods = thousands(scenario.pod_count());
    let mut words = format!("{pods} pods created at {}", scenario.arrival());
    if let Some(start) = &scenario.start
        && !start.pods.is_empty()
    {
        let running = count(start.pods.len(), "pod", "pods");
        words.push_str(&format!(", {running} running"));
    }
    words
}

/// Formats `pool 10.244.0.0/16 (/26)`, each with its block size.
fn words_of_pools(scenario: &Scenario) -> String {
    let mut pools = Vec::new();
    for pool in scenario.pools() {
        pools.push(format!("{} (/{})", pool.cidr, pool.block_size));
    }
    let word = if pools.len() == 1 { "pool" } else { "pools" };
    format!("{word} {}", list(pools))
}

impl Document for Answers {
    const KIND: &'static str = "Simulation";

    /// Writes the scenario, and then the results of the requested simulations.
    fn text(&self, out: &mut Text) {
        out.line(self.headline());
        if let Some(run) = &self.run {
            single_run::write(run, out);
        }
        if let Some(scale) = &self.scale {
            runs::write_scale(scale, out);
        }
        if let Some(block_sizes) = &self.block_sizes {
            runs::write_block_sizes(&block_sizes.rows, out);
        }
        if let Some(failure) = &self.failure {
            failure::write(failure, out);
        }
        if let Some(clashes) = &self.clashes {
            clashes::write(clashes, out);
        }
        if let Some(advice) = &self.advice {
            advice::write(advice, out);
        }
    }

    fn report(&self, format: Format, out: &mut dyn Write) -> io::Result<()> {
        match format {
            Format::Html => page::write(self, out),
            other => Err(unsupported(self.kind(), other)),
        }
    }
}

/// Writes a heading after an empty line.
fn write_heading(text: &mut Text, heading: &str) {
    text.blank();
    text.styled(clap::builder::styling::Style::new().bold(), heading);
}

/// Formats a percentage as `12.5`.
fn percentage(percent: f64) -> String {
    format!("{percent:.1}")
}
