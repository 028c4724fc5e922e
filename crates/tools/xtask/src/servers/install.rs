//! Installs packages of the distribution, if the user has the rights.

use std::process::Command;

use crate::failure::Failure;
use crate::tool::Tool;
use crate::{step, tools};

/// Installs the distribution packages of the given tools with apt-get, as root or with `sudo`. Warns about each tool
/// that cannot be installed.
pub(super) fn install(wanted: &[Tool]) {
    if wanted.is_empty() || tools::on_path("apt-get").is_none() {
        return;
    }
    let Some(root) = as_root() else {
        eprintln!("warning: neither root nor `sudo` without a password: nothing is installed");
        return;
    };

    // A fresh machine often has no package lists. If they cannot be updated, the existing ones may suffice.
    let update = apt_get(root, &["update", "-q"]);
    update.unwrap_or_else(|failure| eprintln!("{}", failure.as_warning()));
    // Packages are installed one at a time, since no distribution has all of them.
    for tool in wanted {
        let done = apt_get(
            root,
            &["install", "-qy", "--no-install-recommends", tool.package()],
        );
        done.unwrap_or_else(|failure| eprintln!("{}", failure.as_warning()));
    }
}

/// The prefix of a command that needs root: empty for root itself, `sudo` if it needs no password. `None` if the user
/// cannot become root.
fn as_root() -> Option<&'static [&'static str]> {
    let id = Command::new("id").arg("-u").output();
    if id.is_ok_and(|id| id.stdout == b"0\n") {
        return Some(&[]);
    }
    let sudo = Command::new("sudo").args(["-n", "true"]).output();
    sudo.is_ok_and(|sudo| sudo.status.success())
        .then_some(&["sudo", "-n"])
}

fn apt_get(root: &[&str], arguments: &[&str]) -> Result<(), Failure> {
    let plain = [
        "env",
        "DEBIAN_FRONTEND=noninteractive",
        "apt-get",
        "-o",
        "DPkg::Lock::Timeout=60",
    ];
    let words = [root, &plain, arguments].concat();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    step::announce(&format!(
        "Installing what tests need: {}",
        step::command_line(&command)
    ));
    step::run_silently(&mut command)
}
