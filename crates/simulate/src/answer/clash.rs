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
const CHECKS: Micros = Micros::from_secs(30);
/// The time from the arrival of the last pod to the cause.
const BEFORE: Micros = Micros::from_mins(5);
/// The time that the cluster runs after the cause.
const AFTER: Micros = Micros::from_mins(45);
/// The default lifetime of pods. Addresses are reused only if pods come and go.
const LIFETIME: Micros = Micros::from_mins(10);
/// The default time from a node's partition until the node is removed from the cluster.
const REMOVAL: Micros = Micros::from_mins(6);

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

/// Runs a cluster `runs` times with each cause, each time with a different seed.
pub fn clashes(scenario: &Scenario, causes: &[Cause], runs: u64) -> Result<Clashes> {
    let jobs: Vec<(Cause, Scenario)> = causes
        .iter()
        .flat_map(|cause| (0..runs).map(|run| (*cause, with_cause(scenario, *cause, scenario.seed + run))))
        .collect();
    jobs.iter().try_for_each(|(_, scenario)| scenario.check())?;
    let seen = in_parallel(&jobs, |(_, scenario)| observe(scenario))?;
    let mut by_cause: BTreeMap<Cause, Vec<Observation>> = BTreeMap::new();
    for ((cause, _), seen) in jobs.iter().zip(seen) {
        by_cause.entry(*cause).or_default().push(seen);
    }
    let causes = by_cause
        .into_iter()
        .map(|(cause, seen)| row(cause, &seen))
        .collect();
    Ok(Clashes {
        check_interval: CHECKS,
        causes,
    })
}

fn with_cause(scenario: &Scenario, cause: Cause, seed: u64) -> Scenario {
    let at = scenario.filled_at() + BEFORE;
    let what = match cause {
        Cause::None => None,
        Cause::OldBackup => Some(Event::RestoreBackup),
        Cause::SharedHandle => Some(Event::ShareHandles),
        Cause::FreedByHand => Some(Event::FreeAddresses),
        Cause::Partition => Some(Event::PartitionNode(scenario.node_name(0))),
    };
    let lifetime = scenario.lifetime.unwrap_or(LIFETIME);
    Scenario {
        seed,
        lifetime: Some(lifetime),
        duration: Some(at + AFTER),
        removal: Some(scenario.removal.unwrap_or(REMOVAL)),
        event: what.map(|what| Planned { at, what }),
        ..scenario.clone()
    }
}

fn observe(scenario: &Scenario) -> Result<Observation> {
    let end = scenario.end();
    let lifetime = scenario.lifetime.unwrap_or(LIFETIME);
    let at = end - AFTER;
    let first = at - lifetime.min(BEFORE);
    let world = simulate(scenario, |world| {
        world.plan_checks(first, CHECKS, BTreeSet::new())
    })?;
    let checks = &world.measured.borrow().checks;
    // Findings that were there before the cause are not its effects.
    let before: BTreeSet<&str> = checks
        .iter()
        .filter(|(seen, _)| *seen <= at)
        .flat_map(|(_, codes)| codes.iter().copied())
        .collect();
    let mut findings = BTreeMap::new();
    for (seen, codes) in checks.iter().filter(|(seen, _)| *seen > at) {
        for code in codes.iter().filter(|code| !before.contains(**code)) {
            findings.entry(*code).or_insert(*seen - at);
        }
    }
    let ledger = world.ledger.borrow();
    let first_clash = ledger
        .clashes
        .iter()
        .map(|clash| clash.at)
        .min()
        .map(|first| first - at);
    let addresses: BTreeSet<_> = ledger.clashes.iter().map(|clash| clash.address).collect();
    Ok(Observation {
        clashes: addresses.len() as u64,
        first_clash,
        findings,
    })
}

fn row(cause: Cause, seen: &[Observation]) -> CauseRow {
    let mut sightings: BTreeMap<&'static str, Vec<(Micros, bool)>> = BTreeMap::new();
    for run in seen {
        for (code, after) in &run.findings {
            let is_before = run.first_clash.is_none_or(|clash| *after < clash);
            sightings.entry(code).or_default().push((*after, is_before));
        }
    }
    let mut findings: Vec<Sighting> = sightings
        .into_iter()
        .map(|(code, seen)| Sighting {
            code: code.to_owned(),
            runs: seen.len() as u64,
            runs_before_clash: seen.iter().filter(|(_, is_before)| *is_before).count() as u64,
            after: median(seen.iter().map(|(after, _)| *after).collect()).unwrap_or_default(),
        })
        .collect();
    findings.sort_by(|a, b| (a.after, &a.code).cmp(&(b.after, &b.code)));
    CauseRow {
        cause,
        runs: seen.len() as u64,
        runs_with_clash: seen.iter().filter(|run| run.clashes > 0).count() as u64,
        clashes: seen.iter().map(|run| run.clashes).sum(),
        first_clash_after: median(seen.iter().filter_map(|run| run.first_clash).collect()),
        findings,
    }
}
