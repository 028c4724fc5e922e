//! The program that `cargo xtask explore` runs.

mod mutants;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use calipam_explore::scenario::{Scenario, all};
use calipam_explore::script;
use calipam_explore::search::{Violation, exhaustive, random, replay, shrink};
use clap::Parser;
use clap::builder::PossibleValuesParser;

/// Maximum number of faults of a schedule.
const FAULTS: usize = 3;

#[derive(Parser)]
struct Arguments {
    /// The scenarios to explore; all if there are none.
    #[arg(value_parser = PossibleValuesParser::new(all().into_iter().map(|scenario| scenario.name)))]
    scenarios: Vec<String>,
    /// Duration of the exploration.
    #[arg(long, default_value_t = 5.0)]
    minutes: f64,
    /// Duration in hours instead of minutes.
    #[arg(long, conflicts_with = "minutes")]
    hours: Option<f64>,
    /// Continues after a violation.
    #[arg(long)]
    keep_going: bool,
    /// A schedule to follow.
    #[arg(long)]
    replay: Option<PathBuf>,
    /// Prefixes of the names of the mutants to try; all if there are none.
    #[arg(long, num_args = 0.., require_equals = true, value_delimiter = ',')]
    mutants: Option<Vec<String>>,
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Returns true if all invariants hold.
fn run(arguments: Arguments) -> Result<bool> {
    if let Some(path) = &arguments.replay {
        return replay_file(path);
    }
    if let Some(wanted) = &arguments.mutants {
        return mutants::run(wanted);
    }
    let is_named = |scenario: &Scenario| arguments.scenarios.iter().any(|name| name == scenario.name);
    let mut scenarios = all();
    scenarios.retain(|scenario| arguments.scenarios.is_empty() || is_named(scenario));
    let minutes = arguments.hours.map_or(arguments.minutes, |hours| hours * 60.0);
    Ok(explore(scenarios, Duration::try_from_secs_f64(minutes * 60.0)?, arguments.keep_going))
}

/// Explores in rounds, first without faults, then with one more fault per round. Each round follows every schedule of
/// each scenario that can be explored completely in its share of the time, and random schedules of the other scenarios.
/// Stops at the first violation. If `keep_going` is true, continues without the violated scenario instead. Returns true
/// if there is no violation.
fn explore(mut scenarios: Vec<Scenario>, time: Duration, keep_going: bool) -> bool {
    // Small scenarios run first, so that large ones can use the time that is left.
    scenarios.sort_by_key(|scenario| !scenario.is_small);
    let (mut complete, mut open, mut seed, mut all_hold) = (scenarios, Vec::new(), 0, true);
    let round = time / (FAULTS as u32 + 1);
    for faults in 0..=FAULTS {
        let begin = Instant::now();
        let (all_until, end) = (begin + round.mul_f64(2.0 / 3.0), begin + round);
        let mut left = complete.len() as u32;
        for scenario in std::mem::take(&mut complete) {
            let now = Instant::now();
            let part = all_until.saturating_duration_since(now) / left;
            left -= 1;
            match explore_all(&scenario.with_promised_faults(faults), now + part) {
                Ok(true) => complete.push(scenario),
                Ok(false) => open.push(scenario),
                Err(()) if keep_going => all_hold = false,
                Err(()) => return false,
            }
        }

        let (mut schedules, mut steps) = (0_u64, 0);
        while Instant::now() < end && !open.is_empty() {
            for scenario in std::mem::take(&mut open) {
                schedules += 1;
                let with_faults = scenario.with_promised_faults(faults);
                match random(&with_faults, seed).map_err(|found| report(&with_faults, found)) {
                    Ok(tried) => {
                        steps += tried;
                        open.push(scenario);
                    }
                    Err(()) if keep_going => all_hold = false,
                    Err(()) => return false,
                }
            }
            seed += 1;
        }
        println!("random               {faults} faults: {schedules} schedules, {steps} steps");
    }
    all_hold
}

/// Follows all schedules of a scenario. Returns true if the time was sufficient.
fn explore_all(scenario: &Scenario, until: Instant) -> Result<bool, ()> {
    let begin = Instant::now();
    let explored = exhaustive(scenario, Some(until)).map_err(|found| report(scenario, found))?;
    let is_complete = if explored.is_complete { "" } else { "; time ran out" };
    println!(
        "{:<20} {} faults: {:>7} states, {:>8} steps, {:>6} ends; longest {} steps, {} cut off; {:.1} s{is_complete}",
        scenario.name,
        scenario.faults,
        explored.states,
        explored.steps,
        explored.ends,
        explored.deepest,
        explored.cut,
        begin.elapsed().as_secs_f64(),
    );
    Ok(explored.is_complete)
}

fn report(scenario: &Scenario, found: Violation) {
    println!("{}: {found}\n", scenario.name);
    print!("{}", script::print(scenario, &shrink(scenario, found)));
}

fn replay_file(path: &Path) -> Result<bool> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let (scenario, schedule) =
        script::parse(&text).map_err(|error| anyhow!("{}: {error}", path.display()))?;
    let (holds, end) = match replay(&scenario, &schedule) {
        Ok(schedule) => {
            let what = format!("{} steps, and all holds", schedule.len());
            (true, Violation { schedule, what })
        }
        Err(found) => (false, found),
    };
    print!("{}", script::print(&scenario, &end));
    Ok(holds)
}
