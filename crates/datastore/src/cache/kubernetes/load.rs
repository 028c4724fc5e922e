//! Unpacking the cache of a kind, and what it becomes with changes.

use std::collections::BTreeMap;
use std::ops::Bound;

use calipam_files::objects::KnownKind;
use calipam_model::parallel::{cores, map};
use calipam_model::snapshot::Snapshot;

use super::Kept;
use super::entries::{NewValue, read, take_change, take_entry};
use crate::cache::WhyWhole;
use crate::cache::file::{CHANGES, ENTRIES, STATE};

/// What has changed, by the names of the objects.
pub(super) type Changes = BTreeMap<String, NewValue>;

/// What a cache holds, unpacked.
pub(super) struct Unpacked {
    /// What the whole read has found: texts of entries in the order of their names.
    texts: Vec<Vec<u8>>,
    /// What has changed since.
    pub changes: Changes,
}

enum Part {
    Entries(Vec<u8>),
    Changes(Vec<(String, NewValue)>),
    State,
}

/// Unpacks all of a cache; gives it back as well.
pub(super) fn unpack(kept: Kept) -> Result<(Kept, Unpacked), WhyWhole> {
    let unpack = |index: usize| part(kept.frames[index].read(&kept.file).ok()?);
    let parts: Option<Vec<Part>> = map(cores(), kept.frames.len(), unpack).into_iter().collect();
    let mut unpacked = Unpacked { texts: Vec::new(), changes: Changes::new() };
    for part in parts.ok_or_else(WhyWhole::damaged)? {
        match part {
            Part::Entries(text) => unpacked.texts.push(text),
            Part::Changes(changes) => unpacked.changes.extend(changes),
            Part::State => {}
        }
    }
    Ok((kept, unpacked))
}

fn part(mut text: Vec<u8>) -> Option<Part> {
    let (kind, mut rest) = text.split_first()?;
    match *kind {
        ENTRIES => {
            text.remove(0);
            Some(Part::Entries(text))
        }
        CHANGES => {
            let mut changes = Vec::new();
            while !rest.is_empty() {
                changes.push(take_change(&mut rest)?);
            }
            Some(Part::Changes(changes))
        }
        STATE => Some(Part::State),
        _ => None,
    }
}

impl Unpacked {
    /// The snapshot that a whole read finds after the changes; `None` if these are no entries of that kind.
    pub(super) fn snapshot(&self, known: &KnownKind) -> Option<Snapshot> {
        let names: Vec<&str> =
            self.texts.iter().map(|text| Some(take_entry(&mut text.as_slice())?.0)).collect::<Option<_>>()?;
        // Each text has the changes from its first name on to that of the next; the first also those before.
        let with_changes = |index: usize| {
            let from = if index == 0 { Bound::Unbounded } else { Bound::Included(names[index]) };
            let to = names.get(index + 1).map_or(Bound::Unbounded, |name| Bound::Excluded(*name));
            if matches!((from, to), (Bound::Included(from), Bound::Excluded(to)) if from >= to) {
                return None;
            }
            merge(&self.texts[index], self.changes.range::<str, _>((from, to)), known)
        };
        let parts: Option<Vec<Snapshot>> = map(cores(), self.texts.len(), with_changes).into_iter().collect();
        let mut parts = parts?.into_iter();
        let mut snapshot = parts.next()?;
        snapshot.absorb_all(parts.collect());
        Some(snapshot)
    }
}

/// What the entries of a text become with changes. Both are in the order of the names.
fn merge<'c>(
    mut text: &[u8],
    changes: impl Iterator<Item = (&'c String, &'c NewValue)>,
    known: &KnownKind,
) -> Option<Snapshot> {
    let mut snapshot = Snapshot::default();
    let mut changes = changes.peekable();
    let renewed = |snapshot: &mut Snapshot, value: &NewValue| match value {
        Some(value) => read(snapshot, known, value),
        None => Some(()),
    };
    while !text.is_empty() {
        let (name, value) = take_entry(&mut text)?;
        while let Some((_, new)) = changes.next_if(|(changed, _)| changed.as_str() < name) {
            renewed(&mut snapshot, new)?;
        }
        match changes.next_if(|(changed, _)| changed.as_str() == name) {
            Some((_, new)) => renewed(&mut snapshot, new)?,
            None => read(&mut snapshot, known, value)?,
        }
    }
    for (_, new) in changes {
        renewed(&mut snapshot, new)?;
    }
    Some(snapshot)
}
