//! One execution of a scenario, step by step.

use std::collections::BTreeSet;
use std::collections::hash_map::DefaultHasher;
use std::fmt;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use calipam_datastore::clock;
use jiff::SignedDuration;

use crate::actor::{Actor, Task};
use crate::invariants;
use crate::scenario::Scenario;
use crate::world::{Event, Footprint, NODES, PendingRequest, RequestId, World, notes_path};

/// A possible next event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Choice {
    pub event: Event,
    /// The request. If the event concerns no request, the request's number is 0, and its actor is the number of the
    /// actor, of the node or of the scenario's jump.
    pub id: RequestId,
}

impl Choice {
    /// The actor that the choice is about.
    pub(crate) fn actor(self) -> Option<usize> {
        let has_actor = !matches!(self.event, Event::Jump | Event::TearNotes | Event::OldNotes);
        has_actor.then_some(self.id.actor)
    }

    /// True for a fault. The number of faults is limited.
    pub fn is_fault(self) -> bool {
        !matches!(self.event, Event::Go | Event::Land)
    }
}

/// A possible choice, with its effects.
#[derive(Clone, Debug)]
pub struct Possible {
    pub choice: Choice,
    /// A description for reports.
    pub what: String,
    pub footprint: Footprint,
}

/// A schedule that ends with a violation.
#[derive(Clone, Debug)]
pub struct Violation {
    pub schedule: Vec<Choice>,
    /// A description of the violation.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "after {} steps: {}", self.schedule.len(), self.what)
    }
}

/// An execution so far.
pub struct Run<'s> {
    pub world: Arc<World>,
    /// The choices that were executed.
    pub schedule: Vec<Choice>,
    scenario: &'s Scenario,
    actors: Vec<RunningActor>,
    faults_left: usize,
}

struct RunningActor {
    actor: Actor,
    /// The actor's work; `None` after its end.
    task: Option<Task>,
    /// Number of times that the actor was killed.
    kills: usize,
}

/// A path that all faults write. They share one limit, so the order of two faults matters.
const FAULTS: &str = "faults";

fn of_actor(actor: usize) -> Footprint {
    Footprint::default().write(format!("actor/{actor}"))
}

/// The footprint of a fault that affects an actor.
fn fault(actor: usize) -> Footprint {
    of_actor(actor).write(FAULTS)
}

impl<'s> Run<'s> {
    /// Starts a scenario; each actor continues to its first request.
    ///
    /// # Errors
    /// Returns an error if an invariant does not hold.
    pub fn new(scenario: &'s Scenario) -> Result<Self, Violation> {
        let (world, actors) = scenario.begin();
        let schedule = Vec::new();
        let faults_left = scenario.faults;
        let mut run = Self {
            world,
            schedule,
            scenario,
            actors: Vec::new(),
            faults_left,
        };
        run.world.audit().is_alone = actors.len() == 1;
        for (number, actor) in actors.into_iter().enumerate() {
            let begin = || {
                Task::new(
                    (actor.begin)(Arc::clone(&run.world), number, false),
                    actor.is_process,
                )
            };
            let task = (!scenario.leaves_out(number)).then(begin);
            run.actors.push(RunningActor {
                actor,
                task,
                kills: 0,
            });
            run.poll(number).map_err(|what| run.violation(what))?;
        }
        run.world.take_touched();
        invariants::always(&run.world, None).map_err(|what| run.violation(what))?;
        Ok(run)
    }

    /// The number of actors, including those that are left out.
    pub(crate) fn actors(&self) -> usize {
        self.actors.len()
    }

    fn violation(&self, what: String) -> Violation {
        Violation {
            schedule: self.schedule.clone(),
            what,
        }
    }

