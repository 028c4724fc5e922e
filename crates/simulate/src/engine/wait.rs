//! Sleeps and time limits for tasks.

use std::pin::pin;
use std::task::Poll;

use super::Engine;
use crate::time::Micros;

impl Engine {
    pub(crate) async fn sleep(&self, duration: Micros) {
        within(self, duration, std::future::pending::<()>()).await;
    }
}

/// Runs `work`, and returns its result; `None` if it is not done within `limit`. It is dropped then.
pub(crate) async fn within<T>(engine: &Engine, limit: Micros, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    let deadline = engine.now() + limit;
    let mut is_wake_queued = false;
    std::future::poll_fn(|context| {
        if let Poll::Ready(done) = work.as_mut().poll(context) {
            return Poll::Ready(Some(done));
        }
        if engine.now() >= deadline {
            return Poll::Ready(None);
        }
        // The task is also woken at the deadline, which is planned only once.
        if let Some(id) = engine.current()
            && !is_wake_queued
        {
            engine.wake_at(deadline, id);
            is_wake_queued = true;
        }
        Poll::Pending
    })
    .await
}
