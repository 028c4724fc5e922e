//! Requests that wait for the explorer's decision.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::{Footprint, RequestId, Verdict, World, Write};

/// A pending request.
#[derive(Clone)]
pub(crate) struct PendingRequest {
    pub id: RequestId,
    /// A description for reports.
    pub what: String,
    pub footprint: Footprint,
    /// The lock that the request waits for.
    pub lock: Option<String>,
    /// The write; `None` for a read.
    pub write: Option<Write>,
    /// True if an API server may put off the request.
    pub can_be_put_off: bool,
    /// True if the request continues a list whose revision may have been compacted.
    pub is_continued: bool,
    /// True if the sender was killed.
    pub is_orphan: bool,
}

impl PendingRequest {
    pub(crate) fn is_read(&self) -> bool {
        self.lock.is_none() && self.write.is_none()
    }

    /// False if the request waits for a lock, which is a file on the node and always works.
    pub(crate) fn can_fail(&self) -> bool {
        self.lock.is_none()
    }
}

pub(super) struct Pending {
    pub(super) asked: PendingRequest,
    pub(super) waker: Waker,
}

/// A future that waits until the explorer decides on a request.
pub(crate) struct Turn<'w> {
    pub(super) world: &'w World,
    pub(super) asked: PendingRequest,
    is_sent: bool,
}

impl World {
    /// Creates a read, which is sent when the future is first polled.
    pub(crate) fn turn(&self, actor: usize, what: String, footprint: Footprint) -> Turn<'_> {
        let mut state = self.state();
        let number = state.numbers.entry(actor).or_default();
        *number += 1;
        let id = RequestId { actor, number: *number };
        let (lock, write, can_be_put_off, is_continued, is_orphan) = (None, None, false, false, false);
        let asked =
            PendingRequest { id, what, footprint, lock, write, can_be_put_off, is_continued, is_orphan };
        Turn { world: self, asked, is_sent: false }
    }
}

impl Turn<'_> {
    /// Records the values that the request intends to write, by key.
    pub(crate) fn intends(self, writes: &[(String, Option<Vec<u8>>)]) -> Self {
        for (path, after) in writes {
            self.world.audit().intend(self.asked.id, path, after.clone());
        }
        self
    }

    /// Makes the request a write.
    pub(crate) fn writing(mut self, write: Write) -> Self {
        self.asked.write = Some(write);
        self
    }

    /// Makes the request wait for a lock and take it.
    pub(crate) fn locking(mut self, name: &str) -> Self {
        self.asked.lock = Some(name.to_owned());
        self
    }

    /// Waits for the decision. Returns false if the request gets no answer.
    pub(crate) async fn answered(self) -> bool {
        let (world, actor) = (self.world, self.asked.id.actor);
        let verdict = self.await;
        if verdict != Verdict::Go {
            world.record_answer(actor, verdict);
        }
        verdict == Verdict::Go
    }
}

impl Future for Turn<'_> {
    type Output = Verdict;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Verdict> {
        if self.world.is_free {
            return Poll::Ready(Verdict::Go);
        }
        let mut state = self.world.state();
        let (id, waker) = (self.asked.id, context.waker().clone());
        if !std::mem::replace(&mut self.is_sent, true) {
            state.pending.insert(id, Pending { asked: self.asked.clone(), waker });
            return Poll::Pending;
        }
        if let Some(pending) = state.pending.get_mut(&id) {
            pending.waker = waker;
        }
        state.verdicts.remove(&id).map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.world.state();
        state.pending.remove(&self.asked.id);
        state.verdicts.remove(&self.asked.id);
    }
}
