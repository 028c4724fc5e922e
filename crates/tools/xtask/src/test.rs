//! `cargo xtask test`.

use std::ffi::OsString;
use std::fs;
use std::num::NonZero;
use std::process::Command;
use std::thread;
use std::time::Duration;

use clap::Args;

use crate::failure::Failure;
use crate::left_out::LeftOut;
use crate::lender::Lender;
use crate::servers::{self, GO, Servers, Variables};
use crate::{protoc, step, tools, workspace, zig};

/// The variable that sets how many tests a test program runs at the same time.
const THREADS: &str = "RUST_TEST_THREADS";

/// Filters for the slowest tests: those of the program in `tests/main.rs`, those with generated clusters in
/// `crates/datastore/tests`, those of the plugin for each version of CNI and those on Calico's states in
/// `crates/cni/tests`, one of the explorer's, the replay of Calico's runs, and those of torn requests in
/// `crates/repair/tests`.
const LONG: [&str; 7] = [
    "cli::",
    "generated::",
    "conformance::",
    "golden::",
    "every_interleaving",
    "every_allocator_trace",
    "torn::",
];

/// The compiler wrapper that makes cargo compile the workspace with Clippy instead of rustc, so that linting needs no
/// separate build. Clippy may optimize less than rustc, so no other task uses it.
const CLIPPY: (&str, &str) = ("RUSTC_WORKSPACE_WRAPPER", "clippy-driver");

/// The macOS target to lint. No code depends on the processor, so linting a second macOS target would find nothing
/// more.
const MAC: &str = "aarch64-apple-darwin";

/// The time after which `cargo test` has released the build folder, if everything is built.
const HEAD_START: Duration = Duration::from_secs(10);

/// Install what tests need; check format and lints; run all tests
///
/// Installs what the tests need and the machine lacks, before the first of them is
/// built:
///
/// - zsh, fish, bash-completion, groff, jq, systemd-analyze, dpkg, rpm, strace and
///   Chromium, by apt-get as root or with a `sudo` that asks for no password;
/// - an older etcd and promtool, from the distribution's packages, which are
///   unpacked below target/servers and not installed;
/// - etcd, kube-apiserver, kubectl, jv and the CNI client of tests/cni-client,
///   built once from Go modules into target/servers, while cargo builds the tests.
///   PATH and KUBEBUILDER_ASSETS are looked at first.
///
/// A test whose tool cannot be had is left out, and named at the end with the
/// command that installs it. With CI=true in the environment that is a failure.
///
/// Then runs `cargo fmt --check`, builds by clippy (warnings are errors), and runs
/// all tests of the workspace. Next to them it lints the program for macOS: rustup
/// installs the standard library, and pip a C compiler (Zig). One of the tests
/// checks the dependencies against deny.toml. The tests start their servers on
/// 127.0.0.1, and end them.
///
/// With arguments only the tests run that they select:
///
///     cargo xtask test -- --package calipam-check
///     cargo xtask test -- --package calipam-testkit etcd
///
/// Needs Rust, a C compiler and Go 1.21 or newer. The first time takes minutes and
/// downloads Rust crates and Go modules.
///
/// Variables, each the path of a program that is used instead:
///
///     CALIPAM_TEST_ETCD            etcd 3.6 or newer
///     CALIPAM_TEST_ETCD_34         etcd 3.4 or 3.5
///     CALIPAM_TEST_KUBE_APISERVER  kube-apiserver
///     CALIPAM_TEST_KUBECTL         kubectl 1.26 or newer
///     CALIPAM_TEST_PROMTOOL        promtool
///     CALIPAM_TEST_JV              jv, a validator of JSON schemas
///     CALIPAM_TEST_CNI_CLIENT      the CNI client of tests/cni-client
///     CALIPAM_TEST_CHROMIUM        Chromium or Chrome
///     CALIPAM_TEST_HELM            Helm, which nothing installs: two tests are
///                                  left out without it, with CI=true too
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Test {
    /// Arguments that select tests, such as `--package NAME`
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGUMENTS OF CARGO TEST"
    )]
    pub arguments: Vec<String>,
}

pub(crate) fn run(Test { arguments }: &Test) -> Result<(), Failure> {
    tools::need_c_compiler()?;
    let mut variables = protoc::variables()?;
    variables.push((CLIPPY.0, CLIPPY.1.into()));
    let servers = servers::prepare()?;
    let left_out = LeftOut::begin()?;
    let result = if arguments.is_empty() {
        if is_built_for_the_first_time()? {
            variables.push(("CARGO_INCREMENTAL", "0".into()));
        }
        run_all(&variables, servers, &left_out)
    } else {
        let variables = build(&variables, servers, arguments)?;
        step::run(
            "Running the selected tests",
            &mut tests(&variables, &left_out, arguments),
        )
    };
    left_out.print();
    result
}

/// True if no crate of the workspace has been built incrementally. Then this build is not incremental either, since
/// incremental data costs a sixth more processor time, and gigabytes of disk.
fn is_built_for_the_first_time() -> Result<bool, Failure> {
    let folder = workspace::built("incremental")?;
    let Ok(entries) = fs::read_dir(folder) else {
        return Ok(true);
    };
    let is_of_a_library = |name: OsString| name.to_string_lossy().starts_with("calipam_model");
    Ok(!entries.flatten().any(|entry| is_of_a_library(entry.file_name())))
}

