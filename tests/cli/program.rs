//! Runs the program.

use std::borrow::BorrowMut;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use super::schemas;

/// The exit code and output of a run.
#[derive(Debug)]
pub(super) struct Run {
    /// Names the run in the messages of assertions.
    #[expect(dead_code, reason = "it is printed")]
    arguments: Vec<OsString>,
    pub stdout: String,
    pub stderr: String,
    pub code: i32,
}

impl Run {
    /// Runs a program.
    pub(super) fn of(mut command: impl BorrowMut<Command>) -> Self {
        let command = command.borrow_mut();
        let output = command.output().expect("the program starts");
        Self { arguments: command.get_args().map(OsStr::to_owned).collect(), ..Self::ended(output) }
    }

    /// Wraps the output of a program that was started elsewhere.
    pub(super) fn ended(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("output is UTF-8");
        Self {
            arguments: Vec::new(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
            code: output.status.code().expect("the program ends by itself"),
        }
    }

    /// Asserts the exit code.
    #[track_caller]
    pub(super) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        self
    }

    /// Asserts that the run succeeded.
    #[track_caller]
    pub(super) fn succeeded(self) -> Self {
        self.exits(0)
    }

    /// Asserts the exit code of a failed run, and that stderr contains `says`.
    #[track_caller]
    pub(super) fn failed(self, code: i32, says: &str) -> Self {
        self.exits(code).says(says)
    }

    /// Asserts that a run failed with nothing on stdout, and that stderr contains `says`.
    #[track_caller]
    pub(super) fn refused(self, code: i32, says: &str) -> Self {
        self.failed(code, says).prints_nothing()
    }

    /// Asserts that stdout contains `text`.
    #[track_caller]
    pub(super) fn prints(self, text: &str) -> Self {
        assert!(self.stdout.contains(text), "{text:?} is not printed: {self:?}");
        self
    }

    /// Asserts that stdout is empty.
    #[track_caller]
    pub(super) fn prints_nothing(self) -> Self {
        assert_eq!(self.stdout, "", "{self:?}");
        self
    }

    /// Asserts that stderr contains `text`.
    #[track_caller]
    pub(super) fn says(self, text: &str) -> Self {
        assert!(self.stderr.contains(text), "{text:?} is not said: {self:?}");
        self
    }

    /// Parses the output of `-o json`, which must be valid according to its schema.
    pub(super) fn json(&self) -> Value {
        let value = serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"));
        schemas::assert_valid(&value);
        value
    }

    /// Joins the exit code and the output for a snapshot.
    pub(super) fn transcript(&self) -> String {
        format!("exit code: {}\n--- stdout\n{}--- stderr\n{}", self.code, self.stdout, self.stderr)
    }
}

/// The options for a single check, without waiting for a second one.
pub(super) const AT_ONCE: [&str; 4] = ["--grace", "0", "--settle", "0"];

/// A cluster on which a test runs the program. Journals are written to a folder of the test.
pub(super) trait Runs {
    /// Returns the folder of the test.
    fn home(&self) -> &Path;

    /// Prepares a run of the program on the cluster.
    fn command(&self, arguments: &[&str]) -> Command;

    /// Runs the program.
    fn run(&self, arguments: &[&str]) -> Run {
        Run::of(self.command(arguments))
    }

    /// Runs a command after a single check.
    fn run_at_once(&self, command: &[&str], more: &[&str]) -> Run {
        self.run(&[command, &AT_ONCE, more].concat())
    }

    /// Runs `release` after a single check, with `--yes`.
    fn release(&self, targets: &[&str]) -> Run {
        self.run_at_once(&["release", "--yes"], targets)
    }

    /// Undoes a run with `--yes`.
    fn undo(&self, journal: &str) -> Run {
        self.run(&["undo", journal, "--yes"])
    }

    /// Checks the cluster, and lists findings as `severity code subject`.
    fn findings(&self, arguments: &[&str]) -> BTreeSet<String> {
        findings(&self.run_at_once(&["check", "-o", "json"], arguments).json(), &["severity", "code", "name"])
    }

    /// Lists the journals in the default folder.
    fn journals(&self) -> Vec<PathBuf> {
        let Ok(folder) = std::fs::read_dir(self.home().join("calipam")) else { return Vec::new() };
        let mut paths: Vec<PathBuf> = folder.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths
    }
}

/// Lists the findings of a report, each as the text of the given fields: `severity`, `code`, `name`.
pub(super) fn findings<T: FromIterator<String>>(report: &Value, fields: &[&str]) -> T {
    let text = |finding: &Value, field: &str| {
        let value = if field == "name" { &finding["subject"]["name"] } else { &finding[field] };
        value.as_str().unwrap().to_owned()
    };
    let line = |of: &Value| fields.iter().map(|field| text(of, field)).collect::<Vec<_>>().join(" ");
    report["findings"].as_array().unwrap().iter().map(line).collect()
}

/// Returns the root of the project.
pub(super) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the root of the project")
}

/// Prepares a run of the program from the root of the project, without the user's settings.
pub(super) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root()).env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("HOME", "/nonexistent");
    command
}

/// Prepares a run of `calipam` that writes journals to a folder of the test.
pub(super) fn command_in(home: &Path, arguments: &[&str]) -> Command {
    let mut command = command(crate::cli::PROGRAM);
    command.args(arguments).env("XDG_STATE_HOME", home).stdin(Stdio::null());
    command
}

/// Returns a new folder, and a path in it.
pub(super) fn scratch(name: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(name);
    (folder, path)
}

/// Runs `calipam` with arguments.
pub(super) fn calipam(arguments: &[&str]) -> Run {
    Run::of(command(crate::cli::PROGRAM).args(arguments))
}

/// Runs `calipam` on the example cluster.
pub(super) fn on_example(arguments: &[&str]) -> Run {
    calipam(&[arguments, &["--datastore", EXAMPLE]].concat())
}

/// The example cluster of the documentation.
pub(super) const EXAMPLE: &str = "docs/examples/cluster.jsonl";
/// A small cluster with hostile names.
pub(super) const HOSTILE: &str = "tests/fixtures/hostile.jsonl";

/// Writes a copy of the example cluster in which texts are replaced by others. Returns its path.
pub(super) fn edited_example(folder: &Path, name: &str, edits: &[(&str, &str)]) -> String {
    let mut text = std::fs::read_to_string(root().join(EXAMPLE)).expect("the example");
    for (from, to) in edits {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    let path = folder.join(name);
    std::fs::write(&path, text).expect("a file");
    path.to_str().expect("UTF-8").to_owned()
}

/// The GUID of the example cluster.
pub(super) const GUID: &str = "0f0e1d2c3b4a59687786951423324150";

/// Compares `$text` with the snapshot `$name` in `tests/snapshots/`.
macro_rules! expected {
    ($name:expr, $text:expr) => {
        insta::with_settings!({
            snapshot_path => "../snapshots",
            prepend_module_to_snapshot => false,
            omit_expression => true,
        }, {
            insta::assert_snapshot!($name, $text);
        });
    };
}
pub(crate) use expected;

/// Compares `text` with a snapshot, for submodules.
pub(super) fn assert_expected(name: &str, text: &str) {
    expected!(name, text);
}
