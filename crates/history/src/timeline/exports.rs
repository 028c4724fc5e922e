//! What happened between the exports of an archive. Each statement is bounded by the two exports around it; what came and
//! went between them is not known, except if a journal of calipam says it.

mod others;
mod runs;

use std::collections::BTreeSet;
use std::net::IpAddr;

use calipam_model::IpNet;
use calipam_model::block::{Block, BlockOwner};
use calipam_model::handle::clean_id;
use calipam_model::snapshot::{Coverage, Defect, Snapshot, Source};
use calipam_model::time::CLOCK_SKEW;
use jiff::Timestamp;

use self::others::Others;
use self::runs::Runs;
use super::about::{known, raw_events, time_of};
use super::block::{BlockEvent, BlockState, events};
use super::event::{Event, Origin};
use super::state::BlockFields;
use super::when::{RECORDED_TO, Recorded, Uncertainty, When};
use super::{About, Raw, Timeline, Written, mark_reused, owner_of};

/// Takes the exports of an archive in the order of their times: first what they record of addresses, then what they say of
/// the pods for which that was.
#[derive(Debug)]
pub struct ExportReader<'a> {
    about: &'a About,
    last: Option<Snapshot>,
    runs: Runs,
    others: Others,
    events: Vec<(Place, Event)>,
}

/// The place of an event in the order: the time of the state that shows it and, of those at one time, the revision. Times within events
/// do not count, which come from the clocks of several machines.
type Place = (Timestamp, i64);

fn place_of(snapshot: &Snapshot) -> Place {
    (snapshot.taken_at, snapshot.revision.parse().unwrap_or_default())
}

impl<'a> ExportReader<'a> {
    /// With what runs of calipam wrote, by their journals.
    pub fn new(about: &'a About, written: &[Written]) -> Self {
        let runs = Runs::new(written, about);
        Self { about, last: None, runs, others: Others::default(), events: Vec::new() }
    }

    /// Takes blocks, affinities and handles of the next export. One that holds no blocks tells nothing.
    pub fn take_records(&mut self, snapshot: Snapshot) {
        if !covers(&snapshot, Source::Blocks) {
            return;
        }
        let (place, cidrs) = (place_of(&snapshot), relevant(&snapshot, self.about));
        let last = self.last.take();
        let of_both: BTreeSet<IpNet> =
            last.iter().flat_map(|last| relevant(last, self.about)).chain(cidrs).collect();
        let mut events = Vec::new();
        for cidr in &of_both {
            events.extend(match &last {
                None => self.begin(*cidr, &snapshot),
                Some(last) => self.compare(*cidr, last, &snapshot),
            });
        }
        events.extend(self.others.take_records(&snapshot, self.about, &of_both));
        self.events.extend(events.into_iter().map(|event| (place, event)));
        self.last = Some(snapshot);
    }

    /// What was taken last was so until this time: every change was recorded.
    pub fn stands_until(&mut self, time: Timestamp) {
        if let Some(last) = &mut self.last {
            last.taken_at = time;
        }
        self.others.stand_until(time);
    }

    fn begin(&self, cidr: IpNet, snapshot: &Snapshot) -> Vec<Event> {
        let begin = known(cidr, 0, &state(snapshot, cidr), self.about);
        begin.into_iter().map(|raw| at_first(raw, snapshot.taken_at)).collect()
    }

