//! The discrete-event engine: a virtual clock, a queue of events, and tasks that wait for them, on one thread.
//!
//! Time passes only from event to event. Events at the same time happen in the order in which they were queued, so the
//! same seed always gives the same run.

mod lock;
mod slot;
mod tasks;
mod wait;

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;

pub(crate) use self::lock::{Lock, LockGuard};
pub(crate) use self::slot::{Answer, Slot, Watch};
pub(crate) use self::tasks::TaskId;
use self::tasks::Tasks;
pub(crate) use self::wait::within;
use crate::time::Micros;

/// The engine. All clones are the same engine.
#[derive(Clone, Default)]
pub(crate) struct Engine(Rc<Core>);

#[derive(Default)]
struct Core {
    now: Cell<Micros>,
    events: RefCell<BinaryHeap<Reverse<Event>>>,
    /// Number of events queued so far.
    queued: Cell<u64>,
    tasks: RefCell<Tasks>,
    /// The running task.
    current: Cell<Option<TaskId>>,
}

struct Event {
    at: Micros,
    number: u64,
    action: Action,
}

enum Action {
    Wake(TaskId),
    Call(Box<dyn FnOnce()>),
}

impl Engine {
    pub(crate) fn now(&self) -> Micros {
        self.0.now.get()
    }

    /// Does something at a time, or now if that time has passed.
    pub(crate) fn at(&self, time: Micros, action: impl FnOnce() + 'static) {
        self.push(time, Action::Call(Box::new(action)));
    }

    /// Starts a task, which makes its first step on its turn.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + 'static) -> TaskId {
        let id = self.0.tasks.borrow_mut().add(Box::pin(task));
        self.push(self.now(), Action::Wake(id));
        id
    }

    /// Kills a task. Its requests can still be answered.
    pub(crate) fn kill(&self, id: TaskId) {
        let task = self.0.tasks.borrow_mut().remove(id);
        // Dropping the task may wake others.
        drop(task);
    }

    /// Runs all events until `end`, and sets the clock to `end`.
    pub(crate) fn run_until(&self, end: Micros) {
        while let Some(event) = self.next(end) {
            self.0.now.set(event.at.max(self.now()));
            match event.action {
                Action::Wake(id) => self.step(id),
                Action::Call(action) => action(),
            }
        }
        self.0.now.set(end.max(self.now()));
    }

    /// The next event, if it is not after `end`.
    fn next(&self, end: Micros) -> Option<Event> {
        let mut events = self.0.events.borrow_mut();
        events.peek().filter(|Reverse(event)| event.at <= end)?;
        events.pop().map(|Reverse(event)| event)
    }

    /// Drops all events and tasks.
    pub(crate) fn stop(&self) {
        loop {
            let (events, tasks) = (self.0.events.take(), self.0.tasks.take());
            if events.is_empty() && tasks.is_empty() {
                break;
            }
            // Dropping events and tasks can queue more.
            drop((events, tasks));
        }
    }

    /// Lets a task continue, if it still exists.
    fn step(&self, id: TaskId) {
        let Some(mut task) = self.0.tasks.borrow_mut().take(id) else { return };
        let before = self.0.current.replace(Some(id));
        let is_done = tasks::poll(&mut task);
        self.0.current.set(before);
        let left = self.0.tasks.borrow_mut().put_back(id, (!is_done).then_some(task));
        drop(left);
    }

    fn wake_at(&self, time: Micros, id: TaskId) {
        self.push(time, Action::Wake(id));
    }

    fn push(&self, time: Micros, action: Action) {
        let number = self.0.queued.get();
        self.0.queued.set(number + 1);
        let event = Event { at: time.max(self.now()), number, action };
        self.0.events.borrow_mut().push(Reverse(event));
    }

    fn current(&self) -> Option<TaskId> {
        self.0.current.get()
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.number) == (other.at, other.number)
    }
}

impl Eq for Event {}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Event {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
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
            let (inner, note) = (engine.clone(), note.clone());
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
            let (inner, note, lock) = (engine.clone(), note.clone(), lock.clone());
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
    fn a_lock_goes_to_the_next_task_even_when_its_holder_is_killed() {
        assert_eq!(three_want_a_lock(12), ["0 a", "10 b", "12 c"]);
    }

    #[test]
    fn a_task_that_waits_for_a_lock_can_be_killed() {
        assert_eq!(three_want_a_lock(5), ["0 a", "10 c"]);
    }

    #[test]
    fn work_that_takes_too_long_is_given_up() {
        let engine = Engine::default();
        let (log, note) = log();
        for (name, long) in [("short", 5), ("long", 50)] {
            let (inner, note) = (engine.clone(), note.clone());
            engine.spawn(async move {
                let outcome = within(&inner, Micros(20), inner.sleep(Micros(long))).await;
                note(&inner, &format!("{name} {}", outcome.is_ok()));
            });
        }
        engine.run_until(Micros(100));
        assert_eq!(*log.borrow(), ["5 short true", "20 long false"]);
    }
}
