//! Requests that wait for the explorer's decision.

use std::sync::Arc;

use calipam_testkit::memory::MemoryStore;
use tokio::sync::oneshot;

use super::{Footprint, Phase, RequestId, Verdict, World, Write};

/// A pending request.
#[derive(Clone, Default)]
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
    /// The phase of the sender.
    pub phase: Option<Phase>,
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

/// A request that was sent, and the receiver of the decision.
pub(super) struct Pending {
    pub(super) asked: PendingRequest,
    pub(super) decision: oneshot::Sender<Verdict>,
}

/// A request that an actor is about to send.
pub(crate) struct Turn<'w> {
    world: &'w World,
    pub(super) asked: PendingRequest,
}

impl World {
    /// Creates a read.
    pub(crate) fn turn(&self, actor: usize, what: String, footprint: Footprint) -> Turn<'_> {
        let mut state = self.state();
        let number = state.numbers.entry(actor).or_default();
        *number += 1;
        let id = RequestId { actor, number: *number };
        let phase = self.audit().phases.get(&actor).copied();
        let asked = PendingRequest { id, what, footprint, phase, ..PendingRequest::default() };
        Turn { world: self, asked }
    }
}

impl Turn<'_> {
    /// Records the values that the request intends to write, by key.
    pub(crate) fn intends(self, writes: &[(String, Option<Vec<u8>>)]) -> Self {
        if self.asked.phase == Some(Phase::Repairs) {
            let mut audit = self.world.audit();
            for (path, after) in writes {
                audit.intended.insert((self.asked.id.actor, path.clone()), after.clone());
            }
        }
        self
    }

    /// Makes the request wait for a lock and take it.
    pub(crate) fn locking(mut self, name: &str) -> Self {
        self.asked.lock = Some(name.to_owned());
        self
    }

    /// Sends the request and waits for the decision. Any other decision than an answer is an error.
    pub(crate) async fn answered(self) -> Result<(), Verdict> {
        let Self { world, asked } = self;
        if world.is_free {
            return Ok(());
        }
        let (id, (sender, decision)) = (asked.id, oneshot::channel());
        world.state().pending.insert(id, Pending { asked, decision: sender });
        match decision.await.unwrap_or(Verdict::Fail) {
            Verdict::Go => Ok(()),
            refused => {
                world.record_answer(id.actor, refused);
                Err(refused)
            }
        }
    }

    /// Makes the request a write, and waits until it is executed. Without an answer, it may still take effect later.
    pub(crate) async fn executed<T>(
        mut self,
        write: impl Fn(&MemoryStore) -> T + Send + Sync + 'static,
    ) -> Result<T, Verdict> {
        let (world, write) = (self.world, Arc::new(write));
        let late = Arc::clone(&write);
        self.asked.write = Some(Arc::new(move |store| drop(late(store))));
        self.answered().await?;
        Ok(write(&world.data))
    }
}
