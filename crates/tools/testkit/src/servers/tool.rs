//! Programs that tests need, from packages of the distribution.
//!
//! This module uses only the standard library, since `xtask`, which installs the programs, also includes this file.

use std::env;
use std::fmt;
use std::path::{Path, PathBuf};

use super::locate::{self, Program};

/// The variable with the path of the list of skipped tests; set by `cargo xtask test`.
pub const LEFT_OUT: &str = "CALIPAM_TEST_LEFT_OUT";

/// The variable with the path of a browser. If it is set, no other browser is used.
const CHROMIUM: &str = "CALIPAM_TEST_CHROMIUM";

/// The program names of the browser, in distributions' packages and in Google's.
const CHROMIUMS: [&str; 5] =
    ["chromium", "chromium-headless-shell", "chromium-browser", "google-chrome", "google-chrome-stable"];

const BASH_COMPLETION: &str = "/usr/share/bash-completion/bash_completion";

/// A program that a test needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    BashCompletion,
    /// Chromium or Chrome.
    Chromium,
    Dpkg,
    Fish,
    Groff,
    Jq,
    /// etcd 3.4 or 3.5.
    OldEtcd,
    Promtool,
    /// rpm, which installs packages for Fedora and other distributions.
    Rpm,
    Strace,
    SystemdAnalyze,
    Zsh,
}

/// All tools in the order of their installation, each with its Debian package and its name. The name is that of a program
/// in `PATH`, unless `find` looks elsewhere.
const TOOLS: [(Tool, &str, &str); 12] = [
    (Tool::OldEtcd, "etcd-server", "etcd 3.4 or 3.5"),
    (Tool::Promtool, "prometheus", "promtool"),
    (Tool::Dpkg, "dpkg", "dpkg-deb"),
    (Tool::Groff, "groff-base", "groff"),
    (Tool::Jq, "jq", "jq"),
    (Tool::Rpm, "rpm", "rpm"),
    (Tool::Strace, "strace", "strace"),
    (Tool::SystemdAnalyze, "systemd", "systemd-analyze"),
    (Tool::BashCompletion, "bash-completion", "bash-completion"),
    (Tool::Zsh, "zsh", "zsh"),
    (Tool::Fish, "fish", "fish"),
    (Tool::Chromium, "chromium-headless-shell", "Chromium"),
];

impl Tool {
    /// All tools, in the order of their installation.
    pub fn all() -> impl Iterator<Item = Self> {
        TOOLS.into_iter().map(|(tool, ..)| tool)
    }

    /// The tool's Debian package, and its name.
    fn texts(self) -> [&'static str; 2] {
        let (_, package, name) =
            TOOLS.into_iter().find(|(tool, ..)| *tool == self).expect("it is in the table");
        [package, name]
    }

    /// The tool's Debian package.
    pub fn package(self) -> &'static str {
        self.texts()[0]
    }

    /// Finds the tool on this machine, or below the workspace's `target` folder.
    pub fn find(self, workspace: &Path) -> Option<PathBuf> {
        match self {
            Self::BashCompletion => Some(PathBuf::from(BASH_COMPLETION)).filter(|path| path.is_file()),
            Self::Chromium => match env::var_os(CHROMIUM) {
                Some(path) => Some(PathBuf::from(path)).filter(|path| path.is_file()),
                None => on_path(&CHROMIUMS),
            },
            Self::OldEtcd => locate::find(Program::OldEtcd, workspace).ok(),
            Self::Promtool => locate::find(Program::Promtool, workspace).ok(),
            _ => on_path(&[self.texts()[1]]),
        }
    }

    /// A message that the tool is missing, with the command that installs it.
    pub fn missing(self) -> String {
        format!("{self} is missing; `apt-get install -y {}` installs it", self.package())
    }
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.texts()[1])
    }
}

/// True in CI, according to the environment. In CI, no test may be skipped.
pub fn is_ci() -> bool {
    env::var_os("CI").is_some_and(|value| value == "true")
}

pub(super) fn on_path(names: &[&str]) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let folders: Vec<PathBuf> = env::split_paths(&path).collect();
    let mut files = names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    files.find(|file| file.is_file())
}
