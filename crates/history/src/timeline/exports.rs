//! What happened between the exports of an archive. Each statement is bounded by the two exports around it; what came and
//! went between them is not known.

use std::collections::BTreeSet;

use calipam_model::IpNet;
use calipam_model::block::{Block, BlockOwner};
use calipam_model::handle::clean_id;
use calipam_model::snapshot::{Defect, Snapshot};
use calipam_model::time::CLOCK_SKEW;
use jiff::Timestamp;

use super::block::{BlockState, events};
use super::event::{Event, Origin};
use super::state::BlockFields;
use super::told::{known, told};
use super::when::{Doubt, Recorded, When};
use super::{About, Raw, Timeline, mark_reused, owner_of};

/// Takes the exports of an archive in the order of their times.
#[derive(Debug)]
pub struct ExportReader<'a> {
    about: &'a About,
    last: Option<Snapshot>,
    events: Vec<Event>,
}

impl<'a> ExportReader<'a> {
    pub fn new(about: &'a About) -> Self {
        Self { about, last: None, events: Vec::new() }
    }

    /// Takes the next export; of it only the blocks count.
    pub fn take(&mut self, snapshot: Snapshot) {
        let cidrs = relevant(&snapshot, self.about);
        let now = snapshot.taken_at;
        match &self.last {
            None => {
                let begin =
                    cidrs.into_iter().flat_map(|cidr| known(cidr, 0, &state(&snapshot, cidr), self.about));
                self.events.extend(begin.map(|raw| Event {
                    revision: None,
                    origin: Origin::Archive,
                    time: When { before: Some(now), ..When::default() },
                    ..raw.event
                }));
            }
            Some(last) => {
                let cidrs: BTreeSet<IpNet> = relevant(last, self.about).union(&cidrs).copied().collect();
                for cidr in cidrs {
                    let (before, after) = (state(last, cidr), state(&snapshot, cidr));
                    let owner = owner_of(&after).or_else(|| owner_of(&before));
                    let between = events(&before, &after);
                    let raw = between
                        .iter()
                        .flat_map(|event| told(cidr, owner.as_ref(), 0, event, &after, self.about));
                    self.events.extend(raw.map(|raw| bounded(raw, last.taken_at, now)));
                }
            }
        }
        self.last = Some(snapshot);
    }

    pub fn finish(mut self) -> Timeline {
        mark_reused(&mut self.events);
        Timeline { events: self.events }
    }
}

/// An event between two exports, with the time that was recorded with it where that lies there.
fn bounded(raw: Raw, after: Timestamp, before: Timestamp) -> Event {
    let is_between = |time: Timestamp| {
        after.duration_since(time) <= CLOCK_SKEW && time.duration_since(before) <= CLOCK_SKEW
    };
    let (at, doubt) = match raw.recorded {
        Some(Recorded::Time(time)) if is_between(time) => (Some(time), None),
        Some(Recorded::Time(_)) => (None, Some(Doubt::ClocksDisagree)),
        Some(Recorded::NoZone) => (None, Some(Doubt::NoZone)),
        None => (None, None),
    };
    let time = When { at, after: Some(after), before: Some(before), doubt };
    Event { revision: None, origin: Origin::Archive, time, ..raw.event }
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
