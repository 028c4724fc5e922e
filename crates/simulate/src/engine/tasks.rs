//! Tasks, with IDs that are never reused.

use std::pin::Pin;
use std::task::{Context, Waker};

pub(super) type Task = Pin<Box<dyn Future<Output = ()>>>;

/// The ID of a task, never reused for another task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TaskId {
    place: usize,
    generation: u64,
}

/// The tasks that have not ended.
#[derive(Default)]
pub(super) struct Tasks {
    places: Vec<Place>,
    free: Vec<usize>,
}

#[derive(Default)]
struct Place {
    generation: u64,
    /// `None` while the task is running, or if the place is free.
    task: Option<Task>,
}

impl Tasks {
    pub(super) fn add(&mut self, task: Task) -> TaskId {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place::default());
            self.places.len() - 1
        });
        self.places[place].task = Some(task);
        TaskId { place, generation: self.places[place].generation }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.places.iter().all(|place| place.task.is_none())
    }

    /// Takes a task out to run it.
    pub(super) fn take(&mut self, id: TaskId) -> Option<Task> {
        let place = self.places.get_mut(id.place)?;
        if place.generation == id.generation { place.task.take() } else { None }
    }

    /// Puts back a task after a step, or `None` if it has ended. Returns the task if it was removed meanwhile.
    #[must_use = "dropping a task wakes others"]
    pub(super) fn put_back(&mut self, id: TaskId, task: Option<Task>) -> Option<Task> {
        let place = &mut self.places[id.place];
        if place.generation != id.generation {
            return task;
        }
        match task {
            Some(task) => place.task = Some(task),
            None => self.vacate(id.place),
        }
        None
    }

    /// Removes a task. A running task is dropped after its step.
    #[must_use = "dropping a task wakes others"]
    pub(super) fn remove(&mut self, id: TaskId) -> Option<Task> {
        let place = self.places.get_mut(id.place).filter(|place| place.generation == id.generation)?;
        let task = place.task.take();
        self.vacate(id.place);
        task
    }

    fn vacate(&mut self, place: usize) {
        self.places[place].generation += 1;
        self.free.push(place);
    }
}

/// Makes one step; true if the task has ended. Only engine events wake tasks.
pub(super) fn poll(task: &mut Task) -> bool {
    task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
}
