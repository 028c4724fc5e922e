//! Requests that wait for the explorer's decision, late writes, whose senders no longer wait for them, and the grace
//! period, which ends after earlier late writes and ADDs.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use calipam_testkit::memory::MemoryStore;
use tokio::sync::oneshot;

use super::{Event, Footprint, Phase, RequestId, State, World, Write};

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
    /// True if the request is a write to the disk of the actor's machine, which does not need the datastore.
    pub is_local: bool,
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
    pub(super) decision: oneshot::Sender<Event>,
}

/// A request that an actor is about to send.
pub(crate) struct Turn<'w> {
    world: &'w World,
    pub(super) asked: PendingRequest,
}

/// Events that precede the end of the grace period: the ADDs and late writes that were under way at its start.
#[derive(Hash)]
pub(super) struct Grace {
    pub(super) adding: BTreeSet<usize>,
    pub(super) late_writes: BTreeSet<RequestId>,
}

impl World {
    /// Creates a read.
    pub(crate) fn turn(&self, actor: usize, what: String, footprint: Footprint) -> Turn<'_> {
        let mut state = self.state();
        let number = state.numbers.entry(actor).or_default();
        *number += 1;
        let id = RequestId {
            actor,
            number: *number,
        };
        let phase = self.audit().phases.get(&actor).copied();
        let asked = PendingRequest {
            id,
            what,
            footprint,
            phase,
            ..PendingRequest::default()
        };
        Turn { world: self, asked }
    }

    /// The writes that may still take effect.
    pub(crate) fn late_writes(&self) -> Vec<PendingRequest> {
        self.state().late_writes.values().cloned().collect()
    }

    /// Turns the pending requests of a killed actor into late writes.
    pub(crate) fn make_late(&self, actor: usize) {
        let mut state = self.state();
        state.adding.remove(&actor);
        state.waits.remove(&actor);
        let pending: Vec<Pending> = state
            .pending
            .extract_if(.., |id, _| id.actor == actor)
            .map(|(_, own)| own)
            .collect();
        pending
            .into_iter()
            .for_each(|pending| state.add_late_write(pending.asked));
        let own = state
            .late_writes
            .values_mut()
            .filter(|write| write.id.actor == actor);
        own.for_each(|write| write.is_orphan = true);
    }

    /// Records that an actor's pod waits for addresses.
    pub(crate) fn begin_add(&self, actor: usize) {
        self.state().adding.insert(actor);
    }

    /// Records that an actor's pod no longer waits for addresses.
    pub(crate) fn end_add(&self, actor: usize) {
        self.state().adding.remove(&actor);
    }

    /// Delays the next request of an actor until the grace period is over.
    pub(crate) fn wait_for_grace(&self, actor: usize) {
        let mut state = self.state();
        let has_begun = |actor: &&usize| state.answers.contains_key(*actor);
        let adding = state.adding.iter().filter(has_begun).copied().collect();
        let late_writes = state
            .late_writes
            .keys()
            .filter(|id| id.actor != actor)
            .copied()
            .collect();
        state.waits.insert(actor, Grace { adding, late_writes });
        // The end of the grace period depends on which actors have begun, and on the late writes.
        let touched = Footprint::default().read_range("actor/").read_range("late/");
        state.touched = std::mem::take(&mut state.touched).and(&touched);
    }

    /// Executes a late write and returns it.
    pub(crate) fn land(&self, id: RequestId) -> Option<PendingRequest> {
        let asked = self.state().late_writes.remove(&id)?;
        asked.write.iter().for_each(|write| write(&self.data));
        Some(asked)
    }
}

impl State {
    /// Keeps a failed write, which may still take effect. Drops a read.
    pub(super) fn add_late_write(&mut self, asked: PendingRequest) {
        if asked.write.is_some() {
            self.late_writes.insert(asked.id, asked);
        }
    }
}

/// Waits for the decision on a request. If this is dropped before, the request is cancelled.
struct Waiting<'w> {
    world: &'w World,
    decision: oneshot::Receiver<Event>,
}

impl Future for Waiting<'_> {
    type Output = Event;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Event> {
        Pin::new(&mut self.decision)
            .poll(context)
            .map(|decided| decided.unwrap_or(Event::Fail))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        // The sender sees that the request is cancelled.
        self.decision.close();
        self.world.cancelled.notify_one();
    }
}

impl Turn<'_> {
    /// Records the values that the request intends to write, by key.
    pub(crate) fn intends(self, writes: &[(String, Option<Vec<u8>>)]) -> Self {
        if self.asked.phase == Some(Phase::Repairs) {
            let mut audit = self.world.audit();
            for (path, after) in writes {
                audit
                    .intended
                    .insert((self.asked.id.actor, path.clone()), after.clone());
            }
        }
        self
    }

    /// Makes the request one to the disk.
    pub(crate) fn on_disk(mut self) -> Self {
        self.asked.is_local = true;
        self
    }

    /// Makes the request wait for a lock and take it.
    pub(crate) fn locking(mut self, name: &str) -> Self {
        self.asked.lock = Some(name.to_owned());
        self
    }

    /// Sends the request and waits for the decision. Any other decision than an answer is an error.
    pub(crate) async fn answered(self) -> Result<(), Event> {
        let Self { world, asked } = self;
        if world.is_free {
            return Ok(());
        }
        let (id, (sender, decision)) = (asked.id, oneshot::channel());
        world.state().pending.insert(
            id,
            Pending {
                asked,
                decision: sender,
            },
        );
        let waiting = Waiting { world, decision };
        match waiting.await {
            Event::Go => Ok(()),
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
    ) -> Result<T, Event> {
        let world = self.world;
        let write = Arc::new(write);
        let late = Arc::clone(&write);
        self.asked.write = Some(Arc::new(move |store| drop(late(store))));
        self.answered().await?;
        Ok(write(&world.data))
    }
}
