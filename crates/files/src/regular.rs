//! Opens files safely. Anyone who can write to a folder can put a link, a forged file or a pipe there, and opening a
//! pipe can block forever. Therefore, opening never blocks, and only regular files are read.
//!
//! On Windows, the standard library does not provide a file's owner and mode, so only the folder's access lists protect
//! the file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::path::Path;

/// The folder of a file; `.` for a bare name.
pub fn folder_of(file: &Path) -> &Path {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Makes the names in a folder durable: after a power failure, a file that was created or renamed has its new name.
/// Windows cannot open folders.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(windows) {
        return Ok(());
    }
    File::open(folder)?.sync_all()
}

/// Opens a file that the user named.
pub fn open(path: &Path) -> io::Result<File> {
    regular(system::open(OpenOptions::new().read(true), path)?)
}

/// Reads a file that the user named.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    open(path)?.read_to_end(&mut content)?;
    Ok(content)
}

/// Reads a text file that the user named; invalid UTF-8 is an error.
pub fn read_to_string(path: &Path) -> io::Result<String> {
    let mut content = String::new();
    open(path)?.read_to_string(&mut content)?;
    Ok(content)
}

/// Opens a file, but does not follow a link, since other users could have added links to the folder.
pub fn open_in_folder(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    match system::open_without_link(options, path) {
        Err(_) if path.is_symlink() => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is a link")),
        file => regular(file?),
    }
}

/// Opens a lock file, and creates it if it is missing. Keeps its content.
pub fn open_lock(path: &Path) -> io::Result<File> {
    // Opening a pipe only for writing would fail before the pipe can be recognized.
    open_in_folder(
        path,
        OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false),
    )
}

/// Removes a file if it exists.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Opens a file that must be trusted, in a folder of this user. On Unix, returns an error if another user owns the file
/// or may write to it.
pub fn open_own(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let file = open_in_folder(path, options)?;
    match system::why_not_own(&file.metadata()?) {
        None => Ok(file),
        Some(reason) => Err(io::Error::new(io::ErrorKind::PermissionDenied, reason)),
    }
}

/// Fills a buffer with the file's bytes from an offset on. The file's read position is undefined afterwards.
pub fn read_exact_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    system::read_exact_at(file, buffer, offset)
}

#[cfg(unix)]
mod system {
    use std::fs::{File, Metadata, OpenOptions};
    use std::io;
    use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
    use std::path::Path;

    use rustix::fs::OFlags;
    use rustix::process::geteuid;

    /// The mode bits that let the group or others write.
    const OTHERS_WRITE: u32 = 0o022;

    pub(super) fn open(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
        flagged(options, OFlags::NONBLOCK).open(path)
    }

    pub(super) fn open_without_link(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
        flagged(options, OFlags::NONBLOCK | OFlags::NOFOLLOW).open(path)
    }

    fn flagged(options: &mut OpenOptions, flags: OFlags) -> &mut OpenOptions {
        options.custom_flags(flags.bits().cast_signed())
    }

    /// Returns the reason why the file is not only this user's; `None` if no one else can write to it.
    pub(super) fn why_not_own(metadata: &Metadata) -> Option<&'static str> {
        if metadata.uid() != geteuid().as_raw() {
            return Some("it belongs to another user");
        }
        if metadata.mode() & OTHERS_WRITE != 0 {
            return Some("others may write to it: chmod go-w");
        }
        None
    }

    pub(super) fn read_exact_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        file.read_exact_at(buffer, offset)
    }
}

#[cfg(windows)]
mod system {
    use std::fs::{File, Metadata, OpenOptions};
    use std::io::{self, ErrorKind};
    use std::os::windows::fs::{FileExt, OpenOptionsExt};
    use std::path::Path;

    /// FILE_FLAG_OPEN_REPARSE_POINT: opens a link itself, which is not a regular file.
    const NO_LINK: u32 = 0x0020_0000;

    pub(super) fn open(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
        options.open(path)
    }

    pub(super) fn open_without_link(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
        options.custom_flags(NO_LINK).open(path)
    }

    pub(super) fn why_not_own(_: &Metadata) -> Option<&'static str> {
        None
    }

    /// Reads as many bytes at an offset as the buffer has.
    pub(super) fn read_exact_at(file: &File, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !buffer.is_empty() {
            match file.seek_read(buffer, offset) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => {
                    buffer = &mut buffer[read..];
                    offset += read as u64;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Returns the file if it is a regular one.
fn regular(file: File) -> io::Result<File> {
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is not a regular file",
        ))
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn only_regular_files_are_opened_and_pipes_are_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        mknodat(CWD, at("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        fs::write(at("file"), "content").unwrap();
        symlink(at("file"), at("link")).unwrap();

        assert_eq!(read_to_string(&at("link")).unwrap(), "content");
        for odd in [at("pipe"), folder.path().to_owned(), "/dev/zero".into()] {
            assert_eq!(
                read(&odd).unwrap_err().to_string(),
                "it is not a regular file",
                "{odd:?}"
            );
        }

        assert!(open_lock(&at("new")).is_ok() && open_lock(&at("file")).is_ok());
        assert_eq!(fs::read(at("file")).unwrap(), b"content");
        for (odd, reason) in [("link", "it is a link"), ("pipe", "it is not a regular file")] {
            assert_eq!(open_lock(&at(odd)).unwrap_err().to_string(), reason);
        }

        let own = |name| open_own(&at(name), OpenOptions::new().read(true)).map(drop);
        fs::set_permissions(at("file"), Permissions::from_mode(0o640)).unwrap();
        assert!(own("file").is_ok() && own("link").is_err() && own("pipe").is_err());
        fs::set_permissions(at("file"), Permissions::from_mode(0o620)).unwrap();
        assert_eq!(own("file").unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }
}
