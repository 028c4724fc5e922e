//! Waiting for a time, and time limits.

use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use super::{Action, Engine};
use crate::time::Micros;

impl Engine {
    pub(crate) fn sleep(&self, duration: Micros) -> Sleep {
        Sleep { engine: self.clone(), until: self.now() + duration, is_queued: false }
    }
}

pub(crate) struct Sleep {
    engine: Engine,
    until: Micros,
    is_queued: bool,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.engine.now() >= self.until {
            return Poll::Ready(());
        }
        if !self.is_queued
            && let Some(id) = self.engine.current()
        {
            self.is_queued = true;
            self.engine.push(self.until, Action::Wake(id));
        }
        Poll::Pending
    }
}

/// The time for some work is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Elapsed;

/// Does some work, or gives it up when `limit` is over.
pub(crate) async fn within<T>(
    engine: &Engine,
    limit: Micros,
    work: impl Future<Output = T>,
) -> Result<T, Elapsed> {
    let mut work = pin!(work);
    let until = engine.now() + limit;
    let mut is_queued = false;
    std::future::poll_fn(|context| {
        if let Poll::Ready(done) = work.as_mut().poll(context) {
            return Poll::Ready(Ok(done));
        }
        if engine.now() >= until {
            return Poll::Ready(Err(Elapsed));
        }
        if let Some(id) = engine.current()
            && !std::mem::replace(&mut is_queued, true)
        {
            engine.wake_at(until, id);
        }
        Poll::Pending
    })
    .await
}
