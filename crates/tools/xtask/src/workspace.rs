//! Paths in the checkout, and cargo commands.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use crate::failure::Failure;

/// The root of the checkout.
pub(crate) fn root() -> PathBuf {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(3);
    crates.expect("xtask is three folders below the root").to_owned()
}

/// Changes to the root of the checkout, so that users can repeat every printed command there.
pub(crate) fn enter() -> Result<(), Failure> {
    let root = root();
    env::set_current_dir(&root).map_err(|error| Failure::io("enter", &root, &error))
}

/// Reads a file. A relative path begins at the root of the checkout.
pub(crate) fn read(path: impl AsRef<Path>) -> Result<String, Failure> {
    let path = root().join(path);
    fs::read_to_string(&path).map_err(|error| Failure::io("read", &path, &error))
}

/// Writes a file, and creates its folder. A relative path begins at the root of the checkout.
pub(crate) fn write(path: impl AsRef<Path>, text: &str) -> Result<(), Failure> {
    let path = root().join(path);
    let made = path
        .parent()
        .map_or(Ok(()), fs::create_dir_all)
        .and_then(|()| fs::write(&path, text));
    made.map_err(|error| Failure::io("write", &path, &error))
}

/// Returns a command for the cargo that runs this program.
///
/// Removes the variables that cargo sets for this package. Build scripts of dependencies depend on these variables, so
/// builds by a task and builds by hand would otherwise recompile each other's dependencies.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in env::vars_os() {
        if ["CARGO_PKG_", "CARGO_MANIFEST_"]
            .iter()
            .any(|own| name.to_string_lossy().starts_with(own))
        {
            command.env_remove(name);
        }
    }
    command
}

/// Wraps a command in `outer`, which runs it.
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

/// Returns the path of a program in the same folder as this one. The path is relative to the root of the checkout if
/// the program is below the root.
pub(crate) fn built(program: &str) -> Result<PathBuf, Failure> {
    let path = own()?
        .with_file_name(program)
        .with_extension(env::consts::EXE_EXTENSION);
    Ok(path.strip_prefix(root()).map(Path::to_owned).unwrap_or(path))
}

/// The folder of cargo's builds: `target`, unless `CARGO_TARGET_DIR` or cargo's configuration says otherwise. This
/// program is in its subfolder `debug`.
pub(crate) fn target() -> Result<PathBuf, Failure> {
    Ok(own()?
        .ancestors()
        .nth(2)
        .expect("this program is in target/debug")
        .to_owned())
}

fn own() -> Result<PathBuf, Failure> {
    env::current_exe().map_err(|error| Failure::new(format!("cannot tell where this program is: {error}")))
}
