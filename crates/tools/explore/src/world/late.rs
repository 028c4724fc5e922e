//! Late writes, whose senders no longer wait for them, and the grace period, which ends after earlier late writes and
//! ADDs.

use std::collections::BTreeSet;

use super::turn::{Pending, PendingRequest};
use super::{Footprint, RequestId, State, World};

/// Events that precede the end of the grace period: the ADDs and late writes that were under way at its start.
#[derive(Hash)]
pub(super) struct Grace {
    pub(super) adding: BTreeSet<usize>,
    pub(super) late_writes: BTreeSet<RequestId>,
}

impl World {
    /// The writes that may still take effect.
    pub(crate) fn late_writes(&self) -> Vec<PendingRequest> {
        self.state().late_writes.values().cloned().collect()
    }

    /// Turns the pending requests of a killed actor into late writes.
    pub(crate) fn make_late(&self, actor: usize) {
        let mut state = self.state();
        state.adding.remove(&actor);
        state.waits.remove(&actor);
        let pending: Vec<Pending> =
            state.pending.extract_if(.., |id, _| id.actor == actor).map(|(_, own)| own).collect();
        pending.into_iter().for_each(|pending| state.add_late_write(pending.asked));
        let own = state.late_writes.values_mut().filter(|write| write.id.actor == actor);
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
        let late_writes = state.late_writes.keys().filter(|id| id.actor != actor).copied().collect();
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
