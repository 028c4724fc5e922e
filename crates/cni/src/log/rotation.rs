//! Rotation of the log file, as in Calico's plugin: a file that is too large is renamed to include the time, and old
//! files of both plugins are removed.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use rustix::fs::{FlockOperation, OFlags, flock};

use super::stamp;
use crate::config::Log;

const MEGABYTE: u64 = 1 << 20;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// The highest age in days that counts as a limit. It is more than any file has, and small enough for [`Duration`].
const MAX_DAYS: u64 = 100_000;

/// Opens the log file for appending. If it is too large, renames it first.
pub(super) fn open(path: &Path, settings: &Log) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o755).create(folder)?;
    }
    let file = append(path)?;
    if file.metadata()?.len() < settings.max_size.saturating_mul(MEGABYTE) {
        return Ok(file);
    }
    // Plugins that run at the same time see the same size. One of them renames the file; the other plugins open the
    // path again, and write to the old or the new file.
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() || !is_at(&file, path) {
        return append(path);
    }
    // The old file is renamed to `<name>-<time>-size<ending>`, with the time in UTC.
    let (start, ending) = name_parts(path);
    let old_name = format!("{start}{}-size{ending}", stamp(Timestamp::now()));
    fs::rename(path, path.with_file_name(old_name))?;
    let new_file = append(path)?;
    // An error is ignored: it only leaves too many old files.
    prune(path, settings).ok();
    Ok(new_file)
}

fn append(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    // Opening a pipe that has no reader fails, instead of waiting for one.
    options.custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    options.create(true).append(true).mode(0o644).open(path)
}

/// True if the path still points to this file.
fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::metadata(path)) {
        (Ok(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        _ => false,
    }
}

/// The parts of an old file's name before and after the time.
fn name_parts(path: &Path) -> (String, String) {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let ending = match path.extension() {
        Some(extension) => format!(".{}", extension.to_string_lossy()),
        None => String::new(),
    };
    (format!("{stem}-"), ending)
}

/// Removes old files of the log at a path that exceed the limits on number and age.
fn prune(path: &Path, settings: &Log) -> io::Result<()> {
    let (start, ending) = name_parts(path);
    // With the time in the name first, they sort from the oldest to the newest.
    let mut old: Vec<(String, SystemTime, PathBuf)> = Vec::new();
    for entry in fs::read_dir(path.parent().unwrap_or(Path::new(".")))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if let Some(time) = name.strip_prefix(&start).and_then(|rest| stamp_of(rest, &ending)) {
            old.push((time.to_owned(), entry.metadata()?.modified()?, entry.path()));
        }
    }
    old.sort();
    let max_age = DAY.saturating_mul(settings.max_age.min(MAX_DAYS) as u32);
    // `None` for a limit before the first time that the system knows: no file is too old then.
    let oldest = SystemTime::now().checked_sub(max_age);
    let surplus = old.len().saturating_sub(settings.max_count);
    for (index, (_, time, path)) in old.iter().enumerate() {
        if index < surplus || oldest.is_some_and(|oldest| *time < oldest) {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// Returns the time in an old file's name, as [`stamp`] writes it; `None` for files of other programs. `rest` is the
/// name from the time on, and `ending` that of the log file. Newer versions of Calico's plugin add a reason after the
/// time and compress the file; older versions do not.
fn stamp_of<'n>(rest: &'n str, ending: &str) -> Option<&'n str> {
    let example = "2006-01-02T15-04-05.000";
    let (time, after_time) = rest.split_at_checked(example.len())?;
    // Any digits are accepted, but all else must be as in the example.
    let is_time = time.chars().zip(example.chars()).all(|(c, expected)| {
        if expected.is_ascii_digit() {
            c.is_ascii_digit()
        } else {
            c == expected
        }
    });
    if !is_time {
        return None;
    }

    let unpacked = after_time
        .strip_suffix(".zst")
        .or_else(|| after_time.strip_suffix(".gz"))
        .unwrap_or(after_time);
    let reason = unpacked.strip_suffix(ending)?;
    // Without a reason, an older version of the plugin has written the file.
    if !matches!(reason, "" | "-size" | "-time") {
        return None;
    }
    Some(time)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_large_file_is_renamed_with_its_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("logs/cni.log");
        let settings = Log {
            max_size: 1,
            max_count: 2,
            ..Log::default()
        };
        open(&path, &settings)
            .unwrap()
            .write_all(&vec![b'x'; MEGABYTE as usize])
            .unwrap();
        open(&path, &settings).unwrap().write_all(b"new\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new\n");

        let parent = path.parent().unwrap();
        let found = names(parent);
        let [old, _] = &found[..] else { panic!("{found:?}") };
        assert!(
            old.ends_with("-size.log") && stamp_of(&old["cni-".len()..], ".log").is_some(),
            "{found:?}"
        );
        assert_eq!(fs::metadata(parent.join(old)).unwrap().len(), MEGABYTE);
    }

    #[test]
    fn old_files_are_removed_and_those_of_others_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cni.log");
        let others = [
            "cni-notes.log",
            "cni-2026-01-01.log",
            "cni-2026-01-01T00-00-00.000-mine.log",
            "other-2026-01-01T00-00-00.000.log",
        ];
        for name in others {
            fs::write(folder.path().join(name), "").unwrap();
        }
        for (number, end) in [".log", "-size.log.zst", ".log.gz", "-size.log"]
            .into_iter()
            .enumerate()
        {
            let name = format!("cni-2026-01-01T00-00-0{number}.000{end}");
            fs::write(folder.path().join(name), "").unwrap();
        }
        fs::write(&path, vec![b'x'; MEGABYTE as usize]).unwrap();
        open(
            &path,
            &Log {
                max_size: 1,
                max_count: 2,
                ..Log::default()
            },
        )
        .unwrap();
        let found = names(folder.path());
        assert_eq!(found.len(), 2 + others.len() + 1, "{found:?}");
        assert!(
            found.contains(&"cni-2026-01-01T00-00-03.000-size.log".to_owned()),
            "{found:?}"
        );
    }

    #[test]
    fn the_log_goes_on_while_another_plugin_rotates_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cni.log");
        fs::write(&path, vec![b'x'; MEGABYTE as usize]).unwrap();
        let other = File::open(&path).unwrap();
        flock(&other, FlockOperation::LockExclusive).unwrap();
        open(
            &path,
            &Log {
                max_size: 1,
                ..Log::default()
            },
        )
        .unwrap()
        .write_all(b"y")
        .unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), MEGABYTE + 1);
    }
}
