//! The history of an address, handle, block, node or pod, from a comparison of successive states of the related
//! objects. etcd revisions are totally ordered. The exports of an archive only bound the times of changes.

mod changes;
mod event;
mod exports;
#[cfg(test)]
mod owner_tests;
mod revisions;
mod state;
#[cfg(test)]
mod tests;
mod when;

use std::collections::BTreeMap;

use calipam_check::Subject;
use calipam_model::IpNet;
use calipam_model::key::Key;
use calipam_model::snapshot::Snapshot;
use jiff::Timestamp;

use self::changes::{Raw, concerns, events_between};
pub use self::event::{Event, EventKind, Holder, Origin, Run};
pub use self::exports::{ExportReader, RECORDS, USERS, recorded_in};
pub use self::revisions::{Kept, Version, timeline};
pub use self::state::{HistorySubject, State};
pub use self::when::{Uncertainty, When};

/// A write of a calipam run, from its journal.
#[derive(Clone, Debug)]
pub struct JournaledWrite {
    pub run: Run,
    pub path: String,
    /// The revision of the write; `None` if it deleted the object, or a killed run has not recorded the revision.
    pub revision: Option<i64>,
    /// The revision that the write replaced.
    pub replaced: Option<i64>,
    pub before: Option<Vec<u8>>,
    pub after: Option<Vec<u8>>,
    /// True if the journal confirms the write. A killed run may not have recorded the confirmation.
    pub is_certain: bool,
}

impl JournaledWrite {
    /// Returns the events of a write to a block; none for other objects.
    fn events(&self, about: &HistorySubject) -> Vec<Raw> {
        let Ok(Some(key @ Key::Block(_))) = Key::parse(&self.path) else {
            return Vec::new();
        };
        if !about.has_key(&key) {
            return Vec::new();
        }
        let (before, _) = decode(&key, &self.path, self.before.as_deref(), about);
        let (after, _) = decode(&key, &self.path, self.after.as_deref(), about);
        let mut events = events_between(&key, Some(&before), &after, about);
        events.retain(|raw| concerns(&raw.event, [Some(&before), Some(&after)], about));
        events
    }
}

/// Decodes the value of a key; `None` for a deleted object. Returns the state and the creation time of the object.
fn decode(key: &Key, path: &str, value: Option<&[u8]>, about: &HistorySubject) -> (State, Option<Timestamp>) {
    let mut snapshot = Snapshot::default();
    if let Some(value) = value {
        snapshot.add_entry(path.as_bytes(), value, 0);
    }
    let created = snapshot.newest_creation;
    let state = state::states(snapshot, about).remove(key);
    (state.unwrap_or(State::Absent), created)
}

/// True if the address may have been released in another block before it was assigned, although the release comes later
/// in the history: the order of changes between two exports, or in one transaction, is not known.
fn may_be_released_before(assigned: &Event, later_events: &[Event], other_block: IpNet) -> bool {
    let is_release = |event: &&Event| {
        let has_owner = event.after.as_ref().is_some_and(Holder::is_owner);
        event.subject == assigned.subject && event.block == Some(other_block) && !has_owner
    };
    let Some(release) = later_events.iter().find(is_release) else {
        return false;
    };
    if let (Some(released_at), Some(assigned_at)) = (release.revision, assigned.revision) {
        return released_at <= assigned_at;
    }

    // The release may come first if its earliest possible time is not after the latest possible one of the assignment.
    let earliest_release = release.time.after.or(release.time.at);
    let latest_assignment = assigned.time.at.or(assigned.time.before);
    if let Some(earliest_release) = earliest_release
        && let Some(latest_assignment) = latest_assignment
    {
        return earliest_release <= latest_assignment;
    }
    // Without these times, any order is possible.
    true
}

/// Marks assignments of addresses that had an owner earlier in this history, or have one at the same time in an
/// overlapping block.
pub(crate) fn mark_reused(events: &mut [Event]) {
    let mut last_owners: BTreeMap<Subject, String> = BTreeMap::new();
    let mut holders: BTreeMap<Subject, BTreeMap<IpNet, String>> = BTreeMap::new();
    let name_of_owner = |holder: Option<&Holder>| {
        let owner = holder.filter(|holder| holder.is_owner())?;
        Some(format!("{} {}", owner.kind, owner.allocated_to))
    };
    for position in 0..events.len() {
        let (earlier_events, later_events) = events.split_at_mut(position + 1);
        let event = &mut earlier_events[position];
        if event.what == EventKind::Undecodable {
            for blocks in holders.values_mut() {
                blocks.retain(|cidr, _| event.subject != Subject::Block(*cidr));
            }
        }
        let Some(block) = event.block else { continue };
        let owner_before = name_of_owner(event.before.as_ref());
        let owner_after = name_of_owner(event.after.as_ref());
        let holders_of_address = holders.entry(event.subject.clone()).or_default();

        if event.what == EventKind::Assigned
            && let Some(owner) = &owner_after
        {
            let mut others = holders_of_address.iter().filter(|(cidr, _)| **cidr != block);
            let elsewhere = others.find(|(cidr, _)| !may_be_released_before(event, later_events, **cidr));
            if let Some((cidr, holder)) = elsewhere {
                event.detail = format!("in {block}, while {holder} holds it in {cidr}");
            } else if let Some(earlier) = last_owners.get(&event.subject) {
                event.what = EventKind::Reused;
                event.detail = if earlier == owner {
                    "again".to_owned()
                } else {
                    format!("previously {earlier}")
                };
            }
        }

        match &owner_after {
            Some(owner) => {
                holders_of_address.insert(block, owner.clone());
            }
            None => {
                holders_of_address.remove(&block);
            }
        }
        if let Some(owner) = owner_after.or(owner_before) {
            last_owners.insert(event.subject.clone(), owner);
        }
    }
}
