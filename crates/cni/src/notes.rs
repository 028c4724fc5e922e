//! Notes for the next calls on the node, kept in files next to the lock: the blocks that a search for free addresses
//! found full, and the state of the datastore that a call has seen. Damaged files are ignored.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use calipam_assign::{Family, FullBlocks, KnownState, Notes};
use calipam_datastore::settings::Settings;
use calipam_files::regular;
use calipam_model::digest::sha256_hex;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The kind and version of a file with the node's full blocks, as in its first line.
const FULL_BLOCKS: &str = "calipam full blocks 2";
/// The kind and version of a file with the state of the datastore that this node has seen, as in its first line.
const KNOWN_STATE: &str = "calipam known state 1";
/// The line that is appended after addresses were released.
const RELEASED: &str = "released\n";
/// The age limit of files. In a restored cluster, revisions can repeat, but a restore takes longer than this.
const MAX_AGE: Duration = Duration::from_secs(600);
/// The size limit of files. A hundred thousand blocks take a third of it.
const MAX_SIZE: u64 = 8 << 20;

/// The files next to a node's lock: one for each address family, and one for the state of the datastore.
#[derive(Debug)]
pub(crate) struct FileNotes {
    lock: PathBuf,
    /// The ID of the datastore.
    datastore: String,
}

impl FileNotes {
    pub(crate) fn new(lock: &Path, settings: &Settings) -> Self {
        Self {
            lock: lock.to_owned(),
            datastore: datastore(settings),
        }
    }

    fn full_blocks_path(&self, family: Family) -> PathBuf {
        self.lock
            .with_file_name(format!("calipam_full_ipv{}", family.number()))
    }

    fn known_state_path(&self) -> PathBuf {
        self.lock.with_file_name("calipam_known_state")
    }

    /// Reads a file, and parses its text as a note about this datastore. `None` if there is no file, or it cannot be
    /// used.
    fn read<T>(&self, path: &Path, parse: fn(text: &str, datastore: &str) -> Option<T>) -> Option<T> {
        let text = match read_recent(path) {
            Ok(text) => text?,
            // No call has written it yet.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!("ignoring {}: {error}", path.display());
                return None;
            }
        };
        parse(&text, &self.datastore)
    }

    /// Writes a note about this datastore. A failure is only logged: the next call reads more.
    fn write<T: Serialize>(&self, path: &Path, format: &str, note: &T) {
        let written = print(format, &self.datastore, note).and_then(|text| replace(path, &text));
        if let Err(error) = written {
            tracing::warn!("cannot write {}: {error}", path.display());
        }
    }
}

impl Notes for FileNotes {
    /// Returns the full blocks of a family. Notes that cannot be read are ignored.
    fn full_blocks(&self, family: Family) -> Option<FullBlocks> {
        self.read(&self.full_blocks_path(family), parse_full_blocks)
    }

    fn keep_full_blocks(&self, family: Family, full: &FullBlocks) {
        self.write(&self.full_blocks_path(family), FULL_BLOCKS, full);
    }

    /// Notes that addresses were released, so that no family counts as exhausted.
    fn forget_exhaustion(&self) {
        for family in Family::BOTH {
            let path = self.full_blocks_path(family);
            let file = regular::open_own(&path, OpenOptions::new().append(true));
            // Without the file there is nothing to forget.
            let Ok(mut file) = file else { continue };
            if file.write_all(RELEASED.as_bytes()).is_err() {
                // The disk is full. A missing note is safe: the next call only searches all blocks.
                fs::remove_file(&path).ok();
            }
        }
    }

    fn known_state(&self) -> Option<KnownState> {
        self.read(&self.known_state_path(), parse_known_state)
    }

    fn keep_known_state(&self, state: &KnownState) {
        self.write(&self.known_state_path(), KNOWN_STATE, state);
    }
}

/// Reads a file of notes; `None` if it is too old or too large to be used.
///
/// # Errors
/// For example, if another user owns the file or can write it.
fn read_recent(path: &Path) -> io::Result<Option<String>> {
    let file = regular::open_own(path, OpenOptions::new().read(true))?;
    let metadata = file.metadata()?;
    let is_recent = metadata.modified()?.elapsed().is_ok_and(|age| age <= MAX_AGE);
    if !is_recent || metadata.len() > MAX_SIZE {
        return Ok(None);
    }
    let mut text = String::new();
    file.take(MAX_SIZE).read_to_string(&mut text)?;
    Ok(Some(text))
}

/// Writes a file under another name, and then renames it, which replaces an existing file in one step. Does not follow
/// links or wait for pipes.
pub(crate) fn replace(path: &Path, text: &str) -> io::Result<()> {
    let new_path = path.with_extension("new");
    // A killed call can have left this file.
    fs::remove_file(&new_path).ok();
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new_path)?;
    let written = file
        .write_all(text.as_bytes())
        .and_then(|()| fs::rename(&new_path, path));
    if written.is_err() {
        fs::remove_file(&new_path).ok();
    }
    written
}

/// An ID for the datastore, derived from its settings.
pub(crate) fn datastore(settings: &Settings) -> String {
    sha256_hex(format!("{:?} {:?}", settings.target, settings.kubernetes))
}

/// The content of a file: one line of JSON, after which [`RELEASED`] can follow.
fn print<T: Serialize>(format: &str, datastore: &str, note: &T) -> io::Result<String> {
    Ok(serde_json::to_string(&(format, datastore, note))? + "\n")
}

