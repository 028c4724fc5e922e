//! The events between two states of an object.

use std::collections::BTreeSet;
use std::net::IpAddr;

use calipam_check::Subject;
use calipam_model::block::Block;
use calipam_model::handle::clean_id;
use calipam_model::key::Key;
use calipam_model::{IpNet, RawJson};

use super::event::{Event, EventKind, Holder};
use super::state::{HistorySubject, State};
use super::when::{Recorded, recorded};
use crate::block_change::{self, AddressRecord, Change};

/// An event whose time is not yet determined, with the time that the object's record contains.
#[derive(Debug)]
pub(crate) struct Raw {
    pub event: Event,
    pub recorded: Option<Recorded>,
}

impl Raw {
    fn new(what: EventKind, subject: Subject, detail: String, at: Option<&str>) -> Self {
        Self {
            event: Event::new(what, subject, detail),
            recorded: at.and_then(recorded),
        }
    }

    /// Creates the event between two states of an address; `None` if it has no record in either state.
    fn of_address(kind: EventKind, states: [Option<AddressRecord<'_>>; 2], detail: String) -> Option<Self> {
        let [before, after] = states;
        let last = after.or(before)?;
        let record = last.record();
        let recorded_time = match kind {
            EventKind::Assigned => record.get("timestamp"),
            EventKind::Cooling => record.released_at(),
            _ => None,
        };
        let recorded_time = recorded_time.map(|time| time.to_string());

        let holder = |state: AddressRecord<'_>| Holder::of(&state.record());
        let subject = Subject::Address(last.address());
        let mut raw = Self::new(kind, subject, detail, recorded_time.as_deref());
        raw.event.block = Some(last.block());
        raw.event.before = before.map(holder);
        raw.event.after = after.map(holder);
        Some(raw)
    }
}

/// Returns all events between two successive states of an object; none if they are equal. If `before` is unknown
/// (`None`), the events describe the content of `after`.
pub(crate) fn events_between(
    key: &Key,
    before: Option<&State>,
    after: &State,
    about: &HistorySubject,
) -> Vec<Raw> {
    let is_unchanged = match before {
        Some(before) => before == after,
        None => matches!(after, State::Absent),
    };
    if is_unchanged {
        return Vec::new();
    }

    let Key::Block(cidr) = key else {
        return event_of_other(key, before, after).into_iter().collect();
    };
    let is_unknown_before = matches!(before, None | Some(State::Hidden(_)));
    match after {
        // Nothing is known about the block's addresses before.
        State::Block(block) if is_unknown_before => first_events_of_block(*cidr, block, about),
        State::Block(_) | State::Absent => {
            events_of_block(*cidr, before.and_then(State::block), after.block())
        }
        // Nothing is known about the block's addresses now.
        State::Hidden(_) | State::Other(_) => event_of_other(key, before, after).into_iter().collect(),
    }
}

/// True if an event is about the subject of a history. `states` are the states of the object before and after the
/// event.
pub(crate) fn concerns(event: &Event, states: [Option<&State>; 2], about: &HistorySubject) -> bool {
    match &event.subject {
        Subject::Address(address) => concerns_address(event, *address, about),
        Subject::Block(_) => concerns_block(event, states, about),
        _ => true,
    }
}

/// Returns true if an event of an address is about the subject.
fn concerns_address(event: &Event, address: IpAddr, about: &HistorySubject) -> bool {
    let mut holders = event.before.iter().chain(&event.after);
    match about {
        HistorySubject::Address(subject) => *subject == address,
        HistorySubject::Block(_) => true,
        HistorySubject::Node(node) => holders.any(|holder| holder.node.as_ref() == Some(node)),
        HistorySubject::Handle(id) => {
            let id = clean_id(id);
            holders.any(|holder| holder.handle.as_deref().map(clean_id) == Some(id))
        }
        HistorySubject::Pod(pod) => holders.any(|holder| holder.kind == "pod" && holder.allocated_to == *pod),
    }
}

/// Returns true if an event of a block, rather than of an address in it, is about the subject.
fn concerns_block(event: &Event, states: [Option<&State>; 2], about: &HistorySubject) -> bool {
    if matches!(about, HistorySubject::Address(_) | HistorySubject::Block(_)) {
        return true;
    }

    let mut blocks = states.into_iter().flatten().filter_map(State::block);
    if event.what == EventKind::Undecodable {
        // The block's content is unknown, so the event may be about the subject.
        return match blocks.next() {
            Some(block) => about.has_block(block),
            None => true,
        };
    }
    match about {
        HistorySubject::Node(node) => blocks.any(|block| block.host() == Some(node)),
        _ => false,
    }
}

fn owner(block: &Block) -> String {
    match block.owner() {
        Some(owner) => owner.to_string(),
        None => "no owner".to_owned(),
    }
}

/// Returns the events for the first known state of a block, as far as the subject needs them: the block, one address in
/// it, or all. An address without a record is free.
fn first_events_of_block(cidr: IpNet, block: &Block, about: &HistorySubject) -> Vec<Raw> {
    let no_time = None;
    let state = format!("of {}, {} taken", owner(block), block.allocated());
    let block_event = Raw::new(EventKind::Known, Subject::Block(cidr), state, no_time);
    let place = format!("in {cidr} of {}", owner(block));
    let mut address_events = block_change::addresses(None, Some(block))
        .filter_map(|states| Raw::of_address(EventKind::Known, states, place.clone()));
    match about {
        HistorySubject::Block(_) => vec![block_event],
        HistorySubject::Address(address) => {
            let subject = Subject::Address(*address);
            let mut event = match address_events.find(|raw| raw.event.subject == subject) {
                Some(event) => event,
                None => Raw::new(EventKind::Known, subject, format!("free {place}"), no_time),
            };
            event.event.block = Some(cidr);
            vec![event]
        }
        HistorySubject::Handle(_) | HistorySubject::Node(_) | HistorySubject::Pod(_) => {
            let mut events = vec![block_event];
            events.extend(address_events);
            events
        }
    }
}

/// Returns the events between two states of a block, either of which may be absent.
fn events_of_block(cidr: IpNet, before: Option<&Block>, after: Option<&Block>) -> Vec<Raw> {
    let block_event = |what, detail, time| Raw::new(what, Subject::Block(cidr), detail, time);
    let no_time = None;
    let mut events = Vec::new();
    if let Some(after) = after {
        match before {
            Some(before) => events.extend(owner_event(cidr, before, after)),
            None => {
                let detail = format!("by {}", owner(after));
                events.push(block_event(EventKind::BlockClaimed, detail, after.claim_time()));
            }
        }
    }

    for states in block_change::addresses(before, after) {
        let is_block_deleted = after.is_none();
        events.extend(events_of_address(states, is_block_deleted));
    }

    if let (Some(before), Some(after)) = (before, after) {
        for detail in unknown_fields(before, after) {
            events.push(block_event(EventKind::FieldChanged, detail, no_time));
        }
    }
    if after.is_none() {
        events.push(block_event(EventKind::BlockReleased, String::new(), no_time));
    }
    events
}

/// Returns the event for a new owner or a new claim time of a block; `None` if neither has changed.
fn owner_event(cidr: IpNet, before: &Block, after: &Block) -> Option<Raw> {
    let claim_time = after.claim_time();
    let mut what = EventKind::ClaimedAgain;
    let mut detail = format!("at {}", claim_time.unwrap_or_default());
    if block_change::owner_change(before, after)? == Change::Owner {
        what = EventKind::OwnerChanged;
        detail = format!("{} → {}", owner(before), owner(after));
    }
    Some(Raw::new(what, Subject::Block(cidr), detail, claim_time))
}

/// Describes the differences in fields that calipam does not know: `name: before → after`, with `-` for a missing
/// field.
fn unknown_fields<'s>(before: &'s Block, after: &'s Block) -> impl Iterator<Item = String> {
    let fields_before = before.unknown();
    let fields_after = after.unknown();
    let names: BTreeSet<&String> = fields_before.keys().chain(fields_after.keys()).collect();
    let words = |value: Option<&RawJson>| match value {
        Some(value) => value.to_string(),
        None => "-".to_owned(),
    };
    let mut differences = Vec::new();
    for name in names {
        let value_before = fields_before.get(name);
        let value_after = fields_after.get(name);
        if value_before != value_after {
            let from = words(value_before);
            let to = words(value_after);
            differences.push(format!("{name}: {from} → {to}"));
        }
    }
    differences.into_iter()
}

