//! What runs of calipam wrote, by their journals, besides what exports tell.

use calipam_model::IpNet;
use calipam_model::key::Key;
use calipam_model::time::CLOCK_SKEW;
use jiff::Timestamp;

use crate::timeline::about::raw_events;
use crate::timeline::block::{BlockEvent, BlockState, events};
use crate::timeline::event::{Event, Origin, Run};
use crate::timeline::when::When;
use crate::timeline::{About, Written, decode, owner_of};

/// The writes of runs to blocks, as events.
#[derive(Debug)]
pub(super) struct Runs(Vec<Write>);

/// One write to a block.
#[derive(Debug)]
struct Write {
    run: Run,
    started_at: Timestamp,
    cidr: IpNet,
    /// What no export has shown so far.
    events: Vec<BlockEvent>,
    after: BlockState,
    /// The journal says what became of it.
    is_certain: bool,
}

impl Runs {
    pub(super) fn new(written: &[Written], about: &About) -> Self {
        Self(written.iter().filter_map(|write| Write::of(write, about)).collect())
    }

    /// The run that made an event between two exports: it began between them, and wrote exactly that.
    pub(super) fn take(
        &mut self,
        cidr: IpNet,
        event: &BlockEvent,
        [after, before]: [Timestamp; 2],
    ) -> Option<Run> {
        let is_between =
            |at: Timestamp| after.duration_since(at) <= CLOCK_SKEW && at.duration_since(before) <= CLOCK_SKEW;
        let near = self.0.iter_mut().filter(|write| write.cidr == cidr && is_between(write.started_at));
        for write in near {
            if let Some(place) = write.events.iter().position(|own| own == event) {
                write.events.remove(place);
                return Some(write.run.clone());
            }
        }
        None
    }

    /// What exports do not tell: it came and went between two of them, or before the first or after the last.
    pub(super) fn finish(self, about: &About) -> Vec<Event> {
        self.0.into_iter().filter(|write| write.is_certain).flat_map(|write| write.events(about)).collect()
    }
}

impl Write {
    fn of(write: &Written, about: &About) -> Option<Self> {
        let Ok(Some(Key::Block(cidr))) = Key::parse(&write.path) else { return None };
        let can_tell = match about {
            About::Address(address) => cidr.contains(address),
            About::Block(block) => *block == cidr,
            About::Handle(_) | About::Node(_) => true,
        };
        let started_at = write.run.started_at.parse().ok().filter(|_| can_tell)?;
        let side = |value: &Option<Vec<u8>>| value.as_deref().map_or(BlockState::Absent, decode);
        let (before, after) = (side(&write.before), side(&write.after));
        let events = events(&before, &after);
        Some(Self { run: write.run.clone(), started_at, cidr, events, after, is_certain: write.is_certain })
    }

    fn events(self, about: &About) -> Vec<Event> {
        let owner = owner_of(&self.after);
        let raw =
            self.events.iter().flat_map(|e| raw_events(self.cidr, owner.as_ref(), 0, e, &self.after, about));
        let time = When { after: Some(self.started_at), ..When::default() };
        raw.map(|raw| Event {
            revision: None,
            origin: Origin::Journal,
            by: Some(self.run.clone()),
            time: time.clone(),
            ..raw.event
        })
        .collect()
    }
}
