//! `cargo xtask mutants`.

use crate::failure::Failure;
use crate::task::Task;
use crate::{protoc, step};

/// The files that are mutated.
const FILES: &[&str] = &[
    "crates/check/src/**",
    "crates/plan/src/**",
    "crates/repair/src/**",
    "crates/assign/src/**",
    "crates/model/src/block/**",
];

/// The exit codes of cargo-mutants if tests noticed every mutant, if they missed one, and if one never ended.
const FINISHED: [i32; 3] = [0, 2, 3];

pub(crate) const TASK: Task = Task {
    name: "mutants",
    arguments: "[OPTIONS]",
    summary: "Change the code in small ways, and see whether tests notice",
    details: "\
Runs cargo-mutants (`cargo install cargo-mutants`) over check, plan, repair,
assign and the block arithmetic of model: it changes one operator or the value
of one function after the other, and runs the unit tests of its crate. All of
them take most of a day. It takes the options of cargo-mutants; every tenth of
them, from the fourth on:

    cargo xtask mutants --shard 3/10 --sharding round-robin

What it found is in target/mutants.out; docs/safety.md says what was.
",
    run,
};

fn run(arguments: &[String]) -> Result<(), Failure> {
    let mut mutants = protoc::cargo(&["mutants", "--workspace"])?;
    mutants.args(FILES.iter().flat_map(|files| ["--file", files])).args(arguments);
    mutants.args(["--baseline", "skip", "--timeout", "120", "--output", "target", "--", "--lib"]);
    let status = step::run_for_status("Running the tests of each mutant", &mut mutants)?;
    // A mutant that no test catches does not make this task fail.
    match status.code().is_some_and(|code| FINISHED.contains(&code)) {
        true => Ok(()),
        false => Err(Failure::new(format!("cargo-mutants did not come to its end ({status})"))),
    }
}
