//! `install-links`: links for the other names of the program, completion scripts and man pages.

mod man_pages;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub use self::man_pages::MAN_PAGES;
use crate::args::InstallLinksArgs;
use crate::completion_scripts;
use crate::console::Console;
use crate::exit::{Failure, Outcome, Result};
use crate::render::text::quoted;

/// The names of the links to the program.
const LINKS: [&str; 5] = [
    "ipam",
    "kubectl-ipam",
    "kubectl-calico",
    "kubectl_complete-ipam",
    "kubectl_complete-calico",
];
/// The name of a link that can replace another program, and is created only on request.
const CALICOCTL: &str = "calicoctl";
/// The folder in `share` for zsh's functions, which zsh reads only if it is set up to.
const ZSH_FOLDER: &str = "zsh/site-functions";
/// The shells that load completion scripts from a folder in `share`: the shell's program, and the folder.
const SHELLS: [(&str, &str); 3] = [
    ("bash", "bash-completion/completions"),
    ("zsh", ZSH_FOLDER),
    ("fish", "fish/vendor_completions.d"),
];

/// Creates the links to this program in a directory and, on request, the completion scripts and man pages beside it.
/// With `--remove`, removes all of them. The outcome is [`Outcome::Refused`] if a different file is in the way of any.
pub(super) fn run(args: &InstallLinksArgs, console: &Console) -> Result<Outcome> {
    let directory = &args.directory;
    if !directory.is_dir() {
        return Err(
            Failure::refused(format!("{} is not a directory", quoted(directory)))
                .hint("create it, or name another directory in PATH"),
        );
    }
    let program = program()?;
    let share = share_of(directory)?;
    if args.remove {
        return remove(directory, &program, &share, console);
    }

    let mut links = LINKS.to_vec();
    if args.calicoctl {
        links.push(CALICOCTL);
    }
    let mut all_installed = true;
    for name in links {
        let path = directory.join(name);
        // The others are created even if one cannot be.
        let is_installed = leads_to(&path, &program);
        let create = || symlink(&program, &path);
        all_installed &= install(&path, is_installed, args.force, console, create)
            .map_err(Failure::io_at("create", &path))?;
    }

    if args.completions {
        for (path, text) in files(&share, is_in_path) {
            let is_installed = has_text(&path, &text);
            let create = || write(&path, &text);
            all_installed &= install(&path, is_installed, args.force, console, create)
                .map_err(Failure::io_at("write", &path))?;
        }
        if is_in_path("zsh") {
            let folder = share.join(ZSH_FOLDER);
            console.hint(&format!("zsh reads {} if it is in its `fpath`", quoted(&folder)));
        }
    }
    if all_installed {
        Ok(Outcome::Clean)
    } else {
        Ok(Outcome::Refused)
    }
}

/// Removes the links to this program, and the unchanged files that it has written.
fn remove(directory: &Path, program: &Path, share: &Path, console: &Console) -> Result<Outcome> {
    let mut paths = Vec::new();
    for name in LINKS.into_iter().chain([CALICOCTL]) {
        let path = directory.join(name);
        if path.is_symlink() && leads_to(&path, program) {
            paths.push(path);
        }
    }
    // A shell may have been removed since its script was installed.
    let every_shell = |_: &str| true;
    for (path, text) in files(share, every_shell) {
        if has_text(&path, &text) {
            paths.push(path);
        }
    }

    for path in paths {
        fs::remove_file(&path).map_err(Failure::io_at("remove", &path))?;
        console.say(&format!("removed {}", quoted(&path)));
    }
    Ok(Outcome::Clean)
}

/// Returns the path and text of each man page, and of each completion script for the shells that `has_shell` accepts.
fn files(share: &Path, has_shell: impl Fn(&str) -> bool) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    for (script, text) in completion_scripts() {
        if let Some((shell, path)) = place_of_script(&script)
            && has_shell(shell)
        {
            files.push((share.join(path), text));
        }
    }

    for (name, text) in MAN_PAGES {
        files.push((share.join("man/man1").join(name), text.as_bytes().to_owned()));
    }
    files
}

/// Returns the shell of a completion script such as `calipam.zsh`, and the path in `share` from which that shell loads
/// the script; `None` for other shells.
fn place_of_script(script: &str) -> Option<(&'static str, PathBuf)> {
    let (program, ending) = script.rsplit_once('.')?;
    let (shell, folder) = SHELLS.into_iter().find(|(shell, _)| *shell == ending)?;
    // Each shell looks for scripts under names of its own.
    let name = match shell {
        "zsh" => format!("_{program}"),
        "fish" => format!("{program}.fish"),
        _ => program.to_owned(),
    };
    Some((shell, Path::new(folder).join(name)))
}

/// True if the shell's program is in PATH.
fn is_in_path(shell: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(shell).is_file())
}

/// Returns `share` next to the directory, such as `/usr/local/share` for `/usr/local/bin`.
fn share_of(directory: &Path) -> Result<PathBuf> {
    let directory = fs::canonicalize(directory).map_err(Failure::io_at("find", directory))?;
    Ok(directory.parent().unwrap_or(&directory).join("share"))
}

/// True if the path is a link to this program.
fn leads_to(path: &Path, program: &Path) -> bool {
    fs::canonicalize(path).is_ok_and(|target| target == program)
}

/// True if the path is a file with this text.
fn has_text(path: &Path, text: &[u8]) -> bool {
    path.is_file() && fs::read(path).is_ok_and(|content| content == text)
}

/// Creates a link or file with `create` unless it is already installed. With `force`, replaces a different file of this
/// name; otherwise keeps that file and returns false.
fn install(
    path: &Path,
    is_installed: bool,
    force: bool,
    console: &Console,
    create: impl FnOnce() -> io::Result<()>,
) -> io::Result<bool> {
    let shown = path.display();
    if is_installed {
        console.verbose(&format!("{shown} exists already"));
        return Ok(true);
    }
    // A link that leads nowhere is in the way, too.
    let is_taken = fs::symlink_metadata(path).is_ok();
    if is_taken && !force {
        console.warn(&format!(
            "{shown} exists, but is a different file; it is not replaced (`--force` replaces it)"
        ));
        return Ok(false);
    }
    if is_taken {
        fs::remove_file(path)?;
    }
    create()?;
    console.say(&format!("created {shown}"));
    Ok(true)
}

/// Returns the path of the program with all links resolved.
fn program() -> Result<PathBuf> {
    let program = std::env::current_exe().and_then(fs::canonicalize);
    program.map_err(Failure::io("find this program"))
}

fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, text)
}

#[cfg(unix)]
fn symlink(program: &Path, path: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(program, path)
}

#[cfg(not(unix))]
fn symlink(program: &Path, path: &Path) -> io::Result<()> {
    fs::hard_link(program, path.with_extension("exe"))
}
