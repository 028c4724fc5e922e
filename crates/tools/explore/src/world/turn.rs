//! Waiting for one's turn.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::{Footprint, RequestId, Verdict, World, Write};

/// A request that waits.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub id: RequestId,
    /// For people.
    pub what: String,
    pub footprint: Footprint,
    /// The lock that it wants.
    pub lock: Option<String>,
    pub is_read: bool,
    /// An API server may put it off.
    pub can_be_put_off: bool,
    /// It goes on with a list, whose revision may be compacted away.
    pub is_continued: bool,
    /// False for a lock, which is a file of the node: asking for it does not fail.
    pub can_fail: bool,
}

pub(super) struct Pending {
    pub(super) asked: Asked,
    pub(super) write: Option<Write>,
    pub(super) waker: Waker,
}

/// Waits until the explorer says what becomes of a request.
pub(crate) struct Turn<'w> {
    world: &'w World,
    id: RequestId,
    /// What is asked; `None` once it is.
    begun: Option<(Asked, Option<Write>)>,
}

impl World {
    /// Asks for something, and waits for what becomes of it.
    pub(crate) fn turn(
        &self,
        actor: usize,
        what: String,
        footprint: Footprint,
        write: Option<Write>,
        lock: Option<String>,
    ) -> Turn<'_> {
        let number = {
            let mut state = self.state();
            let number = state.numbers.entry(actor).or_default();
            *number += 1;
            *number
        };
        let id = RequestId { actor, number };
        let is_read = write.is_none() && lock.is_none();
        let can_fail = lock.is_none();
        let (can_be_put_off, is_continued) = (false, false);
        let asked = Asked { id, what, footprint, is_read, can_be_put_off, is_continued, can_fail, lock };
        Turn { world: self, id, begun: Some((asked, write)) }
    }
}

impl Turn<'_> {
    /// The same for writes, by their keys.
    pub(crate) fn intends<'k>(self, writes: impl Iterator<Item = (&'k str, Option<Vec<u8>>)>) -> Self {
        for (path, after) in writes {
            self.world.audit.intend(self.id, path, after);
        }
        self
    }

    /// The same to an API server.
    pub(crate) fn for_api_server(mut self) -> Self {
        if let Some((asked, _)) = &mut self.begun {
            asked.can_be_put_off = true;
        }
        self
    }

    /// The same for a request that goes on with a list.
    pub(crate) fn continued(mut self) -> Self {
        if let Some((asked, _)) = &mut self.begun {
            asked.is_continued = true;
        }
        self
    }
}

impl Future for Turn<'_> {
    type Output = Verdict;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Verdict> {
        let begun = self.begun.take();
        let mut state = self.world.state();
        if let Some((asked, write)) = begun {
            state.pending.insert(self.id, Pending { asked, write, waker: context.waker().clone() });
            return Poll::Pending;
        }
        if let Some(pending) = state.pending.get_mut(&self.id) {
            pending.waker.clone_from(context.waker());
        }
        state.verdicts.remove(&self.id).map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.world.state();
        state.pending.remove(&self.id);
        state.verdicts.remove(&self.id);
    }
}
