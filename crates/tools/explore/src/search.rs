//! Searches through the choices of a scenario: every schedule by depth-first search, or random ones from a seed, for
//! worlds that are too large to explore completely. Also replays schedules, and finds shorter ones with the same result.
//!
//! A future cannot be copied, so the search replays each schedule from the start, except the first one of a branch. Two
//! reductions keep every state reachable. Sleep sets skip a step if it commutes with the previous step and was already
//! tried in its place. A state is not explored again if every step that was asleep at all earlier visits is asleep now
//! (Godefroid, *Partial-Order Methods for the Verification of Concurrent Systems*, 1996).

use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

use calipam_testkit::cluster::rng::Rng;

pub use crate::run::Violation;
use crate::run::{Choice, Possible, Run};
use crate::scenario::Scenario;
use crate::world::Event;

/// Statistics of an exploration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explored {
    pub states: usize,
    /// Number of steps, including replayed ones.
    pub steps: usize,
    /// Number of states in which all actors had stopped.
    pub ends: usize,
    /// Length of the longest schedule.
    pub deepest: usize,
    /// Number of schedules that were cut off.
    pub cut: usize,
    /// False if time ran out.
    pub is_complete: bool,
}

/// Explores all schedules of a scenario, until `until` at the latest.
///
/// # Errors
/// Returns the first schedule that ends with a violation.
pub fn exhaustive(scenario: &Scenario, until: Option<Instant>) -> Result<Explored, Violation> {
    let explored = Explored {
        is_complete: true,
        ..Explored::default()
    };
    let mut search = Search {
        scenario,
        until,
        explored,
        seen: HashMap::new(),
    };
    search.go()?;
    search.explored.states = search.seen.len();
    Ok(search.explored)
}

/// A visited state.
struct Visited {
    /// The steps that were asleep at every visit.
    asleep: BTreeSet<Choice>,
    /// The smallest number of steps that lead to the state.
    depth: usize,
}

struct Search<'s> {
    scenario: &'s Scenario,
    until: Option<Instant>,
    explored: Explored,
    /// Visited states by hash.
    seen: HashMap<(u64, u64), Visited>,
}

/// A state on the current path, and its steps that have not been tried yet.
struct Branch<'s> {
    path: Vec<Choice>,
    /// The run at this state, until it continues.
    run: Option<Run<'s>>,
    left: std::vec::IntoIter<Possible>,
    /// The steps that were tried at this state or earlier on the path.
    asleep: Vec<Possible>,
}

impl<'s> Search<'s> {
    fn go(&mut self) -> Result<(), Violation> {
        let start = Run::new(self.scenario)?;
        let mut branches: Vec<Branch<'s>> = self.visit(start, Vec::new())?.into_iter().collect();
        while let Some(branch) = branches.last_mut() {
            let Some(option) = branch.left.next() else {
                branches.pop();
                continue;
            };
            let mut run = match branch.run.take() {
                Some(run) => run,
                None => self.replayed(&branch.path)?,
            };
            self.explored.steps += 1;
            let touched = run.step(option.choice)?;
            let footprint = option.footprint.and(&touched);
            let commutes = |other: &&Possible| !other.footprint.conflicts(&footprint);
            let still_asleep = branch.asleep.iter().filter(commutes).cloned().collect();
            branch.asleep.push(Possible { footprint, ..option });
            branches.extend(self.visit(run, still_asleep)?);
        }
        Ok(())
    }

