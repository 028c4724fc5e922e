//! `cargo xtask replay`.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;
use crate::servers;
use crate::task::Task;
use crate::{protoc, step, tools, workspace};

/// The folder of the project's traces.
const TRACES: &str = "tests/traces";

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

Needs Rust, a C compiler, and an etcd, which `cargo xtask test` brings.
",
    run,
};

fn run(arguments: &[String]) -> Result<(), Failure> {
    let files = match arguments {
        [] => traces(TRACES.as_ref())?,
        named => named.iter().map(PathBuf::from).collect(),
    };
    tools::need_c_compiler()?;
    let etcd = servers::bring_etcd()?;
    let mut build = workspace::cargo();
    build.args(["build", "--package", "calipam", "--package", "calipam-cni", "--package", "calipam-replay"]);
    step::run("Building calipam, the plugin and the replay", build.envs(protoc::variables()?))?;
    let mut replay = Command::new(workspace::built("replay")?);
    replay.args(files).envs([etcd]);
    step::run("Replaying the traces", &mut replay)
}

/// Lists the traces of a folder.
fn traces(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let entries = std::fs::read_dir(folder).map_err(|error| Failure::io("read", folder, &error))?;
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_traces_of_the_project_are_found() {
        let found = traces(&workspace::root().join(TRACES)).map(|files| files.len());
        assert!(found.is_ok_and(|number| number >= 30));
    }
}
