//! The addresses that a failed node holds, from the failure until they are free.

use serde::Serialize;

use super::ranks::{AtRank, median_and_range, of_fields};
use super::run::simulate;
use super::several::{in_parallel, variants};
use super::{Point, Range};
use crate::error::Result;
use crate::scenario::{GRACE, Scenario};
use crate::time::Micros;

/// The course of events after a failure.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Course {
    pub points: Vec<Point>,
    /// The time after which the node held no addresses; `None` if it held some to the end.
    pub addresses_free_after: Option<Micros>,
    /// The time after which the node held no blocks; `None` if it held some to the end.
    pub blocks_free_after: Option<Micros>,
    /// The largest number of pods at any one time that should have been running but were not.
    pub max_pending: u64,
    /// The time after which all pods were running; `None` if some were not at the end.
    pub all_running_after: Option<Micros>,
}

/// The result of a node's failure, with and without the collector.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    pub node: String,
    /// The number of addresses that the node held when it failed.
    pub held: u64,
    /// The time from the failure until the node is removed from the cluster; `None` for never.
    pub removed_after: Option<Micros>,
    pub with_collector: Course,
    pub without_collector: Course,
    /// Set if there were several runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<Box<Range<Failure>>>,
}

/// The number of intervals between recorded states.
const MOMENTS: u64 = 240;

/// Runs a scenario with a failing node `runs` times each with and without the collector of kube-controllers, and
/// returns the median of the runs, with the range if there are several.
pub fn failure(scenario: &Scenario, runs: u64) -> Result<Failure> {
    let mut with_collector = Scenario {
        grace: Some(scenario.grace.unwrap_or(GRACE)),
        ..scenario.clone()
    };
    // The runs with and without the collector have the same duration.
    with_collector.duration = Some(with_collector.end());
    let without_collector = Scenario {
        grace: None,
        ..with_collector.clone()
    };

    // The first half of the jobs has the collector.
    let mut jobs: Vec<Scenario> = Vec::new();
    jobs.extend(variants(&with_collector, runs));
    jobs.extend(variants(&without_collector, runs));
    let courses = in_parallel(&jobs, observe_course)?;
    let (with, without) = courses.split_at(courses.len() / 2);

    let event = scenario.event.as_ref();
    let node = event.and_then(|planned| planned.what.node()).unwrap_or_default();
    let mut failures = Vec::new();
    for (with, without) in with.iter().zip(without) {
        failures.push(Failure {
            node: node.to_owned(),
            held: with.points.first().map_or(0, |point| point.held),
            removed_after: scenario.removal,
            with_collector: with.clone(),
            without_collector: without.clone(),
            range: None,
        });
    }
    let (median, range) = median_and_range(&failures);
    Ok(Failure { range, ..median })
}

/// Runs a scenario, and returns how long addresses and blocks of the failed node stay taken.
fn observe_course(scenario: &Scenario) -> Result<Course> {
    let failed_at = match &scenario.event {
        Some(planned) => planned.at,
        None => Micros::default(),
    };
    // The first sample is taken right after the failure, since events at the same time keep their order.
    let world = simulate(scenario, |world| world.plan_samples(failed_at, MOMENTS))?;
    let points = world.measured.borrow().points.clone();
    Ok(Course {
        addresses_free_after: holds_from(&points, |point| point.held == 0),
        blocks_free_after: holds_from(&points, |point| point.blocks == 0),
        max_pending: points.iter().map(|point| point.waiting).max().unwrap_or(0),
        all_running_after: holds_from(&points, |point| point.waiting == 0),
        points,
    })
}

/// Returns the time from which a condition holds to the end; `None` if it does not hold at the end.
fn holds_from(points: &[Point], holds: impl Fn(&Point) -> bool) -> Option<Micros> {
    let first_holding = match points.iter().rposition(|point| !holds(point)) {
        Some(last_failing) => last_failing + 1,
        None => 0,
    };
    points.get(first_holding).map(|point| point.after)
}

of_fields! {
    Point { after, held, blocks, waiting }
    Course { points, addresses_free_after, blocks_free_after, max_pending, all_running_after }
    Failure { held, with_collector, without_collector; node, removed_after, range }
}

/// Ranks each point. All runs have the same number of points.
impl AtRank for Vec<Point> {
    /// The points of several runs at a rank, moment by moment, as far as all runs have them.
    fn at_rank(all: &[&Self], permille: usize) -> Self {
        let count = all.iter().map(|points| points.len()).min().unwrap_or(0);
        let mut ranked = Self::with_capacity(count);
        for index in 0..count {
            let points_of_runs: Vec<&Point> = all.iter().map(|points| &points[index]).collect();
            ranked.push(Point::at_rank(&points_of_runs, permille));
        }
        ranked
    }
}
