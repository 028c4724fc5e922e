//! `cargo xtask env`.

use clap::Args;

use crate::failure::Failure;
use crate::{protoc, servers, step};

/// Print the variables that plain cargo commands need here
///
/// Installs the missing servers, as `cargo xtask test` does, and prints the
/// variables as a shell reads them: PROTOC and PROTOC_INCLUDE if the machine has
/// no protoc, and the paths of the servers for tests. To run plain cargo commands:
///
///     eval "$(cargo xtask env)"
///     cargo test -p calipam-testkit
///
/// With `build` only the variables of a build, and nothing is installed:
///
///     eval "$(cargo xtask env build)"
///     cargo install --locked --path crates/cli
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Env {
    /// Print only the variables of a build
    #[arg(value_parser = ["build"])]
    only: Option<String>,
}

pub(crate) fn run(task: &Env) -> Result<(), Failure> {
    let servers = match task.only {
        Some(_) => Vec::new(),
        None => servers::prepare()?.build()?,
    };
    for (name, path) in protoc::variables()?.into_iter().chain(servers) {
        println!("export {name}={}", step::quoted(&path.to_string_lossy()));
    }
    Ok(())
}
