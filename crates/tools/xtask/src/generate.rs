//! `cargo xtask generate`.

use crate::failure::Failure;
use crate::task::{self, Task};
use crate::{charts, protoc, publisher, step, tools, workspace};

pub(crate) const TASK: Task = Task {
    name: "generate",
    arguments: "",
    summary: "Write completions, man pages, charts, and pictures of the README",
    details: "\
Rewrites completions/ and docs/man/ from the definition of calipam's command
line, the templates of docs/kubernetes/charts/ from the manifests, and the URL
of downloads and the registry from Cargo.toml into the files that name them.
Commit what changed; a test fails if these files are not current.

Draws docs/images/ from the page of the example cluster if that has changed.
Needs Chromium for it; without one the pictures stay as they are.

Needs Rust and a C compiler.
",
    run,
};

fn run(arguments: &[String]) -> Result<(), Failure> {
    task::no_arguments(TASK.name, arguments)?;
    tools::need_c_compiler()?;
    publisher::write()?;
    charts::write()?;
    let mut generate = workspace::cargo();
    generate
        .args(["run", "--package", "calipam", "--example", "generated_files", "--"])
        .arg(workspace::root());
    generate.envs(protoc::variables()?);
    step::run("Writing completions/ and docs/man/", &mut generate)?;

    let mut program = workspace::cargo();
    program.args(["build", "--package", "calipam", "--bin", "calipam"]).envs(protoc::variables()?);
    step::run("Building calipam", &mut program)?;
    let mut pictures = workspace::cargo();
    pictures
        .args(["run", "--package", "calipam", "--example", "pictures", "--"])
        .arg(workspace::root())
        .arg(workspace::root().join("target/debug/calipam"));
    pictures.envs(protoc::variables()?);
    step::run("Drawing docs/images/", &mut pictures)
}
