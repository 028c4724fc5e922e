//! The program that `cargo xtask explore` runs.

mod mutants;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use calipam_explore::scenario::{Scenario, all};
use calipam_explore::script;
use calipam_explore::search::{Violation, exhaustive, random, replay, shrink};

/// The default duration of the exploration.
const USUAL: Duration = Duration::from_secs(5 * 60);
/// Maximum number of faults of a schedule.
const FAULTS: usize = 3;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

/// Returns true if all invariants hold.
fn run(arguments: &[String]) -> Result<bool, String> {
    let (mut names, mut time, mut keep_going) = (Vec::new(), USUAL, false);
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        match argument.as_str() {
            "--replay" => return replay_file(value()?),
            "--mutants" => return mutants::run(None),
            "--keep-going" => keep_going = true,
            "--minutes" => time = duration(value()?, 60)?,
            "--hours" => time = duration(value()?, 3_600)?,
            option if option.starts_with("--mutants=") => return mutants::run(option.split('=').nth(1)),
            option if option.starts_with('-') => return Err(format!("there is no option {option}")),
            name => names.push(name),
        }
    }

    let mut scenarios = all();
    if let Some(name) = names.iter().find(|name| scenarios.iter().all(|known| known.name != **name)) {
        let known: Vec<&str> = scenarios.iter().map(|scenario| scenario.name).collect();
        return Err(format!("there is no scenario {name}; there are {}", known.join(", ")));
    }
    scenarios.retain(|scenario| names.is_empty() || names.contains(&scenario.name));
    Ok(explore(scenarios, time, keep_going))
}

fn duration(text: &str, unit: u64) -> Result<Duration, String> {
    let number: f64 = text.parse().map_err(|_| format!("{text} is no number"))?;
    Duration::try_from_secs_f64(number * unit as f64).map_err(|error| format!("{text}: {error}"))
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

fn replay_file(path: &str) -> Result<bool, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let (scenario, schedule) = script::parse(&text).map_err(|error| format!("{path}: {error}"))?;
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
