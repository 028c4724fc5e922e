//! etcd revisions as events.

use std::collections::BTreeMap;

use calipam_model::key::Key;
use jiff::Timestamp;

use super::changes::{Raw, concerns, events_between};
use super::event::{Event, EventKind, Origin, Run};
use super::state::{HistorySubject, State};
use super::when::{Anchor, Anchors, Recorded, When};
use super::{JournaledWrite, decode, mark_reused};

/// The value that a key has from a revision on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// The key in etcd.
    pub path: String,
    pub revision: i64,
    /// `None` if the key was deleted.
    pub value: Option<Vec<u8>>,
}

/// The versions of some keys, as far as etcd still has them.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The oldest revision that can be read.
    pub oldest: i64,
    /// The revision of the last change.
    pub newest: i64,
    pub read_at: Timestamp,
    /// The versions at the oldest revision.
    pub base: Vec<Version>,
    /// The later versions, ascending by revision.
    pub changes: Vec<Version>,
}

/// Converts etcd revisions and journaled writes to events, in the order of the writes.
pub fn timeline(kept: &Kept, journaled: &[JournaledWrite], about: &HistorySubject) -> Vec<Event> {
    let end = Anchor {
        revision: kept.newest.saturating_add(1),
        time: kept.read_at,
        is_of_write: true,
    };
    let mut reader = Reader {
        journaled,
        about,
        states: BTreeMap::new(),
        events: Vec::new(),
        anchors: vec![end],
    };
    for version in &kept.base {
        reader.add_version(version, Place::First);
    }
    for version in &kept.changes {
        reader.add_version(version, Place::Later);
    }
    for (revision, raw) in events_of_journals(kept, journaled, about) {
        let is_relevant = true;
        reader.add_event(revision, raw, is_relevant);
    }

    let mut events_by_revision = reader.events;
    events_by_revision.sort_by_key(|(revision, _)| *revision);
    let anchors = Anchors::new(reader.anchors);
    let mut events: Vec<Event> = Vec::with_capacity(events_by_revision.len());
    for (revision, raw) in events_by_revision {
        let mut time = anchors.time_of(revision, raw.recorded);
        if raw.event.what == EventKind::Known {
            // The object may have had this state for a long time.
            time = When {
                before: time.before,
                ..When::default()
            };
        }
        events.push(Event { time, ..raw.event });
    }
    mark_reused(&mut events);
    events
}

struct Reader<'a> {
    journaled: &'a [JournaledWrite],
    about: &'a HistorySubject,
    /// The last state of each object, and its revision.
    states: BTreeMap<Key, (i64, State)>,
    events: Vec<(i64, Raw)>,
    /// The known times of revisions.
    anchors: Vec<Anchor>,
}

/// The place of a version among those that etcd still has of its object.
#[derive(Clone, Copy)]
enum Place {
    First,
    Later,
}

impl Reader<'_> {
    /// Adds the events between the last state of an object and this version.
    fn add_version(&mut self, version: &Version, place: Place) {
        let Ok(Some(key)) = Key::parse(&version.path) else {
            return;
        };
        if !self.about.has_key(&key) {
            return;
        }
        let revision = version.revision;
        let (after, created) = decode(&key, &version.path, version.value.as_deref(), self.about);
        let last = self.states.remove(&key);
        let last_revision = last.as_ref().map(|(revision, _)| *revision);
        let run = self.run_of(version, last_revision);
        let before = match place {
            // The object may have had another state before.
            Place::First => None,
            Place::Later => Some(last.map_or(State::Absent, |(_, state)| state)),
        };

        // A run may have restored an earlier record.
        let may_be_copied = run.is_some() || is_restored_block(before.as_ref(), &after);
        for mut raw in events_between(&key, before.as_ref(), &after, self.about) {
            if raw.event.what == EventKind::EndpointCreated {
                raw.recorded = created.map(Recorded::Time);
            }
            if may_be_copied {
                raw.recorded = raw.recorded.map(Recorded::copied);
            }
            raw.event.revision = Some(revision);
            raw.event.by.clone_from(&run);
            let is_relevant = concerns(&raw.event, [before.as_ref(), Some(&after)], self.about);
            self.add_event(revision, raw, is_relevant);
        }
        self.states.insert(key, (revision, after));
    }

    /// Returns the run that wrote a version; `None` if no journal has the write. If the journal has no revision,
    /// because the object was deleted or the run was killed, the replaced revision and the new value identify the
    /// write.
    fn run_of(&self, version: &Version, last_revision: Option<i64>) -> Option<Run> {
        for write in self.journaled {
            if write.path != version.path {
                continue;
            }
            let is_of_version = match write.revision {
                Some(revision) => revision == version.revision,
                None => write.replaced == last_revision && write.after == version.value,
            };
            if is_of_version {
                return Some(write.run.clone());
            }
        }
        None
    }

    /// Adds the known times of an event, and the event itself if `is_relevant`.
    fn add_event(&mut self, revision: i64, raw: Raw, is_relevant: bool) {
        if let Some(Recorded::Time(time) | Recorded::Copied(time)) = raw.recorded {
            // The time of a copied record is that of an earlier write.
            let is_of_write = matches!(raw.recorded, Some(Recorded::Time(_)));
            self.anchors.push(Anchor {
                revision,
                time,
                is_of_write,
            });
        }
        if let Some(run) = &raw.event.by
            && let Ok(started_at) = run.started_at.parse()
        {
            self.anchors.push(Anchor {
                revision,
                time: started_at,
                // A run writes after its start.
                is_of_write: false,
            });
        }
        if is_relevant {
            self.events.push((revision, raw));
        }
    }
}

/// Returns true if a new block already contains allocations. It was restored, rebuilt or moved from elsewhere, since
/// blocks are empty when Calico claims them.
fn is_restored_block(before: Option<&State>, after: &State) -> bool {
    before == Some(&State::Absent) && after.block().is_some_and(|block| block.allocated() > 0)
}

/// Returns the events that are only in journals, because etcd no longer has their revisions.
fn events_of_journals(kept: &Kept, journaled: &[JournaledWrite], about: &HistorySubject) -> Vec<(i64, Raw)> {
    let mut events = Vec::new();
    for write in journaled.iter().filter(|write| write.is_certain) {
        let Some(revision) = place_of(write, kept) else {
            continue;
        };
        let is_in_etcd = revision > kept.oldest;
        if is_in_etcd {
            continue;
        }
        for mut raw in write.events(about) {
            raw.event.revision = write.revision;
            raw.event.by = Some(write.run.clone());
            raw.event.origin = Origin::Journal;
            events.push((revision, raw));
        }
    }
    events
}

/// Returns the revision at which a journaled write is placed; `None` for a deletion that etcd still shows. A journal has
/// no revision for a deletion, which is therefore placed after the version that it replaced.
fn place_of(write: &JournaledWrite, kept: &Kept) -> Option<i64> {
    if write.revision.is_some() {
        return write.revision;
    }
    let replaces_kept = kept
        .base
        .iter()
        .any(|base| base.path == write.path && Some(base.revision) == write.replaced);
    if replaces_kept { None } else { write.replaced }
}
