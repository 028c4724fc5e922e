//! The exports of an archive as events. Each event happened between two exports. Changes that were undone in between
//! are unknown, unless a calipam journal has them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use calipam_check::Subject;
use calipam_model::key::Key;
use calipam_model::snapshot::{Coverage, Snapshot, Source};
use calipam_model::time::CLOCK_SKEW;
use jiff::Timestamp;

use super::changes::{Raw, concerns, events_between};
use super::event::{Event, EventKind, Origin, Run};
use super::state::{HistorySubject, State, states};
use super::when::{RECORDED_TO, Recorded, Uncertainty, When};
use super::{JournaledWrite, mark_reused};

/// The sources of address records.
pub const RECORDS: &[Source] = &[Source::Blocks, Source::Affinities, Source::Handles];
/// The sources of pods and endpoints that use addresses.
pub const USERS: &[Source] = &[Source::Endpoints, Source::Pods];

/// Reads the exports of an archive, oldest first. All address records are read first, and then the pods that these
/// records name.
#[derive(Debug)]
pub struct ExportReader<'a> {
    about: &'a HistorySubject,
    /// The last state of each object.
    states: BTreeMap<Key, State>,
    /// The time at which each source was last read, or until which its state is known to be unchanged.
    read: BTreeMap<Source, Timestamp>,
    writes: Vec<Write>,
    events: Vec<(EventOrder, Event)>,
}

/// The sort key of an event: the export that shows it. The event's own time only breaks ties, since it is from another
/// machine's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct EventOrder {
    taken_at: Timestamp,
    revision: i64,
}

/// The last known state of an object, and the time at which it was last known to be unchanged.
#[derive(Clone, Copy)]
struct LastState<'a> {
    state: &'a State,
    since: Timestamp,
}

/// A write of a calipam run, from its journal.
#[derive(Debug)]
struct Write {
    run: Run,
    started_at: Timestamp,
    /// The events that no export has shown yet.
    events: Vec<Raw>,
    /// True if the journal confirms the write.
    is_certain: bool,
}

impl<'a> ExportReader<'a> {
    /// Creates a reader, with calipam's writes from its journals.
    pub fn new(about: &'a HistorySubject, journaled: &[JournaledWrite]) -> Self {
        let mut writes = Vec::new();
        for write in journaled {
            // Without a time, the write cannot be placed between two exports.
            if let Ok(started_at) = write.run.started_at.parse() {
                writes.push(Write {
                    run: write.run.clone(),
                    started_at,
                    events: write.events(about),
                    is_certain: write.is_certain,
                });
            }
        }
        Self {
            about,
            states: BTreeMap::new(),
            read: BTreeMap::new(),
            writes,
            events: Vec::new(),
        }
    }

    /// Adds the objects of the next export that come from `sources`. Sources that the export does not contain are
    /// skipped.
    pub fn take(&mut self, snapshot: Snapshot, sources: &[Source]) {
        let order = EventOrder {
            taken_at: snapshot.taken_at,
            revision: snapshot.revision.parse().unwrap_or_default(),
        };
        // An export may be incomplete.
        let mut covered = sources.to_vec();
        covered.retain(|source| {
            matches!(
                snapshot.coverage.get(source),
                Some(Coverage::Read | Coverage::Partial)
            )
        });

        let mut new_states = states(snapshot, self.about);
        for source in covered {
            let since = self.read.insert(source, order.taken_at);
            let all_keys = self.states.keys().chain(new_states.keys());
            let keys_of_source: BTreeSet<Key> = all_keys
                .filter(|key| source_of(key) == Some(source))
                .cloned()
                .collect();

            for key in keys_of_source {
                let before = self.states.remove(&key).unwrap_or(State::Absent);
                let after = new_states.remove(&key).unwrap_or(State::Absent);
                let last = since.map(|since| LastState {
                    state: &before,
                    since,
                });
                for event in self.compare(&key, last, &after, order.taken_at) {
                    self.events.push((order, event));
                }
                self.states.insert(key, after);
            }
        }
    }

    /// Marks the last states as valid until `time`, for recordings that contain every change.
    pub fn mark_valid_until(&mut self, time: Timestamp) {
        for last_read in self.read.values_mut() {
            *last_read = time;
        }
    }

