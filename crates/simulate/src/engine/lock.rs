//! A lock that tasks acquire in the order in which they request it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use super::{Engine, Slot};

/// A lock. All clones share one lock.
#[derive(Clone)]
pub(crate) struct Lock {
    engine: Engine,
    state: Rc<RefCell<State>>,
}

#[derive(Default)]
struct State {
    is_held: bool,
    waiting: VecDeque<Slot<LockGuard>>,
}

/// Holds the lock until it is dropped.
pub(crate) struct LockGuard(Lock);

impl Lock {
    pub(crate) fn new(engine: &Engine) -> Self {
        Self {
            engine: engine.clone(),
            state: Rc::default(),
        }
    }

    /// Waits for the lock, without a time limit. Tasks get it in the order in which they ask for it. It is held until
    /// the guard is dropped.
    pub(crate) async fn take(&self) -> LockGuard {
        // The state is borrowed only in this block, and not while the task waits.
        let slot = {
            let mut state = self.state.borrow_mut();
            if !state.is_held {
                state.is_held = true;
                return LockGuard(self.clone());
            }
            let slot = Slot::new();
            state.waiting.push_back(slot.clone());
            slot
        };
        // If a task is killed while it waits, nothing reads its slot. A guard in the slot is dropped with it, which
        // releases the lock.
        slot.answer(&self.engine).await
    }
}

impl Drop for LockGuard {
    /// Passes the lock on to the task that has waited longest. Without one, the lock is free.
    fn drop(&mut self) {
        let next_slot = loop {
            let mut state = self.0.state.borrow_mut();
            match state.waiting.pop_front() {
                // The task was killed while it waited.
                Some(slot) if slot.is_abandoned() => {}
                Some(slot) => break slot,
                None => {
                    state.is_held = false;
                    return;
                }
            }
        };
        let engine = &self.0.engine;
        next_slot.fill_at(engine, engine.now(), Self(self.0.clone()));
    }
}
