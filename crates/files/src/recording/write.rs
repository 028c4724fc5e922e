//! Writes a recording.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::mem::replace;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use tempfile::NamedTempFile;

use super::changes::{Changes, load};
use super::codec::{Codec, has_deltas};
use super::read::write_state;
use super::{Change, FORMAT, Group, Header, Positions, VERSION};
use crate::archive::{Added, Adding, Archive, Archived, Lock};
use crate::error::{Error, Result};
use crate::frames::{MOST_TEXT, Packer};
use crate::regular;

/// Maximum bytes of a change in addition to its key and value.
const OVERHEAD: usize = 64;

/// The locked folder of a recording, to which no other run can write.
#[derive(Debug)]
pub struct Recorder {
    folder: PathBuf,
    lock: Arc<Lock>,
}

impl Recorder {
    /// Creates the folder if it is missing, and locks it.
    ///
    /// # Errors
    /// If another run is writing to the folder, or it cannot be written.
    pub fn open(folder: &Path) -> Result<Self> {
        Ok(Self {
            folder: folder.to_owned(),
            lock: Lock::take(folder)?,
        })
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Begins a full state, which is an export. The caller writes the export to the path that [`Adding::path`] returns.
    pub fn begin(&self) -> Result<Adding> {
        Adding::with_lock(&self.folder, Arc::clone(&self.lock))
    }

    /// Opens the journal after this cluster's newest full state, and discards an incomplete group at its end. `None` if
    /// a new full state must be written.
    ///
    /// # Errors
    /// If the recording is from another cluster, or cannot be read or truncated.
    pub fn resume(&self, guid: &str) -> Result<Option<Journal>> {
        // A damaged export does not prevent a new full state.
        let (archive, _) = Archive::open_with_damage(&self.folder)?;
        archive.require_cluster(guid)?;
        match archive.exports().last() {
            Some(newest) => Journal::resume(newest),
            None => Ok(None),
        }
    }
}

/// Writes a new file, which no other user can read, and waits until it is on disk.
fn write_file(path: &Path, content: &[u8]) -> io::Result<File> {
    // The file gets mode 0600.
    let mut file = NamedTempFile::new_in(regular::folder_of(path))?;
    file.write_all(content)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)
}

/// The growing file of changes after a full state.
pub struct Journal {
    export: Archived,
    path: PathBuf,
    file: File,
    codec: Codec,
    packer: Packer,
    /// The time of the last group, or else of the full state.
    last: Timestamp,
    length: u64,
}

impl Journal {
    /// Begins a journal after a full state, for changes from `positions` on. `restored` means that the history of the
    /// datastore differs from the earlier recording.
    pub fn create(added: &Added, positions: Positions, restored: bool) -> Result<Self> {
        let export = added.export.clone();
        let path = export.changes();
        let failed = |error: io::Error| Error::new(&path, error);
        let header = Header {
            format: FORMAT.to_owned(),
            version: VERSION,
            guid: export.guid.clone(),
            positions: positions.clone(),
            restored,
        };
        let mut codec = Codec::new(positions).map_err(failed)?;
        load(&export.path, &has_deltas, &mut codec)?;

        let mut packer = Packer::new().map_err(failed)?;
        let mut frame = Vec::new();
        let header = serde_json::to_vec(&header).map_err(|error| failed(error.into()))?;
        packer.push(&header, &mut frame).map_err(failed)?;
        let file = write_file(&path, &frame).map_err(failed)?;
        Ok(Self {
            last: export.taken_at,
            export,
            file,
            codec,
            packer,
            length: frame.len() as u64,
            path,
        })
    }

