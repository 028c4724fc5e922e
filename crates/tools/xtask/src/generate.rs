//! `cargo xtask generate`.

use clap::Args;

use crate::failure::Failure;
use crate::{charts, protoc, publisher, step, workspace};

/// Write completions, man pages, charts, and pictures of the README
///
/// Rewrites completions/ and docs/man/ from the definition of calipam's command
/// line, the templates of docs/kubernetes/charts/ from the manifests, and the URL
/// of downloads and the registry from Cargo.toml into the files that name them.
/// Commit what changed; a test fails if these files are not current.
///
/// Draws docs/images/ from the page of the example cluster if that has changed.
/// Needs Chromium for it; without one the pictures stay as they are.
///
/// Needs Rust and a C compiler.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Generate;

pub(crate) fn run() -> Result<(), Failure> {
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
    step::run(
        "Writing completions/ and docs/man/",
        &mut example("generated_files")?,
    )?;
    let mut build = protoc::cargo(&["build", "--package", "calipam", "--bin", "calipam"])?;
    step::run("Building calipam", &mut build)?;
    step::run(
        "Drawing docs/images/",
        example("pictures")?.arg(workspace::built("calipam")?),
    )
}
