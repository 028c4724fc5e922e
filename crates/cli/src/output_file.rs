//! Documents in files: `--output-file FORMAT=PATH`, `--report FILE`, and calicoctl's `--output FILE`.

use std::fs::{self, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use calipam_files::regular;
use clap::ValueEnum;
use tempfile::Builder;

use crate::exit::{Failure, Result};
use crate::format::Format;
use crate::render::text::joined;

/// A file for a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OutputFile {
    pub format: Format,
    pub path: PathBuf,
}

impl OutputFile {
    /// Reads `FORMAT=PATH`, such as `prometheus=/tmp/a.prom`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (format, path) = text
            .split_once('=')
            .ok_or("expected FORMAT=PATH, such as `prometheus=/tmp/a.prom`")?;
        let ignore_case = true;
        let format = Format::from_str(format, ignore_case).map_err(|_| {
            let names = Format::value_variants()
                .iter()
                .filter_map(ValueEnum::to_possible_value);
            let names = joined(names.map(|value| value.get_name().to_owned()), ", ");
            format!("unknown format {format:?}; the formats are {names}")
        })?;
        if path.is_empty() {
            return Err("the path is empty".into());
        }
        Ok(Self {
            format,
            path: path.into(),
        })
    }

    /// Writes the file; see [`write`].
    pub(crate) fn write(&self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
        self::write(&self.path, write)
    }
}

/// Writes a file, through symbolic links, as a shell does. A regular file is replaced atomically: readers see either the
/// old or the new content, and after a failure the old content remains.
pub(crate) fn write(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    replace(path, write).map_err(Failure::io_at("write", path))
}

/// The size of the buffer of a written file.
const BUFFER: usize = 1 << 16;

/// The bits of a file's mode that say who can read, write and execute it.
#[cfg(unix)]
const PERMISSIONS: u32 = 0o777;
/// The mode of a file that its owner can write and everyone can read.
#[cfg(unix)]
const READABLE_FOR_ALL: u32 = 0o644;

/// Replaces a file in one step, so that readers never see an incomplete one.
fn replace(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let path = &behind_links(path)?;
    let existing = fs::metadata(path).ok();
    if let Some(existing) = &existing {
        if existing.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        if !existing.is_file() {
            return write_device(path, write);
        }
    }

    let folder = regular::folder_of(path);
    // The Prometheus textfile collector reads `*.prom`, so an incomplete file must not have that ending.
    let file = Builder::new()
        .prefix(".calipam-")
        .suffix(".tmp")
        .tempfile_in(folder)?;
    let mut out = BufWriter::with_capacity(BUFFER, file);
    write(&mut out)?;

    let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
    #[cfg(unix)]
    set_mode(file.path(), existing.as_ref())?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    match regular::sync_folder(folder) {
        // A folder that may be written, but not listed, cannot be opened.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        synced => synced,
    }
}

/// Writes to a pipe or device, such as /dev/stdout, which has no old content to keep.
fn write_device(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let device = OpenOptions::new().write(true).open(path)?;
    let mut out = BufWriter::with_capacity(BUFFER, device);
    write(&mut out)?;
    out.flush()
}

/// The maximum number of links that are followed, as in Linux.
const MOST_LINKS: usize = 40;

/// Follows symbolic links, which are kept. The file behind the last one need not exist.
fn behind_links(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        if let Ok(existing) = fs::canonicalize(&path) {
            return Ok(existing);
        }
        let Ok(target) = fs::read_link(&path) else {
            return Ok(path);
        };
        path = regular::folder_of(&path).join(target);
    }
    Err(io::Error::other("its symbolic links form a loop"))
}

/// Gives a file the mode of the one that it replaces. A new file is readable for all users, since the Prometheus
/// collector, which reads it, runs as a different user.
#[cfg(unix)]
fn set_mode(path: &Path, replaced: Option<&fs::Metadata>) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let mode = match replaced {
        Some(replaced) => replaced.permissions().mode() & PERMISSIONS,
        None => READABLE_FOR_ALL,
    };
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_format_and_a_path() {
        let expected = OutputFile {
            format: Format::Prometheus,
            path: "/tmp/a=b.prom".into(),
        };
        assert_eq!(OutputFile::parse("prometheus=/tmp/a=b.prom"), Ok(expected));
        for (bad, reason) in [
            ("a.prom", "FORMAT=PATH"),
            ("xml=a", "\"xml\""),
            ("json=", "empty"),
        ] {
            assert!(OutputFile::parse(bad).unwrap_err().contains(reason), "{bad}");
        }
    }

    #[test]
    fn the_old_file_stays_until_the_new_one_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report");
        let file = OutputFile {
            format: Format::Json,
            path: path.clone(),
        };
        file.write(|out| out.write_all(b"old")).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);

        let failed = file.write(|out| out.write_all(b"ne").and(Err(io::Error::other("full"))));
        assert!(failed.is_err());
        assert_eq!(fs::read(&path).unwrap(), b"old");
        file.write(|out| out.write_all(b"new")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(
            fs::read_dir(folder.path()).unwrap().count(),
            1,
            "temporary files are left"
        );

        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        file.write(|out| out.write_all(b"secret")).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);

        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        super::write(&link, |out| out.write_all(b"through the link")).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&path).unwrap(), b"through the link");

        // A link may be there before its target is.
        let target = folder.path().join("created");
        for (link, its_target) in [("first", "second"), ("second", "created")] {
            std::os::unix::fs::symlink(its_target, folder.path().join(link)).unwrap();
        }
        let first = folder.path().join("first");
        super::write(&first, |out| out.write_all(b"through two links")).unwrap();
        assert!(fs::symlink_metadata(&first).unwrap().is_symlink());
        assert_eq!(fs::read(&target).unwrap(), b"through two links");
        let ring = folder.path().join("ring");
        std::os::unix::fs::symlink(&ring, &ring).unwrap();
        let refused = super::write(&ring, |out| out.write_all(b"x")).unwrap_err();
        assert!(refused.message.contains("form a loop"), "{}", refused.message);
        assert!(fs::symlink_metadata(&ring).unwrap().is_symlink());

        assert!(super::write(Path::new("/dev/null"), |out| out.write_all(b"x")).is_ok());
    }
}
