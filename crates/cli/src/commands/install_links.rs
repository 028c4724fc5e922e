//! `install-links`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::args::InstallLinksArgs;
use crate::exit::{Failure, Outcome};
use crate::output::Console;

/// Names that are links to the program.
const LINKS: [&str; 3] = ["ipam", "kubectl-ipam", "kubectl-calico"];
/// The script that kubectl runs to complete `kubectl ipam …`.
const SCRIPT: &str = "kubectl_complete-ipam";
/// What the script holds. kubectl takes one suggestion a line and a directive at the end.
const SCRIPT_TEXT: &str = "\
#!/bin/sh
# Written by `calipam install-links`: kubectl runs this to complete `kubectl ipam`.
exec kubectl-ipam __complete \"$@\"
";

/// Creates the links.
pub fn run(args: &InstallLinksArgs, console: &Console) -> Result<Outcome, Failure> {
    let directory = &args.directory;
    if !directory.is_dir() {
        return Err(Failure::NotFound {
            message: format!("{} is not a directory", directory.display()),
            hint: Some("create it, and name one that is in PATH".into()),
        });
    }
    let program = program()?;
    let mut outcome = Outcome::Clean;
    for name in LINKS {
        let path = directory.join(name);
        let done = link(&program, &path).map_err(|error| failure("create", &path, error))?;
        outcome = tell(done, &path, outcome, console);
    }
    let path = directory.join(SCRIPT);
    let done = write_script(&path).map_err(|error| failure("write", &path, error))?;
    Ok(tell(done, &path, outcome, console))
}

/// What became of one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Done {
    Created,
    There,
    /// Something else has the name; it stays.
    Foreign,
}

fn tell(done: Done, path: &Path, outcome: Outcome, console: &Console) -> Outcome {
    match done {
        Done::Created => console.say(&format!("created {}", path.display())),
        Done::There => console.verbose(&format!("{} is there", path.display())),
        Done::Foreign => {
            console.warn(&format!("{} exists and is something else; it is not replaced", path.display()));
            return Outcome::Refused;
        }
    }
    outcome
}

fn failure(what: &str, path: &Path, error: io::Error) -> Failure {
    Failure::Io { doing: format!("{what} {}", path.display()), error }
}

/// The program itself, not one of its links.
fn program() -> Result<PathBuf, Failure> {
    let program = std::env::current_exe().and_then(fs::canonicalize);
    program.map_err(|error| Failure::Io { doing: "find this program".into(), error })
}

/// Links to the program, unless the name is taken.
fn link(program: &Path, path: &Path) -> io::Result<Done> {
    match fs::symlink_metadata(path) {
        Ok(_) if fs::canonicalize(path).is_ok_and(|target| target == program) => Ok(Done::There),
        Ok(_) => Ok(Done::Foreign),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            symlink(program, path)?;
            Ok(Done::Created)
        }
        Err(error) => Err(error),
    }
}

#[cfg(unix)]
fn symlink(program: &Path, path: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(program, path)
}

#[cfg(not(unix))]
fn symlink(program: &Path, path: &Path) -> io::Result<()> {
    fs::hard_link(program, path.with_extension("exe"))
}

/// Writes the script, unless the name is taken by something else.
fn write_script(path: &Path) -> io::Result<Done> {
    match fs::read(path) {
        Ok(content) if content == SCRIPT_TEXT.as_bytes() => return Ok(Done::There),
        Ok(content) if !content.starts_with(first_lines()) => return Ok(Done::Foreign),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    fs::write(path, SCRIPT_TEXT)?;
    make_executable(path)?;
    Ok(Done::Created)
}

/// The first two lines, by which an older version of the script is known.
fn first_lines() -> &'static [u8] {
    let end = SCRIPT_TEXT.match_indices('\n').nth(1).map_or(SCRIPT_TEXT.len(), |(place, _)| place);
    &SCRIPT_TEXT.as_bytes()[..end]
}

#[cfg(unix)]
fn make_executable(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}

#[cfg(not(unix))]
fn make_executable(_: &Path) -> io::Result<()> {
    Ok(())
}
