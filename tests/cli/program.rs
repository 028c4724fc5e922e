//! Runs the program.

use std::borrow::BorrowMut;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use calipam_testkit::servers::Etcd;
use serde_json::Value;
use tempfile::TempDir;

use super::schemas;

/// The words of a command line: a text with spaces between them, or a list.
pub(super) trait Words {
    fn words(&self) -> Vec<String>;
}

impl Words for str {
    fn words(&self) -> Vec<String> {
        self.split_whitespace().map(str::to_owned).collect()
    }
}

impl Words for String {
    fn words(&self) -> Vec<String> {
        self.as_str().words()
    }
}

impl<W: AsRef<str>> Words for [W] {
    fn words(&self) -> Vec<String> {
        self.iter().map(|word| word.as_ref().to_owned()).collect()
    }
}

impl<W: AsRef<str>, const N: usize> Words for [W; N] {
    fn words(&self) -> Vec<String> {
        self.as_slice().words()
    }
}

impl<W: AsRef<str>> Words for Vec<W> {
    fn words(&self) -> Vec<String> {
        self.as_slice().words()
    }
}

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
        Self {
            arguments: command.get_args().map(OsStr::to_owned).collect(),
            ..Self::ended(output)
        }
    }

    /// Runs a program with `text` on its standard input.
    pub(super) fn with_input(command: &mut Command, text: &[u8]) -> Self {
        let mut child = started(command.stdin(Stdio::piped()));
        // A program that refuses the text may close the pipe early.
        child.stdin.take().unwrap().write_all(text).ok();
        Self::ended(child.wait_with_output().unwrap())
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

    /// Asserts that the run did its work: the exit code is 0 or, if it has found something, 1.
    #[track_caller]
    pub(super) fn completed(self) -> Self {
        assert!(matches!(self.code, 0 | 1), "{self:?}");
        self
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

    /// Asserts that stdout is `text`.
    #[track_caller]
    pub(super) fn prints_exactly(self, text: &str) -> Self {
        assert_eq!(self.stdout, text, "{self:?}");
        self
    }

    /// Asserts that stdout ends with `text`.
    #[track_caller]
    pub(super) fn prints_last(self, text: &str) -> Self {
        assert!(self.stdout.ends_with(text), "{text:?} is not the end: {self:?}");
        self
    }

    /// Asserts that stdout is empty.
    #[track_caller]
    pub(super) fn prints_nothing(self) -> Self {
        self.prints_exactly("")
    }

    /// Asserts that stdout does not contain `text`.
    #[track_caller]
    pub(super) fn omits(self, text: &str) -> Self {
        assert!(!self.stdout.contains(text), "{text:?} is printed: {self:?}");
        self
    }

    /// Asserts that stderr is empty.
    #[track_caller]
    pub(super) fn says_nothing(self) -> Self {
        assert_eq!(self.stderr, "", "{self:?}");
        self
    }

    /// Asserts that the output contains no `secret`.
    #[track_caller]
    pub(super) fn hides(self, secret: &str) -> Self {
        assert!(
            !self.stdout.contains(secret) && !self.stderr.contains(secret),
            "{secret:?} is shown: {self:?}"
        );
        self
    }

    /// Asserts that stderr contains `text`.
    #[track_caller]
    pub(super) fn says(self, text: &str) -> Self {
        assert!(self.stderr.contains(text), "{text:?} is not said: {self:?}");
        self
    }

    /// Asserts that stderr begins with `text`.
    #[track_caller]
    pub(super) fn says_first(self, text: &str) -> Self {
        assert!(
            self.stderr.starts_with(text),
            "{text:?} is not said first: {self:?}"
        );
        self
    }

    /// Asserts that stderr does not contain `text`.
    #[track_caller]
    pub(super) fn does_not_say(self, text: &str) -> Self {
        assert!(!self.stderr.contains(text), "{text:?} is said: {self:?}");
        self
    }

    /// Parses the output of `-o json`, which must be valid according to its schema.
    pub(super) fn json(&self) -> Value {
        let value = serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"));
        schemas::assert_valid(&value);
        value
    }

    /// Lists a field of all items in a list of the document that `-o json` prints.
    pub(super) fn column(&self, list: &str, field: &str) -> Vec<String> {
        column(&self.json()[list], field)
    }

    /// Joins the exit code and the output for a snapshot.
    pub(super) fn transcript(&self) -> String {
        format!(
            "exit code: {}\n--- stdout\n{}--- stderr\n{}",
            self.code, self.stdout, self.stderr
        )
    }
}

/// Returns the items of a list.
#[track_caller]
pub(super) fn items(list: &Value) -> &[Value] {
    list.as_array().unwrap_or_else(|| panic!("not a list: {list}"))
}

/// Lists a field of each item of a list, with `-` for one that is no text.
#[track_caller]
pub(super) fn column(list: &Value, field: &str) -> Vec<String> {
    items(list)
        .iter()
        .map(|item| item[field].as_str().unwrap_or("-").to_owned())
        .collect()
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
        findings(
            &self.run_at_once(&["check", "-o", "json"], arguments).json(),
            &["severity", "code", "name"],
        )
    }

    /// Lists the journals in the default folder.
    fn journals(&self) -> Vec<PathBuf> {
        let Ok(folder) = fs::read_dir(self.home().join("calipam")) else {
            return Vec::new();
        };
        let mut paths: Vec<PathBuf> = folder.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths
    }
}