/// Returns the events between two states of an address.
fn events_of_address(states: [Option<AddressRecord<'_>>; 2], is_block_deleted: bool) -> Vec<Raw> {
    let [before, after] = states;
    let Some(change) = block_change::address_change(states) else {
        return Vec::new();
    };
    let is_cooling = after.is_some_and(|record| record.record().is_cooling());
    let released = (EventKind::Released, [before, None]);
    let assigned = (EventKind::Assigned, [None, after]);
    let kinds_and_states = match change {
        Change::Attributes => vec![(EventKind::AttributesChanged, states)],
        _ if is_cooling => vec![(EventKind::Cooling, states)],
        Change::Released => vec![released],
        // The address was released and assigned again in one write, or the revision in between is unknown.
        Change::Moved | Change::Renewed => vec![released, assigned],
        Change::Cooled if !is_block_deleted => vec![released],
        Change::Assigned | Change::Passed => vec![assigned],
        // The cooldown ended with the block. The other changes are those of blocks and objects, not of addresses.
        _ => Vec::new(),
    };

    let detail = if is_block_deleted {
        "its block was deleted"
    } else {
        ""
    };
    let mut events = Vec::new();
    for (kind, states) in kinds_and_states {
        events.extend(Raw::of_address(kind, states, detail.to_owned()));
    }
    events
}

/// Returns the event for a change to an object other than a block, or to a block that cannot be decoded; `None` for
/// objects that no history contains.
fn event_of_other(key: &Key, before: Option<&State>, after: &State) -> Option<Raw> {
    let subject = match key {
        Key::Block(cidr) => Subject::Block(*cidr),
        Key::Affinity(key) => Subject::affinity(key),
        Key::Handle(id) => Subject::Handle(id.clone()),
        Key::Endpoint { namespace, name } | Key::Pod { namespace, name } => {
            Subject::Endpoint(format!("{namespace}/{name}"))
        }
        _ => return None,
    };
    let [created, changed, removed] = kinds_of_events(key)?;
    let what = match after {
        State::Absent => removed,
        State::Hidden(_) => EventKind::Undecodable,
        State::Block(_) | State::Other(_) => match before {
            None => EventKind::Known,
            Some(State::Absent) => created,
            Some(_) => changed,
        },
    };
    let detail = match after {
        State::Hidden(text) | State::Other(text) => text.clone(),
        State::Absent | State::Block(_) => String::new(),
    };
    let no_time = None;
    Some(Raw::new(what, subject, detail, no_time))
}

/// Returns the kinds of the events that create, change and remove an object; `None` for objects that no history
/// contains.
fn kinds_of_events(key: &Key) -> Option<[EventKind; 3]> {
    use EventKind::*;
    match key {
        Key::Block(_) => Some([BlockClaimed, Known, BlockReleased]),
        Key::Affinity(_) => Some([AffinityChanged, AffinityChanged, AffinityGone]),
        Key::Handle(_) => Some([HandleChanged, HandleChanged, HandleGone]),
        Key::Endpoint { .. } => Some([EndpointCreated, EndpointChanged, EndpointGone]),
        Key::Pod { .. } => Some([PodCreated, PodChanged, PodGone]),
        _ => None,
    }
}
