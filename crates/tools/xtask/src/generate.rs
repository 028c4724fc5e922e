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
    step::announce("Writing the charts, and where packages and images are published");
    // The charts are made of manifests that name the publisher's registry.
    for files in [publisher::files, charts::templates] {
        for (path, text) in files()? {
            workspace::write(path, &text)?;
        }
    }
    let example = |name: &str| {
        let mut example = protoc::cargo(&["run", "--package", "calipam", "--example", name, "--"])?;
        example.arg(workspace::root());
        Ok(example)
    };
    step::run("Writing completions/ and docs/man/", &mut example("generated_files")?)?;
    let mut build = protoc::cargo(&["build", "--package", "calipam", "--bin", "calipam"])?;
    step::run("Building calipam", &mut build)?;
    step::run("Drawing docs/images/", example("pictures")?.arg(workspace::built("calipam")?))
}
