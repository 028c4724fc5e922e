//! Unpacking a cache, on all cores.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use calipam_model::changes::NewValue;
use calipam_model::snapshot::Snapshot;

use super::WhyWhole;
use super::entries::{read, read_changes};
use super::file::{CHANGES, ENTRIES, Kept, STATE};

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
    let (next, parts) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let work = || -> Option<()> {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(place) = kept.frames.get(index) else { return Some(()) };
            let part = part(&place.read(&kept.file).ok()?)?;
            parts.lock().ok()?.push((index, part));
        }
    };
    let is_sound = thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        running.into_iter().all(|thread| matches!(thread.join(), Ok(Some(()))))
    });
    let mut parts = match (is_sound, parts.into_inner()) {
        (true, Ok(parts)) => parts,
        _ => return Err(WhyWhole::Unusable("it is damaged".to_owned())),
    };

    parts.sort_by_key(|(index, _)| *index);
    let mut loaded = Loaded::default();
    for (_, part) in parts {
        match part {
            Part::Entries(snapshot) => loaded.snapshot.absorb(*snapshot),
            Part::Changes(changes) => loaded.changes.extend(changes),
            Part::State => {}
        }
    }
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
