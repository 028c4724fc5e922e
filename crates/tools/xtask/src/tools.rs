//! Programs that the machine must have, and hints to install them.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;
use crate::step;
pub(crate) use crate::tool::on_path;

/// The path of Go if it was installed manually, according to its own instructions.
const USUAL_GO: &str = "/usr/local/go/bin/go";

/// The oldest Go that can fetch the toolchain that a module names, and the ways to do without.
pub(crate) const GO_HINT: &str = "Go 1.21 or newer is needed (https://go.dev/doc/install), and access to Go modules; \
     or put the program on PATH or into KUBEBUILDER_ASSETS";

/// Fails if there is no C compiler: the crates ring and zstd need one.
pub(crate) fn need_c_compiler() -> Result<(), Failure> {
    let found = env::var_os("CC").is_some()
        || ["cc", "gcc", "clang"]
            .into_iter()
            .any(|name| on_path(name).is_some());
    if found {
        return Ok(());
    }
    Err(
        Failure::new("no C compiler on this machine; the crates ring and zstd need one")
            .hint("install it with `apt-get install -y build-essential`, or set CC"),
    )
}

/// Installs the standard library for a target with rustup, unless it is installed.
pub(crate) fn install_target(target: &str) -> Result<(), Failure> {
    let asked = Command::new("rustc")
        .args(["--print", "target-libdir", "--target", target])
        .output();
    let folder = asked.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    if folder.is_ok_and(|folder| Path::new(&folder).is_dir()) {
        return Ok(());
    }
    step::run(
        "Adding a standard library",
        Command::new("rustup").args(["target", "add", target]),
    )
    .map_err(|failure| {
        failure.hint(format!(
            "the Rust toolchain needs the standard library for {target}"
        ))
    })
}

/// Finds Go on `PATH` or at [`USUAL_GO`].
pub(crate) fn go() -> Result<PathBuf, Failure> {
    let usual = || Some(PathBuf::from(USUAL_GO)).filter(|path| path.is_file());
    on_path("go")
        .or_else(usual)
        .ok_or_else(|| Failure::new("no Go on this machine").hint(GO_HINT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_on_the_path() {
        assert!(on_path("sh").is_some_and(|path| path.is_absolute()));
        assert_eq!(on_path("no-such-program"), None);
    }
}
