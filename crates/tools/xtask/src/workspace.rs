//! Paths of the checkout, and calls of cargo.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;

/// The root of the checkout.
pub(crate) fn root() -> PathBuf {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(3);
    crates.expect("xtask lies two folders below the root").to_owned()
}

/// Makes the root of the checkout the working directory, so that every command can be repeated there.
pub(crate) fn enter() -> Result<(), Failure> {
    let root = root();
    env::set_current_dir(&root).map_err(|error| Failure::io("enter", &root, &error))
}

/// A call of the cargo that runs this program.
///
/// Cargo's variables about this package are removed: build scripts of dependencies look at them, so that a build by a
/// task and one by hand would compile them again in turn.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in env::vars_os() {
        if ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|own| name.to_string_lossy().starts_with(own)) {
            command.env_remove(name);
        }
    }
    command
}

/// Returns a command that runs another one by `outer`.
pub(crate) fn run_by(mut outer: Command, command: &Command) -> Command {
    outer.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    outer
}

/// The path of a program in the folder of this one, relative to the root if it lies below.
pub(crate) fn built(program: &str) -> Result<PathBuf, Failure> {
    let path = own()?.with_file_name(program).with_extension(env::consts::EXE_EXTENSION);
    Ok(path.strip_prefix(root()).map(Path::to_owned).unwrap_or(path))
}

/// The folder of cargo's builds: `target`, unless `CARGO_TARGET_DIR` or cargo's configuration says otherwise. This
/// program lies in `debug` there.
pub(crate) fn target() -> Result<PathBuf, Failure> {
    let own = own()?;
    let folder = own.ancestors().nth(2);
    Ok(folder.map_or_else(|| root().join("target"), Path::to_owned))
}

fn own() -> Result<PathBuf, Failure> {
    env::current_exe().map_err(|error| Failure::new(format!("cannot tell where this program is: {error}")))
}
