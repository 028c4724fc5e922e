//! `cargo xtask soak`.

use crate::failure::Failure;
use crate::left_out::LeftOut;
use crate::task::Task;
use crate::{protoc, servers, step, tools};

/// The number of random cases per property: ten times proptest's default of 256.
const CASES: &str = "2560";

pub(crate) const TASK: Task = Task {
    name: "soak",
    arguments: "[-- <arguments of cargo test>]",
    summary: "Run the tests with ten times as many random cases",
    details: "\
Sets CALIPAM_SOAK, which the tests read (calipam_testkit::rounds), and
PROPTEST_CASES: ten times as many seeds and random changes as in `cargo xtask
test`, and 16 allocators with 1,000 containers each on every datastore. Takes
hours on two cores; with arguments only the tests run that they select:

    cargo xtask soak -- --package calipam-check

Needs what `cargo xtask test` needs.
",
    run,
};

fn run(arguments: &[String]) -> Result<(), Failure> {
    tools::need_c_compiler()?;
    let servers = servers::prepare()?.build()?;
    let left_out = LeftOut::begin()?;
    let mut tests = protoc::cargo(&["test"])?;
    tests.envs(servers).envs([left_out.variable()]).env("CALIPAM_SOAK", "1").env("PROPTEST_CASES", CASES);
    match arguments {
        [] => tests.args(["--workspace", "--no-fail-fast"]),
        selected => tests.args(selected),
    };
    let result = step::run("Running the tests with ten times as many cases", &mut tests);
    left_out.print();
    result
}
