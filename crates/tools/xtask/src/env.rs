//! `cargo xtask env`.

use crate::failure::Failure;
use crate::task::{self, Task};
use crate::{protoc, servers, step};

pub(crate) const TASK: Task = Task {
    name: "env",
    arguments: "[build]",
    summary: "Print the variables that plain cargo commands need here",
    details: "\
Installs the missing servers, as `cargo xtask test` does, and prints the
variables as a shell reads them: PROTOC and PROTOC_INCLUDE if the machine has
no protoc, and the paths of the servers for tests. To run plain cargo commands:

    eval \"$(cargo xtask env)\"
    cargo test -p calipam-testkit

With `build` only the variables of a build, and nothing is installed:

    eval \"$(cargo xtask env build)\"
    cargo install --locked --path crates/cli
",
    run,
};

fn run(arguments: &[String]) -> Result<(), Failure> {
    let servers = match arguments {
        [only] if only == "build" => Vec::new(),
        _ => {
            task::no_arguments(TASK.name, arguments)?;
            servers::prepare()?.build()?
        }
    };
    for (name, path) in protoc::variables()?.into_iter().chain(servers) {
        println!("export {name}={}", step::quoted(&path.to_string_lossy()));
    }
    Ok(())
}
