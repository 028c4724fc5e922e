//! Reads a recording: states of some objects, versions of objects, or the complete state at a point in time.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use calipam_model::snapshot::Snapshot;
use jiff::Timestamp;

use super::changes::Wanted;
use super::codec::Values;
use super::known::{Known, Reached};
use super::{Change, kind_of};
use crate::archived::{Archived, unless_missing};
use crate::data_file::{add, describe};
use crate::error::{Error, Result};
use crate::export::{self, Writer, read_some};
use crate::raw::RawEntry;

/// An item in a recording of some objects: a state, or the time until which the last state lasted.
pub enum StateUpdate {
    /// The last state lasted until this time.
    Unchanged(Timestamp),
    /// A new state, with the revision of the change that led to it.
    State(Box<Snapshot>),
}

/// The states of the wanted objects, export by export, with the changes after each export.
#[derive(Default)]
pub struct States {
    known: Known,
    state: BTreeMap<Vec<u8>, (i64, Vec<u8>)>,
}

impl States {
    /// Passes the states of the wanted objects to `take`, from an export until the end of its changes, except states
    /// that have already been passed on. `None` if another run has removed the export.
    pub fn pass_states(
        &mut self,
        export: &Archived,
        is_wanted: Wanted<'_>,
        take: impl FnMut(StateUpdate),
    ) -> Result<Option<Reached>> {
        unless_missing(self.pass_all_states(export, is_wanted, take))
    }

    fn pass_all_states(
        &mut self,
        export: &Archived,
        is_wanted: Wanted<'_>,
        mut take: impl FnMut(StateUpdate),
    ) -> Result<Reached> {
        let (changes, mut reached) = self.known.open(export, is_wanted)?;
        let mut base = BTreeMap::new();
        let header = read_some(&export.path, is_wanted, |entry| {
            base.insert(entry.key.to_vec(), (entry.mod_revision, entry.value.to_vec()));
        })
        .map_err(Error::of_archive)?;
        let snapshot = |state: &BTreeMap<Vec<u8>, (i64, Vec<u8>)>, at: Timestamp, revision: Option<i64>| {
            let mut snapshot = Snapshot::default();
            for (key, (mod_revision, value)) in state {
                add(
                    &mut snapshot,
                    &RawEntry {
                        key,
                        value,
                        mod_revision: *mod_revision,
                        ..RawEntry::default()
                    },
                );
            }
            describe(&export.path, &mut snapshot, &header);
            snapshot.mark_all_partial();
            snapshot.taken_at = at;
            snapshot.revision = revision.map_or(snapshot.revision, |revision| revision.to_string());
            StateUpdate::State(Box::new(snapshot))
        };

        // If later changes to a kind are already known, the export has an older state of that kind.
        let is_newer = |key: &[u8]| match &changes {
            Some(changes) => {
                let position = changes.header.positions.get(kind_of(key));
                position.is_none_or(|position| !self.known.has(kind_of(key), position.revision))
            }
            None => !reached.continues,
        };
        let before = self.state.len();
        self.state.retain(|key, _| !is_newer(key));
        base.retain(|key, _| is_newer(key));
        let is_new_state = !reached.continues || self.state.len() < before || !base.is_empty();
        self.state.append(&mut base);
        if is_new_state {
            take(snapshot(&self.state, reached.from, None));
        }

        let mut last = reached.from;
        let state = &mut self.state;
        self.known.each_group(changes, &mut reached, is_wanted, |group| {
            for Change { key, revision, value } in group.changes {
                let is_same = state.get(&key).map(|(_, value)| value) == value.as_ref();
                match value {
                    Some(value) => drop(state.insert(key, (revision, value))),
                    None => drop(state.remove(&key)),
                }
                if !is_same {
                    take(StateUpdate::Unchanged(last));
                    take(snapshot(state, group.time, Some(revision)));
                }
            }
            last = group.time;
            Ok(true)
        })?;
        take(StateUpdate::Unchanged(reached.until));
        self.known.until = Some(reached.until);
        Ok(reached)
    }
}