    /// Returns the events between a state and the next one or, without `last`, the events for the first known state.
    fn compare(
        &mut self,
        key: &Key,
        last: Option<LastState<'_>>,
        after: &State,
        now: Timestamp,
    ) -> Vec<Event> {
        let before = last.map(|last| last.state);
        let mut changes = events_between(key, before, after, self.about);
        changes.retain(|raw| concerns(&raw.event, [before, Some(after)], self.about));

        let Some(LastState { since, .. }) = last else {
            return changes.into_iter().map(|raw| first_event(raw, now)).collect();
        };

        let mut assigned: Vec<(Subject, Option<Recorded>)> = Vec::new();
        for raw in &changes {
            if raw.event.what == EventKind::Assigned {
                assigned.push((raw.event.subject.clone(), raw.recorded));
            }
        }
        let mut events = Vec::with_capacity(changes.len());
        for raw in changes {
            events.push(self.between_exports(raw, since, now, &assigned));
        }
        events
    }

    /// Determines the run and the time of an event between two exports. `assigned` are the addresses that were assigned
    /// between these exports, with the recorded times.
    fn between_exports(
        &mut self,
        raw: Raw,
        since: Timestamp,
        now: Timestamp,
        assigned: &[(Subject, Option<Recorded>)],
    ) -> Event {
        let write = self.write_of(&raw.event, since, now);
        let mut recorded = raw.recorded;
        let mut began = since.min(now);
        if let Some((_, started_at)) = &write {
            // A run writes after its start, and may have restored an earlier record.
            recorded = recorded.map(Recorded::copied);
            began = (*started_at).max(since).min(now);
        }

        let mut time = time_between(recorded, began, now);
        if raw.event.what == EventKind::Released
            && let Some((_, next)) = assigned.iter().find(|(subject, _)| *subject == raw.event.subject)
        {
            // The address was released before it was assigned to its next owner.
            time.before = latest(&time_between(*next, began, now)).or(time.before);
        }
        Event {
            by: write.map(|(run, _)| run),
            origin: Origin::Archive,
            time,
            ..raw.event
        }
    }

    /// Returns the run that began between two exports and made exactly this change, with the time at which the run
    /// began; `None` if no run did. The change is taken out of the run's writes, so that it explains only one event.
    fn write_of(&mut self, event: &Event, after: Timestamp, before: Timestamp) -> Option<(Run, Timestamp)> {
        for write in &mut self.writes {
            if !is_between(write.started_at, after, before) {
                continue;
            }
            if let Some(position) = write.events.iter().position(|own| own.event == *event) {
                write.events.remove(position);
                return Some((write.run.clone(), write.started_at));
            }
        }
        None
    }

    /// Returns the namespace and name of each pod to read: for an address or a handle, the pods in its records; for a
    /// pod, that pod; for a block or a node, none.
    pub fn pods(&self) -> BTreeSet<(String, String)> {
        match self.about {
            HistorySubject::Block(_) | HistorySubject::Node(_) => BTreeSet::new(),
            HistorySubject::Pod(pod) => split_pod(pod).into_iter().collect(),
            HistorySubject::Address(_) | HistorySubject::Handle(_) => self.pods_in_events(),
        }
    }

    /// Returns the namespace and name of each pod that held an address before or after an event.
    fn pods_in_events(&self) -> BTreeSet<(String, String)> {
        let mut pods = BTreeSet::new();
        for (_, event) in &self.events {
            for holder in event.before.iter().chain(&event.after) {
                if holder.kind == "pod" {
                    pods.extend(split_pod(&holder.allocated_to));
                }
            }
        }
        pods
    }

    /// Returns all events in order. Events that only a journal contains are placed by the start of their run.
    pub fn finish(self) -> Vec<Event> {
        let mut ordered = self.events;
        let exports: BTreeSet<EventOrder> = ordered.iter().map(|(order, _)| *order).collect();
        for write in self.writes {
            if !write.is_certain {
                continue;
            }
            let order = order_of_run(write.started_at, &exports);
            for event in write.into_events() {
                ordered.push((order, event));
            }
        }
        ordered.sort_by_key(|(order, event)| (*order, latest(&event.time)));

        let mut events: Vec<Event> = ordered.into_iter().map(|(_, event)| event).collect();
        mark_reused(&mut events);
        events
    }
}

