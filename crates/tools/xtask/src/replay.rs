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
Does each step of a trace with calipam's allocator, plugin or drop-in for
calicoctl, and compares the result, the writes in their order and the state
after it. Prints each difference by step and field, and fails if there is one
that crates/tools/replay/differences.toml does not list with its reason.

Replays all of tests/traces, unless files are named, by an absolute path or
from the root of the checkout.

Needs Rust, a C compiler, and an etcd, which `cargo xtask test` installs.
",
    run,
};

fn run(arguments: &[String]) -> Result<(), Failure> {
    tools::need_c_compiler()?;
    let etcd = servers::find_or_build(Tool::Etcd)?;
    let packages = ["--package", "calipam", "--package", "calipam-cni", "--package", "calipam-replay"];
    let mut build = protoc::cargo(&[&["build"], &packages[..]].concat())?;
    step::run("Building calipam, the plugin and the replay", &mut build)?;
    let mut replay = Command::new(workspace::built("replay")?);
    replay.args(arguments).envs([etcd]);
    step::run("Replaying the traces", &mut replay)
}