    fn compare(&mut self, cidr: IpNet, last: &Snapshot, now: &Snapshot) -> Vec<Event> {
        let mut found = Vec::new();
        let (before, after) = (state(last, cidr), state(now, cidr));
        let owner = owner_of(&after).or_else(|| owner_of(&before));
        let between = events(&before, &after);
        for event in &between {
            let by = self.runs.take(cidr, event, [last.taken_at, now.taken_at]);
            let mut raw = raw_events(cidr, owner.as_ref(), 0, event, &after, self.about);
            // A run writes after it began, and may have brought back what was there before.
            let began = by.as_ref().and_then(|run| run.started_at.parse().ok());
            if began.is_some() {
                raw.iter_mut().for_each(|raw| raw.recorded = raw.recorded.map(Recorded::copied));
            }
            let since = began.unwrap_or(last.taken_at).max(last.taken_at).min(now.taken_at);
            let mut bounded: Vec<Event> =
                raw.into_iter().map(|raw| bounded(raw, since, now.taken_at)).collect();
            if let BlockEvent::Released { ordinal, .. } = event {
                let next = assigned_at(&between, *ordinal, [since, now.taken_at]);
                bounded.iter_mut().for_each(|event| event.time.before = next.or(event.time.before));
            }
            found.extend(bounded.into_iter().map(|event| Event { by: by.clone(), ..event }));
        }
        found
    }

    /// Namespace and name of the pods for which addresses were recorded, where the history follows them.
    pub fn pods(&self) -> BTreeSet<(String, String)> {
        if !matches!(self.about, About::Address(_) | About::Handle(_)) {
            return BTreeSet::new();
        }
        let holders = self.events.iter().flat_map(|(_, event)| event.before.iter().chain(&event.after));
        let pods = holders.filter(|holder| holder.kind == "pod");
        let names = pods.filter_map(|holder| holder.allocated_to.split_once('/'));
        names.map(|(namespace, name)| (namespace.to_owned(), name.to_owned())).collect()
    }

    /// Takes the pods and endpoints of some names of the next export.
    pub fn take_users(&mut self, snapshot: &Snapshot, pods: &BTreeSet<(String, String)>) {
        let events = self.others.take_users(snapshot, pods);
        self.events.extend(events.into_iter().map(|event| (place_of(snapshot), event)));
    }

    pub fn finish(self) -> Timeline {
        let Self { mut events, runs, about, .. } = self;
        let places: BTreeSet<Place> = events.iter().map(|(place, _)| *place).collect();
        let next = |time: Timestamp| places.range((time, i64::MIN)..).next().copied().unwrap_or((time, 0));
        let written = runs.finish(about).into_iter();
        events.extend(written.filter_map(|event| Some((next(latest(&event.time)?), event))));
        events.sort_by_key(|(place, event)| (*place, latest(&event.time)));
        let mut events: Vec<Event> = events.into_iter().map(|(_, event)| event).collect();
        mark_reused(&mut events);
        Timeline { events }
    }
}

/// What a single state, or the part of it around an address, records of the address: that is known, and nothing earlier.
pub fn recorded_in(snapshot: Snapshot, address: IpAddr) -> Timeline {
    let about = About::Address(address);
    let mut reader = ExportReader::new(&about, &[]);
    reader.take_records(snapshot);
    reader.finish()
}

/// True if the export holds the objects of a source, if only that there are none.
fn covers(snapshot: &Snapshot, source: Source) -> bool {
    // A part of an export is read.
    matches!(snapshot.coverage.get(&source), Some(Coverage::Read | Coverage::Partial))
}

/// When an ordinal was assigned again between two exports: it was free before.
fn assigned_at(between: &[BlockEvent], ordinal: u32, [after, before]: [Timestamp; 2]) -> Option<Timestamp> {
    let assigned = between
        .iter()
        .find(|event| matches!(event, BlockEvent::Assigned { ordinal: own, .. } if *own == ordinal))?;
    latest(&time_between(time_of(assigned), after, before))
}

/// When something had happened at the latest. What is known only from a journal has no upper bound.
fn latest(time: &When) -> Option<Timestamp> {
    let within = |at: Timestamp| at.min(time.before.unwrap_or(at)).max(time.after.unwrap_or(at));
    time.at.map(within).or(time.before).or(time.after)
}

/// How something was in the first export that tells it.
fn at_first(raw: Raw, taken_at: Timestamp) -> Event {
    let time = When { before: Some(taken_at), ..When::default() };
    Event { revision: None, origin: Origin::Archive, time, ..raw.event }
}

