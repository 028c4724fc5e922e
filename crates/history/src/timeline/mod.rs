//! What happened to an address, handle, block or node: the revisions of the objects around it, read as events.

mod about;
mod block;
mod event;
mod exports;
mod others;
#[cfg(test)]
mod owner_tests;
mod state;
#[cfg(test)]
mod tests;
mod when;

use std::collections::BTreeMap;
use std::net::IpAddr;

use calipam_check::Subject;
use calipam_model::IpNet;
use calipam_model::block::{BlockContent, BlockOwner};
use calipam_model::key::Key;
use jiff::Timestamp;
use serde::Serialize;

use self::about::{known, raw_events, time_of};
pub use self::block::{BlockEvent, BlockState, events};
pub use self::event::{Event, Holder, Origin, Run, What};
pub use self::exports::{ExportReader, concerns, recorded_in};
pub use self::state::{BlockFields, Record};
use self::when::{Anchor, Anchors, Recorded};
pub use self::when::{Uncertainty, When};

/// What a history is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum About {
    Address(IpAddr),
    /// A handle, by its ID.
    Handle(String),
    Block(IpNet),
    Node(String),
}

/// What is stored under a key from a revision on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// The key in etcd.
    pub path: String,
    pub revision: i64,
    /// `None` if it is deleted.
    pub value: Option<Vec<u8>>,
}

/// What etcd keeps of some keys.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The oldest revision that can be read. What was before it is not known.
    pub oldest: i64,
    /// Up to which revision the changes reach.
    pub newest: i64,
    pub read_at: Timestamp,
    /// What was stored at the oldest revision.
    pub base: Vec<Version>,
    /// What was written after it, ascending by revision.
    pub changes: Vec<Version>,
}

/// What a run of calipam wrote, by its journal.
#[derive(Clone, Debug)]
pub struct Written {
    pub run: Run,
    pub path: String,
    /// The revision that the write made; `None` if it deleted the object, or the run was killed before it noted that.
    pub revision: Option<i64>,
    /// The revision that it replaced.
    pub replaced: Option<i64>,
    pub before: Option<Vec<u8>>,
    pub after: Option<Vec<u8>>,
    /// The journal says that it was written. Of a run that was killed this may not be known.
    pub is_certain: bool,
}

/// The events, in the order in which they were written.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Timeline {
    pub events: Vec<Event>,
}

/// An event before its time is looked for.
pub(crate) struct Raw {
    revision: i64,
    recorded: Option<Recorded>,
    event: Event,
}

/// Reads what etcd keeps, and what journals say, as events.
pub fn timeline(kept: &Kept, written: &[Written], about: &About) -> Timeline {
    let mut tracks: BTreeMap<&str, (Option<&Version>, Vec<&Version>)> = BTreeMap::new();
    for version in &kept.base {
        tracks.entry(&version.path).or_default().0 = Some(version);
    }
    for version in &kept.changes {
        tracks.entry(&version.path).or_default().1.push(version);
    }
    let mut raw = Vec::new();
    let mut times = Vec::new();
    for (path, (base, changes)) in &tracks {
        let mut found = match Key::parse(path) {
            Ok(Some(Key::Block(cidr))) => of_block(cidr, *base, changes, about),
            Ok(Some(key)) => Track { events: others::events(&key, *base, changes, about), times: Vec::new() },
            _ => Track::default(),
        };
        let by = |revision: i64| run_of(path, revision, base.iter().chain(changes).copied(), written);
        for event in &mut found.events {
            event.event.by = by(event.revision);
            // It may have brought back what was there before.
            if event.event.by.is_some() {
                event.recorded = event.recorded.map(Recorded::copied);
            }
        }
        for (revision, recorded) in &mut found.times {
            if by(*revision).is_some() {
                *recorded = recorded.copied();
            }
        }
        raw.extend(found.events);
        times.extend(found.times);
    }
    raw.extend(forgotten(kept, written, about));
    raw.sort_by_key(|event| event.revision);

    let anchors = Anchors::new(known_times(&raw, &times, kept));
    let timed = raw.into_iter().map(|raw| {
        let time = if raw.event.what == What::Known {
            When { before: anchors.of(raw.revision, None).before, ..When::default() }
        } else {
            anchors.of(raw.revision, raw.recorded)
        };
        Event { time, ..raw.event }
    });
    let mut events: Vec<Event> = timed.collect();
    mark_reused(&mut events);
    Timeline { events }
}

