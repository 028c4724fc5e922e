//! Runs the program.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use super::schemas;

/// The exit code and output of a run.
#[derive(Debug)]
pub(super) struct Run {
    pub stdout: String,
    pub stderr: String,
    pub code: i32,
}

impl Run {
    pub(super) fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("output is UTF-8");
        Self {
            stdout: text(output.stdout),
            stderr: text(output.stderr),
            code: output.status.code().expect("the program ends by itself"),
        }
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

/// Runs `calipam` with arguments.
pub(super) fn calipam(arguments: &[&str]) -> Run {
    let output = command(crate::cli::PROGRAM).args(arguments).output();
    Run::of(output.expect("the program starts"))
}

/// Runs `calipam` on the example cluster.
pub(super) fn on_example(arguments: &[&str]) -> Run {
    calipam(&[arguments, &["--datastore", EXAMPLE]].concat())
}

/// The example cluster of the documentation.
pub(super) const EXAMPLE: &str = "docs/examples/cluster.jsonl";
/// A small cluster with hostile names.
pub(super) const HOSTILE: &str = "tests/fixtures/hostile.jsonl";

/// Compares a text with the snapshot of this name in `tests/snapshots/`.
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

/// Compares a text with a snapshot, for submodules.
pub(super) fn assert_expected(name: &str, text: &str) {
    expected!(name, text);
}
