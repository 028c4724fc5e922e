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
        let mut changes = Self {
            header: Header::default(),
            path: path.clone(),
            file: BufReader::with_capacity(1 << 18, file),
            codec: Codec::new(BTreeMap::new()).map_err(failed)?,
            end: 0,
            length,
        };

        changes.header = changes.read_header()?;
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
        let is_base_wanted = |key: &[u8]| has_deltas(key) && is_wanted(key);
        load(&export.path, &is_base_wanted, &mut changes.codec)?;
        Ok(Some(changes))
    }

    /// Reads the header, which is the first frame.
    fn read_header(&mut self) -> Result<Header> {
        let Some((head, frame)) = self.read_frame()? else {
            return Err(self.damaged());
        };
        let text = head.unpack(&frame).map_err(|_| self.damaged())?;
        let header: Header = serde_json::from_slice(&text).map_err(|_| self.damaged())?;
        self.end += (HEAD + frame.len()) as u64;
        if header.format != FORMAT {
            return Err(self.damaged());
        }
        Ok(header)
    }

    /// The next group, with the changes to wanted keys. `None` at the end. An incomplete group at the end is ignored,
    /// since it was never durable.
    ///
    /// # Errors
    /// If the group is damaged. Nothing after it can be read.
    pub fn next(&mut self, is_wanted: Wanted<'_>) -> Result<Option<Group>> {
        let Some((head, frame)) = self.read_frame()? else {
            return Ok(None);
        };
        let text = match head.unpack_with_dictionary(&self.codec.dictionary, &frame) {
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
    fn read_frame(&mut self) -> Result<Option<(Head, Vec<u8>)>> {
        let failed = |error: io::Error| Error::new(&self.path, error);
        let end_of_head = self.end + HEAD as u64;
        if end_of_head > self.length {
            return Ok(None);
        }
        let mut bytes = [0; HEAD];
        self.file.read_exact(&mut bytes).map_err(failed)?;
        let Some(head) = Head::read(&bytes) else {
            if self.is_torn(&bytes) {
                return Ok(None);
            }
            return Err(self.damaged());
        };

        if end_of_head + u64::from(head.length) > self.length {
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
            Ok(position) => self.length.saturating_sub(position),
            // Then only the bytes that were read count.
            Err(_) => 0,
        };
        // Up to three zeros can be the end of a sound frame.
        if zeros == 0 || zeros + unread < 4 {
            return false;
        }
        let mut rest = self.file.by_ref().take(unread).bytes();
        rest.all(|byte| matches!(byte, Ok(0)))
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
