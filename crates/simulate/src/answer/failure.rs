//! What becomes of the addresses of nodes that fail?

use serde::Serialize;

use super::run::simulate;
use super::several::{AtRank, variants};
use super::{Runs, parallel};
use crate::cluster::Sample;
use crate::scenario::{Event, Scenario, ScenarioError};
use crate::time::Micros;

/// How it stands some time after a failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Point {
    /// Since the failure.
    pub after: Micros,
    /// Addresses that the failed nodes hold.
    pub held: u64,
    /// Blocks that the failed nodes hold.
    pub blocks: u64,
    /// Pods that should run and do not: they have no addresses, or their node failed and no other took their place yet.
    pub waiting: u64,
}

/// What becomes of a failure.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Course {
    pub points: Vec<Point>,
    /// When no address of a failed node was held any more; `None` if that did not come.
    pub addresses_free_after: Option<Micros>,
    /// When the failed nodes had no block any more.
    pub blocks_free_after: Option<Micros>,
    /// Most pods at a time that should run and did not.
    pub max_pending: u64,
    /// When all pods ran again for good; `None` if that did not come.
    pub all_running_after: Option<Micros>,
}

/// What becomes of the addresses of nodes that fail.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    pub nodes: Vec<String>,
    /// Addresses that they held when they failed.
    pub held: u64,
    /// When, from their failure, the nodes are removed from the cluster; `None` for never.
    pub removed_after: Option<Micros>,
    pub with_collector: Course,
    pub without_collector: Course,
    /// Where there were several runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<Box<FailureRange>>,
}

/// How far the numbers of several runs go.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FailureRange {
    pub runs: u64,
    pub lowest: Failure,
    pub highest: Failure,
}

/// Moments at which the state of a failure is recorded.
const MOMENTS: u64 = 240;

/// What one run shows: the nodes, what they held, and the course.
type Seen = (Vec<String>, u64, Course);

/// Runs a scenario in which nodes fail, with the collector of kube-controllers and without, as often as `runs` says.
pub fn failure(scenario: &Scenario, runs: Runs) -> Result<Failure, ScenarioError> {
    let with =
        Scenario { collector: Some(scenario.collector.clone().unwrap_or_default()), ..scenario.clone() };
    // Both for the same time.
    let end = with.end();
    let with = Scenario { duration: Some(end), ..with };
    let without = Scenario { collector: None, ..with.clone() };
    let jobs: Vec<Scenario> =
        [with, without].iter().flat_map(|scenario| variants(scenario, runs.each)).collect();
    let seen: Vec<Seen> = parallel::map(runs.threads, &jobs, course).into_iter().collect::<Result<_, _>>()?;
    let (with, without) = seen.split_at(seen.len() / 2);
    let one = |((nodes, held, with), (.., without)): (&Seen, &Seen)| Failure {
        nodes: nodes.clone(),
        held: *held,
        removed_after: scenario.removal,
        with_collector: with.clone(),
        without_collector: without.clone(),
        range: None,
    };
    Ok(Failure::of_several(&with.iter().zip(without).map(one).collect::<Vec<_>>()))
}

impl Failure {
    /// Several runs as one, as those of a [`Run`](super::Run).
    fn of_several(shown: &[Self]) -> Self {
        let all: Vec<&Self> = shown.iter().collect();
        let median = Self::at_rank(&all, 500);
        if all.len() == 1 {
            return median;
        }
        let (lowest, highest) = (Self::at_rank(&all, 0), Self::at_rank(&all, 1_000));
        Self { range: Some(Box::new(FailureRange { runs: all.len() as u64, lowest, highest })), ..median }
    }
}

fn course(scenario: &Scenario) -> Result<Seen, ScenarioError> {
    let failures = scenario.events.iter().filter(|planned| {
        matches!(planned.what, Event::FailNode(_) | Event::FailZone(_) | Event::PartitionNode(_))
    });
    let first = failures.map(|planned| planned.at).min().unwrap_or_default();
    // Right after the failure: events of the same moment come before.
    let world = simulate(scenario, |world| world.plan_samples(first, MOMENTS))?;
    let measured = world.measured.borrow();
    let nodes = measured.held.iter().flat_map(|held| held.nodes.iter().cloned()).collect();
    let points: Vec<Point> = measured.samples.iter().map(|sample| point(sample, first)).collect();
    let held = points.first().map_or(0, |point| point.held);
    let course = Course {
        addresses_free_after: since(&points, |point| point.held == 0),
        blocks_free_after: since(&points, |point| point.blocks == 0),
        max_pending: points.iter().map(|point| point.waiting).max().unwrap_or(0),
        all_running_after: since(&points, |point| point.waiting == 0),
        points,
    };
    Ok((nodes, held, course))
}

fn point(sample: &Sample, first: Micros) -> Point {
    Point { after: sample.at - first, held: sample.held, blocks: sample.blocks, waiting: sample.waiting }
}

/// From when on something holds to the end.
fn since(points: &[Point], holds: impl Fn(&Point) -> bool) -> Option<Micros> {
    let first = points.iter().rposition(|point| !holds(point)).map_or(0, |last| last + 1);
    points.get(first).map(|point| point.after)
}
