//! `install-links`: the other names of the program, and what shells and man look for.

mod man_pages;
mod record;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub use self::man_pages::MAN_PAGES;
use self::record::Record;
use crate::args::InstallLinksArgs;
use crate::completion_scripts;
use crate::console::Console;
use crate::exit::{Failure, Outcome};
use crate::render::text::quoted;

/// Names that are links to the program.
const LINKS: [&str; 3] = ["ipam", "kubectl-ipam", "kubectl-calico"];
/// The link that takes the place of another program, and is made on request only.
const CALICOCTL: &str = "calicoctl";
/// Shells that look for scripts in a folder below `share`: the program, and where they look.
const SHELLS: [(&str, &str); 3] = [
    ("bash", "bash-completion/completions"),
    ("zsh", "zsh/site-functions"),
    ("fish", "fish/vendor_completions.d"),
];

/// Creates or removes links and files.
pub(super) fn run(args: &InstallLinksArgs, console: &Console) -> Result<Outcome, Failure> {
    let directory = &args.directory;
    if !directory.is_dir() {
        return Err(Failure::NotFound {
            message: format!("{} is not a directory", quoted(directory)),
            hint: Some("create it, and name one that is in PATH".into()),
        });
    }
    let program = program()?;
    let share = share_of(directory)?;
    let mut record = Record::read(&share).map_err(|error| failure("read", &Record::path(&share), error))?;
    if args.remove {
        return remove(directory, &program, record, console);
    }

    let mut outcome = Outcome::Clean;
    for name in LINKS.into_iter().chain(args.calicoctl.then_some(CALICOCTL)) {
        let path = directory.join(name);
        let done = link(&program, &path).map_err(|error| failure("create", &path, error))?;
        outcome = report(done, &path, outcome, console);
    }
    for (path, text) in scripts(directory) {
        let done = write_script(&path, &text).map_err(|error| failure("write", &path, error))?;
        outcome = report(done, &path, outcome, console);
    }
    if !args.completions {
        return Ok(outcome);
    }

    let mut files = shell_scripts(&share);
    let folder = share.join("man/man1");
    files.extend(MAN_PAGES.iter().map(|(name, text)| (folder.join(name), text.as_bytes().to_owned())));
    let written = write_all(files, &mut record, outcome, console);
    // What was written is on record although something failed.
    record.write().map_err(|error| failure("write", &Record::path(&share), error))?;
    let outcome = written?;
    if is_there("zsh") {
        let folder = share.join(SHELLS[1].1);
        console.hint(&format!("zsh reads {} if it is in its `fpath`", quoted(&folder)));
    }
    Ok(outcome)
}

/// A file to be written, and its text.
type File = (PathBuf, Vec<u8>);

/// How the scripts that kubectl runs begin, those of earlier versions included.
const BEGINNINGS: [&[u8]; 2] = [
    b"#!/bin/sh\n# kubectl runs this to complete `kubectl ",
    b"#!/bin/sh\n# Written by `calipam install-links`",
];

/// The scripts that kubectl runs.
fn scripts(directory: &Path) -> Vec<File> {
    let scripts = completion_scripts().filter(|(name, _)| name.starts_with("kubectl_complete-"));
    scripts.map(|(name, text)| (directory.join(name), text)).collect()
}

fn is_script(content: &[u8]) -> bool {
    BEGINNINGS.iter().any(|beginning| content.starts_with(beginning))
}

/// Writes a script that kubectl runs, unless the name is taken by something else.
fn write_script(path: &Path, text: &[u8]) -> io::Result<Done> {
    match fs::read(path) {
        Ok(content) if content == text => return Ok(Done::There),
        Ok(content) if !is_script(&content) => return Ok(Done::Foreign),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    fs::write(path, text)?;
    make_executable(path)?;
    Ok(Done::Created)
}

/// The scripts of the shells that are there, for each name.
fn shell_scripts(share: &Path) -> Vec<File> {
    let mut files = Vec::new();
    for (name, text) in completion_scripts() {
        let Some((program, shell)) = name.rsplit_once('.') else { continue };
        let Some((_, folder)) = SHELLS.iter().find(|(known, _)| *known == shell && is_there(shell)) else {
            continue;
        };
        let name = match shell {
            "zsh" => format!("_{program}"),
            "fish" => format!("{program}.fish"),
            _ => program.to_owned(),
        };
        files.push((share.join(folder).join(name), text));
    }
    files
}

/// True if the shell is in a folder of PATH.
fn is_there(shell: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(shell).is_file())
}

/// `share` next to the directory, as `/usr/local/share` next to `/usr/local/bin`.
fn share_of(directory: &Path) -> Result<PathBuf, Failure> {
    let directory = fs::canonicalize(directory).map_err(|error| failure("find", directory, error))?;
    Ok(directory.parent().unwrap_or(&directory).join("share"))
}

fn write_all(
    files: Vec<File>,
    record: &mut Record,
    mut outcome: Outcome,
    console: &Console,
) -> Result<Outcome, Failure> {
    for (path, text) in files {
        let done = write(&path, &text, record).map_err(|error| failure("write", &path, error))?;
        outcome = report(done, &path, outcome, console);
    }
    Ok(outcome)
}

/// Writes a file, unless the name is taken by something that this command did not write, or that was changed since.
fn write(path: &Path, text: &[u8], record: &mut Record) -> io::Result<Done> {
    match fs::read(path) {
        // What a package has installed stays that of the package.
        Ok(content) if content == text => return Ok(Done::There),
        Ok(content) if !record.is_ours(path, &content) => return Ok(Done::Foreign),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    if fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink()) {
        return Ok(Done::Foreign);
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, text)?;
    record.note(path, text);
    Ok(Done::Created)
}

/// Takes away links to this program, and files as they were written.
fn remove(directory: &Path, program: &Path, record: Record, console: &Console) -> Result<Outcome, Failure> {
    let mut outcome = Outcome::Clean;
    for name in LINKS.into_iter().chain([CALICOCTL]) {
        let path = directory.join(name);
        let is_link = fs::symlink_metadata(&path).is_ok_and(|found| found.is_symlink());
        if is_link && fs::canonicalize(&path).is_ok_and(|target| target == program) {
            fs::remove_file(&path).map_err(|error| failure("remove", &path, error))?;
            console.say(&format!("removed {}", quoted(&path)));
        }
    }
    for (path, _) in scripts(directory) {
        if fs::read(&path).is_ok_and(|content| is_script(&content)) {
            fs::remove_file(&path).map_err(|error| failure("remove", &path, error))?;
            console.say(&format!("removed {}", quoted(&path)));
        }
    }
    for path in record.paths() {
        match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failure("read", &path, error)),
            Ok(content) if record.is_ours(&path, &content) => {
                fs::remove_file(&path).map_err(|error| failure("remove", &path, error))?;
                console.say(&format!("removed {}", quoted(&path)));
            }
            Ok(_) => {
                console.warn(&format!("{} was changed since it was installed; it stays", quoted(&path)));
                outcome = Outcome::Refused;
            }
        }
    }
    record.remove().map_err(|error| failure("remove", directory, error))?;
    Ok(outcome)
}

/// What became of one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Done {
    Created,
    There,
    /// Something else has the name; it stays.
    Foreign,
}

fn report(done: Done, path: &Path, outcome: Outcome, console: &Console) -> Outcome {
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

#[cfg(unix)]
fn make_executable(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}

#[cfg(not(unix))]
fn make_executable(_: &Path) -> io::Result<()> {
    Ok(())
}
