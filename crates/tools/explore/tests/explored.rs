//! Explores for about a minute, replays the schedules that once found a bug, and tests the explorer itself.

use std::fs;
use std::path::{Path, PathBuf};

use calipam_explore::scenario::{Scenario, all};
use calipam_explore::script;
use calipam_explore::search::{Violation, exhaustive, random, replay, shrink};

fn assert_holds<T>(scenario: &Scenario, explored: Result<T, Violation>) -> T {
    explored.unwrap_or_else(|found| {
        let (fewer, shrunk) = shrink(scenario, found);
        panic!("{}", script::print(&fewer, &shrunk))
    })
}

#[test]
fn every_interleaving_of_small_worlds_holds() {
    for scenario in all()
        .into_iter()
        .filter(|scenario| scenario.is_small)
        .map(|scenario| scenario.with_faults(0))
    {
        let explored = assert_holds(&scenario, exhaustive(&scenario, None));
        assert!(
            explored.is_complete && explored.ends > 0,
            "{}: {explored:?}",
            scenario.name
        );
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

/// Follows the same schedules on every machine.
#[test]
fn every_world_holds_under_random_schedules() {
    for scenario in all() {
        for (seed, faults) in (0..calipam_testkit::rounds(3)).map(|round| (round / 3, round % 3)) {
            let scenario = scenario.with_promised_faults(faults);
            let steps = assert_holds(&scenario, random(&scenario, seed as u64));
            assert!(steps > 0, "{} {seed}", scenario.name);
        }
    }
}

/// Each file of the folder contains a schedule that once ended with a violation.
#[test]
fn known_violations_are_fixed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/schedules");
    let files: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    assert!(files.len() >= 13, "{files:?}");
    for file in files {
        let (scenario, schedule) = script::parse(&fs::read_to_string(&file).unwrap()).unwrap();
        let followed = assert_holds(&scenario, replay(&scenario, &schedule));
        let is_same = followed.starts_with(&schedule);
        assert!(
            is_same,
            "{} has to be found again: its steps are others now",
            file.display()
        );
    }
}

/// A node is removed while a pod on it claims a block. Its block had no affinity afterwards.
#[test]
fn a_claim_of_a_removed_node_takes_its_block_back() {
    let busy = all().into_iter().find(|scenario| scenario.name == "busy-blocks");
    let scenario = busy.unwrap().with_faults(0);
    assert!(assert_holds(&scenario, random(&scenario, 1949)) > 100);
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
