//! A shell in which every name of the program is a command.

use std::fs;
use std::num::NonZero;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use calipam_model::parallel;
use tempfile::TempDir;

use super::program::{Run, calipam, command};

/// The names of the program, as typed.
pub(super) const NAMES: [&str; 4] = ["calipam", "ipam", "kubectl ipam", "kubectl calico ipam"];
/// A kubectl that only runs plugins.
const KUBECTL: &str = "#!/bin/sh\nplugin=$1\nshift\nexec \"kubectl-$plugin\" \"$@\"\n";

/// A folder with all names of the program, and the environment of commands.
pub(super) struct Shell {
    folder: TempDir,
    variables: Vec<(&'static str, String)>,
}

impl Shell {
    pub(super) fn new(variables: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        calipam(&format!("install-links {} --calicoctl", folder.path().display())).succeeded();
        std::os::unix::fs::symlink(crate::cli::PROGRAM, at("calipam")).unwrap();
        fs::write(at("kubectl"), KUBECTL).unwrap();
        fs::set_permissions(at("kubectl"), fs::Permissions::from_mode(0o755)).unwrap();
        Self {
            folder,
            variables: variables.into_iter().collect(),
        }
    }

    /// Returns the folder, in which tests may create files.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Prepares a shell for a line.
    pub(super) fn command(&self, program: &str, line: &str) -> Command {
        let mut shell = command(program);
        let path = format!(
            "{}:{}",
            self.folder.path().display(),
            std::env::var("PATH").unwrap()
        );
        shell.args(["-c", line]).env("PATH", path).stdin(Stdio::null());
        shell.env("XDG_STATE_HOME", self.folder.path().join("state"));
        shell.envs(self.variables.iter().map(|(name, value)| (name, value)));
        shell
    }

    /// Runs a line.
    pub(super) fn run(&self, line: &str) -> Run {
        Run::of(self.command("sh", line))
    }

    /// Runs lines.
    pub(super) fn run_all<'a>(&self, lines: &'a [String]) -> Vec<(&'a str, Run)> {
        let runs = at_once(lines, |line| self.run(line));
        lines.iter().map(String::as_str).zip(runs).collect()
    }
}

/// Calls `work` with each item of a list, many at a time, since the programs mostly wait.
pub(super) fn at_once<T: Sync, R: Send>(all: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    parallel::map(NonZero::new(12).unwrap(), all.len(), |place| work(&all[place]))
}
