//! Programs that tests run and that packages of the distribution bring.
//!
//! Only the standard library is used, since `xtask`, which installs them, includes this file as well.

use std::env;
use std::fmt;
use std::path::{Path, PathBuf};

use super::locate::{self, Program};

/// Names the file to which a test that is left out adds a line; set by `cargo xtask test`.
pub const LEFT_OUT: &str = "CALIPAM_TEST_LEFT_OUT";

/// Names a browser. If it is set, no other is looked for.
const CHROMIUM: &str = "CALIPAM_TEST_CHROMIUM";

/// What distributions and Google call it.
const CHROMIUMS: [&str; 5] =
    ["chromium", "chromium-headless-shell", "chromium-browser", "google-chrome", "google-chrome-stable"];

const BASH_COMPLETION: &str = "/usr/share/bash-completion/bash_completion";

/// Something without which a test cannot run.
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
    /// rpm, which installs packages of Fedora and others.
    Rpm,
    Strace,
    SystemdAnalyze,
    Zsh,
}

impl Tool {
    /// In the order in which they are brought.
    pub const ALL: [Self; 12] = [
        Self::OldEtcd,
        Self::Promtool,
        Self::Dpkg,
        Self::Groff,
        Self::Jq,
        Self::Rpm,
        Self::Strace,
        Self::SystemdAnalyze,
        Self::BashCompletion,
        Self::Zsh,
        Self::Fish,
        Self::Chromium,
    ];

    /// Its package in Debian.
    pub fn package(self) -> &'static str {
        match self {
            Self::BashCompletion => "bash-completion",
            Self::Chromium => "chromium-headless-shell",
            Self::Dpkg => "dpkg",
            Self::Fish => "fish",
            Self::Groff => "groff-base",
            Self::Jq => "jq",
            Self::OldEtcd => "etcd-server",
            Self::Promtool => "prometheus",
            Self::Rpm => "rpm",
            Self::Strace => "strace",
            Self::SystemdAnalyze => "systemd",
            Self::Zsh => "zsh",
        }
    }

    /// Where it is on this machine, or below `target` of the workspace.
    pub fn find(self, workspace: &Path) -> Option<PathBuf> {
        match self {
            Self::BashCompletion => Some(PathBuf::from(BASH_COMPLETION)).filter(|path| path.is_file()),
            Self::Chromium => match env::var_os(CHROMIUM) {
                Some(path) => Some(PathBuf::from(path)).filter(|path| path.is_file()),
                None => on_path(&CHROMIUMS),
            },
            Self::Dpkg => on_path(&["dpkg-deb"]),
            Self::Fish => on_path(&["fish"]),
            Self::Groff => on_path(&["groff"]),
            Self::Jq => on_path(&["jq"]),
            Self::OldEtcd => locate::find(Program::OldEtcd, workspace).ok(),
            Self::Promtool => locate::find(Program::Promtool, workspace).ok(),
            Self::Rpm => on_path(&["rpm"]),
            Self::Strace => on_path(&["strace"]),
            Self::SystemdAnalyze => on_path(&["systemd-analyze"]),
            Self::Zsh => on_path(&["zsh"]),
        }
    }

    /// That it is missing, and the command that brings it.
    pub fn missing(self) -> String {
        format!("{self} is missing; `apt-get install -y {}` brings it", self.package())
    }
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BashCompletion => "bash-completion",
            Self::Chromium => "Chromium",
            Self::Dpkg => "dpkg-deb",
            Self::Fish => "fish",
            Self::Groff => "groff",
            Self::Jq => "jq",
            Self::OldEtcd => "etcd 3.4 or 3.5",
            Self::Promtool => "promtool",
            Self::Rpm => "rpm",
            Self::Strace => "strace",
            Self::SystemdAnalyze => "systemd-analyze",
            Self::Zsh => "zsh",
        })
    }
}

/// True if the environment says that this is a run of CI: there, no test is left out.
pub fn is_ci() -> bool {
    env::var_os("CI").is_some_and(|value| value == "true")
}

pub(super) fn on_path(names: &[&str]) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let folders: Vec<PathBuf> = env::split_paths(&path).collect();
    let mut files = names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    files.find(|file| file.is_file())
}