/// Runs every step, even if an earlier one failed, since a line that is too long says nothing about the tests.
fn run_all(variables: &Variables, servers: Servers, left_out: &LeftOut) -> Result<(), Failure> {
    let format = step::run(
        "Checking the format",
        &mut cargo(variables, &["fmt", "--all", "--check"]),
    );
    let all = ["--workspace", "--all-targets", "--no-fail-fast"].map(str::to_owned);
    let built = build(variables, servers, &all);
    let lints = built.as_ref().map_or(Ok(()), |variables| lints(variables, &all));

    let head_start = if built.is_ok() { HEAD_START } else { Duration::ZERO };
    let (mac, tests) = thread::scope(|scope| {
        let mac = scope.spawn(|| lints_for_mac(variables, left_out, head_start));
        let tests = built.and_then(|variables| run_parts(&variables, left_out, &all));
        (mac.join().expect("the lints do not panic"), tests)
    });
    summary([format, lints, mac, tests])
}

/// Runs the long tests in parallel with all others, since cargo runs one test program after another, and each program
/// ends with a few slow tests. Each test runs once: every part skips the tests that the parts before it select. All parts
/// share their API servers.
fn run_parts(variables: &Variables, left_out: &LeftOut, all: &[String]) -> Result<(), Failure> {
    let lender = Lender::start(variables)?;
    let part = |selected: Option<&str>, skipped: &[&str]| {
        let mut part = tests(variables, left_out, all);
        part.arg("--")
            .args(selected)
            .args(skipped.iter().flat_map(|module| ["--skip", module]));
        part.env(THREADS, threads()).envs([lender.variable()]);
        part
    };
    thread::scope(|scope| {
        let spawn = |(number, module): (usize, &&str)| {
            let mut part = part(Some(module), &LONG[..number]);
            let title = format!("Running the tests of {module} besides the others; printed at their end");
            scope.spawn(move || step::run_printed_later(&title, &mut part))
        };
        let long: Vec<_> = LONG.iter().enumerate().map(spawn).collect();
        let others = step::run("Running all other tests", &mut part(None, &LONG));
        let join = |part: thread::ScopedJoinHandle<'_, _>| part.join().expect("the step does not panic");
        long.into_iter().map(join).fold(others, Result::and)
    })
}

/// Builds the servers and the tests at the same time, since each build leaves cores idle while it downloads or links.
fn build(variables: &Variables, servers: Servers, arguments: &[String]) -> Result<Variables, Failure> {
    let mut tests = cargo(variables, &["test", "--no-run"]);
    tests.args(arguments);
    let (servers, tests) = thread::scope(|scope| {
        let servers = scope.spawn(|| servers.build());
        let tests = step::run("Building the tests", &mut tests);
        (servers.join().expect("the builds do not panic"), tests)
    });
    let servers = servers?;
    tests?;
    Ok(variables.iter().cloned().chain(servers).collect())
}

fn tests(variables: &Variables, left_out: &LeftOut, arguments: &[String]) -> Command {
    let mut tests = cargo(variables, &["test"]);
    tests.args(arguments).envs(GO).envs([left_out.variable()]);
    tests
}

/// Fails if the build had warnings, which cargo prints again with each build.
fn lints(variables: &Variables, arguments: &[String]) -> Result<(), Failure> {
    let mut again = cargo(variables, &["test", "--no-run"]);
    again.args(arguments).env("CARGO_TERM_COLOR", "never");
    let output = again
        .output()
        .map_err(|error| Failure::new(format!("cannot run cargo: {error}")))?;
    let printed = String::from_utf8_lossy(&output.stderr);
    let is_sum = |line: &&str| line.starts_with("warning: `") && line.contains(" generated ");
    match printed.lines().filter(is_sum).count() {
        0 => Ok(()),
        crates => Err(Failure::new(format!(
            "clippy warns of {crates} crates; the build above has the places"
        ))),
    }
}

/// Lints the program for macOS while the tests run, since tests often wait for their servers.
fn lints_for_mac(variables: &Variables, left_out: &LeftOut, head_start: Duration) -> Result<(), Failure> {
    let zig = match for_mac() {
        Ok(zig) => zig,
        Err(failure) => return left_out.add("the program for macOS", &failure),
    };
    thread::sleep(head_start);
    let mut clippy = cargo(
        variables,
        &[
            "clippy",
            "--quiet",
            "--package",
            "calipam",
            "--target",
            MAC,
            "--",
            "-D",
            "warnings",
        ],
    );
    clippy.envs(zig);
    if tools::on_path("nice").is_some() {
        let mut nice = Command::new("nice");
        nice.args(["-n", "19"]);
        clippy = workspace::run_by(nice, &clippy);
    }
    step::announce(&format!(
        "Linting for macOS beside the tests: {}",
        step::command_line(&clippy)
    ));
    step::run_silently(&mut clippy)
}

/// Installs the tools for a macOS check, and returns its environment variables.
fn for_mac() -> Result<zig::Variables, Failure> {
    tools::install_target(MAC)?;
    zig::variables(MAC)
}

/// The number of tests that each part runs at the same time, unless the caller has set it. It is greater than the
/// number of cores, since tests often wait for their servers.
fn threads() -> OsString {
    let cores = thread::available_parallelism().map_or(2, NonZero::get);
    std::env::var_os(THREADS).unwrap_or_else(|| (cores + 2).to_string().into())
}

/// Prints all failures, and returns one failure that states their number.
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
    command
        .args(arguments)
        .envs(variables.iter().map(|(name, path)| (name, path)));
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_failed_step_fails_the_task() {
        assert_eq!(summary([Ok(()), Ok(()), Ok(()), Ok(())]), Ok(()));
        let failed = summary([Err(Failure::new("a")), Ok(()), Ok(()), Err(Failure::new("b"))]);
        assert_eq!(failed, Err(Failure::new("2 of 4 steps failed")));
    }
}
