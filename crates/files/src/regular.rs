//! Opening files. Whoever can write to a folder can put a pipe there, which waits forever, a link, or a file that says what a
//! run is to do: only regular files are read, and nothing is waited for.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::process::geteuid;

/// Permission of the group or of others to write.
const OTHERS_WRITE: u32 = 0o022;

/// Opens a file that was named.
pub fn open(path: &Path) -> io::Result<File> {
    regular(flagged(OpenOptions::new().read(true), OFlags::NONBLOCK).open(path)?)
}

/// Reads a file that was named.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    open(path)?.read_to_end(&mut content)?;
    Ok(content)
}

/// The same; what is not UTF-8 is an error.
pub fn read_to_string(path: &Path) -> io::Result<String> {
    let mut content = String::new();
    open(path)?.read_to_string(&mut content)?;
    Ok(content)
}

/// Opens a file that was found in a folder and is relied on: it is no link, belongs to this user, and nobody else may write it.
pub fn open_own(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let file = regular(flagged(options, OFlags::NONBLOCK | OFlags::NOFOLLOW).open(path)?)?;
    let metadata = file.metadata()?;
    let refused = |reason: &str| Err(io::Error::new(io::ErrorKind::PermissionDenied, reason.to_owned()));
    if metadata.uid() != geteuid().as_raw() {
        return refused("it belongs to another user");
    }
    if metadata.mode() & OTHERS_WRITE != 0 {
        return refused("others may write it: chmod go-w");
    }
    Ok(file)
}

fn flagged(options: &mut OpenOptions, flags: OFlags) -> &mut OpenOptions {
    options.custom_flags(flags.bits().cast_signed())
}

fn regular(file: File) -> io::Result<File> {
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")),
    }
}

#[cfg(test)]
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
            assert_eq!(read(&odd).unwrap_err().to_string(), "it is not a regular file", "{odd:?}");
        }

        let own = |name| open_own(&at(name), OpenOptions::new().read(true)).map(drop);
        fs::set_permissions(at("file"), Permissions::from_mode(0o640)).unwrap();
        assert!(own("file").is_ok() && own("link").is_err() && own("pipe").is_err());
        fs::set_permissions(at("file"), Permissions::from_mode(0o620)).unwrap();
        assert_eq!(own("file").unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }
}
