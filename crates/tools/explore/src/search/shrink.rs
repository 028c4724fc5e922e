//! Replays schedules, and finds shorter ones with the same result.

use crate::run::{Choice, Run, Violation};
use crate::scenario::Scenario;

/// Follows a schedule and skips impossible steps. At the end of the schedule, all actors continue in order until they
/// have stopped.
///
/// # Errors
/// Returns the violation, with the schedule that leads to it.
pub fn replay(scenario: &Scenario, schedule: &[Choice]) -> Result<Vec<Choice>, Violation> {
    let mut run = Run::new(scenario)?;
    for choice in schedule {
        if run.options().iter().any(|option| option.choice == *choice) {
            run.step(*choice)?;
        }
    }
    while !run.is_over()? {
        let next = run.options().into_iter().find(|option| !option.choice.is_fault());
        run.step(next.expect("an actor that waits").choice)?;
    }
    run.examine_end()?;
    Ok(run.schedule)
}

/// Finds a shorter schedule with a violation: one without unnecessary faults, and with as few switches between actors
/// as possible.
pub fn shrink(scenario: &Scenario, found: Violation) -> Violation {
    let mut best = found;
    loop {
        let candidates = (0..best.schedule.len()).flat_map(|index| candidates(&best.schedule, index));
        let better = candidates
            .filter_map(|candidate| replay(scenario, &candidate).err())
            .find(|other| cost(&other.schedule) < cost(&best.schedule));
        match better {
            Some(better) => best = better,
            None => return best,
        }
    }
}

/// Variants of a schedule: without a step, and with the step earlier or later.
fn candidates(schedule: &[Choice], index: usize) -> Vec<Vec<Choice>> {
    let mut without = schedule.to_vec();
    let step = without.remove(index);
    let mut all = vec![without.clone()];
    for place in [index.saturating_sub(1), index + 1, 0, without.len()] {
        if place <= without.len() && place != index {
            let mut moved = without.clone();
            moved.insert(place, step);
            all.push(moved);
        }
    }
    all
}

/// The number of faults, of switches between actors, and of steps.
fn cost(schedule: &[Choice]) -> (usize, usize, usize) {
    let faults = schedule.iter().filter(|choice| choice.is_fault()).count();
    let changes = schedule.windows(2).filter(|pair| pair[0].actor() != pair[1].actor()).count();
    (faults, changes, schedule.len())
}