/// What the versions of an object tell.
#[derive(Default)]
struct Track {
    events: Vec<Raw>,
    /// Times that were recorded with other events of its revisions: of a block, of all its addresses.
    times: Vec<(i64, Recorded)>,
}

/// The times that are known, by revision.
fn known_times(raw: &[Raw], others: &[(i64, Recorded)], kept: &Kept) -> Vec<Anchor> {
    let mut known =
        vec![Anchor { revision: kept.newest.saturating_add(1), time: kept.read_at, is_of_write: true }];
    let events = raw.iter().filter_map(|event| Some((event.revision, event.recorded?)));
    for (revision, recorded) in events.chain(others.iter().copied()) {
        let (time, is_of_write) = match recorded {
            Recorded::Time(time) => (time, true),
            Recorded::Copied(time) => (time, false),
            Recorded::NoZone => continue,
        };
        known.push(Anchor { revision, time, is_of_write });
    }
    for event in raw {
        // A run writes after it began.
        let began = event.event.by.as_ref().and_then(|run| run.started_at.parse().ok());
        known.extend(began.map(|time| Anchor { revision: event.revision, time, is_of_write: false }));
    }
    known
}

/// The run that wrote an object at a revision. If the journal does not say which revision that was, since the object was
/// deleted or the run killed, it is recognised by the version that it replaced, and the value that it was to store.
fn run_of<'v>(
    path: &str,
    revision: i64,
    versions: impl Iterator<Item = &'v Version> + Clone,
    written: &[Written],
) -> Option<Run> {
    let mut of_object = written.iter().filter(|write| write.path == path).peekable();
    of_object.peek()?;
    let last_before = versions.clone().map(|version| version.revision).filter(|own| *own < revision).max();
    let stored = versions.filter(|version| version.revision == revision).find_map(|v| v.value.as_ref());
    let is_it = |write: &&Written| match write.revision {
        Some(own) => own == revision,
        None => write.replaced == last_before && write.after.as_ref() == stored,
    };
    of_object.find(is_it).map(|write| write.run.clone())
}

/// What journals say of revisions that etcd does not keep any more.
fn forgotten(kept: &Kept, written: &[Written], about: &About) -> Vec<Raw> {
    let mut found = Vec::new();
    for write in written.iter().filter(|write| write.is_certain) {
        let Ok(Some(Key::Block(cidr))) = Key::parse(&write.path) else { continue };
        let is_kept =
            kept.base.iter().any(|base| base.path == write.path && Some(base.revision) == write.replaced);
        // A deletion has no revision of its own: it is after the version that it replaced.
        let Some(revision) = write.revision.or(write.replaced.filter(|_| !is_kept)) else { continue };
        if revision > kept.oldest {
            continue;
        }
        let side = |value: &Option<Vec<u8>>| value.as_deref().map_or(BlockState::Absent, decode);
        let between = events(&side(&write.before), &side(&write.after));
        let next = side(&write.after);
        let raw = between.iter().flat_map(|event| raw_events(cidr, None, revision, event, &next, about));
        found.extend(raw.map(|mut raw| {
            raw.event.by = Some(write.run.clone());
            raw.event.origin = Origin::Journal;
            raw.event.revision = write.revision;
            raw
        }));
    }
    found
}

/// The state that a stored value is.
pub fn decode(value: &[u8]) -> BlockState {
    match BlockContent::parse(value) {
        Ok(BlockContent::Sound(block)) => BlockState::Stored(Box::new(BlockFields::of(&block))),
        Ok(BlockContent::Corrupt(block)) => {
            let problems: Vec<String> = block.problems.iter().map(ToString::to_string).collect();
            BlockState::Hidden(problems.join("; "))
        }
        Err(error) => BlockState::Hidden(error.to_string()),
    }
}

