//! Unpacking a cache.

use std::ops::ControlFlow;

use calipam_model::parallel::in_order;
use calipam_model::snapshot::Snapshot;

use super::changes::{self, Changes, Stored};
use super::{Kept, entries};
use crate::cache::WhyWhole;
use crate::cache::file::{CHANGES, ENTRIES, STATE};

/// What a cache holds.
#[derive(Default)]
pub(super) struct Loaded {
    /// What the whole read has found.
    pub snapshot: Snapshot,
    /// What has changed since.
    pub changes: Changes,
}

enum Part {
    Entries(Box<Snapshot>),
    Changes(Vec<(Vec<u8>, Option<Stored>)>),
    State,
}

/// Unpacks all of it; gives the cache back as well.
pub(super) fn load(kept: Kept) -> Result<(Kept, Loaded), WhyWhole> {
    let unpack = |index: usize| part(&kept.frames[index].read(&kept.file).ok()?);
    let mut loaded = Loaded::default();
    loaded.snapshot.newest_creation = kept.state.newest_creation;
    let unpacked = in_order(0..kept.frames.len(), unpack, |part| {
        match part {
            Some(Part::Entries(snapshot)) => loaded.snapshot.absorb(*snapshot),
            Some(Part::Changes(changes)) => loaded.changes.extend(changes),
            Some(Part::State) => {}
            None => return ControlFlow::Break(WhyWhole::damaged()),
        }
        ControlFlow::Continue(())
    });
    unpacked.break_value().map_or(Ok((kept, loaded)), Err)
}

fn part(text: &[u8]) -> Option<Part> {
    let (kind, rest) = text.split_first()?;
    match *kind {
        ENTRIES => entries::read(rest).map(|snapshot| Part::Entries(Box::new(snapshot))),
        CHANGES => changes::read(rest).map(Part::Changes),
        STATE => Some(Part::State),
        _ => None,
    }
}
