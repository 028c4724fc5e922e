//! `cargo xtask replay`.

use std::path::PathBuf;
use std::process::Command;

use clap::Args;

use crate::failure::Failure;
use crate::servers;
use crate::tool::Tool;
use crate::{protoc, step, workspace};

/// Replay recorded runs of real Calico on a real etcd, and compare
///
/// Does each step of a trace with calipam's allocator, plugin or drop-in for
/// calicoctl, and compares the result, the writes in their order and the state
/// after it. Prints each difference by step and field, and fails if there is one
/// that crates/tools/replay/differences.toml does not list with its reason.
///
/// Replays all of tests/traces, unless files are named, by an absolute path or
/// from the root of the checkout.
///
/// Needs Rust, a C compiler, and an etcd, which `cargo xtask test` installs.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Replay {
    /// The traces to replay; all unless they are named
    files: Vec<PathBuf>,
}

pub(crate) fn run(task: &Replay) -> Result<(), Failure> {
    let packages = [
        "--package",
        "calipam",
        "--package",
        "calipam-cni",
        "--package",
        "calipam-replay",
    ];
    let mut build = protoc::cargo(&[&["build"], &packages[..]].concat())?;
    let etcd = servers::find_or_build(Tool::Etcd)?;
    step::run("Building calipam, the plugin and the replay", &mut build)?;
    let mut replay = Command::new(workspace::built("replay")?);
    replay.args(&task.files).envs([etcd]);
    step::run("Replaying the traces", &mut replay)
}
