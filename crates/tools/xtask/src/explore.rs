//! `cargo xtask explore`.

use crate::failure::Failure;
use crate::task::Task;
use crate::{protoc, step, workspace};

pub(crate) const TASK: Task = Task {
    name: "explore",
    arguments: "[OPTIONS] [SCENARIOS...]",
    summary: "Try every interleaving and every crash in small worlds",
    details: "\
Runs the code of the plugin, and of release, rebuild, assign, split, configure,
migrate and undo, in worlds of a few addresses, where each request waits until
the explorer says what becomes of it. Follows every schedule of each scenario,
first without faults, then with one, two and three: requests without answer,
writes that take effect late, kills, power failures, a full disk. A third of
the time goes to random schedules. Five minutes, unless --minutes N or
--hours N says otherwise. It ends with the first scenario in which something
does not hold; with --keep-going it goes on with the others.

Where something does not hold it prints the shortest schedule that it finds, as
a script of a line for each request. To follow that again:

    cargo xtask explore --replay FILE

With --mutants it takes one guard after the other out of the code (those that
crates/tools/explore/mutants.toml lists) and has to find each within ten
minutes; --mutants=NAME,... does so with those whose names begin so.

docs/safety.md says what has to hold, and what was explored.
",
    run,
};

fn run(arguments: &[String]) -> Result<(), Failure> {
    let mut explore = workspace::cargo();
    explore.args(["run", "--quiet", "--profile", "explore", "--package", "calipam-explore", "--"]);
    explore.envs(protoc::variables()?);
    step::run("Exploring", explore.args(arguments))
}