    /// Returns the possible next choices, in a stable order. There are none at the end.
    pub fn options(&self) -> Vec<Possible> {
        let mut options = Vec::new();
        let mut add = |event, id, what, footprint| {
            options.push(Possible {
                choice: Choice { event, id },
                what,
                footprint,
            });
        };
        let name = |actor: usize| &*self.actors[actor].actor.name;
        let asked = self.in_order(self.world.waiting());
        for PendingRequest {
            id, what, footprint, ..
        } in &asked
        {
            let what = format!("{}: {what}", name(id.actor));
            add(Event::Go, *id, what, of_actor(id.actor).and(footprint));
        }
        for PendingRequest {
            id, what, footprint, ..
        } in self.world.late_writes()
        {
            let what = format!("{what} of {} takes effect late", name(id.actor));
            add(Event::Land, id, what, footprint.write(format!("late/{id:?}")));
        }
        if self.faults_left == 0 {
            return options;
        }

        let faults = self.scenario.kinds;
        for request in asked.iter().filter(|_| faults.failures) {
            let id = request.id;
            for (is_possible, event, why) in [
                (request.can_fail(), Event::Fail, "no answer"),
                (request.can_be_put_off, Event::PutOff, "put off"),
                (request.is_continued, Event::Expire, "its revision is gone"),
            ] {
                let footprint = match event {
                    // From now on, the write may take effect at any time.
                    Event::Fail => fault(id.actor).write(format!("late/{id:?}")),
                    _ => fault(id.actor),
                };
                if is_possible {
                    let what = format!("{}: {why}: {}", name(id.actor), request.what);
                    add(event, id, what, footprint);
                }
            }
        }
        // Faults that concern no request.
        let mut add =
            |event, actor, what, footprint| add(event, RequestId { actor, number: 0 }, what, footprint);
        for (number, acting) in self.actors.iter().enumerate().filter(|_| faults.failures) {
            if acting.task.is_some() && self.world.is_waiting(number) {
                let what = format!("{} is killed", name(number));
                let footprint = fault(number).and(&self.killed(number));
                if self.world.files.can_tear(number) {
                    add(
                        Event::Crash,
                        number,
                        format!("{what} by a power failure"),
                        footprint.clone(),
                    );
                }
                add(Event::Kill, number, what, footprint);
            }
        }
        for (number, acting) in self
            .actors
            .iter()
            .enumerate()
            .filter(|_| faults.silence.is_some())
        {
            if acting.actor.is_process && acting.task.is_some() && self.world.waits_for_datastore(number) {
                // Requests after the first one also get no answer.
                let footprint = Footprint::default().write_range("").write(FAULTS);
                let event = faults.silence.unwrap_or(Event::Hang);
                add(
                    event,
                    number,
                    format!("no answer to {} any more", name(number)),
                    footprint,
                );
            }
        }
        for (number, seconds) in faults.jumps.iter().enumerate() {
            let footprint = Footprint::default().write_range("").write(FAULTS);
            add(
                Event::Jump,
                number,
                format!("the clock jumps by {seconds} s"),
                footprint,
            );
        }
        for (number, node) in NODES.into_iter().enumerate().filter(|_| faults.notes) {
            if self.world.notes.of(node).is_some() {
                let footprint = Footprint::default().write(notes_path(node)).write(FAULTS);
                add(
                    Event::TearNotes,
                    number,
                    format!("the notes of {node} are torn"),
                    footprint.clone(),
                );
                let what = format!("the notes of {node} revert to the previous ones");
                add(Event::OldNotes, number, what, footprint);
            }
        }
        options
    }

    /// Keeps only the first pending read of each process on Kubernetes. A process sends a dozen list requests at once,
    /// and the answers could arrive in millions of orders.
    fn in_order(&self, asked: Vec<PendingRequest>) -> Vec<PendingRequest> {
        if !self.world.is_kubernetes() {
            return asked;
        }
        let mut waits = BTreeSet::new();
        asked
            .into_iter()
            .filter(|request| !request.is_read() || waits.insert(request.id.actor))
            .collect()
    }

    /// The footprint of a kill: everything that the actor holds, and its pending requests.
    fn killed(&self, actor: usize) -> Footprint {
        let late = self
            .world
            .waiting()
            .into_iter()
            .filter(|request| request.id.actor == actor);
        let footprint = Footprint::default().write_range("lock/").write_range("pods/");
        late.fold(footprint, |all, request| {
            all.write(format!("late/{:?}", request.id))
        })
    }

    /// Executes a choice, which must be one of the options. Returns what it touched in addition to its footprint.
    ///
    /// # Errors
    /// Returns an error if an invariant is violated.
    pub fn step(&mut self, choice: Choice) -> Result<Footprint, Violation> {
        self.schedule.push(choice);
        self.execute(choice).map_err(|what| self.violation(what))?;
        Ok(self.world.take_touched())
    }

