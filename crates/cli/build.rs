//! Embeds the commit in release builds: the variable CALIPAM_COMMIT or, without it, the commit that git has checked
//! out. Development builds embed only the variable, so that a new commit does not rebuild everything.
//!
//! Links the program at a fixed address, like packages and the plugin: without its 250,000 relocations a debug build
//! prints its version in three quarters of the processor time.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=CALIPAM_COMMIT");
    println!("cargo:rerun-if-changed=build.rs");
    let named = std::env::var("CALIPAM_COMMIT").ok();
    let is_release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let commit = named
        .or_else(|| is_release.then(of_git).flatten())
        .unwrap_or_default();
    println!("cargo:rustc-env=CALIPAM_COMMIT={}", commit.trim());

    let is = |variable: &str, value: &str| std::env::var(variable).as_deref() == Ok(value);
    // With other C libraries the program is linked statically.
    if is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu") {
        println!("cargo:rustc-link-arg-bins=-no-pie");
    }
}

/// Returns the checked-out commit. Each commit adds a line to the reflog of `HEAD`, which makes cargo run this script
/// again.
fn of_git() -> Option<String> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git")
            .args(arguments)
            .output()
            .ok()
            .filter(|output| output.status.success())?;
        Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
    };
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo:rerun-if-changed={log}");
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}
