//! Every schedule of a scenario, by depth-first search.
//!
//! A future cannot be copied: each schedule is replayed from the start, the first one of a branch apart. Two reductions
//! leave every state reachable: sleep sets pass over a step that was tried before another one with which it
//! commutes, and a state that was seen with no more steps asleep is not looked into again (Godefroid, *Partial-Order Methods
//! for the Verification of Concurrent Systems*, 1996).

use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

use super::Found;
use crate::run::{Choice, Possible, Run};
use crate::scenario::Scenario;
use crate::world::Footprint;

/// How much was explored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explored {
    /// Different states.
    pub states: usize,
    /// Schedules that were followed to their end, or to a state that was seen before.
    pub schedules: usize,
    /// Steps, those that were replayed included.
    pub steps: usize,
    /// States in which everyone had stopped.
    pub ends: usize,
    /// The longest schedule.
    pub deepest: usize,
    /// Schedules that were cut off.
    pub cut: usize,
    /// False where time ran out.
    pub is_complete: bool,
}

/// Explores all schedules of a scenario, until `until`.
///
/// # Errors
/// The first schedule at whose end something does not hold.
pub fn exhaustive(scenario: &Scenario, until: Option<Instant>) -> Result<Explored, Found> {
    let explored = Explored { is_complete: true, ..Explored::default() };
    let mut search = Search { scenario, until, explored, seen: HashMap::new(), path: Vec::new() };
    search.go()?;
    search.explored.states = search.seen.len();
    Ok(search.explored)
}

/// A state, and how it was looked into.
struct Seen {
    /// The steps that were asleep each time.
    asleep: BTreeSet<Choice>,
    /// The fewest steps that led there.
    depth: usize,
}

struct Search<'s> {
    scenario: &'s Scenario,
    until: Option<Instant>,
    explored: Explored,
    /// States, with the steps that need not be looked into from them since they were elsewhere.
    seen: HashMap<(u64, u64), Seen>,
    path: Vec<Choice>,
}

/// A state on the path, and what is still to be tried from it.
struct Branch<'s> {
    /// The run that came here, until it goes on.
    run: Option<Run<'s>>,
    left: std::vec::IntoIter<Possible>,
    asleep: Vec<Asleep>,
}

/// A step that was tried from here or before, and what it touched.
#[derive(Clone)]
struct Asleep {
    choice: Choice,
    footprint: Footprint,
}

impl<'s> Search<'s> {
    /// The run of the path, made again.
    fn replayed(&mut self) -> Result<Run<'s>, Found> {
        let start = Run::new(self.scenario);
        let mut run = start.map_err(|what| Found { schedule: Vec::new(), what })?;
        for (index, choice) in self.path.iter().enumerate() {
            let stepped = run.step(*choice);
            stepped.map_err(|what| Found { schedule: self.path[..=index].to_vec(), what })?;
        }
        self.explored.steps += self.path.len();
        Ok(run)
    }

    fn found(&self, what: String) -> Found {
        Found { schedule: self.path.clone(), what }
    }

    fn go(&mut self) -> Result<(), Found> {
        let start = self.replayed()?;
        let mut branches: Vec<Branch<'s>> = self.visit(start, Vec::new())?.into_iter().collect();
        while let Some(branch) = branches.last_mut() {
            let Some(option) = branch.left.next() else {
                branches.pop();
                self.path.pop();
                continue;
            };
            let mut run = match branch.run.take() {
                Some(run) => run,
                None => self.replayed()?,
            };
            self.path.push(option.choice);
            self.explored.steps += 1;
            let touched = run.step(option.choice).map_err(|what| self.found(what))?;
            let footprint = option.footprint.and(&touched);
            let commutes = |other: &&Asleep| !other.footprint.conflicts(&footprint);
            let still_asleep = branch.asleep.iter().filter(commutes).cloned().collect();
            branch.asleep.push(Asleep { choice: option.choice, footprint });
            match self.visit(run, still_asleep)? {
                Some(next) => branches.push(next),
                None => drop(self.path.pop()),
            }
        }
        Ok(())
    }

    /// Comes to a state; gives what is to be tried from it, where there is anything.
    fn visit(&mut self, run: Run<'s>, asleep: Vec<Asleep>) -> Result<Option<Branch<'s>>, Found> {
        self.explored.deepest = self.explored.deepest.max(self.path.len());
        if self.until.is_some_and(|until| Instant::now() > until) {
            self.explored.is_complete = false;
            return Ok(None);
        }
        let is_new = self.is_new(&run, &asleep)?;
        let is_cut = is_new && self.path.len() >= self.scenario.longest;
        self.explored.cut += usize::from(is_cut);
        let options = if is_new && !is_cut { run.options() } else { Vec::new() };
        self.explored.schedules += usize::from(options.is_empty());
        let is_awake = |option: &Possible| asleep.iter().all(|other| other.choice != option.choice);
        let left: Vec<Possible> = options.into_iter().filter(is_awake).collect();
        Ok((!left.is_empty()).then(|| Branch { run: Some(run), left: left.into_iter(), asleep }))
    }

    /// Notes a state; false where nothing new can come of it.
    fn is_new(&mut self, run: &Run<'_>, asleep: &[Asleep]) -> Result<bool, Found> {
        let sleeping: BTreeSet<Choice> = asleep.iter().map(|asleep| asleep.choice).collect();
        let (state, depth) = (run.hash(), self.path.len());
        if let Some(before) = self.seen.get_mut(&state) {
            // Where something was cut off, it was perhaps below this state, and from here there is more room.
            let is_nearer = depth < before.depth && self.explored.cut > 0;
            let is_known = before.asleep.is_subset(&sleeping) && !is_nearer;
            before.asleep.retain(|choice| sleeping.contains(choice));
            before.depth = before.depth.min(depth);
            return Ok(!is_known);
        }
        self.seen.insert(state, Seen { asleep: sleeping, depth });

        if run.is_stuck() {
            return Err(self.found("everyone waits for a lock".to_owned()));
        }
        if run.is_over() {
            self.explored.ends += 1;
            run.examine_end().map_err(|what| self.found(what))?;
        }
        Ok(true)
    }
}
