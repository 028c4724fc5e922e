//! Runs the program.

use std::borrow::BorrowMut;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

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
