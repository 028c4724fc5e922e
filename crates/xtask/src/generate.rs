//! `cargo xtask generate`.

use crate::failure::Failure;
use crate::task::{self, Task};
use crate::{protoc, step, tools, workspace};

pub const TASK: Task = Task {
    name: "generate",
    arguments: "",
    summary: "Write completions and man pages from the command line's definition",
    details: "\
Rewrites completions/ and docs/man/ from the definition of calipam's command
line. Commit what changed; a test fails where these files are not current.

Needs Rust and a C compiler.
",
    run,
};

fn run(arguments: &[String]) -> Result<(), Failure> {
    task::no_arguments(TASK.name, arguments)?;
    tools::need_c_compiler()?;
    let mut generate = workspace::cargo();
    generate
        .args(["run", "--package", "calipam", "--example", "generated_files", "--"])
        .arg(workspace::root());
    generate.envs(protoc::variables()?);
    step::run("Writing completions/ and docs/man/", &mut generate)
}