/// Parses the content of a file with full blocks; `None` if it is damaged or for another datastore.
fn parse_full_blocks(text: &str, datastore: &str) -> Option<FullBlocks> {
    let (first_line, later_lines) = text.split_once('\n')?;
    let mut full: FullBlocks = parse_line(first_line, FULL_BLOCKS, datastore)?;
    // Each later line notes that addresses were released, so that a search can find one again.
    if !later_lines.is_empty() {
        full.exhausted_at = None;
    }
    Some(full)
}

/// Parses the content of a file; `None` if it is damaged or for another datastore.
fn parse_known_state(text: &str, datastore: &str) -> Option<KnownState> {
    let line = text.strip_suffix('\n')?;
    let state: KnownState = parse_line(line, KNOWN_STATE, datastore)?;
    // Other versions have a meaning of their own: `0` stands for any state.
    match state.version.parse::<u64>() {
        Ok(version) if version > 0 => Some(state),
        _ => None,
    }
}

/// Parses a line of JSON; `None` if it has another format or is for another datastore.
fn parse_line<T: DeserializeOwned>(line: &str, format: &str, datastore: &str) -> Option<T> {
    let (found_format, found_datastore, note): (String, String, T) = serde_json::from_str(line).ok()?;
    if found_format != format || found_datastore != datastore {
        return None;
    }
    Some(note)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::time::SystemTime;

    use super::*;

    fn notes(folder: &Path, datastore: &str) -> FileNotes {
        FileNotes {
            lock: folder.join("ipam.lock"),
            datastore: datastore.into(),
        }
    }

    fn full() -> FullBlocks {
        let blocks = [("10.0.0.0/26", "7"), ("10.0.0.64/26", "19")];
        FullBlocks {
            inputs_hash: 0xfeed,
            exhausted_at: Some("2026-05-01T10:00:00.5Z".parse().unwrap()),
            blocks: blocks
                .into_iter()
                .map(|(cidr, at)| (cidr.parse().unwrap(), at.to_owned()))
                .collect(),
        }
    }

    #[test]
    fn calls_on_the_same_datastore_read_the_notes() {
        let folder = tempfile::tempdir().unwrap();
        let one = notes(folder.path(), "one");
        let other = notes(folder.path(), "other");
        assert_eq!(one.full_blocks(Family::V4), None);
        one.forget_exhaustion();
        one.keep_full_blocks(Family::V4, &full());
        one.keep_full_blocks(Family::V4, &full());
        assert_eq!(one.full_blocks(Family::V4), Some(full()));
        assert_eq!(other.full_blocks(Family::V4), None);
        assert_eq!(one.full_blocks(Family::V6), None);
        one.forget_exhaustion();
        one.forget_exhaustion();
        assert_eq!(
            one.full_blocks(Family::V4),
            Some(FullBlocks {
                exhausted_at: None,
                ..full()
            })
        );
    }

    #[test]
    fn torn_files_are_ignored() {
        let text = print(FULL_BLOCKS, "d", &full()).unwrap();
        assert_eq!(parse_full_blocks(&text, "d"), Some(full()));
        for len in 0..text.len() {
            assert_eq!(parse_full_blocks(&text[..len], "d"), None, "{:?}", &text[..len]);
        }
        for (part, other) in [
            ("blocks 2", "blocks 1"),
            ("/26", "/99"),
            ("65261", "6-5261"),
            ("hash", "mash"),
        ] {
            assert_eq!(parse_full_blocks(&text.replace(part, other), "d"), None, "{part}");
        }
    }

    #[test]
    fn a_known_state_is_read_by_calls_on_the_same_datastore() {
        let folder = tempfile::tempdir().unwrap();
        let one = notes(folder.path(), "one");
        let other = notes(folder.path(), "other");
        let state = |version: &str| KnownState {
            version: version.to_owned(),
            at: "2026-05-01T10:00:00.5Z".parse().unwrap(),
        };
        assert_eq!(one.known_state(), None);
        one.keep_known_state(&state("17"));
        one.keep_known_state(&state("18"));
        assert_eq!(one.known_state(), Some(state("18")));
        assert_eq!(other.known_state(), None);

        let text = print(KNOWN_STATE, "one", &state("18")).unwrap();
        for len in 0..text.len() {
            assert_eq!(parse_known_state(&text[..len], "one"), None, "{:?}", &text[..len]);
        }
        for version in ["0", "", "-1", "18&limit=1"] {
            one.keep_known_state(&state(version));
            assert_eq!(one.known_state(), None, "{version:?}");
        }
    }

    #[test]
    fn files_of_others_and_old_files_are_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let notes = notes(folder.path(), "d");
        let path = notes.full_blocks_path(Family::V4);
        let fresh = || {
            fs::remove_file(&path).ok();
            notes.keep_full_blocks(Family::V4, &full());
            assert!(notes.full_blocks(Family::V4).is_some());
        };
        fresh();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o602)).unwrap();
        assert_eq!(notes.full_blocks(Family::V4), None);

        for age in [Duration::from_secs(700), Duration::ZERO] {
            fresh();
            let file = OpenOptions::new().write(true).open(&path).unwrap();
            let time = SystemTime::now() + Duration::from_secs(60) - age;
            file.set_modified(time).unwrap();
            assert_eq!(notes.full_blocks(Family::V4), None, "{age:?}");
        }

        fresh();
        let elsewhere = folder.path().join("elsewhere");
        fs::rename(&path, &elsewhere).unwrap();
        symlink(&elsewhere, &path).unwrap();
        assert_eq!(notes.full_blocks(Family::V4), None);
        notes.forget_exhaustion();
        let expected = Some(full());
        assert_eq!(
            parse_full_blocks(&fs::read_to_string(&elsewhere).unwrap(), "d"),
            expected,
            "a link is not followed"
        );
    }
}
