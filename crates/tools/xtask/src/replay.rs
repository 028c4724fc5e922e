//! `cargo xtask replay`.

use std::process::Command;

use crate::failure::Failure;
use crate::servers;
use crate::task::Task;
use crate::tool::Tool;
use crate::{protoc, step, tools, workspace};

pub(crate) const TASK: Task = Task {
    name: "replay",
    arguments: "[FILES...]",
    summary: "Replay recorded runs of real Calico on a real etcd, and compare",
    details: "\
Builds calipam and its CNI plugin, starts an etcd, and replays each trace: loads
what the datastore held, does each step with calipam's allocator, plugin or
drop-in for calicoctl, and compares the result, the writes in their order and
the state after it. Prints each difference by step and field, and fails if
there is one. Steps in which calipam differs on purpose are listed, with the
reason, in crates/tools/replay/differences.toml.

Without files, all of tests/traces are replayed. For files of that form, named
by an absolute path or from the root of the checkout:

    cargo xtask replay /somewhere/traces/*.json

Needs Rust, a C compiler, and an etcd, which `cargo xtask test` installs.
",
    run,
};

fn run(arguments: &[String]) -> Result<(), Failure> {
    tools::need_c_compiler()?;
    let etcd = servers::find_or_build(Tool::Etcd)?;
    let mut build = workspace::cargo();
    build.args(["build", "--package", "calipam", "--package", "calipam-cni", "--package", "calipam-replay"]);
    step::run("Building calipam, the plugin and the replay", build.envs(protoc::variables()?))?;
    let mut replay = Command::new(workspace::built("replay")?);
    replay.args(arguments).envs([etcd]);
    step::run("Replaying the traces", &mut replay)
}
