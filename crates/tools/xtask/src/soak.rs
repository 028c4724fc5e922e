//! `cargo xtask soak`.

use clap::Args;

use crate::failure::Failure;
use crate::left_out::LeftOut;
use crate::{protoc, servers, step};

/// The number of random cases per property: ten times proptest's default of 256.
const CASES: &str = "2560";

/// Run the tests with ten times as many random cases
///
/// Sets CALIPAM_SOAK, which the tests read (calipam_testkit::rounds), and
/// PROPTEST_CASES: ten times as many seeds and random changes as in `cargo xtask
/// test`, and 16 allocators with 1,000 containers each on every datastore. Takes
/// hours on two cores; with arguments only the tests run that they select:
///
///     cargo xtask soak -- --package calipam-check
///
/// Needs what `cargo xtask test` needs.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Soak {
    /// Arguments that select tests, such as `--package NAME`
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGUMENTS OF CARGO TEST"
    )]
    arguments: Vec<String>,
}

pub(crate) fn run(task: &Soak) -> Result<(), Failure> {
    let mut tests = protoc::cargo(&["test"])?;
    let servers = servers::prepare()?.build()?;
    let left_out = LeftOut::begin()?;
    tests
        .envs(servers)
        .envs([left_out.variable()])
        .env("CALIPAM_SOAK", "1")
        .env("PROPTEST_CASES", CASES);
    match &task.arguments[..] {
        [] => tests.args(["--workspace", "--no-fail-fast"]),
        selected => tests.args(selected),
    };
    let result = step::run("Running the tests with ten times as many cases", &mut tests);
    left_out.print();
    result
}
