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
    let folder = tempfile::tempdir().unwrap();
    link_all(folder.path());
    let completer = folder.path().join("kubectl_complete-ipam");
    let run = Run::of(command(completer).args(line.split(' ')))
        .succeeded()
        .says_nothing();
    let mut lines: Vec<String> = run.stdout.lines().map(str::to_owned).collect();
    let directive = lines.pop().and_then(|line| line.strip_prefix(':')?.parse().ok());
    (
        lines,
        directive.unwrap_or_else(|| panic!("no directive: {run:?}")),
    )
}

/// Returns the suggestions for a line that is completed from the cluster. Completion may time out on a busy machine, so
/// it is repeated until there are suggestions.
pub(super) fn found(line: &str) -> Vec<String> {
    (0..20)
        .map(|_| suggested(line))
        .find(|found| !found.is_empty())
        .unwrap_or_default()
}

/// Returns the suggestions for a line after `kubectl ipam`, without their descriptions.
fn suggested(line: &str) -> Vec<String> {
    let value = |line: &String| line.split('\t').next().unwrap_or_default().to_owned();
    kubectl_gets(line).0.iter().map(value).collect()
}
