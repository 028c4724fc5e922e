//! Completion of command lines: the suggestions, and how real shells and kubectl use them.

mod asked;
mod kubectl;
mod shells;
mod values;

use super::program::{Run, command};
use std::os::unix::fs::symlink;
use std::path::Path;

/// The names of the program.
const NAMES: [&str; 4] = ["calipam", "ipam", "kubectl-ipam", "kubectl-calico"];

/// The variable with the time limit for what completion reads from the cluster.
const TIME_LIMIT: &str = "CALIPAM_COMPLETION_TIMEOUT";

/// A time limit that no read reaches, not even on a busy machine.
const NO_HURRY: &str = "2m";

/// No value, which leaves the time limit as users have it.
const NOT_SET: &str = "";

/// Links the program into a folder under all its names, including those that kubectl runs to complete plugins.
fn link_all(folder: &Path) {
    for name in NAMES
        .into_iter()
        .chain(["kubectl_complete-ipam", "kubectl_complete-calico"])
    {
        symlink(crate::cli::PROGRAM, folder.join(name)).unwrap();
    }
}

/// Creates a folder with the scripts of all names.
fn scripts() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, script) in calipam::completion_scripts() {
        std::fs::write(folder.path().join(name), script).unwrap();
    }
    folder
}

/// Returns the suggestions and the directive for a line after `kubectl ipam`. Its last word, which may be empty, is
/// completed.
fn kubectl_gets(line: &str) -> (Vec<String>, u8) {
    kubectl_gets_within(NO_HURRY, line)
}

/// Like [`kubectl_gets`], with a time limit for what is read from the cluster.
fn kubectl_gets_within(limit: &str, line: &str) -> (Vec<String>, u8) {
    let folder = tempfile::tempdir().unwrap();
    link_all(folder.path());
    let mut completer = command(folder.path().join("kubectl_complete-ipam"));
    completer.env(TIME_LIMIT, limit).args(line.split(' '));
    let run = Run::of(completer).succeeded().says_nothing();
    let mut lines: Vec<String> = run.stdout.lines().map(str::to_owned).collect();
    let directive = lines.pop().and_then(|line| line.strip_prefix(':')?.parse().ok());
    (
        lines,
        directive.unwrap_or_else(|| panic!("no directive: {run:?}")),
    )
}

/// Returns the suggestions for a line after `kubectl ipam`, without their descriptions.
pub(super) fn suggested(line: &str) -> Vec<String> {
    without_descriptions(kubectl_gets(line).0)
}

/// Like [`suggested`], with the time limit that users have.
fn suggested_in_time(line: &str) -> Vec<String> {
    without_descriptions(kubectl_gets_within(NOT_SET, line).0)
}

fn without_descriptions(lines: Vec<String>) -> Vec<String> {
    let value = |line: &String| line.split('\t').next().unwrap_or_default().to_owned();
    lines.iter().map(value).collect()
}
