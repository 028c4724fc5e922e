//! Requests that wait for the explorer's decision.

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
    /// The lock that the request waits for.
    pub lock: Option<String>,
    pub is_read: bool,
    /// True if an API server may put off the request.
    pub can_be_put_off: bool,
    /// True if the request continues a list whose revision may have been compacted.
    pub is_continued: bool,
}

impl PendingRequest {
    /// False if the request waits for a lock, which is a file on the node and always works.
    pub(crate) fn can_fail(&self) -> bool {
        self.lock.is_none()
    }
}

pub(super) struct Pending {
    pub(super) asked: PendingRequest,
    pub(super) write: Option<Write>,
    pub(super) waker: Waker,
}

/// A future that waits until the explorer decides on a request.
pub(crate) struct Turn<'w> {
    world: &'w World,
    id: RequestId,
    /// The request; `None` once it was sent.
    begun: Option<(PendingRequest, Option<Write>)>,
}

impl World {
    /// Creates a read, which is sent when the future is first polled.
    pub(crate) fn turn(&self, actor: usize, what: String, footprint: Footprint) -> Turn<'_> {
        let number = {
            let mut state = self.state();
            let number = state.numbers.entry(actor).or_default();
            *number += 1;
            *number
        };
        let id = RequestId { actor, number };
        let (lock, is_read, can_be_put_off, is_continued) = (None, true, false, false);
        let asked = PendingRequest { id, what, footprint, lock, is_read, can_be_put_off, is_continued };
        Turn { world: self, id, begun: Some((asked, None)) }
    }
}

impl Turn<'_> {
    /// Records the values that the request intends to write, by key.
    pub(crate) fn intends<'k>(self, writes: impl Iterator<Item = (&'k str, Option<Vec<u8>>)>) -> Self {
        for (path, after) in writes {
            self.world.audit.intend(self.id, path, after);
        }
        self
    }

    fn with(mut self, change: impl FnOnce(&mut PendingRequest, &mut Option<Write>)) -> Self {
        if let Some((asked, write)) = &mut self.begun {
            change(asked, write);
        }
        self
    }

    /// Makes the request a write.
    pub(crate) fn writing(self, write: Write) -> Self {
        self.with(|asked, later| {
            asked.is_read = false;
            *later = Some(write);
        })
    }

    /// Makes the request wait for a lock and take it.
    pub(crate) fn locking(self, name: &str) -> Self {
        self.with(|asked, _| {
            asked.is_read = false;
            asked.lock = Some(name.to_owned());
        })
    }

    /// Marks a request to an API server.
    pub(crate) fn for_api_server(self) -> Self {
        self.with(|asked, _| asked.can_be_put_off = true)
    }

    /// Marks a request that continues a list.
    pub(crate) fn continued(self) -> Self {
        self.with(|asked, _| asked.is_continued = true)
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
