//! Scenarios side by side.

use serde::Serialize;

use super::several::run_each;
use super::{Run, Runs};
use crate::scenario::{Scenario, ScenarioError};

/// One of the scenarios.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Compared {
    pub name: String,
    pub scenario: Scenario,
    #[serde(flatten)]
    pub run: Run,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Comparison {
    pub rows: Vec<Compared>,
}

/// Runs scenarios that have names.
pub fn compare(named: Vec<(String, Scenario)>, runs: Runs) -> Result<Comparison, ScenarioError> {
    let (names, scenarios): (Vec<String>, Vec<Scenario>) = named.into_iter().unzip();
    let shown = run_each(&scenarios, runs)?;
    let rows = names.into_iter().zip(scenarios).zip(shown);
    Ok(Comparison { rows: rows.map(|((name, scenario), run)| Compared { name, scenario, run }).collect() })
}
