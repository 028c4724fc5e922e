//! Explores for a minute, replays the schedules that once found a bug, and tests the explorer itself.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use calipam_explore::scenario::{Scenario, all};
use calipam_explore::script;
use calipam_explore::search::{Violation, exhaustive, random, replay, shrink};

fn assert_holds<T>(scenario: &Scenario, explored: Result<T, Violation>) -> T {
    explored.unwrap_or_else(|found| panic!("{}", script::print(scenario, &shrink(scenario, found))))
}

#[test]
fn every_interleaving_of_small_worlds_holds() {
    for scenario in
        all().into_iter().filter(|scenario| scenario.is_small).map(|scenario| scenario.with_faults(0))
    {
        let explored = assert_holds(&scenario, exhaustive(&scenario, None));
        assert!(explored.is_complete && explored.ends > 0, "{}: {explored:?}", scenario.name);
    }
}

#[test]
fn every_single_fault_of_an_operation_holds() {
    let is_operation = |name: &str| name == "one-add" || name.starts_with("interrupted-");
    for scenario in all().into_iter().filter(|scenario| is_operation(scenario.name)) {
        let scenario = scenario.with_faults(1);
        let explored = assert_holds(&scenario, exhaustive(&scenario, None));
        let least = if scenario.name == "one-add" { 200 } else { 10 };
        assert!(
            explored.is_complete && explored.cut == 0 && explored.states > least,
            "{}: {explored:?}",
            scenario.name
        );
    }
}

#[test]
fn large_worlds_hold_under_random_schedules() {
    let until = Instant::now() + Duration::from_secs(8);
    let scenarios: Vec<Scenario> =
        all().into_iter().map(|scenario| scenario.with_promised_faults(2)).collect();
    let mut steps = 0;
    for seed in 0.. {
        for scenario in &scenarios {
            steps += assert_holds(scenario, random(scenario, seed));
        }
        if Instant::now() > until {
            break;
        }
    }
    assert!(steps > 1_000, "{steps} steps");
}

/// Each file of the folder contains a schedule that once ended with a violation.
#[test]
fn known_violations_are_fixed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/schedules");
    let files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    assert!(files.len() >= 13, "{files:?}");
    for file in files {
        let (scenario, schedule) = script::parse(&fs::read_to_string(&file).unwrap()).unwrap();
        let followed = assert_holds(&scenario, replay(&scenario, &schedule));
        let is_same = followed.starts_with(&schedule);
        assert!(is_same, "{} has to be found again: its steps are others now", file.display());
    }
}

#[test]
fn a_schedule_gives_the_same_states_each_time() {
    for scenario in all() {
        for seed in 0..2 {
            let twice = [random(&scenario, seed), random(&scenario, seed)];
            let [first, second] = twice.map(|result| assert_holds(&scenario, result));
            assert_eq!(first, second, "{} {seed}", scenario.name);
        }
    }
}
