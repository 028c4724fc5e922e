//! The lock that a node's plugins share: an exclusive `flock` on the file that Calico's own plugin also locks.
//!
//! As in Calico, the lock is best effort: the datastore is safe without it, since every write is a compare-and-swap.
//! The lock only makes conflicts between the plugins on one node rarer.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use calipam_files::regular;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use tracing::{debug, error};

/// The lock, if it could be taken. The process holds it until this value is dropped or the process ends.
#[derive(Debug)]
pub(crate) struct NodeLock {
    _file: Option<File>,
}

impl NodeLock {
    /// Waits for the lock without limit: the kernel releases it when the process that holds it ends. Continues without
    /// the lock if the file cannot be opened or locked.
    pub(crate) fn take(path: &Path) -> Self {
        match lock(path) {
            Ok(file) => {
                debug!("holding the lock {}", path.display());
                Self { _file: Some(file) }
            }
            Err(error) => {
                error!("continuing without the lock {}: {error}", path.display());
                Self { _file: None }
            }
        }
    }
}

fn lock(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        // The file can exist although its folder cannot be created.
        fs::create_dir_all(folder).ok();
    }
    let file = open(path)?;
    loop {
        match flock(&file, FlockOperation::LockExclusive) {
            Ok(()) => return Ok(file),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Opens the file. `flock` needs no write permission, so even a file that belongs to another user can be locked.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    // Calico's plugin uses the same mode.
    match options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path) {
        Ok(file) => Ok(file),
        Err(error) => regular::open(path).map_err(|_| error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_is_exclusive() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/folder/ipam.lock");
        let lock = NodeLock::take(&path);
        let other = File::open(&path).unwrap();
        let try_lock = || flock(&other, FlockOperation::NonBlockingLockExclusive);
        assert_eq!(try_lock(), Err(Errno::WOULDBLOCK));
        drop(lock);
        assert_eq!(try_lock(), Ok(()));
    }
}
