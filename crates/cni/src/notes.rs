//! The blocks that a search for free addresses found full, kept in files next to the lock for the next calls on the
//! node. Damaged files are ignored.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use calipam_assign::{Family, FullBlocks, Notes};
use calipam_datastore::settings::Settings;
use calipam_files::regular;
use calipam_model::digest::sha256_hex;

const FORMAT: &str = "calipam full blocks 2";
/// The line that is appended after addresses were released.
const RELEASED: &str = "released\n";
/// The age limit of files. In a restored cluster, revisions can repeat, but a restore takes longer than this.
const MAX_AGE: Duration = Duration::from_secs(600);
/// The size limit of files. A hundred thousand blocks take a third of it.
const MAX_SIZE: u64 = 8 << 20;

/// The files next to a node's lock, one for each address family.
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

    fn path(&self, family: Family) -> PathBuf {
        self.lock
            .with_file_name(format!("calipam_full_ipv{}", family.number()))
    }

    /// Reads the notes of a family; `None` if they are old, too large or of another datastore.
    fn read(&self, family: Family) -> io::Result<Option<FullBlocks>> {
        let file = regular::open_own(&self.path(family), OpenOptions::new().read(true))?;
        let metadata = file.metadata()?;
        if !metadata.modified()?.elapsed().is_ok_and(|age| age <= MAX_AGE) || metadata.len() > MAX_SIZE {
            return Ok(None);
        }
        let mut text = String::new();
        file.take(MAX_SIZE).read_to_string(&mut text)?;
        Ok(parse(&text, &self.datastore))
    }

    fn write(&self, family: Family, full: &FullBlocks) -> io::Result<()> {
        replace(&self.path(family), &print(full, &self.datastore)?)
    }
}

impl Notes for FileNotes {
    /// Returns the full blocks of a family. Notes that cannot be read are ignored.
    fn full_blocks(&self, family: Family) -> Option<FullBlocks> {
        let read = self.read(family);
        if let Err(error) = read.as_ref()
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!("ignoring {}: {error}", self.path(family).display());
        }
        read.ok().flatten()
    }

    fn keep_full_blocks(&self, family: Family, full: &FullBlocks) {
        if let Err(error) = self.write(family, full) {
            tracing::warn!("cannot write {}: {error}", self.path(family).display());
        }
    }

    /// Notes that addresses were released, so that no family counts as exhausted.
    fn forget_exhaustion(&self) {
        for family in Family::BOTH {
            let path = self.path(family);
            let file = regular::open_own(&path, OpenOptions::new().append(true));
            if file.is_ok_and(|mut file| file.write_all(RELEASED.as_bytes()).is_err()) {
                // The disk is full.
                fs::remove_file(&path).ok();
            }
        }
    }
}

/// Writes a file, replacing any existing one. Does not follow links or wait for pipes.
pub(crate) fn replace(path: &Path, text: &str) -> io::Result<()> {
    let new = path.with_extension("new");
    // A killed call can have left this file.
    fs::remove_file(&new).ok();
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)?;
    let written = file
        .write_all(text.as_bytes())
        .and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        fs::remove_file(&new).ok();
    }
    written
}

/// An ID for the datastore, derived from its settings.
pub(crate) fn datastore(settings: &Settings) -> String {
    sha256_hex(format!("{:?} {:?}", settings.target, settings.kubernetes))
}

/// The content of a file: one line of JSON, after which [`RELEASED`] can follow.
fn print(full: &FullBlocks, datastore: &str) -> io::Result<String> {
    Ok(serde_json::to_string(&(FORMAT, datastore, full))? + "\n")
}

/// Parses the content of a file; `None` if it is damaged or for another datastore.
fn parse(text: &str, expected_datastore: &str) -> Option<FullBlocks> {
    let (first_line, releases) = text.split_once('\n')?;
    let (format, datastore, mut full): (String, String, FullBlocks) =
        serde_json::from_str(first_line).ok()?;
    if format != FORMAT || datastore != expected_datastore {
        return None;
    }
    if !releases.is_empty() {
        full.exhausted_at = None;
    }
    Some(full)
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
        let (one, other) = (notes(folder.path(), "one"), notes(folder.path(), "other"));
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
        let text = print(&full(), "d").unwrap();
        assert_eq!(parse(&text, "d"), Some(full()));
        for len in 0..text.len() {
            assert_eq!(parse(&text[..len], "d"), None, "{:?}", &text[..len]);
        }
        for (part, other) in [
            ("blocks 2", "blocks 1"),
            ("/26", "/99"),
            ("65261", "6-5261"),
            ("hash", "mash"),
        ] {
            assert_eq!(parse(&text.replace(part, other), "d"), None, "{part}");
        }
    }

    #[test]
    fn files_of_others_and_old_files_are_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let notes = notes(folder.path(), "d");
        let path = notes.path(Family::V4);
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
            parse(&fs::read_to_string(&elsewhere).unwrap(), "d"),
            expected,
            "a link is not followed"
        );
    }
}
