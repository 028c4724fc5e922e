//! Where journals lie unless the call says otherwise.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

/// The folder for journals in the user's state directory: `$XDG_STATE_HOME/calipam`, else
/// `$HOME/.local/state/calipam`. `None` where the environment names neither by an absolute path.
pub fn default_directory(environment: &BTreeMap<String, String>) -> Option<PathBuf> {
    let absolute = |name: &str| environment.get(name).map(Path::new).filter(|p| p.is_absolute());
    let state = absolute("XDG_STATE_HOME").map(Path::to_owned);
    let state = state.or_else(|| Some(absolute("HOME")?.join(".local").join("state")))?;
    Some(state.join("calipam"))
}

/// A name for the journal of one run in `directory`: time, cluster and process, so that runs never share
/// one.
pub fn default_path(directory: &Path, cluster: &str, now: Timestamp) -> PathBuf {
    let cluster: String = cluster.chars().filter(char::is_ascii_alphanumeric).take(8).collect();
    let time = now.strftime("%Y%m%dT%H%M%S%.3fZ");
    directory.join(format!("{time}-{cluster}-{}.journal", std::process::id()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_directory_of_the_user() {
        let of = |entries: &[(&str, &str)]| {
            default_directory(&entries.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect())
        };
        assert_eq!(of(&[("HOME", "/home/a")]), Some("/home/a/.local/state/calipam".into()));
        assert_eq!(of(&[("HOME", "/home/a"), ("XDG_STATE_HOME", "/s")]), Some("/s/calipam".into()));
        assert_eq!(of(&[("HOME", "/home/a"), ("XDG_STATE_HOME", "s")]), of(&[("HOME", "/home/a")]));
        assert_eq!(of(&[("HOME", "")]), None);
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn names_hold_time_cluster_and_process() {
        let now = "2026-05-01T10:11:12.345Z".parse().unwrap();
        let path = default_path(Path::new("/s"), "../0f0e1d2c3b4a", now);
        let expected = format!("/s/20260501T101112.345Z-0f0e1d2c-{}.journal", std::process::id());
        assert_eq!(path, PathBuf::from(expected));
    }
}
