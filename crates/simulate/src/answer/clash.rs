//! Causes for which two pods get the same address.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::ranks::median;
use super::run::simulate;
use super::several::in_parallel;
use crate::error::Result;
use crate::scenario::{Event, Planned, Scenario};
use crate::time::Micros;

/// The interval of checks.
const CHECK_INTERVAL: Micros = Micros::from_secs(30);
/// The time from the arrival of the last pod to the cause, so that the first checks see the cluster without it.
const RUN_BEFORE_CAUSE: Micros = Micros::from_mins(5);
/// The time that the cluster runs after the cause: several lifetimes of pods, so that addresses are assigned again.
const RUN_AFTER_CAUSE: Micros = Micros::from_mins(45);
/// The default lifetime of pods. Addresses are reused only if pods come and go.
const POD_LIFETIME: Micros = Micros::from_mins(10);
/// The default time from a node's partition until the node is removed from the cluster.
const NODE_REMOVAL: Micros = Micros::from_mins(6);

/// A cause that can give an address two owners.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// No cause, for comparison.
    None,
    /// etcd is restored from an old backup.
    OldBackup,
    /// Pods share a handle by name, as in Calico 2.
    SharedHandle,
    /// Someone releases addresses of running pods by hand.
    FreedByHand,
    /// A node is cut off and removed from the cluster, but its pods keep running.
    Partition,
}

impl Cause {
    pub const ALL: [Self; 5] = [
        Self::None,
        Self::OldBackup,
        Self::SharedHandle,
        Self::FreedByHand,
        Self::Partition,
    ];
}

calipam_model::display_serialized!(Cause);

/// The sightings of one finding after a cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Sighting {
    pub code: String,
    /// Number of runs in which the finding was seen.
    pub runs: u64,
    /// Number of runs in which the finding was seen before any address had two owners.
    pub runs_before_clash: u64,
    /// The time from the cause until the finding was first seen: the median over the runs in which it was seen.
    pub after: Micros,
}

/// The effects of a cause.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CauseRow {
    pub cause: Cause,
    pub runs: u64,
    /// Number of runs in which an address had two owners.
    pub runs_with_clash: u64,
    /// Number of addresses with two owners, summed over the runs.
    pub clashes: u64,
    /// The time from the cause until an address first had two owners: the median over the runs with such an address.
    pub first_clash_after: Option<Micros>,
    /// The findings of checks, earliest first. Only findings of two checks in a row count, as with `--confirm`.
    pub findings: Vec<Sighting>,
}

/// The effects of each cause.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Clashes {
    pub check_interval: Micros,
    pub causes: Vec<CauseRow>,
}

/// The effects of a cause in one run.
struct Observation {
    clashes: u64,
    first_clash: Option<Micros>,
    /// The time from the cause until each code was first seen.
    findings: BTreeMap<&'static str, Micros>,
}

/// The runs in which one code was seen.
#[derive(Default)]
struct Seen {
    /// The time from the cause until the code was first seen, for each of these runs.
    times: Vec<Micros>,
    runs_before_clash: u64,
}

/// Runs a cluster `runs` times with each cause, each time with a different seed.
pub fn clashes(scenario: &Scenario, causes: &[Cause], runs: u64) -> Result<Clashes> {
    let mut jobs: Vec<(Cause, Scenario)> = Vec::new();
    for cause in causes {
        for run in 0..runs {
            let scenario = with_cause(scenario, *cause, scenario.seed + run);
            jobs.push((*cause, scenario));
        }
    }
    // All are checked before the first one runs, which can take minutes.
    for (_, scenario) in &jobs {
        scenario.check()?;
    }

    let observations = in_parallel(&jobs, |(_, scenario)| observe(scenario))?;
    // In the order of `Cause`, whatever the order of `causes`.
    let mut by_cause: BTreeMap<Cause, Vec<Observation>> = BTreeMap::new();
    for ((cause, _), observation) in jobs.iter().zip(observations) {
        by_cause.entry(*cause).or_default().push(observation);
    }

    let mut rows = Vec::new();
    for (cause, observations) in by_cause {
        rows.push(summarize(cause, &observations));
    }
    Ok(Clashes {
        check_interval: CHECK_INTERVAL,
        causes: rows,
    })
}

