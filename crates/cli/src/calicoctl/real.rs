//! Runs the real calicoctl for commands that calipam does not implement.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::exit::{Failure, Result};
use crate::render::text::{escape, quoted};

/// The variable with the path of the real calicoctl.
const VARIABLE: &str = "CALIPAM_CALICOCTL";
/// The variable that lists the programs that calipam has already run, separated as in PATH. One of them, such as a
/// wrapper or a copy of calipam, can run calipam again. calipam then does not run any of the listed programs, which
/// prevents an endless loop.
const TRIED: &str = "CALIPAM_CALICOCTL_TRIED";

/// Replaces this process with the real calicoctl and the same arguments. Returns only after a failure. If there is no
/// real calicoctl, the message names `command`.
pub(super) fn run(command: &str) -> Result<()> {
    let mut tried = tried_before();
    let program = match env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        Some(path) => program_of_variable(&path, &tried)?,
        None => next_in_path(&tried).ok_or_else(|| no_other_calicoctl(command))?,
    };

    tried.extend(env::current_exe());
    tried.push(program.clone());
    let failed =
        |error: &dyn std::fmt::Display| Failure::usage(format!("cannot run {}: {error}", quoted(&program)));
    let tried = env::join_paths(tried).map_err(|error| failed(&error))?;
    Err(failed(&take_over(
        Command::new(&program)
            .args(env::args_os().skip(1))
            .env(TRIED, tried),
    )))
}

/// Returns the programs that were tried before, in case one of them is a script that runs calipam again.
fn tried_before() -> Vec<PathBuf> {
    match env::var_os(TRIED) {
        Some(paths) => env::split_paths(&paths).collect(),
        None => Vec::new(),
    }
}

/// Replaces this process with a command. Returns only after a failure.
#[cfg(unix)]
fn take_over(command: &mut Command) -> io::Error {
    std::os::unix::process::CommandExt::exec(command)
}

/// Runs a command and exits with its exit code. Returns only if the command does not start.
#[cfg(not(unix))]
fn take_over(command: &mut Command) -> io::Error {
    match command.status() {
        Ok(status) => std::process::exit(status.code().unwrap_or(1)),
        Err(error) => error,
    }
}

/// Returns the program that [`VARIABLE`] names. Fails if it cannot be run, is this program, or was already `tried`,
/// which would never end.
fn program_of_variable(path: &OsStr, tried: &[PathBuf]) -> Result<PathBuf> {
    let program = std::path::absolute(path).unwrap_or_else(|_| path.into());
    let problem = if !can_be_run(&program) {
        "is not an executable program"
    } else if is_this_program(&program) {
        "is calipam itself"
    } else if tried.contains(&program) {
        "runs calipam again"
    } else {
        return Ok(program);
    };
    let message = format!("{VARIABLE} is {}, which {problem}", quoted(&program));
    let hint = "set it to the path of the real calicoctl, or unset it to run the next calicoctl in PATH";
    Err(Failure::usage(message).hint(hint))
}

/// Finds the first calicoctl in PATH that is neither this program nor in `tried`. Skips relative folders, which depend
/// on the working directory.
fn next_in_path(tried: &[PathBuf]) -> Option<PathBuf> {
    for folder in env::split_paths(&env::var_os("PATH")?) {
        if !folder.is_absolute() {
            continue;
        }
        let program = folder
            .join("calicoctl")
            .with_extension(env::consts::EXE_EXTENSION);
        if can_be_run(&program) && !is_this_program(&program) && !tried.contains(&program) {
            return Some(program);
        }
    }
    None
}

/// Creates the failure for a command that needs the real calicoctl, if there is none.
fn no_other_calicoctl(command: &str) -> Failure {
    Failure::usage(format!(
            "`{}` is a command of the real calicoctl, but this is calipam under its name, and PATH has no other calicoctl",
            escape(command)
        )).hint(format!(
            "to have both, put the real calicoctl into a folder in PATH, or name it: \
             `export {VARIABLE}=/opt/calico/bin/calicoctl`"
        ))
}

#[cfg(unix)]
fn can_be_run(program: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(program).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn can_be_run(program: &Path) -> bool {
    program.is_file()
}

/// True if a path leads to this program's file.
fn is_this_program(program: &Path) -> bool {
    #[cfg(unix)]
    let file = |path: &Path| {
        use std::os::unix::fs::MetadataExt;
        fs::metadata(path).map(|file| (file.dev(), file.ino()))
    };
    #[cfg(not(unix))]
    let file = |path: &Path| fs::canonicalize(path);
    env::current_exe()
        .and_then(|this| Ok(file(&this)? == file(program)?))
        .unwrap_or(false)
}
