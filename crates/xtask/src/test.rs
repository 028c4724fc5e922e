//! `cargo xtask test`.

use std::path::PathBuf;
use std::process::Command;

use crate::failure::Failure;
use crate::servers::{self, Servers};
use crate::task::Task;
use crate::{protoc, step, tools, workspace};

pub const TASK: Task = Task {
    name: "test",
    arguments: "[-- <arguments of cargo test>]",
    summary: "Bring missing servers, check format and lints, run all tests",
    details: "\
Brings etcd, an older etcd and kube-apiserver: from PATH or KUBEBUILDER_ASSETS,
else built once from the Go modules in tests/servers into target/servers; the
older etcd is the distribution's package, unpacked below target/servers and not
installed. Then runs `cargo fmt --check`, `cargo clippy` (warnings are errors)
and `cargo test` on the whole workspace. Each test starts and ends its own
servers on 127.0.0.1.

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
",
    run,
};

fn run(arguments: &[String]) -> Result<(), Failure> {
    tools::need_c_compiler()?;
    let servers = servers::bring();
    servers.tell_missing();
    let variables: Vec<_> = protoc::variables()?.into_iter().chain(servers.variables()).collect();
    let result = run_steps(arguments, &variables);
    finish(result, &servers)
}

fn run_steps(arguments: &[String], variables: &[(&'static str, PathBuf)]) -> Result<(), Failure> {
    if !arguments.is_empty() {
        let mut test = cargo(variables, &["test"]);
        return step::run("Running the selected tests", test.args(arguments));
    }
    tools::need_component("fmt", "rustfmt")?;
    step::run("Checking the format", &mut cargo(variables, &["fmt", "--all", "--check"]))?;
    tools::need_component("clippy", "clippy")?;
    let clippy = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
    step::run("Checking lints", &mut cargo(variables, &clippy))?;
    step::run("Running all tests", &mut cargo(variables, &["test", "--workspace", "--no-fail-fast"]))
}

fn cargo(variables: &[(&'static str, PathBuf)], arguments: &[&str]) -> Command {
    let mut command = workspace::cargo();
    command.args(arguments).envs(variables.iter().map(|(name, path)| (name, path)));
    command
}

/// Says once more at the end what was missing: its message at the start is pages away by then.
fn finish(result: Result<(), Failure>, servers: &Servers) -> Result<(), Failure> {
    if result.is_err() {
        servers.tell_missing();
    }
    result
}
