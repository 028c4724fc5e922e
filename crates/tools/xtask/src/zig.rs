//! Zig, the C compiler for targets that the machine's own cannot compile for.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use crate::failure::Failure;
use crate::{step, workspace};

/// The version of the wheel with the compiler. The programs hold what it compiles, so it is always the same.
const VERSION: &str = "0.17.1";

/// Variables of a build.
pub(crate) type Variables = Vec<(String, OsString)>;

/// Returns the variables with which the crates compile their C code for a target. Brings Zig if it is missing. None, if
/// the target needs another compiler, or the environment already names one.
pub(crate) fn variables(target: &str) -> Result<Variables, Failure> {
    let suffix = target.replace('-', "_");
    let compiler = format!("CC_{suffix}");
    let Some(name) = name_of(target).filter(|_| env::var_os(&compiler).is_none()) else {
        return Ok(Vec::new());
    };
    let folder = folder();
    let zig = folder.join("ziglang/zig");
    if !zig.is_file() {
        let mut install = Command::new("python3");
        install
            .args(["-m", "pip", "install", "--quiet", "--target"])
            .arg(&folder)
            .arg(format!("ziglang=={VERSION}"));
        // It warns of root otherwise, which installs into a folder of its own here.
        install.env("PIP_ROOT_USER_ACTION", "ignore");
        step::run("Bringing Zig, which compiles C for other machines", &mut install).map_err(|failure| {
            let hint =
                format!("`apt-get install -y python3-pip` brings pip; or set {compiler} to a C compiler");
            failure.hint(hint)
        })?;
    }
    let zig = zig.display();
    let variables = [
        (compiler, format!("{zig} cc -target {name}")),
        (format!("AR_{suffix}"), format!("{zig} ar")),
        (format!("CFLAGS_{suffix}"), "-O3 -ffunction-sections -fdata-sections".to_owned()),
        // One of the defaults is Rust's name of the target, which Zig does not know.
        ("CRATE_CC_NO_DEFAULTS".to_owned(), "1".to_owned()),
    ];
    Ok(variables.into_iter().map(|(name, value)| (name, value.into())).collect())
}

fn folder() -> PathBuf {
    workspace::root().join(format!("target/servers/zig-{VERSION}"))
}

/// Zig's name of a target. A Mac compiles for macOS itself.
fn name_of(target: &str) -> Option<String> {
    let (machine, system) = target.split_once('-')?;
    match system {
        "unknown-linux-musl" => Some(format!("{machine}-linux-musl")),
        "apple-darwin" if !cfg!(target_os = "macos") => Some(format!("{machine}-macos")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_have_names_in_zig() {
        assert_eq!(name_of("aarch64-unknown-linux-musl").as_deref(), Some("aarch64-linux-musl"));
        assert_eq!(name_of("x86_64-apple-darwin").as_deref(), Some("x86_64-macos"));
        assert_eq!(name_of("x86_64-unknown-linux-gnu"), None);
    }
}
