//! What `simulate` prints.

mod advice;
mod bars;
mod clashes;
mod failure;
mod measurement;
mod page;
mod runs;
mod svg;

use std::io::{self, Write};

use calipam_simulate::answer::{Advice, BlockSizes, Clashes, Failure, Run, Scale};
use calipam_simulate::{Costs, Scenario};
use serde::Serialize;

pub(crate) use self::measurement::Measurement;
use super::document::{Detail, Document, unsupported};
use super::table::Page;
use super::text::{count, thousands};
use super::wrap::on_page;
use crate::format::Format;

/// All answers of one call.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Answers {
    /// What was simulated.
    pub scenario: Scenario,
    /// What the requests to its datastore cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub costs: Option<Costs>,
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
    /// Nothing is answered yet.
    pub(crate) fn is_empty(&self) -> bool {
        let Self { scenario: _, costs: _, run, scale, block_sizes, failure, clashes, advice } = self;
        run.is_none()
            && scale.is_none()
            && block_sizes.is_none()
            && failure.is_none()
            && clashes.is_none()
            && advice.is_none()
    }

    /// What was simulated, in one line.
    fn headline(&self) -> String {
        let scenario = &self.scenario;
        let nodes = scenario.node_count() as usize;
        let pools: Vec<String> =
            scenario.pools().iter().map(|pool| format!("{} (/{})", pool.cidr, pool.block_size)).collect();
        let running = scenario.start.as_ref().map_or(0, |start| start.pods.len());
        let begin =
            if running > 0 { format!(", {} running", count(running, "pod", "pods")) } else { String::new() };
        format!(
            "Simulated: {} on {}, {} pods created at {}{begin}; {} {}; seed {}; {}",
            count(nodes, "node", "nodes"),
            scenario.datastore,
            thousands(scenario.pod_count()),
            scenario.arrival(),
            if pools.len() == 1 { "pool" } else { "pools" },
            pools.join(", "),
            scenario.seed,
            match scenario.latency.as_str() {
                "" => "latency assumed".to_owned(),
                given => format!("latency {given}, else assumed"),
            }
        )
    }
}

impl Document for Answers {
    fn kind(&self) -> &'static str {
        "Simulation"
    }

    fn text(&self, detail: Detail, page: Page, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}", on_page(&self.headline(), 0, page))?;
        if let Some(run) = &self.run {
            runs::one(run, page, out)?;
        }
        if let Some(scale) = &self.scale {
            runs::scale(scale, detail, page, out)?;
        }
        if let Some(sizes) = &self.block_sizes {
            runs::block_sizes(&sizes.rows, detail, page, out)?;
        }
        if let Some(failure) = &self.failure {
            failure::write(failure, detail, page, out)?;
        }
        if let Some(clashes) = &self.clashes {
            clashes::write(clashes, detail, page, out)?;
        }
        if let Some(advice) = &self.advice {
            advice::write(advice, detail, page, out)?;
        }
        Ok(())
    }

    fn schema(&self) -> impl Serialize {
        self
    }

    fn report(&self, format: Format, out: &mut dyn Write) -> io::Result<()> {
        match format {
            Format::Html => page::write(self, out),
            other => Err(unsupported(self.kind(), other)),
        }
    }
}

/// A heading with an empty line before it.
fn heading(text: &str, page: Page, out: &mut dyn Write) -> io::Result<()> {
    let style = clap::builder::styling::Style::new().bold();
    writeln!(out, "\n{}", page.styled(style, text))
}

/// A share as people read it: `12.5 %`.
fn share(percent: f64) -> String {
    format!("{percent:.1}")
}
