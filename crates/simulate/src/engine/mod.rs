//! The discrete-event engine: a virtual clock, a queue of events, and tasks that wait for them, on one thread.
//!
//! Time passes only from event to event. Events at the same time happen in the order in which they were queued, so the
//! same seed always gives the same run.

mod lock;
mod slot;
mod wait;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Waker};

pub(crate) use self::lock::{Lock, LockGuard};
pub(crate) use self::slot::{Answer, Slot, Watch};
pub(crate) use self::wait::within;
use crate::time::Micros;

/// The engine. All clones share one engine.
#[derive(Clone, Default)]
pub(crate) struct Engine(Rc<Core>);

#[derive(Default)]
struct Core {
    now: Cell<Micros>,
    /// The queued events, by time and number.
    events: RefCell<BTreeMap<(Micros, u64), Action>>,
    /// The number of events that were ever queued.
    queued: Cell<u64>,
    /// The tasks that have not ended; `None` for a task that is running.
    tasks: RefCell<HashMap<TaskId, Option<Task>, foldhash::fast::FixedState>>,
    /// The running task.
    current: Cell<Option<TaskId>>,
}

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// The ID of a task: the number of its first event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TaskId(u64);

enum Action {
    Wake(TaskId),
    Call(Box<dyn FnOnce()>),
}

impl Engine {
    pub(crate) fn now(&self) -> Micros {
        self.0.now.get()
    }

    /// Runs `action` at `time`, or at the current time if that has passed.
    pub(crate) fn at(&self, time: Micros, action: impl FnOnce() + 'static) {
        self.push(time, Action::Call(Box::new(action)));
    }

    /// Starts a task. Its first step is queued as an event at the current time.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + 'static) -> TaskId {
        let id = TaskId(self.0.queued.get());
        self.0.tasks.borrow_mut().insert(id, Some(Box::pin(task)));
        self.push(self.now(), Action::Wake(id));
        id
    }

    /// Kills a task. Writes that it has sent are still made.
    pub(crate) fn kill(&self, id: TaskId) {
        let task = self.0.tasks.borrow_mut().remove(&id);
        // Dropping the task may wake other tasks.
        drop(task);
    }

    /// Runs all events until `end`, and sets the clock to `end`.
    pub(crate) fn run_until(&self, end: Micros) {
        while let Some((time, action)) = self.next(end) {
            self.0.now.set(time.max(self.now()));
            match action {
                Action::Wake(id) => self.step(id),
                Action::Call(action) => action(),
            }
        }
        self.0.now.set(end.max(self.now()));
    }

    /// The time and action of the next event, if it is not after `end`.
    fn next(&self, end: Micros) -> Option<(Micros, Action)> {
        let mut events = self.0.events.borrow_mut();
        let first = events.first_entry().filter(|first| first.key().0 <= end)?;
        let ((time, _), action) = first.remove_entry();
        Some((time, action))
    }

    /// Drops all events and tasks.
    pub(crate) fn stop(&self) {
        loop {
            let events = self.0.events.take();
            let tasks = self.0.tasks.take();
            if events.is_empty() && tasks.is_empty() {
                break;
            }
            // Dropping events and tasks can queue more.
            drop((events, tasks));
        }
    }

    /// Continues a task, if it still exists.
    fn step(&self, id: TaskId) {
        // Takes the task out of the list, because it can start or kill tasks while it runs.
        let Some(mut task) = self.0.tasks.borrow_mut().get_mut(&id).and_then(Option::take) else {
            return;
        };
        let outer_task = self.0.current.replace(Some(id));
        // The waker does nothing, since only events wake tasks.
        let mut context = Context::from_waker(Waker::noop());
        let is_done = task.as_mut().poll(&mut context).is_ready();
        self.0.current.set(outer_task);

        if is_done {
            self.0.tasks.borrow_mut().remove(&id);
        } else if let Some(entry) = self.0.tasks.borrow_mut().get_mut(&id) {
            *entry = Some(task);
        }
        // A task that has ended, or was killed meanwhile, is dropped here, which may wake other tasks.
    }

    fn wake_at(&self, time: Micros, id: TaskId) {
        self.push(time, Action::Wake(id));
    }

    /// Plans an action at a time, or now if the time has passed. Actions at the same time keep their order.
    fn push(&self, time: Micros, action: Action) {
        let number = self.0.queued.get();
        self.0.queued.set(number + 1);
        self.0
            .events
            .borrow_mut()
            .insert((time.max(self.now()), number), action);
    }

    fn current(&self) -> Option<TaskId> {
        self.0.current.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Log = Rc<RefCell<Vec<String>>>;

    fn log() -> (Log, impl Fn(&Engine, &str) + Clone + 'static) {
        let log = Rc::new(RefCell::new(Vec::new()));
        let writer = Rc::clone(&log);
        (log, move |engine: &Engine, text: &str| {
            writer.borrow_mut().push(format!("{} {text}", engine.now().0));
        })
    }

    #[test]
    fn events_happen_in_the_order_of_time_and_then_of_queueing() {
        let engine = Engine::default();
        let (log, note) = log();
        for (at, name) in [(5, "b"), (5, "c"), (2, "a")] {
            let inner = engine.clone();
            let note = note.clone();
            engine.at(Micros(at), move || note(&inner, name));
        }
        engine.run_until(Micros(10));
        assert_eq!(*log.borrow(), ["2 a", "5 b", "5 c"]);
        assert_eq!(engine.now(), Micros(10));
    }

    /// Runs three tasks that want a lock for ten microseconds each, kills the second, and returns the log.
    fn three_want_a_lock(killed_at: u64) -> Vec<String> {
        let engine = Engine::default();
        let (log, note) = log();
        let lock = Lock::new(&engine);
        let mut ids = Vec::new();
        for name in ["a", "b", "c"] {
            let inner = engine.clone();
            let note = note.clone();
            let lock = lock.clone();
            ids.push(engine.spawn(async move {
                let _guard = lock.take().await;
                note(&inner, name);
                inner.sleep(Micros(10)).await;
            }));
        }
        engine.run_until(Micros(killed_at));
        engine.kill(ids[1]);
        engine.run_until(Micros(100));
        log.borrow().clone()
    }

    #[test]
    fn a_lock_goes_to_the_next_task_even_when_its_holder_or_a_waiting_task_is_killed() {
        assert_eq!(three_want_a_lock(12), ["0 a", "10 b", "12 c"]);
        assert_eq!(three_want_a_lock(5), ["0 a", "10 c"]);
    }

    #[test]
    fn work_that_takes_too_long_is_given_up() {
        let engine = Engine::default();
        let (log, note) = log();
        for (name, long) in [("short", 5), ("long", 50)] {
            let inner = engine.clone();
            let note = note.clone();
            engine.spawn(async move {
                let outcome = within(&inner, Micros(20), inner.sleep(Micros(long))).await;
                note(&inner, &format!("{name} {}", outcome.is_some()));
            });
        }
        engine.run_until(Micros(100));
        assert_eq!(*log.borrow(), ["5 short true", "20 long false"]);
    }
}
