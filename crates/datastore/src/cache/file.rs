//! The file of a cache.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use calipam_files::frames::{HEAD, Head, MOST_TEXT, Packer, damaged};
use calipam_files::regular;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use super::WhyWhole;

/// The version of the format that this program writes, and the only one that it reads.
const FORMAT: u32 = 2;

/// The first byte of a frame's text says what it holds: who it is of, as JSON;
const HEADER: u8 = b'H';
pub(super) const ENTRIES: u8 = b'E';
/// changes of entries;
pub(super) const CHANGES: u8 = b'C';
/// or what all frames before it come to, as JSON.
pub(super) const STATE: u8 = b'S';

/// Of which cluster a cache is, by whichever endpoint it is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Identity {
    /// What etcd calls its cluster, in hexadecimal digits; on Kubernetes the UID of an object that every cluster has.
    pub cluster_id: String,
    /// What Calico calls it; empty if it has no name.
    pub guid: String,
    /// On Kubernetes the API group and the kind of what is kept.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Header {
    format: u32,
    /// Version of the program.
    program: String,
    /// The sum of how this program packs objects.
    packing: u32,
    cluster: Identity,
}

impl Header {
    fn new(cluster: Identity) -> Self {
        Self {
            format: FORMAT,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            packing: crc32fast::hash(&calipam_model::compact::fingerprint()),
            cluster,
        }
    }
}

/// A cache that is being written. It gets its name when it is whole.
#[derive(Debug)]
pub(super) struct CacheWriter {
    file: BufWriter<NamedTempFile>,
    path: PathBuf,
}

/// What a cache is called until it is whole begins so.
const WRITING: &str = ".calipam-writing";
/// What is called so for longer was left by a run that was killed.
const ABANDONED: Duration = Duration::from_secs(3_600);

impl CacheWriter {
    pub(super) fn create(path: &Path, identity: &Identity) -> io::Result<Self> {
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder)?;
        remove_abandoned(folder);
        // Its mode is 0600.
        let file = NamedTempFile::with_prefix_in(WRITING, folder)?;
        let mut writer = Self { file: BufWriter::with_capacity(1 << 18, file), path: path.to_owned() };
        let header = json_frame(HEADER, &Header::new(identity.clone()))?;
        writer.file.write_all(&header)?;
        Ok(writer)
    }

    /// Writes frames.
    pub(super) fn push(&mut self, frames: &[u8]) -> io::Result<()> {
        self.file.write_all(frames)
    }

    /// Ends the file with what all of it comes to.
    pub(super) fn finish(mut self, state: &impl Serialize) -> io::Result<()> {
        self.file.write_all(&json_frame(STATE, state)?)?;
        let file = self.file.into_inner().map_err(|error| error.into_error())?;
        file.persist(&self.path).map_err(|error| error.error)?;
        Ok(())
    }
}

/// Removes what killed runs have left. What cannot be removed stays.
fn remove_abandoned(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_ours = entry.file_name().to_string_lossy().starts_with(WRITING);
        let modified = entry.metadata().and_then(|metadata| metadata.modified());
        let age = modified.ok().and_then(|time| time.elapsed().ok());
        if is_ours && age.is_some_and(|age| age > ABANDONED) {
            std::fs::remove_file(entry.path()).ok();
        }
    }
}

fn json_frame(kind: u8, value: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut text = vec![kind];
    serde_json::to_writer(&mut text, value)?;
    let mut frame = Vec::new();
    Packer::new()?.push(&text, &mut frame)?;
    Ok(frame)
}

/// Where a frame lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    head: Head,
    offset: u64,
}

impl Place {
    fn end(self) -> u64 {
        self.offset + u64::from(self.head.length)
    }

    /// The text of the frame.
    pub(super) fn read(self, file: &File) -> io::Result<Vec<u8>> {
        let mut frame = vec![0; self.head.length as usize];
        regular::read_exact_at(file, &mut frame, self.offset)?;
        self.head.unpack(&frame)
    }
}

