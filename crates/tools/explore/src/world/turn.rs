//! Waits for the explorer's decision.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::{Footprint, RequestId, Verdict, World, Write};

/// A pending request.
#[derive(Clone, Debug)]
pub(crate) struct PendingRequest {
    pub id: RequestId,
    /// A description for reports.
    pub what: String,
    pub footprint: Footprint,
    /// The lock that it waits for.
    pub lock: Option<String>,
    pub is_read: bool,
    /// An API server may defer it.
    pub can_be_put_off: bool,
    /// It continues a list, whose revision may be compacted.
    pub is_continued: bool,
    /// False for a lock, which is a file of the node and always works.
    pub can_fail: bool,
}

pub(super) struct Pending {
    pub(super) asked: PendingRequest,
    pub(super) write: Option<Write>,
    pub(super) waker: Waker,
}

/// Waits until the explorer decides on a request.
pub(crate) struct Turn<'w> {
    world: &'w World,
    id: RequestId,
    /// The request; `None` after it was sent.
    begun: Option<(PendingRequest, Option<Write>)>,
}

impl World {
    /// Sends a request and waits for the decision.
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
        let asked =
            PendingRequest { id, what, footprint, is_read, can_be_put_off, is_continued, can_fail, lock };
        Turn { world: self, id, begun: Some((asked, write)) }
    }
}

impl Turn<'_> {
    /// Adds the writes that the request intends, by key.
    pub(crate) fn intends<'k>(self, writes: impl Iterator<Item = (&'k str, Option<Vec<u8>>)>) -> Self {
        for (path, after) in writes {
            self.world.audit.intend(self.id, path, after);
        }
        self
    }

    /// Marks a request to an API server.
    pub(crate) fn for_api_server(mut self) -> Self {
        if let Some((asked, _)) = &mut self.begun {
            asked.can_be_put_off = true;
        }
        self
    }

    /// Marks a request that continues a list.
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