/// One item of a recording, in order: a version of an object, or the end of the export.
pub enum Version<'a> {
    /// The object as in the export, or after a change at the given time.
    Of(&'a RawEntry<'a>, Option<Timestamp>),
    /// The object with this key was deleted.
    Deleted(&'a [u8], Timestamp),
    /// The export has no more objects; its changes follow.
    Exported(&'a Reached),
}

/// Passes each version of the wanted objects to `take`, except changes that are already in `known`. `None` if another
/// run has removed the export.
pub fn each_version(
    export: &Archived,
    known: &mut Known,
    is_wanted: Wanted<'_>,
    mut take: impl FnMut(Version<'_>),
) -> Result<Option<Reached>> {
    let mut all = || {
        read_some(&export.path, is_wanted, |entry| take(Version::Of(entry, None)))
            .map_err(Error::of_archive)?;
        let (changes, mut reached) = known.open(export, is_wanted)?;
        take(Version::Exported(&reached));
        known.each_group(changes, &mut reached, is_wanted, |group| {
            for Change { key, revision, value } in &group.changes {
                let entry = |value| RawEntry {
                    key,
                    value,
                    mod_revision: *revision,
                    ..RawEntry::default()
                };
                match value {
                    Some(value) => take(Version::Of(&entry(value), Some(group.time))),
                    None => take(Version::Deleted(key, group.time)),
                }
            }
            Ok(true)
        })?;
        known.until = Some(reached.until);
        Ok(reached)
    };
    unless_missing(all())
}

/// Writes the state at `until` as an export, or without `until`, the state at the end of the changes after `export`.
/// Also returns the number of entries.
pub fn write_state(export: &Archived, until: Option<Timestamp>, path: &Path) -> Result<(Reached, u64)> {
    let failed = |error: io::Error| Error::new(path, error);
    let mut last: BTreeMap<Vec<u8>, Option<i64>> = BTreeMap::new();
    let mut values = Values::new().map_err(failed)?;
    let mut revision = None;
    let mut known = Known::default();
    let (changes, mut reached) = known.open(export, &|_| true)?;
    known.each_group(changes, &mut reached, &|_| true, |group| {
        if until.is_some_and(|until| group.time > until) {
            return Ok(false);
        }
        for change in group.changes {
            if kind_of(&change.key) == "etcd" {
                revision = Some(change.revision);
            }
            if let Some(value) = &change.value {
                values.set(&change.key, value).map_err(failed)?;
            }
            last.insert(change.key, change.value.is_some().then_some(change.revision));
        }
        Ok(true)
    })?;

    let mut header = export::header_of(&export.path).map_err(Error::of_archive)?;
    header.taken_at = reached.until;
    header.revision = revision.map_or(header.revision, |revision: i64| revision.to_string());
    let mut writer = Writer::create(path, &header)?;
    let mut written = Ok(());
    let put = |writer: &mut Writer, key: &[u8], mod_revision: Option<i64>| -> Result<()> {
        let (Some(mod_revision), Some(value)) = (mod_revision, values.get(key).map_err(failed)?) else {
            return Ok(());
        };
        writer.entry(&RawEntry {
            key,
            value: &value,
            mod_revision,
            ..RawEntry::default()
        })
    };
    read_some(&export.path, &|_| true, |entry| {
        let mut one = || -> Result<()> {
            match last.remove(entry.key) {
                Some(revision) => put(&mut writer, entry.key, revision),
                None => writer.entry(entry),
            }
        };
        if written.is_ok() {
            written = one();
        }
    })
    .map_err(Error::of_archive)?;
    written?;
    for (key, revision) in last {
        put(&mut writer, &key, revision)?;
    }
    Ok((reached, writer.finish()?))
}