/// A cache of this cluster and of this version of the program.
pub(super) struct Kept<S> {
    pub file: File,
    /// The frames between the header and the last state.
    pub frames: Vec<Place>,
    pub state: S,
    /// Where the last state ends. What another run was killed in is after it.
    end: u64,
    /// Length of the file when it was opened.
    length: u64,
}

/// Opens the cache of a cluster.
pub(super) fn open<S: DeserializeOwned>(path: &Path, identity: &Identity) -> Result<Kept<S>, WhyWhole> {
    let unusable = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => WhyWhole::NoCacheYet,
        _ => WhyWhole::Unusable(format!("{}: {error}", path.display())),
    };
    let file = regular::open_own(path, OpenOptions::new().read(true).write(true)).map_err(unusable)?;
    let length = file.metadata().map_err(unusable)?.len();
    let mut frames = places(&file, length).map_err(unusable)?;
    if frames.is_empty() {
        return Err(unusable(damaged()));
    }
    let header: Option<Header> = json(HEADER, &frames.remove(0).read(&file).map_err(unusable)?);
    let wanted = Header::new(identity.clone());
    match header {
        Some(found) if found == wanted => {}
        Some(found) => {
            let of_this_version = Header { cluster: found.cluster.clone(), ..wanted } == found;
            let reason = if of_this_version {
                "it is of another cluster"
            } else {
                "another version of calipam wrote it"
            };
            return Err(unusable(io::Error::other(reason)));
        }
        None => return Err(unusable(io::Error::other("it is not a cache of this version"))),
    }
    // After the last state there is at most what a killed run has left.
    while let Some(place) = frames.pop() {
        let text = place.read(&file).map_err(unusable)?;
        if let Some(state) = json(STATE, &text) {
            return Ok(Kept { file, frames, state, end: place.end(), length });
        }
    }
    Err(unusable(damaged()))
}

/// The whole frames of a file, up to the first that is incomplete.
fn places(file: &File, length: u64) -> io::Result<Vec<Place>> {
    let (mut places, mut offset) = (Vec::new(), 0);
    while offset + HEAD as u64 <= length {
        let mut bytes = [0; HEAD];
        regular::read_exact_at(file, &mut bytes, offset)?;
        let Some(head) = Head::read(&bytes) else { break };
        let place = Place { head, offset: offset + HEAD as u64 };
        offset = place.end();
        if offset <= length {
            places.push(place);
        }
    }
    Ok(places)
}

fn json<T: DeserializeOwned>(kind: u8, text: &[u8]) -> Option<T> {
    serde_json::from_slice(text.strip_prefix(&[kind])?).ok()
}

/// Appends changes, each in the form of its datastore, and what the cache comes to with them. If another run has done so
/// since, nothing is appended: the next check reads these changes again.
pub(super) fn append<S: Serialize>(
    kept: &Kept<S>,
    changes: impl Iterator<Item = impl AsRef<[u8]>>,
    state: &S,
) -> io::Result<()> {
    let mut changes = changes.peekable();
    if changes.peek().is_none() || kept.file.try_lock().is_err() {
        return Ok(());
    }
    if kept.file.metadata()?.len() != kept.length {
        return Ok(());
    }
    let (mut packer, mut frames) = (Packer::quick()?, Vec::new());
    let mut text = vec![CHANGES];
    for change in changes {
        let change = change.as_ref();
        if text.len() > 1 && text.len() + change.len() > MOST_TEXT {
            packer.push(&text, &mut frames)?;
            text.truncate(1);
        }
        text.extend_from_slice(change);
    }
    packer.push(&text, &mut frames)?;
    frames.extend(json_frame(STATE, state)?);
    kept.file.set_len(kept.end)?;
    let mut file = &kept.file;
    file.seek(SeekFrom::Start(kept.end))?;
    file.write_all(&frames)
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
