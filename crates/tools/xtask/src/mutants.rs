//! `cargo xtask mutants`.

use std::num::NonZero;
use std::process::Command;

use clap::Args;

use crate::failure::Failure;
use crate::servers::{self, GO};
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

/// Change the code in small ways, and see whether tests notice
///
/// Runs cargo-mutants (`cargo install cargo-mutants`) over check, plan, repair,
/// assign and the block arithmetic of model: it changes one operator or the value
/// of one function after the other, and runs all tests of its crate. All of them
/// take days; --sample takes about N of them, spread evenly. Options of
/// cargo-mutants may follow. What it found is in target/mutants.out;
/// docs/safety.md says what was.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Mutants {
    /// Take about N mutants
    #[arg(long, value_name = "N")]
    pub sample: Option<NonZero<usize>>,
    /// Options that are passed on
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "OPTIONS OF CARGO-MUTANTS"
    )]
    pub options: Vec<String>,
}

pub(crate) fn run(task: &Mutants) -> Result<(), Failure> {
    let servers = servers::prepare()?.build()?;
    let mut mutants = mutants()?;
    if let Some(number) = task.sample {
        mutants.args(sample(number)?);
    }
    mutants
        .args(["--baseline", "skip", "--timeout", "600", "--output", "target"])
        .args(&task.options);
    let mutants = mutants.envs(servers).envs(GO);
    let status = step::run_for_status("Running the tests of each mutant", mutants)?;
    // A mutant that no test catches does not make this task fail.
    if status.code().is_some_and(|code| FINISHED.contains(&code)) {
        Ok(())
    } else {
        Err(Failure::new(format!(
            "cargo-mutants did not come to its end ({status})"
        )))
    }
}

fn mutants() -> Result<Command, Failure> {
    let mut mutants = protoc::cargo(&["mutants", "--workspace"])?;
    mutants.args(FILES.iter().flat_map(|files| ["--file", files]));
    Ok(mutants)
}

/// The options that select every nth mutant, so that about `number` of them are selected.
fn sample(number: NonZero<usize>) -> Result<[String; 2], Failure> {
    let all = step::printed(mutants()?.arg("--list"))?.lines().count();
    let shards = (all / number).max(1);
    Ok([format!("--shard=0/{shards}"), "--sharding=round-robin".to_owned()])
}
