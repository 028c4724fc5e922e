//! Opening files that may be journals. Whoever can write to a folder can put a pipe there, a link, or a journal that
//! says what a run is to do.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::process::geteuid;

/// Opens a file that the user has named: it must be a regular one, and nothing is waited for.
pub(super) fn open_named(path: &Path) -> io::Result<File> {
    regular(open(OpenOptions::new().read(true), path, OFlags::NONBLOCK)?)
}

/// Opens a file that was found in a folder: also, it is no link, and belongs to this user.
pub(crate) fn open_own(path: &Path) -> io::Result<File> {
    own(open(OpenOptions::new().read(true), path, OFlags::NONBLOCK | OFlags::NOFOLLOW)?)
}

/// Opens such a file to append to it.
pub(super) fn append_to_own(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    own(open(options.read(true).append(true), path, OFlags::NONBLOCK | OFlags::NOFOLLOW)?)
}

/// True where the run that writes a journal still lives.
pub(super) fn is_alive(file: &File) -> bool {
    matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
}

fn open(options: &mut OpenOptions, path: &Path, flags: OFlags) -> io::Result<File> {
    options.custom_flags(flags.bits().cast_signed()).open(path)
}

fn regular(file: File) -> io::Result<File> {
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")),
    }
}

fn own(file: File) -> io::Result<File> {
    let file = regular(file)?;
    match file.metadata()?.uid() == geteuid().as_raw() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::PermissionDenied, "it belongs to another user")),
    }
}