/// Returns an event for the first known state of an object, which may have had this state for a long time.
fn first_event(raw: Raw, now: Timestamp) -> Event {
    Event {
        origin: Origin::Archive,
        time: When {
            before: Some(now),
            ..When::default()
        },
        ..raw.event
    }
}

/// Splits `namespace/name`.
fn split_pod(pod: &str) -> Option<(String, String)> {
    let (namespace, name) = pod.split_once('/')?;
    Some((namespace.to_owned(), name.to_owned()))
}

impl Write {
    /// Returns the events that no export has shown, with the time of the run.
    fn into_events(self) -> Vec<Event> {
        let mut events = Vec::with_capacity(self.events.len());
        for raw in self.events {
            events.push(Event {
                by: Some(self.run.clone()),
                origin: Origin::Journal,
                time: When {
                    after: Some(self.started_at),
                    ..When::default()
                },
                ..raw.event
            });
        }
        events
    }
}

/// Returns the position of a run's events among the exports, of which several can have the same time.
fn order_of_run(started_at: Timestamp, exports: &BTreeSet<EventOrder>) -> EventOrder {
    let before_all_of_that_time = EventOrder {
        taken_at: started_at,
        revision: i64::MIN,
    };
    match exports.range(before_all_of_that_time..).next() {
        // This export would have shown the events.
        Some(next_export) => *next_export,
        // The revision does not matter: no export comes later.
        None => EventOrder {
            taken_at: started_at,
            revision: 0,
        },
    }
}

/// Returns the recorded state of an address as events. The snapshot may contain only the objects around the address.
pub fn recorded_in(snapshot: Snapshot, address: IpAddr) -> Vec<Event> {
    let about = HistorySubject::Address(address);
    let mut reader = ExportReader::new(&about, &[]);
    reader.take(snapshot, RECORDS);
    reader.finish()
}

/// Returns the source from which an object is read; `None` if a history does not contain such objects.
fn source_of(key: &Key) -> Option<Source> {
    match key {
        Key::Block(_) => Some(Source::Blocks),
        Key::Affinity(_) => Some(Source::Affinities),
        Key::Handle(_) => Some(Source::Handles),
        Key::Endpoint { .. } => Some(Source::Endpoints),
        Key::Pod { .. } => Some(Source::Pods),
        _ => None,
    }
}

/// Returns the known or latest possible time of an event. If only a journal has the event, returns the earliest
/// possible time.
fn latest(time: &When) -> Option<Timestamp> {
    let Some(at) = time.at else {
        return time.before.or(time.after);
    };
    let not_too_late = at.min(time.before.unwrap_or(at));
    Some(not_too_late.max(time.after.unwrap_or(at)))
}

/// True if a time is between two others, with a tolerance for clock skew.
fn is_between(time: Timestamp, after: Timestamp, before: Timestamp) -> bool {
    after.duration_since(time) <= CLOCK_SKEW && time.duration_since(before) <= CLOCK_SKEW
}

/// Returns the time of an event that happened between two exports. The times of the exports are its bounds. The
/// recorded time is used if it is between them; otherwise, the reason why it is not used is noted.
fn time_between(recorded: Option<Recorded>, after: Timestamp, before: Timestamp) -> When {
    let mut time_of_event = When {
        after: Some(after),
        before: Some(before),
        ..When::default()
    };
    let Some(recorded) = recorded else {
        return time_of_event;
    };
    match recorded {
        Recorded::NoZone => time_of_event.uncertainty = Some(Uncertainty::NoZone),
        Recorded::Copied(time) if after.duration_since(time) > RECORDED_TO => {
            time_of_event.uncertainty = Some(Uncertainty::Copied);
        }
        Recorded::Time(time) | Recorded::Copied(time) if is_between(time, after, before) => {
            time_of_event.at = Some(time);
        }
        Recorded::Time(_) | Recorded::Copied(_) => {
            time_of_event.uncertainty = Some(Uncertainty::ClocksDisagree);
        }
    }
    time_of_event
}
