//! The file of a journal on disk: created, locked, written, made durable, and closed.

use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::Path;

use calipam_datastore::Pending;
use calipam_files::regular;

/// Writes journals in place of the operating system, for a simulation of disks that are full or slow.
pub trait Disk: fmt::Debug + Send + Sync {
    /// Waits until the next durable line may be written.
    fn turn(&self) -> Pending<'_, ()>;

    /// Writes a line to the end of a journal.
    fn append(&self, file: &mut JournalFile, line: &[u8]) -> io::Result<()>;
}

/// The file of a journal that is being written. It stays locked while the run lasts: an unlocked journal belongs to a
/// run that is over.
#[derive(Debug)]
pub struct JournalFile(File);

impl JournalFile {
    /// Creates the file and its folder, locks it, and makes its first line durable. Fails if the file exists: a journal
    /// is never overwritten. Only the user can read the file, except on Windows.
    pub(super) fn create(path: &Path, first: &[u8]) -> io::Result<Self> {
        let folder = regular::folder_of(path);
        create_folder(folder)?;
        let mut options = OpenOptions::new();
        // On Windows the access rights of the folder apply.
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = Self(options.write(true).create_new(true).open(path)?);

        file.0.lock()?;
        file.append(first)?;
        file.0.sync_all()?;
        // The name of a new file is durable only after its folder is synced.
        regular::sync_folder(folder)?;
        Ok(file)
    }

    /// Writes bytes to the end of the file.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    /// Waits until everything that was written survives a power failure.
    pub(super) fn make_durable(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}

impl Drop for JournalFile {
    fn drop(&mut self) {
        // Closing the file is not enough: a child process inherits the open file, and closes it only when its own
        // program begins.
        self.0.unlock().ok();
    }
}

/// Creates a folder with those above it. Their names survive a power failure, since a journal in a folder that is gone
/// would be lost, too.
fn create_folder(folder: &Path) -> io::Result<()> {
    let mut missing = Vec::new();
    for ancestor in folder.ancestors() {
        if ancestor.as_os_str().is_empty() || ancestor.exists() {
            break;
        }
        missing.push(ancestor);
    }
    std::fs::create_dir_all(folder)?;
    for created in missing {
        match regular::sync_folder(regular::folder_of(created)) {
            // A folder that may be entered, but not listed, cannot be opened.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            result => result?,
        }
    }
    Ok(())
}

/// Opens a file of this user for reading.
pub(crate) fn open_own(path: &Path) -> io::Result<File> {
    regular::open_own(path, OpenOptions::new().read(true))
}

/// Returns true if the run that writes a journal is still alive.
pub(super) fn is_alive(file: &File) -> bool {
    matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_folders_are_created_and_existing_ones_stay() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("state/calipam");
        for name in ["first", "second"] {
            drop(JournalFile::create(&folder.join(name), b"line").unwrap());
        }
        assert_eq!(std::fs::read(folder.join("first")).unwrap(), b"line");
        let error = JournalFile::create(&folder.join("first"), b"other").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert!(create_folder(&folder.join("first/below")).is_err());
    }
}
