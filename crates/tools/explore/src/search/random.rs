//! Random schedules from a seed, for worlds that are too large to explore completely.

use calipam_testkit::cluster::rng::Rng;

use crate::run::{Choice, Possible, Run, Violation};
use crate::scenario::Scenario;

/// Number of steps from the start within which priorities change.
const LENGTH: u64 = 120;
/// While faults are left, one in this many steps is a fault on average.
const FAULTS: u64 = 12;

/// Follows one schedule that is derived from a seed. Returns its number of steps.
///
/// An even seed chooses at random at each step. An odd seed gives actors priorities that change a few times, which
/// finds violations that need a certain order of few events (Burckhardt et al., *A Randomized Scheduler with
/// Probabilistic Guarantees of Finding Bugs*, 2010).
///
/// # Errors
/// Returns the schedule if it ends with a violation.
pub fn random(scenario: &Scenario, seed: u64) -> Result<usize, Violation> {
    let (mut rng, by_priority) = (Rng::new(seed), seed % 2 == 1);
    let mut run = Run::new(scenario)?;
    let mut priorities: Vec<usize> = Vec::new();
    let changes: Vec<u64> = (0..3).map(|_| rng.below(LENGTH)).collect();
    loop {
        let options = run.options();
        if run.is_over()? && (options.is_empty() || rng.below(3) == 0) {
            run.examine_end()?;
            return Ok(run.schedule.len());
        }
        let (faults, steps): (Vec<&Possible>, Vec<&Possible>) =
            options.iter().partition(|option| option.choice.is_fault());
        let is_fault = steps.is_empty() || (!faults.is_empty() && rng.below(FAULTS) == 0);
        let choice = if is_fault {
            rng.pick(&faults).choice
        } else if by_priority {
            if changes.contains(&(run.schedule.len() as u64)) && !priorities.is_empty() {
                priorities.rotate_left(1);
            }
            first(&steps, &mut priorities, &mut rng)
        } else {
            rng.pick(&steps).choice
        };
        run.step(choice)?;
    }
}

/// Returns the step of the actor with the highest priority. A new actor is assigned a random priority, and its late
/// writes another one.
fn first(among: &[&Possible], priorities: &mut Vec<usize>, rng: &mut Rng) -> Choice {
    let who = |choice: Choice| match choice {
        Choice::Land(id) => 1_000 + id.actor,
        other => other.actor().unwrap_or(usize::MAX),
    };
    for option in among {
        if !priorities.contains(&who(option.choice)) {
            let place = rng.below(priorities.len() as u64 + 1);
            priorities.insert(place as usize, who(option.choice));
        }
    }
    let place = |option: &&&Possible| priorities.iter().position(|known| *known == who(option.choice));
    among.iter().min_by_key(place).map_or(Choice::Jump(0), |option| option.choice)
}