/// Returns the scenario with the event of a cause, some time after all pods have arrived. Pods leave and failed nodes
/// are removed even if the scenario does not say so, because a clash needs addresses that are assigned again.
fn with_cause(scenario: &Scenario, cause: Cause, seed: u64) -> Scenario {
    let event = match cause {
        Cause::None => None,
        Cause::OldBackup => Some(Event::RestoreBackup),
        Cause::SharedHandle => Some(Event::ShareHandles),
        Cause::FreedByHand => Some(Event::FreeAddresses),
        Cause::Partition => Some(Event::PartitionNode(scenario.node_name(0))),
    };
    let event_time = scenario.filled_at() + RUN_BEFORE_CAUSE;
    Scenario {
        seed,
        lifetime: Some(scenario.lifetime.unwrap_or(POD_LIFETIME)),
        duration: Some(event_time + RUN_AFTER_CAUSE),
        removal: Some(scenario.removal.unwrap_or(NODE_REMOVAL)),
        event: event.map(|event| Planned {
            at: event_time,
            what: event,
        }),
        ..scenario.clone()
    }
}

/// Runs a scenario with a cause. Returns the clashes, and for each code the time from the cause to the first check that
/// found it.
fn observe(scenario: &Scenario) -> Result<Observation> {
    let end = scenario.end();
    let lifetime = scenario.lifetime.unwrap_or(POD_LIFETIME);
    let caused_at = end - RUN_AFTER_CAUSE;
    let first_check = caused_at - lifetime.min(RUN_BEFORE_CAUSE);
    let world = simulate(scenario, |world| {
        world.plan_checks(first_check, CHECK_INTERVAL, BTreeSet::new())
    })?;

    // Findings that were there before the cause are not its effects.
    let checks = &world.measured.borrow().checks;
    let mut earlier_codes: BTreeSet<&str> = BTreeSet::new();
    for (checked_at, codes) in checks {
        if *checked_at <= caused_at {
            earlier_codes.extend(codes.iter().copied());
        }
    }
    let mut findings = BTreeMap::new();
    for (checked_at, codes) in checks {
        if *checked_at <= caused_at {
            continue;
        }
        // The checks are in order of time, so the first one with a code is kept.
        for code in codes.iter().filter(|code| !earlier_codes.contains(**code)) {
            findings.entry(*code).or_insert(*checked_at - caused_at);
        }
    }

    let ledger = world.ledger.borrow();
    let first_clash = ledger.clashes.iter().map(|clash| clash.at).min();
    let addresses: BTreeSet<_> = ledger.clashes.iter().map(|clash| clash.address).collect();
    Ok(Observation {
        clashes: addresses.len() as u64,
        first_clash: first_clash.map(|first| first - caused_at),
        findings,
    })
}

/// Sums up the runs with one cause: the clashes, and each code that was found, with the median time until it was. The
/// codes that are found first come first.
fn summarize(cause: Cause, observations: &[Observation]) -> CauseRow {
    let mut seen_by_code: BTreeMap<&'static str, Seen> = BTreeMap::new();
    let mut runs_with_clash = 0;
    let mut clashes = 0;
    let mut first_clashes = Vec::new();
    for run in observations {
        if run.clashes > 0 {
            runs_with_clash += 1;
        }
        clashes += run.clashes;
        first_clashes.extend(run.first_clash);
        for (code, after) in &run.findings {
            let seen = seen_by_code.entry(code).or_default();
            seen.times.push(*after);
            if run.first_clash.is_none_or(|clash| *after < clash) {
                seen.runs_before_clash += 1;
            }
        }
    }

    let mut findings: Vec<Sighting> = Vec::new();
    for (code, seen) in seen_by_code {
        findings.push(Sighting {
            code: code.to_owned(),
            runs: seen.times.len() as u64,
            runs_before_clash: seen.runs_before_clash,
            after: median(seen.times).unwrap_or_default(),
        });
    }
    findings.sort_by(|a, b| (a.after, &a.code).cmp(&(b.after, &b.code)));

    CauseRow {
        cause,
        runs: observations.len() as u64,
        runs_with_clash,
        clashes,
        first_clash_after: median(first_clashes),
        findings,
    }
}
