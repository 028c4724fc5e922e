//! The default paths of journals, and a check that a journal can be created.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::error::JournalError;

/// The environment variable for the user's state directory.
const STATE: &str = "XDG_STATE_HOME";
/// The fallback if [`STATE`] is not set: the variable for a parent directory, and the state directory's path relative
/// to that parent.
const ABOVE_STATE: (&str, &str) = if cfg!(windows) {
    ("LOCALAPPDATA", "")
} else {
    ("HOME", ".local/state")
};

/// The variable with which systemd names the state directory of a service (`StateDirectory=calipam`).
const SERVICE: &str = "STATE_DIRECTORY";
/// The folder for a process without a user's state directory, such as one in a container.
const SYSTEM: &str = "/var/lib/calipam";

/// The environment variables that [`default_directory`] reads.
pub const VARIABLES: [&str; 3] = [STATE, ABOVE_STATE.0, SERVICE];

/// Returns the folder for journals: `$XDG_STATE_HOME/calipam` or `$HOME/.local/state/calipam`, on Windows
/// `%LOCALAPPDATA%\calipam`; without these variables, systemd's `$STATE_DIRECTORY` or `/var/lib/calipam`. `None` if no
/// variable has an absolute path, and the last folder cannot be written.
pub fn default_directory(environment: &BTreeMap<String, String>) -> Option<PathBuf> {
    let absolute = |variable: &str| {
        let path = environment.get(variable).map(Path::new);
        path.filter(|path| path.is_absolute())
    };
    if let Some(state) = absolute(STATE) {
        return Some(state.join("calipam"));
    }
    if let Some(home) = absolute(ABOVE_STATE.0) {
        return Some(home.join(ABOVE_STATE.1).join("calipam"));
    }
    let system = absolute(SERVICE).unwrap_or(Path::new(SYSTEM));
    if check_place(&system.join("journal")).is_err() {
        return None;
    }
    Some(system.to_owned())
}

/// Returns a path in `directory` for the journal of one run. The file name contains the time, the cluster and the
/// process ID, so no two runs share a path.
pub fn default_path(directory: &Path, cluster: &str, now: Timestamp) -> PathBuf {
    let cluster: String = cluster
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .take(8)
        .collect();
    let time = now.strftime("%Y%m%dT%H%M%S%.3fZ");
    directory.join(format!("{time}-{cluster}-{}.journal", std::process::id()))
}

/// Checks whether a journal can be created at `path`, without creating it, so that a run fails before it begins.
///
/// # Errors
/// If the file exists already, or its folder cannot be written to.
#[cfg(unix)]
pub fn check_place(path: &Path) -> Result<(), JournalError> {
    use rustix::fs::{Access, access};
    use rustix::io::Errno;

    let failed = |errno: Errno| JournalError::write(path, &errno.into());
    if path.symlink_metadata().is_ok() {
        return Err(failed(Errno::EXIST));
    }

    // Missing folders are created with the journal, so the first folder that exists is checked.
    let mut folder = Path::new("/");
    for ancestor in path.ancestors().skip(1) {
        let ancestor = if ancestor.as_os_str().is_empty() {
            Path::new(".")
        } else {
            ancestor
        };
        if !matches!(access(ancestor, Access::EXISTS), Err(Errno::NOENT)) {
            folder = ancestor;
            break;
        }
    }

    // This check comes before the access check: if the path goes through a file, the access check reports "Permission
    // denied" to everyone but root.
    if folder.metadata().is_ok_and(|found| !found.is_dir()) {
        return Err(failed(Errno::NOTDIR));
    }
    access(folder, Access::WRITE_OK | Access::EXEC_OK).map_err(failed)
}

/// Checks that there is no file at `path`. Missing permissions are noticed only when the file is created.
///
/// # Errors
/// If the file exists already.
#[cfg(not(unix))]
pub fn check_place(path: &Path) -> Result<(), JournalError> {
    match path.symlink_metadata() {
        Ok(_) => Err(JournalError::write(
            path,
            &std::io::ErrorKind::AlreadyExists.into(),
        )),
        Err(_) => Ok(()),
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn the_state_directory_of_the_user() {
        let of = |entries: &[(&str, &str)]| {
            default_directory(&entries.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect())
        };
        assert_eq!(
            of(&[("HOME", "/home/a")]),
            Some("/home/a/.local/state/calipam".into())
        );
        assert_eq!(
            of(&[("HOME", "/home/a"), ("XDG_STATE_HOME", "/s")]),
            Some("/s/calipam".into())
        );
        assert_eq!(
            of(&[("HOME", "/home/a"), ("XDG_STATE_HOME", "s")]),
            of(&[("HOME", "/home/a")])
        );
    }

    #[test]
    fn without_a_home_journals_are_in_the_systems_state_directory() {
        let folder = tempfile::tempdir().unwrap();
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let of = |home: &str, state: &Path| {
            let environment = [
                ("HOME".to_owned(), home.to_owned()),
                (SERVICE.to_owned(), text(state)),
            ];
            default_directory(&environment.into())
        };
        let system = folder.path().join("lib/calipam");
        for home in ["", "relative"] {
            assert_eq!(
                of(home, &system),
                Some(system.clone()),
                "it is created with the journal"
            );
        }
        assert_eq!(
            of("/home/a", &system),
            Some("/home/a/.local/state/calipam".into())
        );
        std::fs::write(folder.path().join("lib"), "a file").unwrap();
        assert_eq!(of("", &system), None, "it cannot be written");
        assert!(!system.exists());
    }

    #[test]
    fn a_path_is_checked_without_creating_the_journal() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("file"), "mine").unwrap();
        for good in ["new", "missing/folder/new"] {
            assert_eq!(check_place(&at(good)), Ok(()), "{good}");
        }
        for (bad, reason) in [("file", "File exists"), ("file/new", "Not a directory")] {
            let error = check_place(&at(bad)).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
        assert_eq!(
            check_place(Path::new("new.journal")),
            Ok(()),
            "in the working directory"
        );
        assert_eq!(
            std::fs::read_dir(folder.path()).unwrap().count(),
            1,
            "nothing was created"
        );
    }

    #[test]
    fn names_hold_time_cluster_and_process() {
        let now = "2026-05-01T10:11:12.345Z".parse().unwrap();
        let path = default_path(Path::new("/s"), "../0f0e1d2c3b4a", now);
        let expected = format!("/s/20260501T101112.345Z-0f0e1d2c-{}.journal", std::process::id());
        assert_eq!(path, PathBuf::from(expected));
    }
}