/// Lists the findings of a report, each as the text of the given fields: `severity`, `code`, `name`.
pub(super) fn findings<T: FromIterator<String>>(report: &Value, fields: &[&str]) -> T {
    let text = |finding: &Value, field: &str| {
        let value = if field == "name" {
            &finding["subject"]["name"]
        } else {
            &finding[field]
        };
        value.as_str().unwrap().to_owned()
    };
    let line = |of: &Value| {
        fields
            .iter()
            .map(|field| text(of, field))
            .collect::<Vec<_>>()
            .join(" ")
    };
    items(&report["findings"]).iter().map(line).collect()
}

/// Returns the root of the project.
pub(super) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .expect("the root of the project")
}

/// Prepares a run of the program from the root of the project, without the user's settings.
pub(super) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command
        .current_dir(root())
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("HOME", "/nonexistent");
    command
}

/// Prepares a run of `calipam` that writes journals to a folder of the test.
pub(super) fn command_in(home: &Path, arguments: &[&str]) -> Command {
    let mut command = command(crate::cli::PROGRAM);
    command
        .args(arguments)
        .env("XDG_STATE_HOME", home)
        .stdin(Stdio::null());
    command
}

/// Returns a new folder, and a path in it.
pub(super) fn scratch(name: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(name);
    (folder, path)
}

/// Writes a file in a new folder. Returns the folder, and the path of the file.
pub(super) fn file(name: &str, text: impl AsRef<[u8]>) -> (TempDir, String) {
    let (folder, path) = scratch(name);
    fs::write(&path, text).expect("the file is written");
    (
        folder,
        path.into_os_string().into_string().expect("the path is text"),
    )
}

/// Lists the files and links below a folder.
pub(super) fn files(folder: &Path) -> Vec<PathBuf> {
    let below = |path: PathBuf| {
        if path.is_dir() && !path.is_symlink() {
            files(&path)
        } else {
            vec![path]
        }
    };
    fs::read_dir(folder)
        .unwrap()
        .flat_map(|entry| below(entry.unwrap().path()))
        .collect()
}

/// Starts a program whose output is read, without input unless the command has one.
pub(super) fn started(command: &mut Command) -> Child {
    command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts")
}

/// Prepares a run of `calipam` with arguments.
pub(super) fn prepare(arguments: &(impl Words + ?Sized)) -> Command {
    let mut command = command(crate::cli::PROGRAM);
    command.args(arguments.words()).stdin(Stdio::null());
    command
}

/// Runs `calipam` with arguments.
pub(super) fn calipam(arguments: &(impl Words + ?Sized)) -> Run {
    Run::of(prepare(arguments))
}

/// Runs `calipam` on the example cluster.
pub(super) fn on_example(arguments: &(impl Words + ?Sized)) -> Run {
    Run::of(prepare(arguments).args(["--datastore", EXAMPLE]))
}

/// Runs `calipam` on an etcd.
pub(super) fn on_etcd(etcd: &Etcd, arguments: &(impl Words + ?Sized)) -> Run {
    Run::of(prepare(arguments).args(["--etcd-endpoints", &etcd.endpoint()]))
}

/// Reads the export of the example cluster.
pub(super) fn example() -> String {
    fs::read_to_string(root().join(EXAMPLE)).expect("the example is there")
}

/// The example cluster of the documentation.
pub(super) const EXAMPLE: &str = "docs/examples/cluster.jsonl";
/// A small cluster with hostile names.
pub(super) const HOSTILE: &str = "tests/fixtures/hostile.jsonl";

/// Writes a copy of the example cluster in which texts are replaced by others. Returns its path.
pub(super) fn edited_example(folder: &Path, name: &str, edits: &[(&str, &str)]) -> String {
    let mut text = example();
    for (from, to) in edits {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    let path = folder.join(name);
    fs::write(&path, text).expect("a file");
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