    fn replayed(&mut self, path: &[Choice]) -> Result<Run<'s>, Violation> {
        let mut run = Run::new(self.scenario)?;
        for choice in path {
            run.step(*choice)?;
        }
        self.explored.steps += path.len();
        Ok(run)
    }

    /// Visits a state. Returns a branch with the steps to try, if there are any.
    fn visit(&mut self, run: Run<'s>, asleep: Vec<Possible>) -> Result<Option<Branch<'s>>, Violation> {
        let depth = run.schedule.len();
        self.explored.deepest = self.explored.deepest.max(depth);
        if self.until.is_some_and(|until| Instant::now() > until) {
            self.explored.is_complete = false;
            return Ok(None);
        }
        let is_new = self.is_new(&run, &asleep)?;
        let is_cut = is_new && depth >= self.scenario.longest;
        self.explored.cut += usize::from(is_cut);
        let options = if is_new && !is_cut {
            run.options()
        } else {
            Vec::new()
        };
        let is_awake = |option: &Possible| asleep.iter().all(|other| other.choice != option.choice);
        let left: Vec<Possible> = options.into_iter().filter(is_awake).collect();
        let path = run.schedule.clone();
        Ok((!left.is_empty()).then(|| Branch {
            path,
            run: Some(run),
            left: left.into_iter(),
            asleep,
        }))
    }

    /// Records a visit of a state. Returns false if the state cannot lead to anything new.
    fn is_new(&mut self, run: &Run<'_>, asleep: &[Possible]) -> Result<bool, Violation> {
        let sleeping: BTreeSet<Choice> = asleep.iter().map(|asleep| asleep.choice).collect();
        let state = run.hash();
        let depth = run.schedule.len();
        if let Some(before) = self.seen.get_mut(&state) {
            // Schedules may have been cut off after this state. This shorter path to it leaves room for more steps.
            let is_nearer = depth < before.depth && self.explored.cut > 0;
            let is_known = before.asleep.is_subset(&sleeping) && !is_nearer;
            before.asleep.retain(|choice| sleeping.contains(choice));
            before.depth = before.depth.min(depth);
            return Ok(!is_known);
        }
        self.seen.insert(
            state,
            Visited {
                asleep: sleeping,
                depth,
            },
        );

        if run.is_over()? {
            self.explored.ends += 1;
            run.examine_end()?;
        }
        Ok(true)
    }
}

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
    let mut rng = Rng::new(seed);
    let by_priority = seed % 2 == 1;
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
    let who = |choice: Choice| match choice.event {
        Event::Land => 1_000 + choice.id.actor,
        _ => choice.actor().unwrap_or(usize::MAX),
    };
    for option in among {
        if !priorities.contains(&who(option.choice)) {
            let place = rng.below(priorities.len() as u64 + 1);
            priorities.insert(place as usize, who(option.choice));
        }
    }
    let place = |option: &&&Possible| priorities.iter().position(|known| *known == who(option.choice));
    among
        .iter()
        .min_by_key(place)
        .expect("a step that is no fault")
        .choice
}

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

/// Finds a shorter schedule with a violation: one without unnecessary actors and faults, and with as few switches
/// between actors as possible. Returns it with the scenario in which only the other actors begin.
pub fn shrink(scenario: &Scenario, found: Violation) -> (Scenario, Violation) {
    let (scenario, mut best) = leave_out_actors(scenario, found);
    loop {
        let candidates = (0..best.schedule.len()).flat_map(|index| candidates(&best.schedule, index));
        let better = candidates
            .filter_map(|candidate| replay(&scenario, &candidate).err())
            .find(|other| cost(&other.schedule) < cost(&best.schedule));
        match better {
            Some(better) => best = better,
            None => return (scenario, best),
        }
    }
}

/// Leaves out each actor without which the violation is the same.
fn leave_out_actors(scenario: &Scenario, found: Violation) -> (Scenario, Violation) {
    let mut scenario = *scenario;
    let mut best = found;
    let actors = Run::new(&scenario).map_or(0, |run| run.actors());
    for actor in 0..actors {
        let fewer = scenario.without(actor);
        let of_others = |choice: &&Choice| choice.actor() != Some(actor);
        let schedule: Vec<Choice> = best.schedule.iter().filter(of_others).copied().collect();
        if let Err(other) = replay(&fewer, &schedule)
            && other.what == best.what
        {
            (scenario, best) = (fewer, other);
        }
    }
    (scenario, best)
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
    let changes = schedule
        .windows(2)
        .filter(|pair| pair[0].actor() != pair[1].actor())
        .count();
    (faults, changes, schedule.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::all;

    #[test]
    fn a_violation_is_shown_without_the_actors_that_it_does_not_need() {
        let busy = all()
            .into_iter()
            .find(|scenario| scenario.name == "busy-pods")
            .unwrap();
        // The fourth pod wants this address.
        let scenario = busy.ending(|world| {
            let is_given = world.truth.users().contains_key(&"10.0.0.5".parse().unwrap());
            if is_given {
                Err("the address is given".to_owned())
            } else {
                Ok(())
            }
        });
        let found = (0..20).find_map(|seed| random(&scenario, seed).err()).unwrap();
        let (fewer, shrunk) = shrink(&scenario, found.clone());
        assert!(shrunk.schedule.len() < found.schedule.len(), "{shrunk:?}");
        let acting: BTreeSet<_> = shrunk
            .schedule
            .iter()
            .filter_map(|choice| choice.actor())
            .collect();
        assert_eq!(acting, BTreeSet::from([3]));
        assert_eq!(
            (0..6)
                .filter(|actor| !fewer.leaves_out(*actor))
                .collect::<Vec<_>>(),
            [3]
        );
    }
}
