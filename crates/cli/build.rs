//! Says of which commit a release is. CALIPAM_COMMIT names it if there is no git; builds for development have none,
//! so that a commit does not make everything be built again.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=CALIPAM_COMMIT");
    println!("cargo:rerun-if-changed=build.rs");
    let named = std::env::var("CALIPAM_COMMIT").ok();
    let is_release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let commit = named.or_else(|| is_release.then(of_git).flatten()).unwrap_or_default();
    println!("cargo:rustc-env=CALIPAM_COMMIT={}", commit.trim());
}

/// The commit that is checked out. Each commit adds a line to the log, which is looked at again then.
fn of_git() -> Option<String> {
    let git = |arguments: &[&str]| {
        let output =
            Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
        Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
    };
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo:rerun-if-changed={log}");
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}
