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
    fn runs(&self) -> u64 {
        let first_of_scale = self.scale.as_ref().and_then(|scale| scale.rows.first());
        let first_size = self.block_sizes.as_ref().and_then(|sizes| sizes.rows.first());
        let first_of_sizes = first_size.map(|row| &row.run);

        let mut runs = 1;
        for run in [self.run.as_ref(), first_of_scale, first_of_sizes]
            .into_iter()
            .flatten()
        {
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

    /// Formats the scenario in one line: nodes, pods, pools, seeds and latency.
    fn headline(&self) -> String {
        let scenario = &self.scenario;
        let nodes = scenario.node_count() as usize;
        let pools = scenario.pools();
        let running = match &scenario.start {
            Some(start) if !start.pods.is_empty() => {
                format!(", {} running", count(start.pods.len(), "pod", "pods"))
            }
            _ => String::new(),
        };
        let pool_word = if pools.len() == 1 { "pool" } else { "pools" };
        let pools = list(
            pools
                .iter()
                .map(|pool| format!("{} (/{})", pool.cidr, pool.block_size)),
        );
        let seeds = match self.runs() {
            1 => format!("seed {}", scenario.seed),
            runs => format!(
                "{runs} runs with seeds from {}, pods per node vary by {SPREAD} %",
                scenario.seed
            ),
        };
        let latency = match scenario.latency.as_str() {
            "" => "latency assumed".to_owned(),
            given => format!("latency {given}, else assumed"),
        };
        format!(
            "Simulated by calipam {}: {} on {}, {} pods created at {}{running}; {pool_word} {pools}; {seeds}; {latency}",
            self.version,
            count(nodes, "node", "nodes"),
            scenario.datastore,
            thousands(scenario.pod_count()),
            scenario.arrival(),
        )
    }
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
fn heading(text: &mut Text, heading: &str) {
    text.blank();
    text.styled(clap::builder::styling::Style::new().bold(), heading);
}

/// Formats a percentage as `12.5`.
fn share(percent: f64) -> String {
    format!("{percent:.1}")
}
