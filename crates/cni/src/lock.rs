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
use tokio::task::spawn_blocking;
use tracing::{debug, error};

/// The lock, if it could be taken. The process holds it until this value is dropped or the process ends.
#[derive(Debug)]
pub(crate) struct NodeLock {
    _file: Option<File>,
}

impl NodeLock {
    /// Waits for the lock, which the kernel releases when the process that holds it ends. Continues without the lock if
    /// the file cannot be opened or locked.
    pub(crate) async fn take(path: &Path) -> Self {
        match lock(path).await {
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

/// Locks the file at a path, and waits until other processes have unlocked it. Creates the file and its folder.
async fn lock(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        // The file can exist although its folder cannot be created.
        fs::create_dir_all(folder).ok();
    }
    let file = open(path)?;
    // The lock is usually free, and then no thread is needed.
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => return Ok(file),
        Err(Errno::WOULDBLOCK) => {}
        Err(error) => return Err(error.into()),
    }
    // On a thread of its own, so that the limit of the call also ends this wait.
    spawn_blocking(move || {
        loop {
            match flock(&file, FlockOperation::LockExclusive) {
                Ok(()) => return Ok(file),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    })
    .await?
}

/// Opens the file. `flock` needs no write permission, so even a file that belongs to another user can be locked.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    // Calico's plugin uses the same mode.
    match options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
    {
        Ok(file) => Ok(file),
        // The first error is reported, because it says why the file could not be created.
        Err(error) => regular::open(path).map_err(|_| error),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn the_lock_is_exclusive() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/folder/ipam.lock");
        let lock = NodeLock::take(&path).await;
        let other = File::open(&path).unwrap();
        let try_lock = || flock(&other, FlockOperation::NonBlockingLockExclusive);
        assert_eq!(try_lock(), Err(Errno::WOULDBLOCK));
        // The wait can be given up, because the call has a limit.
        let waiting = NodeLock::take(&path);
        assert!(timeout(Duration::from_millis(10), waiting).await.is_err());
        drop(lock);
        // The abandoned wait may get the lock first, and drops it.
        flock(&other, FlockOperation::LockExclusive).unwrap();
        drop(other);
        assert!(NodeLock::take(&path).await._file.is_some());
    }
}
