//! `cargo xtask test`.

use std::ffi::OsString;
use std::num::NonZero;
use std::path::PathBuf;
use std::process::Command;

use crate::failure::Failure;
use crate::task::Task;
use crate::{dependencies, protoc, servers, step, tools, workspace};

/// Environment variables for cargo and the tests, each with a path.
type Variables = [(&'static str, PathBuf)];

/// Read by the test programs: how many tests they run at the same time.
const THREADS: &str = "RUST_TEST_THREADS";

pub(crate) const TASK: Task = Task {
    name: "test",
    arguments: "[-- <arguments of cargo test>]",
    summary: "Bring servers; check format, lints and dependencies; run all tests",
    details: "\
Brings etcd, an older etcd, kube-apiserver, kubectl and promtool: from PATH or
KUBEBUILDER_ASSETS, else built once from the Go modules in tests/servers into
target/servers; the older etcd and promtool are the distribution's packages,
unpacked below target/servers and not installed. Builds the CNI client of
tests/cni-client, too. Then runs `cargo fmt --check`
and `cargo clippy` (warnings are errors), checks the dependencies against
deny.toml, and runs `cargo test` on the whole workspace. Each test starts and
ends its own servers on 127.0.0.1.

With arguments only the tests run that they select:

    cargo xtask test -- --package calipam-check
    cargo xtask test -- --package calipam-testkit etcd

Needs Rust, a C compiler and Go 1.21 or newer. The first time takes minutes and
downloads Rust crates and Go modules. A server that cannot be brought is named;
the tests that need it fail.

Variables, each the path of a program that is used instead:

    CALIPAM_TEST_ETCD            etcd 3.6 or newer
    CALIPAM_TEST_ETCD_34         etcd 3.4 or 3.5
    CALIPAM_TEST_KUBE_APISERVER  kube-apiserver
    CALIPAM_TEST_KUBECTL         kubectl 1.26 or newer
    CALIPAM_TEST_PROMTOOL        promtool
    CALIPAM_TEST_CNI_CLIENT      the CNI client of tests/cni-client
    CALIPAM_TEST_CHROMIUM        Chromium or Chrome

Completion is tested in bash, zsh and fish, by kubectl with bash-completion as
well; a test names the one that is missing:

    apt-get install -y zsh fish bash-completion

Reports are read by xmllint and jsonschema, units by systemd-analyze, pages by
Chromium:

    apt-get install -y libxml2-utils python3-jsonschema systemd
    apt-get install -y chromium-headless-shell
",
    run,
};

fn run(arguments: &[String]) -> Result<(), Failure> {
    tools::need_c_compiler()?;
    let servers = servers::bring();
    servers.tell_missing();
    let variables: Vec<_> = protoc::variables()?.into_iter().chain(servers.variables()).collect();
    let result = if arguments.is_empty() { run_all(&variables) } else { run_selected(&variables, arguments) };
    if result.is_err() {
        // Once more: the message at the start is pages away by now.
        servers.tell_missing();
    }
    result
}

fn run_selected(variables: &Variables, arguments: &[String]) -> Result<(), Failure> {
    step::run("Running the selected tests", cargo(variables, &["test"]).args(arguments))
}

/// Runs every step, even where an earlier one failed: a line too long says nothing about the tests.
fn run_all(variables: &Variables) -> Result<(), Failure> {
    let format = tools::need_component("fmt", "rustfmt")
        .and_then(|()| step::run("Checking the format", &mut cargo(variables, &["fmt", "--all", "--check"])));
    let clippy = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
    let lints = tools::need_component("clippy", "clippy")
        .and_then(|()| step::run("Checking lints", &mut cargo(variables, &clippy)));
    let dependencies = dependencies::check();
    let all = ["test", "--workspace", "--no-fail-fast"];
    let tests = step::run("Running all tests", cargo(variables, &all).env(THREADS, threads()));
    summary([format, lints, dependencies, tests])
}

/// Tests that run at the same time, unless the caller has said how many: more than there are cores, since most of
/// their time they wait for their servers. With two for each core, cores were idle a third of the time.
fn threads() -> OsString {
    let cores = std::thread::available_parallelism().map_or(2, NonZero::get);
    std::env::var_os(THREADS).unwrap_or_else(|| (3 * cores).to_string().into())
}

/// The failures of all steps as one.
fn summary(results: [Result<(), Failure>; 4]) -> Result<(), Failure> {
    let steps = results.len();
    let failures: Vec<Failure> = results.into_iter().filter_map(Result::err).collect();
    for failure in &failures {
        eprintln!("{failure}");
    }
    match failures.len() {
        0 => Ok(()),
        count => Err(Failure::new(format!("{count} of {steps} steps failed"))),
    }
}

fn cargo(variables: &Variables, arguments: &[&str]) -> Command {
    let mut command = workspace::cargo();
    command.args(arguments).envs(variables.iter().map(|(name, path)| (name, path)));
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_failed_step_fails_the_task() {
        assert_eq!(summary([Ok(()), Ok(()), Ok(()), Ok(())]), Ok(()));
        let failed = summary([Err(Failure::new("a")), Ok(()), Err(Failure::new("b")), Ok(())]);
        assert_eq!(failed, Err(Failure::new("2 of 4 steps failed")));
    }
}
