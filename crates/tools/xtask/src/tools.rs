//! Programs that the machine must have, and hints to install them.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;
use crate::{step, workspace};

/// The oldest Go version that can fetch the toolchain that a module names.
const OLDEST_GO: (u32, u32) = (1, 21);

/// The path of Go if it was installed manually, according to its own instructions.
const USUAL_GO: &str = "/usr/local/go/bin/go";

/// Finds the program that a shell would run for this name.
pub(crate) fn on_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Fails if there is no C compiler: the crates ring and zstd need one.
pub(crate) fn need_c_compiler() -> Result<(), Failure> {
    let found =
        env::var_os("CC").is_some() || ["cc", "gcc", "clang"].into_iter().any(|name| on_path(name).is_some());
    if found {
        return Ok(());
    }
    Err(Failure::new("no C compiler on this machine; the crates ring and zstd need one")
        .hint("install it with `apt-get install -y build-essential`, or set CC"))
}

/// Installs the standard library for a target with rustup, unless it is installed.
pub(crate) fn install_target(target: &str) -> Result<(), Failure> {
    let asked = Command::new("rustc").args(["--print", "target-libdir", "--target", target]).output();
    let folder = asked.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    if folder.is_ok_and(|folder| Path::new(&folder).is_dir()) {
        return Ok(());
    }
    step::run("Adding a standard library", Command::new("rustup").args(["target", "add", target])).map_err(
        |failure| failure.hint(format!("the Rust toolchain needs the standard library for {target}")),
    )
}

/// Fails if a component of the Rust toolchain is missing. `name` is its cargo subcommand.
pub(crate) fn need_component(name: &str, component: &str) -> Result<(), Failure> {
    let output = workspace::cargo().args([name, "--version"]).output();
    if output.is_ok_and(|output| output.status.success()) {
        return Ok(());
    }
    Err(Failure::new(format!("the Rust toolchain has no {component}"))
        .hint(format!("install it with `rustup component add {component}`")))
}

/// Finds a Go installation that can build with the version `wanted`: on `PATH`, or at [`USUAL_GO`].
pub(crate) fn go(wanted: &str) -> Result<PathBuf, Failure> {
    let usual = Some(PathBuf::from(USUAL_GO)).filter(|path| path.is_file());
    let mut problem = "no Go on this machine".to_owned();
    for path in on_path("go").into_iter().chain(usual) {
        match installed_go(&path) {
            Some(found) if found >= OLDEST_GO => return Ok(path),
            Some((major, minor)) => problem = format!("{} is Go {major}.{minor}: too old", path.display()),
            None => problem = format!("{} does not tell its version", path.display()),
        }
    }
    Err(Failure::new(format!(
        "{problem}; 1.21 or newer is needed, which fetches the version that a module names"
    ))
    .hint(go_hint(wanted)))
}

fn installed_go(path: &Path) -> Option<(u32, u32)> {
    let output = Command::new(path).arg("version").output().ok()?;
    go_version(&String::from_utf8_lossy(&output.stdout))
}

fn go_hint(wanted: &str) -> String {
    let machine = match env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!(
        "install it with `curl -fsSL https://go.dev/dl/go{wanted}.linux-{machine}.tar.gz | tar -C /usr/local -xz`"
    )
}

/// Reads the major and minor number in `go version go1.26.8 linux/amd64`.
fn go_version(text: &str) -> Option<(u32, u32)> {
    let version = text.split_whitespace().nth(2)?.strip_prefix("go")?;
    let mut numbers = version.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_go_are_read() {
        assert_eq!(go_version("go version go1.26.8 linux/amd64\n"), Some((1, 26)));
        assert_eq!(go_version("go version go1.21rc2 linux/amd64"), Some((1, 21)));
        assert_eq!(go_version("go version devel +abc linux/amd64"), None);
        assert_eq!(go_version(""), None);
    }

    #[test]
    fn programs_are_found_on_the_path() {
        assert!(on_path("sh").is_some_and(|path| path.is_absolute()));
        assert_eq!(on_path("no-such-program"), None);
    }
}
