//! `cargo xtask soak`.

use crate::failure::Failure;
use crate::left_out::LeftOut;
use crate::task::Task;
use crate::{protoc, servers, step, tools, workspace};

/// The number of random cases per property: ten times proptest's default of 256.
const CASES: &str = "2560";

pub(crate) const TASK: Task = Task {
    name: "soak",
    arguments: "[-- <arguments of cargo test>]",
    summary: "Run the tests with ten times as many random cases",
    details: "\
`cargo xtask test` runs a sample of the long matrices: a few seeds of generated
clusters, a few hundred random changes. This runs ten times as many of them, and
of the cases of each property. It sets CALIPAM_SOAK, which the tests read
(calipam_testkit::rounds), and PROPTEST_CASES. 16 allocators with 1,000
containers each, whose calls are killed now and then, run on etcd 3.4 and 3.6
and on both API groups of Kubernetes. Takes hours on two cores; with arguments
only the tests run that they select:

    cargo xtask soak -- --package calipam-check

Needs what `cargo xtask test` needs.
",
    run,
};

fn run(arguments: &[String]) -> Result<(), Failure> {
    tools::need_c_compiler()?;
    let servers = servers::prepare()?.build()?;
    let left_out = LeftOut::begin()?;
    let mut tests = workspace::cargo();
    tests.arg("test").envs(protoc::variables()?).envs(servers).envs([left_out.variable()]);
    tests.env("CALIPAM_SOAK", "1").env("PROPTEST_CASES", CASES);
    match arguments {
        [] => tests.args(["--workspace", "--no-fail-fast"]),
        selected => tests.args(selected),
    };
    let result = step::run("Running the tests with ten times as many cases", &mut tests);
    left_out.print();
    result
}
