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
    /// Passes the states of the wanted objects to `take`: the state in an export, and the one after each later change.
    /// Leaves out states that an earlier call has passed on. `None` if another run has removed the export.
    pub fn pass_states(
        &mut self,
        export: &Archived,
        is_wanted: Wanted<'_>,
        take: impl FnMut(StateUpdate),
    ) -> Result<Option<Reached>> {
        unless_missing(self.pass_states_of_file(export, is_wanted, take))
    }

    /// Does the work of [`Self::pass_states`], and fails if the file of the export is missing.
    fn pass_states_of_file(
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
        let snapshot_of = |state: &BTreeMap<Vec<u8>, (i64, Vec<u8>)>, time: Timestamp| {
            let mut snapshot = Snapshot::default();
            for (key, (mod_revision, value)) in state {
                let entry = RawEntry {
                    key,
                    value,
                    mod_revision: *mod_revision,
                    ..RawEntry::default()
                };
                add(&mut snapshot, &entry);
            }
            describe(&export.path, &mut snapshot, &header);
            snapshot.mark_all_partial();
            snapshot.taken_at = time;
            snapshot
        };

        // If later changes to a kind are already known, the export has an older state of that kind.
        let is_newer = |key: &[u8]| {
            let Some(changes) = &changes else {
                return !reached.continues;
            };
            let kind = kind_of(key);
            match changes.header.positions.get(kind) {
                Some(position) => !self.known.has(kind, position.revision),
                None => true,
            }
        };
        let old_len = self.state.len();
        self.state.retain(|key, _| !is_newer(key));
        base.retain(|key, _| is_newer(key));
        let is_new_state = !reached.continues || self.state.len() < old_len || !base.is_empty();
        self.state.append(&mut base);
        if is_new_state {
            let snapshot = snapshot_of(&self.state, reached.from);
            take(StateUpdate::State(Box::new(snapshot)));
        }

        let mut last_time = reached.from;
        let state = &mut self.state;
        self.known.each_group(changes, &mut reached, is_wanted, |group| {
            for Change { key, revision, value } in group.changes {
                let old_value = state.get(&key).map(|(_, value)| value);
                let is_unchanged = old_value == value.as_ref();
                match value {
                    Some(value) => drop(state.insert(key, (revision, value))),
                    None => drop(state.remove(&key)),
                }
                if is_unchanged {
                    continue;
                }
                take(StateUpdate::Unchanged(last_time));
                let mut snapshot = snapshot_of(state, group.time);
                snapshot.revision = revision.to_string();
                take(StateUpdate::State(Box::new(snapshot)));
            }
            last_time = group.time;
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
    let mut read_all = || {
        read_some(&export.path, is_wanted, |entry| take(Version::Of(entry, None)))
            .map_err(Error::of_archive)?;
        let (changes, mut reached) = known.open(export, is_wanted)?;
        take(Version::Exported(&reached));
        known.each_group(changes, &mut reached, is_wanted, |group| {
            for Change { key, revision, value } in &group.changes {
                let Some(value) = value else {
                    take(Version::Deleted(key, group.time));
                    continue;
                };
                let changed = RawEntry {
                    key,
                    value,
                    mod_revision: *revision,
                    ..RawEntry::default()
                };
                take(Version::Of(&changed, Some(group.time)));
            }
            Ok(true)
        })?;
        known.until = Some(reached.until);
        Ok(reached)
    };
    unless_missing(read_all())
}

/// Writes the state at `until` as an export, or without `until`, the state at the end of the changes after `export`.
/// Also returns the number of entries.
pub fn write_state(export: &Archived, until: Option<Timestamp>, path: &Path) -> Result<(Reached, u64)> {
    let failed = |error: io::Error| Error::new(path, error);
    // The revision of each changed key's last change; `None` if that was a deletion.
    let mut changed: BTreeMap<Vec<u8>, Option<i64>> = BTreeMap::new();
    let mut values = Values::new().map_err(failed)?;
    let mut etcd_revision = None;
    let mut known = Known::default();
    let (changes, mut reached) = known.open(export, &|_| true)?;
    known.each_group(changes, &mut reached, &|_| true, |group| {
        if let Some(until) = until
            && group.time > until
        {
            return Ok(false);
        }
        for Change { key, revision, value } in group.changes {
            if kind_of(&key) == "etcd" {
                etcd_revision = Some(revision);
            }
            match value {
                Some(value) => {
                    values.set(&key, &value).map_err(failed)?;
                    changed.insert(key, Some(revision));
                }
                None => drop(changed.insert(key, None)),
            }
        }
        Ok(true)
    })?;

    let mut header = export::header_of(&export.path).map_err(Error::of_archive)?;
    header.taken_at = reached.until;
    if let Some(revision) = etcd_revision {
        header.revision = revision.to_string();
    }
    let mut writer = Writer::create(path, &header)?;
    let write_changed = |writer: &mut Writer, key: &[u8], revision: Option<i64>| -> Result<()> {
        if let Some(mod_revision) = revision
            && let Some(value) = values.get(key).map_err(failed)?
        {
            writer.entry(&RawEntry {
                key,
                value: &value,
                mod_revision,
                ..RawEntry::default()
            })?;
        }
        Ok(())
    };

    // Objects of the export keep their order, and new ones follow.
    let mut written = Ok(());
    read_some(&export.path, &|_| true, |entry| {
        if written.is_err() {
            return;
        }
        written = match changed.remove(entry.key) {
            Some(revision) => write_changed(&mut writer, entry.key, revision),
            None => writer.entry(entry),
        };
    })
    .map_err(Error::of_archive)?;
    written?;
    for (key, revision) in changed {
        write_changed(&mut writer, &key, revision)?;
    }
    Ok((reached, writer.finish()?))
}