/// An event between two exports, with the time that was recorded with it where that is there.
fn bounded(raw: Raw, after: Timestamp, before: Timestamp) -> Event {
    let time = time_between(raw.recorded, after, before);
    Event { revision: None, origin: Origin::Archive, time, ..raw.event }
}

fn time_between(recorded: Option<Recorded>, after: Timestamp, before: Timestamp) -> When {
    let is_between = |time: Timestamp| {
        after.duration_since(time) <= CLOCK_SKEW && time.duration_since(before) <= CLOCK_SKEW
    };
    let (at, uncertainty) = match recorded {
        Some(Recorded::Time(time)) if is_between(time) => (Some(time), None),
        Some(Recorded::Copied(time)) if after.duration_since(time) > RECORDED_TO => {
            (None, Some(Uncertainty::Copied))
        }
        Some(Recorded::Copied(time)) if is_between(time) => (Some(time), None),
        Some(Recorded::Time(_) | Recorded::Copied(_)) => (None, Some(Uncertainty::ClocksDisagree)),
        Some(Recorded::NoZone) => (None, Some(Uncertainty::NoZone)),
        None => (None, None),
    };
    When { at, after: Some(after), before: Some(before), uncertainty }
}

/// The blocks of an export that the history is about.
fn relevant(snapshot: &Snapshot, about: &About) -> BTreeSet<IpNet> {
    let is_near = |cidr: IpNet| match about {
        About::Address(address) => cidr.contains(address),
        About::Block(block) => *block == cidr,
        About::Handle(_) | About::Node(_) => false,
    };
    let names = |block: &Block| {
        let host = block.owner().and_then(BlockOwner::host);
        let mut records = block.attributes();
        match about {
            About::Node(node) => {
                host == Some(node.as_str())
                    || records.any(|record| record.get("node").is_some_and(|name| name == *node.as_str()))
            }
            About::Handle(id) => {
                records.any(|record| record.clean_handle().is_some_and(|own| own == *clean_id(id)))
            }
            About::Address(_) | About::Block(_) => false,
        }
    };
    let stored = snapshot.blocks.iter().map(|block| &block.value);
    let stored = stored.filter(|stored| is_near(stored.key) || stored.content.sound().is_some_and(names));
    let hidden = snapshot.defects.iter().filter_map(Defect::hidden_block).filter(|cidr| is_near(*cidr));
    stored.map(|stored| stored.key).chain(hidden).collect()
}

/// True if something in a snapshot of a few objects concerns what a history is about.
pub fn concerns(snapshot: &Snapshot, about: &About) -> bool {
    let is_near = |node: &str, cidr: IpNet| match about {
        About::Address(address) => cidr.contains(address),
        About::Block(block) => *block == cidr,
        About::Node(own) => node == own,
        About::Handle(_) => false,
    };
    let mut affinities = snapshot.affinities.iter().map(|affinity| &affinity.value.key);
    // Of handles only the one that is asked for is among them. What cannot be decoded could be anything.
    !snapshot.handles.is_empty()
        || !snapshot.defects.is_empty()
        || affinities.any(|key| is_near(&key.node, key.cidr))
        || !relevant(snapshot, about).is_empty()
}

/// A block in an export. One that is marked deleted is gone.
fn state(snapshot: &Snapshot, cidr: IpNet) -> BlockState {
    let mut live =
        snapshot.blocks.iter().map(|block| &block.value).filter(|stored| !stored.content.is_deleted());
    match live.find(|stored| stored.key == cidr) {
        Some(stored) => match stored.content.sound() {
            Some(block) => BlockState::Stored(Box::new(BlockFields::of(block))),
            None => BlockState::Hidden("its structure is broken".to_owned()),
        },
        None if snapshot.defects.iter().any(|defect| defect.hidden_block() == Some(cidr)) => {
            BlockState::Hidden("the value cannot be decoded".to_owned())
        }
        None => BlockState::Absent,
    }
}
