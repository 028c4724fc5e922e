//! What `install-links` has written: files and their sums. A file that was changed since is not its own any more.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use calipam_model::digest::sha256_hex;
use serde::{Deserialize, Serialize};

/// The files that were written, and where that stands.
pub(super) struct Record {
    place: PathBuf,
    files: Files,
}

#[derive(Default, Serialize, Deserialize)]
struct Files {
    /// SHA-256 by path.
    files: BTreeMap<PathBuf, String>,
}

impl Record {
    /// Where the record of an installation lies, below its `share`.
    pub(super) fn path(share: &Path) -> PathBuf {
        share.join("calipam/installed.json")
    }

    /// Reads the record; there is an empty one where nothing was installed.
    pub(super) fn read(share: &Path) -> io::Result<Self> {
        let place = Self::path(share);
        let files = match fs::read(&place) {
            Ok(text) => serde_json::from_slice(&text).map_err(io::Error::other)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Files::default(),
            Err(error) => return Err(error),
        };
        Ok(Self { place, files })
    }

    pub(super) fn note(&mut self, path: &Path, content: &[u8]) {
        self.files.files.insert(path.to_owned(), sha256_hex(content));
    }

    /// True if the content is what was written there.
    pub(super) fn is_ours(&self, path: &Path, content: &[u8]) -> bool {
        self.files.files.get(path).is_some_and(|noted| *noted == sha256_hex(content))
    }

    pub(super) fn paths(&self) -> Vec<PathBuf> {
        self.files.files.keys().cloned().collect()
    }

    pub(super) fn write(&self) -> io::Result<()> {
        if self.files.files.is_empty() {
            return Ok(());
        }
        if let Some(folder) = self.place.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&self.place, serde_json::to_vec_pretty(&self.files)?)
    }

    /// Forgets everything: the record goes, and its folder where that is empty.
    pub(super) fn remove(self) -> io::Result<()> {
        match fs::remove_file(&self.place) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        if let Some(folder) = self.place.parent() {
            // Something else may be there.
            let _ = fs::remove_dir(folder);
        }
        Ok(())
    }
}
