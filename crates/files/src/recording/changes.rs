//! The groups of changes after an export, read from their file.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::path::{Path, PathBuf};

use super::codec::{Codec, has_deltas};
use super::{FORMAT, Group, Header, VERSION};
use crate::archived::Archived;
use crate::error::{Error, FileError, Result};
use crate::export::read_some;
use crate::frames::{HEAD, Head};
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
        let mut changes = Self {
            header,
            path: path.clone(),
            file,
            codec,
            end: 0,
            length,
        };
        let (head, frame) = changes.frame()?.ok_or_else(|| changes.damaged())?;
        let text = head.unpack(&frame).map_err(|_| changes.damaged())?;
        changes.header = serde_json::from_slice(&text).map_err(|_| changes.damaged())?;
        changes.end += (HEAD + frame.len()) as u64;
        if changes.header.format != FORMAT {
            return Err(changes.damaged());
        }
        if changes.header.version != VERSION {
            return Err(Error::new(
                &path,
                FileError::ChangesVersion(changes.header.version),
            ));
        }
        if changes.header.guid != export.guid {
            let guids = [export.guid.clone(), changes.header.guid.clone()];
            return Err(Error::new(&path, FileError::OtherCluster { guids }));
        }
        changes.codec.positions = changes.header.positions.clone();
        load(
            &export.path,
            &|key| has_deltas(key) && is_wanted(key),
            &mut changes.codec,
        )?;
        Ok(Some(changes))
    }

    /// The next group, with the changes to wanted keys. `None` at the end. An incomplete group at the end is ignored,
    /// since it was never durable.
    ///
    /// # Errors
    /// If the group is damaged. Nothing after it can be read.
    pub fn next(&mut self, is_wanted: Wanted<'_>) -> Result<Option<Group>> {
        let Some((head, frame)) = self.frame()? else {
            return Ok(None);
        };
        let text = match head.unpack_with_dictionary(&self.codec.known, &frame) {
            Ok(text) => text,
            Err(_) if self.is_torn(&frame) => return Ok(None),
            Err(_) => return Err(self.damaged()),
        };
        let group = self
            .codec
            .decode(&text, is_wanted)
            .ok_or_else(|| self.damaged())?;
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
            return if self.is_torn(&bytes) {
                Ok(None)
            } else {
                Err(self.damaged())
            };
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
        let zeros = read.iter().rev().take_while(|byte| **byte == 0).count() as u64;
        let unread = match self.file.stream_position() {
            Ok(place) => self.length.saturating_sub(place),
            Err(_) => 0,
        };
        // A few zeros can be the end of a sound frame.
        if zeros == 0 || zeros + unread < 4 {
            return false;
        }
        let mut following = self.file.by_ref().take(unread).bytes();
        following.all(|byte| byte.is_ok_and(|byte| byte == 0))
    }

    fn damaged(&self) -> Error {
        Error::new(&self.path, FileError::ChangesDamaged { at: self.end })
    }
}

/// Reads the wanted values of a full state into the codec, as a base for differences.
pub(super) fn load(export: &Path, is_wanted: Wanted<'_>, codec: &mut Codec) -> Result<()> {
    let mut last_error = None;
    let read = read_some(export, is_wanted, |entry| {
        if let Err(error) = codec.values.set(entry.key, entry.value) {
            last_error = Some(error);
        }
    });
    read.map_err(Error::of_archive)?;
    match last_error {
        Some(error) => Err(Error::new(export, error)),
        None => Ok(()),
    }
}
