//! `cargo xtask explore`.

use clap::Args;

use crate::failure::Failure;
use crate::{protoc, step};

/// Try every interleaving and every crash in small worlds
///
/// Follows every schedule of each scenario, first without faults, then with one,
/// two and three. A third of the time goes to random schedules. Where something
/// does not hold, prints the shortest schedule that it finds, writes it to a file
/// whose name it prints last, and ends.
///
///     --minutes N, --hours N   how long it explores, instead of five minutes
///     --seeds FROM..TO         follows the random schedules of these seeds in
///                              every scenario, whatever the time; without faults
///                              and with one, or up to --faults N
///     --keep-going             goes on with the other scenarios
///     --replay FILE            follows a schedule that was printed
///     --mutants[=NAME,...]     takes one guard after the other out of the code
///                              (mutants.toml; those whose names begin so), and
///                              has to find each within ten minutes
///
/// docs/safety.md says what has to hold, how it is explored, and what was explored.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Explore {
    /// The options above, and names of scenarios
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "OPTIONS AND SCENARIOS"
    )]
    pub arguments: Vec<String>,
}

pub(crate) fn run(task: &Explore) -> Result<(), Failure> {
    let mut explore = protoc::cargo(&[
        "run",
        "--quiet",
        "--profile",
        "explore",
        "--package",
        "calipam-explore",
        "--",
    ])?;
    step::run("Exploring", explore.args(&task.arguments))
}
