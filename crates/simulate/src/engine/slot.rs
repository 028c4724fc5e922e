//! Slots that pass an answer to the task that waits for it.

use std::any::Any;
use std::cell::RefCell;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll};

use super::{Engine, TaskId};
use crate::time::Micros;

/// A slot for an answer that one task waits for.
pub(crate) struct Slot<T>(Rc<RefCell<Inner<T>>>);

struct Inner<T> {
    /// The answer and its time of arrival.
    answer: Option<(Micros, T)>,
    waiting: Option<TaskId>,
}

impl<T> Clone for Slot<T> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<T> Slot<T> {
    pub(crate) fn new() -> Self {
        Self(Rc::new(RefCell::new(Inner {
            answer: None,
            waiting: None,
        })))
    }

    /// Sends the answer, which arrives at `time`.
    pub(crate) fn fill_at(&self, engine: &Engine, time: Micros, answer: T) {
        let mut inner = self.0.borrow_mut();
        inner.answer = Some((time, answer));
        if let Some(id) = inner.waiting.take() {
            engine.wake_at(time, id);
        }
    }

    /// True if no task is waiting any more, because the waiting task has dropped its clone.
    pub(crate) fn is_abandoned(&self) -> bool {
        Rc::strong_count(&self.0) == 1
    }

    /// Waits for the answer.
    pub(crate) fn answer(self, engine: &Engine) -> Answer<T> {
        Answer {
            slot: self,
            engine: engine.clone(),
        }
    }
}

impl<T: 'static> Slot<T> {
    pub(crate) fn watch(&self) -> Watch {
        let shared: Rc<dyn Any> = self.0.clone();
        Watch(Rc::downgrade(&shared))
    }
}

/// Shows whether a task is still waiting for an answer.
pub(crate) struct Watch(Weak<dyn Any>);

impl Watch {
    /// True until the [`Answer`] is dropped.
    pub(crate) fn waits(&self) -> bool {
        self.0.strong_count() > 1
    }
}

pub(crate) struct Answer<T> {
    slot: Slot<T>,
    engine: Engine,
}

impl<T> Future for Answer<T> {
    type Output = T;

    /// Returns the answer if it has arrived. Otherwise arranges that the current task is woken then.
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<T> {
        let mut inner = self.slot.0.borrow_mut();
        if let Some((_, answer)) = inner.answer.take_if(|(arrives, _)| *arrives <= self.engine.now()) {
            return Poll::Ready(answer);
        }

        let current = self.engine.current();
        if let Some((arrives, _)) = &inner.answer
            && let Some(id) = current
        {
            self.engine.wake_at(*arrives, id);
        } else {
            // Whoever fills the slot wakes the task.
            inner.waiting = current;
        }
        Poll::Pending
    }
}
