//! `cargo xtask demo`.

use std::process::Command;

use clap::Args;

use crate::failure::Failure;
use crate::{protoc, step, workspace};

/// The path of the example cluster, relative to the root of the checkout.
const EXAMPLE: &str = "docs/examples/cluster.jsonl";

/// The exit code of `calipam check` if it found something.
const FINDINGS: i32 = 1;

/// Build calipam and check an example cluster; no server is needed
///
/// Builds calipam and runs `calipam check` on docs/examples/cluster.jsonl, the
/// export of a small cluster with a dozen different faults. It prints the command,
/// so that you can run it again with other options.
///
/// Needs Rust and a C compiler. Nothing outside of target/ is written.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Demo;

pub(crate) fn run() -> Result<(), Failure> {
    let mut build = protoc::cargo(&["build", "--package", "calipam"])?;
    // Incremental compilation speeds up only later builds, and slows down this one.
    build.env("CARGO_INCREMENTAL", "0");
    step::run(
        "Building calipam (the first time takes a minute or two)",
        &mut build,
    )?;

    let program = workspace::built("calipam")?;
    let mut check = Command::new(&program);
    check.args(["check", "--datastore", EXAMPLE]);
    let status = step::run_for_status(&format!("Checking the example cluster in {EXAMPLE}"), &mut check)?;
    if !matches!(status.code(), Some(0 | FINDINGS)) {
        return Err(Failure::new(format!(
            "the check did not come to a verdict ({status})"
        )));
    }
    let program = step::quoted(&program.to_string_lossy());
    eprint!(
        "
Exit code {FINDINGS} of `calipam check` means that it found something, as it should here.
Try also:
    {program} check --datastore {EXAMPLE} -o wide
    {program} show --datastore {EXAMPLE}
    {program} explain leaked-address
    {program} check --help
"
    );
    Ok(())
}