    fn execute(&mut self, choice: Choice) -> Result<(), String> {
        if choice.is_fault() {
            self.faults_left -= 1;
            self.world.audit().has_faults = true;
        }
        let (mut request, Choice { event, id }) = (None, choice);
        match event {
            Event::Go | Event::Fail | Event::PutOff | Event::Expire => {
                self.world.audit().has_lost_answers |= event == Event::Fail;
                request = self.world.decide(id, event);
                self.poll(id.actor)?;
            }
            Event::Land => request = self.world.land(id),
            Event::Kill | Event::Crash => self.kill(id.actor, event == Event::Crash)?,
            Event::Hang | Event::Silence => self.hang(id.actor, event == Event::Silence)?,
            Event::Jump => self
                .world
                .jump(SignedDuration::from_secs(self.scenario.kinds.jumps[id.actor])),
            Event::TearNotes => self.world.notes.tear(NODES[id.actor]),
            Event::OldNotes => self.world.notes.revert(NODES[id.actor]),
        }
        invariants::always(&self.world, request.as_ref())
    }

    fn kill(&mut self, number: usize, tears: bool) -> Result<(), String> {
        self.world.make_late(number);
        self.world.audit().has_killed = true;
        let acting = &mut self.actors[number];
        acting.kills += 1;
        acting.task = None;
        if tears {
            self.world.files.tear(number);
        }
        if acting.actor.goes_on {
            let work = (acting.actor.begin)(Arc::clone(&self.world), number, true);
            acting.task = Some(Task::new(work, acting.actor.is_process));
            self.poll(number)?;
        }
        Ok(())
    }

    /// Leaves the requests of a process without an answer until it gives up. If `is_forever`, none of its later requests
    /// is answered, either.
    fn hang(&mut self, number: usize, is_forever: bool) -> Result<(), String> {
        let mut audit = self.world.audit();
        audit.has_lost_answers = true;
        // As if it were killed: its run ends halfway.
        audit.has_killed = true;
        drop(audit);
        loop {
            if self.world.waits_for_datastore(number) {
                self.world.hang(number);
                let world = Arc::clone(&self.world);
                self.resume(number, |task| {
                    task.resume_until(world.next_after_giving_up(number))
                })?;
            } else if let Some(id) = self.world.pending_on_disk(number) {
                // The journal is written all the same.
                self.world.decide(id, Event::Go);
                self.poll(number)?;
            } else {
                return Ok(());
            }
            if !is_forever {
                return Ok(());
            }
        }
    }

    /// Continues an actor to its next request, or to its end.
    fn poll(&mut self, number: usize) -> Result<(), String> {
        self.resume(number, Task::resume)
    }

    /// Continues an actor by `resume`, which returns true if the actor's work has ended.
    fn resume(&mut self, number: usize, resume: impl FnOnce(&mut Task) -> bool) -> Result<(), String> {
        let acting = &mut self.actors[number];
        let Some(task) = &mut acting.task else {
            return Ok(());
        };
        // Commands read the machine's clock, which must include the jumps.
        clock::set_ahead(self.world.jumped());
        let polled = catch_unwind(AssertUnwindSafe(|| resume(task)));
        self.world.files.end_step(number);
        match polled {
            Ok(false) => {}
            Ok(true) => acting.task = None,
            Err(panic) => {
                let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
                let what = text
                    .or_else(|| panic.downcast_ref::<String>().cloned())
                    .unwrap_or_default();
                return Err(format!("{} panics: {what}", acting.actor.name));
            }
        }
        self.world.forget_cancelled();
        Ok(())
    }

    /// Returns true if all actors have ended. Late writes may be left, but they may also never take effect.
    ///
    /// # Errors
    /// Returns an error if an actor waits but no request can be decided, since a lock is never released.
    pub fn is_over(&self) -> Result<bool, Violation> {
        let is_over = self.actors.iter().all(|acting| acting.task.is_none());
        if !is_over && self.world.waiting().is_empty() {
            return Err(self.violation("deadlock: every actor waits for a lock".to_owned()));
        }
        Ok(is_over)
    }

    /// Checks the end, with all actors stopped.
    ///
    /// # Errors
    /// Returns an error if an invariant does not hold.
    pub fn examine_end(&self) -> Result<(), Violation> {
        (self.scenario.end)(&self.world).map_err(|what| self.violation(what))
    }

    /// A hash of the state. Two runs of a scenario with the same hash have the same possible continuations.
    pub fn hash(&self) -> (u64, u64) {
        let of = |seed: u64| {
            let mut hasher = DefaultHasher::new();
            (seed, self.faults_left).hash(&mut hasher);
            let kills = self
                .actors
                .iter()
                .map(|acting| (acting.kills, acting.task.is_some()));
            kills.for_each(|acting| acting.hash(&mut hasher));
            self.world.hash(hasher)
        };
        (of(0), of(1))
    }
}
