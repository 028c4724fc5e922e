//! The program that `cargo xtask explore` runs.

mod mutants;

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use calipam_explore::scenario::{Scenario, all};
use calipam_explore::script;
use calipam_explore::search::{Violation, exhaustive, random, replay, shrink};
use clap::Parser;
use clap::builder::PossibleValuesParser;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

/// Maximum number of faults of a schedule.
const FAULTS: usize = 3;

/// The exit code after a signal, as of the program itself.
const ENDED_BY_SIGNAL: i32 = 130;

/// The folder for schedules that end with a violation.
const FOUND: &str = "target/schedules";

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
    /// Follows the random schedules of these seeds in every scenario, whatever the time.
    #[arg(long, value_name = "FROM..TO", value_parser = seeds, conflicts_with_all = ["minutes", "hours"])]
    seeds: Option<Range<u64>>,
    /// The maximum number of faults in the schedules of the seeds.
    #[arg(long, default_value_t = 1, requires = "seeds")]
    faults: usize,
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
    let arguments = Arguments::parse();
    let result = end_at_signals().and_then(|()| run(arguments));
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Makes ctrl-c and SIGTERM end the process. The operations that are explored wait for the same signals: without this,
/// they would take them for an operator's, and end as no schedule says.
fn end_at_signals() -> Result<()> {
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let signals = {
        let _on_runtime = runtime.enter();
        [signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?]
    };
    thread::spawn(move || {
        let [mut interrupts, mut terminations] = signals;
        runtime.block_on(async {
            tokio::select! {
                _ = interrupts.recv() => {}
                _ = terminations.recv() => {}
            }
        });
        std::process::exit(ENDED_BY_SIGNAL);
    });
    Ok(())
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
    let mut search = Search {
        keep_going: arguments.keep_going,
        found: Vec::new(),
    };
    match arguments.seeds {
        Some(seeds) => search.follow(scenarios, &seeds, arguments.faults)?,
        None => {
            let minutes = arguments.hours.map_or(arguments.minutes, |hours| hours * 60.0);
            search.explore(scenarios, Duration::try_from_secs_f64(minutes * 60.0)?)?;
        }
    }
    for file in &search.found {
        println!("{}", file.display());
    }
    Ok(search.found.is_empty())
}

/// Parses a range such as `0..2000`.
fn seeds(text: &str) -> Result<Range<u64>, String> {
    let range = text
        .split_once("..")
        .and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?));
    range
        .filter(|range| !range.is_empty())
        .ok_or_else(|| "a range looks like 0..2000".to_owned())
}

/// A search for violations, and the files with those that it found.
struct Search {
    keep_going: bool,
    found: Vec<PathBuf>,
}

impl Search {
    /// True if the search goes on.
    fn goes_on(&self) -> bool {
        self.keep_going || self.found.is_empty()
    }

    /// Follows the schedules of seeds in each scenario, without faults and with up to `faults` of them. Which schedules
    /// these are does not depend on the machine. A violated scenario is not followed further.
    fn follow(&mut self, scenarios: Vec<Scenario>, seeds: &Range<u64>, faults: usize) -> Result<()> {
        for scenario in scenarios {
            let begin = Instant::now();
            let mut steps = 0;
            let all = seeds
                .clone()
                .flat_map(|seed| (0..=faults).map(move |faults| (seed, faults)));
            for (seed, faults) in all {
                let with_faults = scenario.with_promised_faults(faults);
                match random(&with_faults, seed) {
                    Ok(tried) => steps += tried,
                    Err(found) => {
                        println!("{}: seed {seed}, {faults} faults", scenario.name);
                        self.report(&with_faults, found)?;
                        break;
                    }
                }
            }
            println!(
                "{:<32} {steps:>9} steps; {:.1} s",
                scenario.name,
                begin.elapsed().as_secs_f64()
            );
            if !self.goes_on() {
                break;
            }
        }
        Ok(())
    }

    /// Explores in rounds, first without faults, then with one more fault per round. Each round follows every schedule
    /// of each scenario that can be explored completely in its share of the time, and random schedules of the other
    /// scenarios. Stops at the first violation, or continues without the violated scenario.
    fn explore(&mut self, mut scenarios: Vec<Scenario>, time: Duration) -> Result<()> {
        // Small scenarios run first, so that large ones can use the time that is left.
        scenarios.sort_by_key(|scenario| !scenario.is_small);
        let mut complete = scenarios;
        let mut open = Vec::new();
        let mut seed = 0;
        let round = time / (FAULTS as u32 + 1);
        for faults in 0..=FAULTS {
            let begin = Instant::now();
            let all_until = begin + round.mul_f64(2.0 / 3.0);
            let end = begin + round;
            let mut left = complete.len() as u32;
            for scenario in std::mem::take(&mut complete) {
                let now = Instant::now();
                let part = all_until.saturating_duration_since(now) / left;
                left -= 1;
                match explore_all(&scenario.with_promised_faults(faults), now + part) {
                    Ok(true) => complete.push(scenario),
                    Ok(false) => open.push(scenario),
                    Err(found) => self.report(&scenario.with_promised_faults(faults), found)?,
                }
                if !self.goes_on() {
                    return Ok(());
                }
            }

            let mut schedules = 0_u64;
            let mut steps = 0;
            while Instant::now() < end && !open.is_empty() {
                for scenario in std::mem::take(&mut open) {
                    schedules += 1;
                    let with_faults = scenario.with_promised_faults(faults);
                    match random(&with_faults, seed) {
                        Ok(tried) => {
                            steps += tried;
                            open.push(scenario);
                        }
                        Err(found) => self.report(&with_faults, found)?,
                    }
                    if !self.goes_on() {
                        return Ok(());
                    }
                }
                seed += 1;
            }
            println!("random               {faults} faults: {schedules} schedules, {steps} steps");
        }
        Ok(())
    }

    /// Prints a violation, shortened, and writes its schedule to a file.
    fn report(&mut self, scenario: &Scenario, found: Violation) -> Result<()> {
        println!("{}: {found}\n", scenario.name);
        let (fewer, shrunk) = shrink(scenario, found);
        let text = script::print(&fewer, &shrunk);
        print!("{text}");

        fs::create_dir_all(FOUND).context(FOUND)?;
        let name = |number: usize| Path::new(FOUND).join(format!("{}-{number}.txt", scenario.name));
        let path = (1..)
            .map(name)
            .find(|path| !path.exists())
            .expect("a number that is free");
        fs::write(&path, text).with_context(|| path.display().to_string())?;
        self.found.push(path);
        Ok(())
    }
}

/// Follows all schedules of a scenario. Returns true if the time was sufficient.
fn explore_all(scenario: &Scenario, until: Instant) -> Result<bool, Violation> {
    let begin = Instant::now();
    let explored = exhaustive(scenario, Some(until))?;
    let is_complete = if explored.is_complete {
        ""
    } else {
        "; time ran out"
    };
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
