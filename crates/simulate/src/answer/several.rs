//! Several runs of one cluster, with different seeds and numbers of pods.

use calipam_model::parallel;

use super::Run;
use super::ranks::median_and_range;
use super::run::run;
use crate::error::Result;
use crate::scenario::Scenario;

/// The maximum variation of pod counts in repeated runs, in percent. The average number of pods per node varies by up
/// to this percentage, since it is not known in advance. The pods of each node vary around the average by up to this
/// percentage or the scenario's spread, whichever is larger, since schedulers do not place pods evenly.
pub const SPREAD: u32 = 12;

/// Runs a scenario `runs` times, and returns the median of each number with its range.
pub fn runs(scenario: &Scenario, runs: u64) -> Result<Run> {
    let results = run_each(std::slice::from_ref(scenario), runs)?;
    Ok(results.into_iter().next().unwrap_or_default())
}

/// Runs each scenario `runs` times, and combines its runs into one. Refuses impossible scenarios before the first run.
pub(super) fn run_each(scenarios: &[Scenario], runs: u64) -> Result<Vec<Run>> {
    let mut combined = Vec::new();
    for results in run_all(scenarios, runs)? {
        combined.push(Run::combine(&results));
    }
    Ok(combined)
}

/// Runs each scenario `runs` times, but at least once. Returns a list for each scenario, with its runs in the order of
/// [`variants`].
pub(super) fn run_all(scenarios: &[Scenario], runs: u64) -> Result<Vec<Vec<Run>>> {
    // All runs are in one list, so that the last runs of a scenario leave no core idle.
    let mut jobs: Vec<Scenario> = Vec::new();
    for scenario in scenarios {
        scenario.check()?;
        jobs.extend(variants(scenario, runs));
    }
    let results: Vec<Run> = in_parallel(&jobs, run)?;

    let runs_per_scenario = number_of_variants(runs) as usize;
    let runs_by_scenario = results.chunks(runs_per_scenario).map(<[Run]>::to_vec);
    Ok(runs_by_scenario.collect())
}

/// Performs `work` for each job, in parallel, and returns the results in the order of the jobs. Begins with the last
/// jobs, which usually have more nodes or smaller blocks and take longest.
pub(super) fn in_parallel<J: Sync, T: Send>(
    jobs: &[J],
    work: impl Fn(&J) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let count = jobs.len();
    // The results are in the reversed order, too.
    let mut results = parallel::map(parallel::cores(), count, |number| work(&jobs[count - 1 - number]));
    results.reverse();
    results.into_iter().collect()
}

/// Returns a scenario and variants of it. Each variant has its own seed, another average number of pods per node, and
/// an uneven distribution of pods. Variants of a scenario with an event keep the average, so that the cluster is always
/// full at the same time.
pub(super) fn variants(scenario: &Scenario, runs: u64) -> Vec<Scenario> {
    let count = number_of_variants(runs);
    // Fewer and more pods by turns, in as many steps down as up.
    let steps = (count - 1).div_ceil(2) as i64;
    let mut variants = Vec::new();
    for number in 0..count {
        let sign = if number % 2 == 1 { -1 } else { 1 };
        let step = sign * number.div_ceil(2) as i64;
        let pod_spread = if number == 0 {
            scenario.pod_spread
        } else {
            scenario.pod_spread.max(SPREAD)
        };
        variants.push(Scenario {
            seed: scenario.seed.wrapping_add(number),
            pods_per_node: varied_pods_per_node(scenario, step, steps),
            pod_spread,
            ..scenario.clone()
        });
    }
    variants
}

/// The number of variants of a scenario, of which the first is the scenario itself, even if no runs are asked for.
fn number_of_variants(runs: u64) -> u64 {
    runs.max(1)
}

/// Returns the average number of pods per node in a variant. The last of `steps` steps differs from the scenario's
/// average by [`SPREAD`] percent.
fn varied_pods_per_node(scenario: &Scenario, step: i64, steps: i64) -> u32 {
    if scenario.event.is_some() || scenario.pods_per_node == 0 {
        return scenario.pods_per_node;
    }
    let pods = i64::from(scenario.pods_per_node);
    // A single variant has no steps, and does not differ.
    let difference = (pods * i64::from(SPREAD) * step).checked_div(100 * steps);
    let most = i64::from(scenario.max_pods_per_node.max(1));
    (pods + difference.unwrap_or(0)).clamp(1, most) as u32
}

impl Run {
    /// Combines several runs: each number is their median, with the range.
    pub(super) fn combine(results: &[Self]) -> Self {
        let (median, range) = median_and_range(results);
        Self { range, ..median }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::answer::Adds;
    use crate::time::Micros;

    #[test]
    fn each_number_has_its_own_median_and_range() {
        let run = |pods: u64, seconds: u64| Run {
            pods,
            adds: Adds {
                reasons: BTreeMap::from([(format!("{pods}"), pods)]),
                ..Adds::default()
            },
            simulated: Micros::from_secs(seconds),
            ..Run::default()
        };
        let shown = Run::combine(&[run(3, 10), run(1, 30), run(2, 20)]);
        assert_eq!((shown.pods, shown.simulated), (2, Micros::from_secs(20)));
        let range = shown.range.unwrap();
        assert_eq!((range.runs, range.lowest.pods, range.highest.pods), (3, 1, 3));
        assert_eq!(range.highest.simulated, Micros::from_secs(30));
        // In two of the three runs, no ADD failed for the reason `3`.
        assert_eq!((shown.adds.reasons["3"], range.highest.adds.reasons["3"]), (0, 3));
        assert_eq!(Run::combine(&[run(3, 10)]), run(3, 10));
    }

    #[test]
    fn variants_are_around_the_scenario() {
        let scenario = Scenario {
            pods_per_node: 50,
            ..Scenario::default()
        };
        let pods: Vec<u32> = variants(&scenario, 5)
            .iter()
            .map(|one| one.pods_per_node)
            .collect();
        assert_eq!(pods, [50, 47, 53, 44, 56]);
        assert_eq!(variants(&scenario, 1)[0], scenario);
        let seeds: Vec<u64> = variants(&scenario, 3).iter().map(|one| one.seed).collect();
        assert_eq!(seeds, [1, 2, 3]);
        let full = Scenario {
            max_pods_per_node: 50,
            ..scenario
        };
        assert!(
            variants(&full, 5)
                .iter()
                .all(|one| one.check() != Ok(()) || one.pods_per_node <= 50)
        );
    }
}
