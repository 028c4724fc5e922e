//! Reads a recording: states of some objects, versions of objects, or the complete state at a point in time.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::path::{Path, PathBuf};

use calipam_model::snapshot::Snapshot;
use jiff::Timestamp;

use super::codec::{Codec, Values, has_deltas};
use super::known::{Known, Reached};
use super::{Change, FORMAT, Group, Header, VERSION, kind_of};
use crate::archive::{Archived, unless_missing};
use crate::data_file::{add, describe};
use crate::error::{Error, FileError, Result};
use crate::export::{self, Writer, read_some};
use crate::frames::{HEAD, Head};
use crate::raw::RawEntry;
use crate::regular;

/// A key filter: true for wanted keys.
pub(super) type Wanted<'a> = &'a dyn Fn(&[u8]) -> bool;

/// The groups of changes after an export.
pub struct Changes {
    pub header: Header,
    path: PathBuf,
    file: BufReader<File>,
    pub(super) codec: Codec,
    /// The end of the last complete frame.
    end: u64,
    /// Length of the file when it was opened. Data that a recorder appends later is not read.
    length: u64,
}

impl Changes {
    /// Opens the changes after an export; `None` if it has none. `is_wanted` selects keys whose changes will be read.
    pub fn open(export: &Archived, is_wanted: Wanted<'_>) -> Result<Option<Self>> {
        let path = export.changes();
        let failed = |error: io::Error| Error::new(&path, error);
        let file = match regular::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let length = file.metadata().map_err(failed)?.len();
        let codec = Codec::new(BTreeMap::new()).map_err(failed)?;
        let header = Header::default();
        let file = BufReader::with_capacity(1 << 18, file);
        let mut changes = Self { header, path: path.clone(), file, codec, end: 0, length };
        let (head, frame) = changes.frame()?.ok_or_else(|| changes.damaged())?;
        let text = head.unpack(&frame).map_err(|_| changes.damaged())?;
        changes.header = serde_json::from_slice(&text).map_err(|_| changes.damaged())?;
        changes.end += (HEAD + frame.len()) as u64;
        if changes.header.format != FORMAT {
            return Err(changes.damaged());
        }
        if changes.header.version != VERSION {
            return Err(Error::new(&path, FileError::ChangesVersion(changes.header.version)));
        }
        if changes.header.guid != export.guid {
            let guids = [export.guid.clone(), changes.header.guid.clone()];
            return Err(Error::new(&path, FileError::OtherCluster { guids }));
        }
        changes.codec.positions = changes.header.positions.clone();
        load(&export.path, &|key| has_deltas(key) && is_wanted(key), &mut changes.codec)?;
        Ok(Some(changes))
    }

    /// The next group, with the changes to wanted keys. `None` at the end. An incomplete group at the end is ignored,
    /// since it was never durable.
    ///
    /// # Errors
    /// If the group is damaged. Nothing after it can be read.
    pub fn next(&mut self, is_wanted: Wanted<'_>) -> Result<Option<Group>> {
        let Some((head, frame)) = self.frame()? else { return Ok(None) };
        let text = match head.unpack_with_dictionary(&self.codec.known, &frame) {
            Ok(text) => text,
            Err(_) if self.is_torn(&frame) => return Ok(None),
            Err(_) => return Err(self.damaged()),
        };
        let group = self.codec.decode(&text, is_wanted).ok_or_else(|| self.damaged())?;
        self.end += (HEAD + frame.len()) as u64;
        Ok(Some(group))
    }

    /// The end of the last complete frame.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Reads a frame; `None` if the file ends before the frame is complete, or if its end contains only zeros.
    fn frame(&mut self) -> Result<Option<(Head, Vec<u8>)>> {
        let failed = |error: io::Error| Error::new(&self.path, error);
        let mut bytes = [0; HEAD];
        if self.end + HEAD as u64 > self.length {
            return Ok(None);
        }
        self.file.read_exact(&mut bytes).map_err(failed)?;
        let Some(head) = Head::read(&bytes) else {
            return if self.is_torn(&bytes) { Ok(None) } else { Err(self.damaged()) };
        };
        if self.end + HEAD as u64 + u64::from(head.length) > self.length {
            return Ok(None);
        }
        let mut frame = vec![0; head.length as usize];
        self.file.read_exact(&mut frame).map_err(failed)?;
        Ok(Some((head, frame)))
    }

    /// True if the bytes that were read last end in zeros, and only zeros follow, since a file can grow before it is
    /// filled.
    fn is_torn(&mut self, read: &[u8]) -> bool {
        let is_zero = |byte: io::Result<u8>| byte.is_ok_and(|byte| byte == 0);
        let rest = self.file.stream_position().map_or(0, |place| self.length.saturating_sub(place));
        let zeros = read.iter().rev().take_while(|byte| **byte == 0).count() as u64;
        zeros > 0 && zeros + rest >= 4 && self.file.by_ref().take(rest).bytes().all(is_zero)
    }

    fn damaged(&self) -> Error {
        Error::new(&self.path, FileError::ChangesDamaged { at: self.end })
    }
}

/// Reads the wanted values of a full state into the codec, as a base for differences.
pub(super) fn load(export: &Path, is_wanted: Wanted<'_>, codec: &mut Codec) -> Result<()> {
    let mut failed = None;
    read_some(export, is_wanted, |entry| {
        failed = codec.values.set(entry.key, entry.value).err().or(failed.take());
    })
    .map_err(Error::of_archive)?;
    failed.map_or(Ok(()), |error| Err(Error::new(export, error)))
}

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
                    &RawEntry { key, value, mod_revision: *mod_revision, ..RawEntry::default() },
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
                let entry = |value| RawEntry { key, value, mod_revision: *revision, ..RawEntry::default() };
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
        writer.entry(&RawEntry { key, value: &value, mod_revision, ..RawEntry::default() })
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
