//! A minute of exploration, the schedules that once found a bug, and the promises of the explorer itself.

use std::time::{Duration, Instant};

use calipam_explore::scenario::{Scenario, all};
use calipam_explore::script;
use calipam_explore::search::{Violation, exhaustive, random, replay, shrink};

fn scenario(name: &str) -> Scenario {
    all().into_iter().find(|scenario| scenario.name == name).unwrap_or_else(|| panic!("no scenario {name}"))
}

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
fn every_single_fault_of_an_add_holds() {
    let scenario = scenario("one-add").with_faults(1);
    let explored = assert_holds(&scenario, exhaustive(&scenario, None));
    assert!(explored.is_complete && explored.states > 200, "{explored:?}");
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

/// Schedules that once ended with a violation.
const SCHEDULES: &[(&str, &str)] = &[
    ("late-write-during-del", include_str!("schedules/late-write-during-del.txt")),
    ("lock-arrives-between-attempts", include_str!("schedules/lock-arrives-between-attempts.txt")),
    (
        "lock-on-its-way-when-the-disk-is-full",
        include_str!("schedules/lock-on-its-way-when-the-disk-is-full.txt"),
    ),
    ("split-deletes-late", include_str!("schedules/split-deletes-late.txt")),
    ("handle-deleted-late", include_str!("schedules/handle-deleted-late.txt")),
    ("lock-of-a-killed-run-lands-late", include_str!("schedules/lock-of-a-killed-run-lands-late.txt")),
    ("released-by-the-collector", include_str!("schedules/released-by-the-collector.txt")),
    ("released-by-the-collector-before", include_str!("schedules/released-by-the-collector-before.txt")),
    ("handle-brought-back", include_str!("schedules/handle-brought-back.txt")),
    ("marked-and-not-deleted", include_str!("schedules/marked-and-not-deleted.txt")),
    ("no-room-for-the-journal-of-an-undo", include_str!("schedules/no-room-for-the-journal-of-an-undo.txt")),
    ("evidence-in-json", include_str!("schedules/evidence-in-json.txt")),
    ("rebuild-beside-second-add", include_str!("schedules/rebuild-beside-second-add.txt")),
];

#[test]
fn known_violations_are_fixed() {
    for (name, text) in SCHEDULES {
        let (scenario, schedule) = script::parse(text).unwrap();
        let followed = assert_holds(&scenario, replay(&scenario, &schedule));
        assert_eq!(
            &followed[..schedule.len()],
            schedule,
            "{name} has to be found again: its steps are others now"
        );
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
