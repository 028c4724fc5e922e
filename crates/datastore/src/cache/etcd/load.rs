//! Unpacking a cache.

use std::collections::BTreeMap;

use calipam_model::changes::NewValue;
use calipam_model::snapshot::Snapshot;

use super::Kept;
use super::entries::{read, read_changes};
use crate::cache::WhyWhole;
use crate::cache::file::{CHANGES, ENTRIES, STATE};
use crate::cache::parallel::on_all_cores;

/// What a cache holds.
#[derive(Default)]
pub(super) struct Loaded {
    /// What the whole read has found.
    pub snapshot: Snapshot,
    /// What has changed since.
    pub changes: BTreeMap<Vec<u8>, NewValue>,
}

enum Part {
    Entries(Box<Snapshot>),
    Changes(Vec<(Vec<u8>, NewValue)>),
    State,
}

/// Unpacks all of it; gives the cache back as well.
pub(super) fn load(kept: Kept) -> Result<(Kept, Loaded), WhyWhole> {
    let unpack = |index: usize| part(&kept.frames[index].read(&kept.file).ok()?);
    let parts = on_all_cores(kept.frames.len(), unpack).ok_or_else(WhyWhole::damaged)?;
    let (mut loaded, mut snapshots) = (Loaded::default(), Vec::new());
    for part in parts {
        match part {
            Part::Entries(snapshot) => snapshots.push(*snapshot),
            Part::Changes(changes) => loaded.changes.extend(changes),
            Part::State => {}
        }
    }
    loaded.snapshot.absorb_all(snapshots);
    Ok((kept, loaded))
}

fn part(text: &[u8]) -> Option<Part> {
    let (kind, rest) = text.split_first()?;
    match *kind {
        ENTRIES => read(rest).map(|snapshot| Part::Entries(Box::new(snapshot))),
        CHANGES => read_changes(rest).map(Part::Changes),
        STATE => Some(Part::State),
        _ => None,
    }
}

/// Entries that are decoded as one piece of work.
const PIECE: usize = 256;

/// What is stored under keys that have changed. Blocks are long, so that all cores decode them.
pub(super) fn stored(changes: &BTreeMap<&[u8], &NewValue>) -> Option<Snapshot> {
    let stored: Vec<(&[u8], &[u8], i64)> = changes
        .iter()
        .filter_map(|(key, value)| {
            value.as_ref().map(|(value, revision)| (*key, value.as_slice(), *revision))
        })
        .collect();
    let pieces: Vec<_> = stored.chunks(PIECE).collect();
    let decode = |index: usize| {
        let mut snapshot = Snapshot::default();
        pieces[index].iter().for_each(|(key, value, revision)| snapshot.add_entry(key, value, *revision));
        Some(snapshot)
    };
    let mut snapshot = Snapshot::default();
    snapshot.absorb_all(on_all_cores(pieces.len(), decode)?);
    Some(snapshot)
}
