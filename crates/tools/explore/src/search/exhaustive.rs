//! Follows every schedule of a scenario by depth-first search.
//!
//! A future cannot be copied, so each schedule is replayed from the start, except the first one of a branch. Two
//! reductions keep every state reachable. Sleep sets skip a step if it commutes with the previous step and was already
//! tried in its place. A state is not explored again if every step that was asleep at all earlier visits is asleep now
//! (Godefroid, *Partial-Order Methods for the Verification of Concurrent Systems*, 1996).

use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

use crate::run::{Choice, Possible, Run, Violation};
use crate::scenario::Scenario;
use crate::world::Footprint;

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
    let explored = Explored { is_complete: true, ..Explored::default() };
    let mut search = Search { scenario, until, explored, seen: HashMap::new() };
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
    asleep: Vec<Asleep>,
}

/// A step that was tried at this state or earlier on the path, and its footprint.
#[derive(Clone)]
struct Asleep {
    choice: Choice,
    footprint: Footprint,
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
            let commutes = |other: &&Asleep| !other.footprint.conflicts(&footprint);
            let still_asleep = branch.asleep.iter().filter(commutes).cloned().collect();
            branch.asleep.push(Asleep { choice: option.choice, footprint });
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
    fn visit(&mut self, run: Run<'s>, asleep: Vec<Asleep>) -> Result<Option<Branch<'s>>, Violation> {
        let depth = run.schedule.len();
        self.explored.deepest = self.explored.deepest.max(depth);
        if self.until.is_some_and(|until| Instant::now() > until) {
            self.explored.is_complete = false;
            return Ok(None);
        }
        let is_new = self.is_new(&run, &asleep)?;
        let is_cut = is_new && depth >= self.scenario.longest;
        self.explored.cut += usize::from(is_cut);
        let options = if is_new && !is_cut { run.options() } else { Vec::new() };
        let is_awake = |option: &Possible| asleep.iter().all(|other| other.choice != option.choice);
        let left: Vec<Possible> = options.into_iter().filter(is_awake).collect();
        let path = run.schedule.clone();
        Ok((!left.is_empty()).then(|| Branch { path, run: Some(run), left: left.into_iter(), asleep }))
    }

    /// Records a visit of a state. Returns false if the state cannot lead to anything new.
    fn is_new(&mut self, run: &Run<'_>, asleep: &[Asleep]) -> Result<bool, Violation> {
        let sleeping: BTreeSet<Choice> = asleep.iter().map(|asleep| asleep.choice).collect();
        let (state, depth) = (run.hash(), run.schedule.len());
        if let Some(before) = self.seen.get_mut(&state) {
            // Schedules may have been cut off after this state. This shorter path to it leaves room for more steps.
            let is_nearer = depth < before.depth && self.explored.cut > 0;
            let is_known = before.asleep.is_subset(&sleeping) && !is_nearer;
            before.asleep.retain(|choice| sleeping.contains(choice));
            before.depth = before.depth.min(depth);
            return Ok(!is_known);
        }
        self.seen.insert(state, Visited { asleep: sleeping, depth });

        if run.is_over()? {
            self.explored.ends += 1;
            run.examine_end()?;
        }
        Ok(true)
    }
}
