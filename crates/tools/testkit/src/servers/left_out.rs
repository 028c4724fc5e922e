//! Skips tests if the machine lacks a tool.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::thread;

use super::tool::{LEFT_OUT, Tool, add_left_out, is_ci, on_path};
use super::workspace;

/// The variable with the path of Helm.
const HELM: &str = "CALIPAM_TEST_HELM";

/// Returns true if one of these tools is missing, so that the calling test must be skipped. The test then returns at
/// once, and `cargo xtask test` names it at the end.
///
/// # Panics
///
/// Panics if a tool is missing but the test must not be skipped: in CI, and without `cargo xtask test`.
pub fn left_out(tools: &[Tool]) -> bool {
    let Some(tool) = tools.iter().find(|tool| tool.find(&workspace()).is_err()) else {
        return false;
    };
    leave_out(*tool, env::var_os(LEFT_OUT).filter(|_| !is_ci()));
    true
}

/// The path of Helm on this machine. No distribution has a package of Helm, and building it takes two minutes, so
/// nothing installs it. Without Helm, the calling test is skipped, even in CI, and `cargo xtask test` names the test at
/// the end.
pub fn helm() -> Option<PathBuf> {
    let found = env::var_os(HELM).map(PathBuf::from).or_else(|| on_path("helm"));
    if let (None, Some(list)) = (&found, env::var_os(LEFT_OUT)) {
        name_test(
            &list,
            "Helm is missing; `go install helm.sh/helm/v3/cmd/helm@v3.22.0` installs it",
        );
    }
    found
}

/// Adds the current test to the list.
fn leave_out(tool: Tool, list: Option<OsString>) {
    let list = list.unwrap_or_else(|| panic!("{}", tool.missing()));
    name_test(&list, &tool.missing());
}

fn name_test(list: &OsStr, why: &str) {
    let current = thread::current();
    let added = add_left_out(list.as_ref(), current.name().unwrap_or("a test"), why);
    added.unwrap_or_else(|error| panic!("cannot write {}: {error}", list.display()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skipped_test_is_listed_with_the_command_for_its_tool() {
        let folder = tempfile::tempdir().unwrap();
        let list = folder.path().join("list");
        leave_out(Tool::Zsh, Some(list.clone().into()));
        leave_out(Tool::OldEtcd, Some(list.clone().into()));
        let text = std::fs::read_to_string(list).unwrap();
        let name = "servers::left_out::tests::a_skipped_test_is_listed_with_the_command_for_its_tool";
        let lines = [
            format!("{name}: zsh is missing; `apt-get install -y zsh` installs it\n"),
            format!("{name}: etcd 3.4 or 3.5 is missing; `apt-get install -y etcd-server` installs it\n"),
        ];
        assert_eq!(text, lines.concat());
    }

    #[test]
    #[should_panic(expected = "zsh is missing; `apt-get install -y zsh` installs it")]
    fn without_a_list_the_test_fails() {
        leave_out(Tool::Zsh, None);
    }
}