    /// Continues an existing journal; `None` if there is none or it is damaged.
    fn resume(export: &Archived) -> Result<Option<Self>> {
        let mut changes = match Changes::open(export, &has_deltas) {
            Ok(Some(changes)) => changes,
            Ok(None) => return Ok(None),
            Err(error) if error.is_damage() => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut last = export.taken_at;
        loop {
            let Ok(group) = changes.next(&has_deltas) else {
                // Nothing can be appended after damage, so the recording continues with a new full state.
                return Ok(None);
            };
            let Some(group) = group else { break };
            last = group.time;
        }

        // The file can have an incomplete group at its end, which is cut off.
        let path = export.changes();
        let failed = |error: io::Error| Error::new(&path, error);
        let length = changes.end();
        let mut file = regular::open_own(&path, OpenOptions::new().write(true)).map_err(failed)?;
        file.set_len(length).map_err(failed)?;
        file.seek(SeekFrom::Start(length)).map_err(failed)?;
        Ok(Some(Self {
            export: export.clone(),
            file,
            codec: changes.codec,
            packer: Packer::new().map_err(failed)?,
            last,
            length,
            path,
        }))
    }

    pub fn positions(&self) -> &Positions {
        &self.codec.positions
    }

    /// The full state before the changes.
    pub fn export(&self) -> &Archived {
        &self.export
    }

    /// The time of the last group, or else of the full state.
    pub fn last(&self) -> Timestamp {
        self.last
    }

    /// Length of the file, in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Appends a group of changes that became known at `now`, and waits until it is on disk. After an error, nothing
    /// more may be appended until the recording is opened again, which discards the unfinished group.
    pub fn append(
        &mut self,
        now: Timestamp,
        reached: BTreeMap<String, i64>,
        changes: Vec<Change>,
    ) -> Result<()> {
        let now = Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now);
        let set_back = self.last.duration_since(now).max(SignedDuration::ZERO);
        let time = now.max(self.last);
        let frames = self.encode_group(time, set_back, reached, changes);

        let failed = |error| Error::new(&self.path, error);
        let frames = frames.map_err(failed)?;
        self.file.write_all(&frames).map_err(failed)?;
        self.file.sync_data().map_err(failed)?;
        self.length += frames.len() as u64;
        self.last = time;
        Ok(())
    }

    /// The frames of a group: several if the group is too large for one.
    fn encode_group(
        &mut self,
        time: Timestamp,
        set_back: SignedDuration,
        reached: BTreeMap<String, i64>,
        changes: Vec<Change>,
    ) -> io::Result<Vec<u8>> {
        let new_group = || Group {
            time,
            set_back,
            ..Group::default()
        };
        let mut groups = Vec::new();
        let mut group = new_group();
        let mut size = 0;
        for change in changes {
            size += change.key.len() + change.value.as_ref().map_or(0, Vec::len) + OVERHEAD;
            if size > MOST_TEXT / 2 {
                size = 0;
                groups.push(replace(&mut group, new_group()));
            }
            group.changes.push(change);
        }
        // The last group says how far the changes reach.
        groups.push(Group { reached, ..group });

        let mut frames = Vec::new();
        for group in &groups {
            // The reader has the dictionary from before this group.
            let dictionary = self.codec.dictionary.clone();
            let text = self.codec.encode(group)?;
            self.packer
                .push_with_dictionary(&dictionary, &text, &mut frames)?;
        }
        Ok(frames)
    }

    /// Writes the current state as a new full state, and begins a journal after it.
    ///
    /// # Errors
    /// If the state cannot be written, or the changes are damaged. In that case, a new recording must begin.
    pub fn renew(self, adding: Adding) -> Result<Self> {
        let end_of_changes = None;
        let (reached, entries) = write_state(&self.export, end_of_changes, &adding.path())?;
        if let Some(damage) = reached.damage {
            return Err(damage);
        }
        // The state already has the time until which changes are recorded.
        let last_recorded = None;
        let added = adding.finish_last(entries, last_recorded)?;
        let restored = false;
        Self::create(&added, self.codec.positions, restored)
    }

    pub fn guid(&self) -> &str {
        &self.export.guid
    }
}