fn of_block(cidr: IpNet, base: Option<&Version>, changes: &[&Version], about: &About) -> Track {
    let mut found = Track::default();
    let mut state = BlockState::Absent;
    if let Some(version) = base {
        state = version.value.as_deref().map_or(BlockState::Absent, decode);
        found.events.extend(known(cidr, version.revision, &state, about));
    }
    for version in changes {
        let next = version.value.as_deref().map_or(BlockState::Absent, decode);
        let between = events(&state, &next);
        let was = owner_of(&state);
        let now = owner_of(&next);
        let owner = now.as_ref().or(was.as_ref());
        let mut events: Vec<Raw> = between
            .iter()
            .flat_map(|event| raw_events(cidr, owner, version.revision, event, &next, about))
            .collect();
        let mut times: Vec<Recorded> = between.iter().filter_map(time_of).collect();
        // Calico claims a block empty. One that comes with addresses was restored, rebuilt or moved from elsewhere.
        if matches!(state, BlockState::Absent) && holds_addresses(&next) {
            events.iter_mut().for_each(|raw| raw.recorded = raw.recorded.map(Recorded::copied));
            times.iter_mut().for_each(|time| *time = time.copied());
        }
        found.events.extend(events);
        found.times.extend(times.into_iter().map(|time| (version.revision, time)));
        state = next;
    }
    found
}

fn holds_addresses(state: &BlockState) -> bool {
    matches!(state, BlockState::Stored(fields) if !fields.held.is_empty())
}

pub(crate) fn owner_of(state: &BlockState) -> Option<BlockOwner> {
    match state {
        BlockState::Stored(fields) => fields.owner.clone(),
        _ => None,
    }
}

fn raw(
    revision: i64,
    what: What,
    subject: Subject,
    [before, after]: [Option<Holder>; 2],
    detail: String,
    recorded: Option<Recorded>,
) -> Raw {
    let event = Event {
        revision: Some(revision),
        time: When::default(),
        what,
        subject,
        block: None,
        before,
        after,
        detail,
        by: None,
        origin: Origin::Etcd,
    };
    Raw { revision, recorded, event }
}

/// Tells addresses that another had before from those that are new in this history, and from those that another holds at the
/// same time, in a block that overlaps.
pub(crate) fn mark_reused(events: &mut [Event]) {
    let mut last: BTreeMap<Subject, String> = BTreeMap::new();
    let mut holders: BTreeMap<Subject, BTreeMap<IpNet, String>> = BTreeMap::new();
    for event in events.iter_mut() {
        if event.what == What::Undecodable {
            holders.values_mut().for_each(|of| of.retain(|cidr, _| !is_block(&event.subject, *cidr)));
        }
        let Some(block) = event.block else { continue };
        let name = |holder: &Holder| format!("{} {}", holder.kind, holder.allocated_to);
        let now = event.after.as_ref().filter(|holder| holder.is_owner()).map(name);
        let of_address = holders.entry(event.subject.clone()).or_default();
        if event.what == What::Assigned
            && let Some(now) = &now
        {
            let elsewhere = of_address.iter().find(|(cidr, _)| **cidr != block);
            if let Some((cidr, holder)) = elsewhere {
                event.detail = format!("in {block}, while {holder} holds it in {cidr}");
            } else if let Some(earlier) = last.get(&event.subject) {
                event.what = What::Reused;
                let again = if earlier == now { "again".to_owned() } else { format!("earlier of {earlier}") };
                event.detail = again;
            }
        }
        let was = event.before.as_ref().filter(|holder| holder.is_owner()).map(name);
        match &now {
            Some(now) => drop(of_address.insert(block, now.clone())),
            None => drop(of_address.remove(&block)),
        }
        if let Some(holder) = now.or(was) {
            last.insert(event.subject.clone(), holder);
        }
    }
}

fn is_block(subject: &Subject, cidr: IpNet) -> bool {
    matches!(subject, Subject::Block(own) if *own == cidr)
}
