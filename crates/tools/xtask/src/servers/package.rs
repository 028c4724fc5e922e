//! Unpacks a Debian or Ubuntu package without installing it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;
use crate::tool::Tool;
use crate::{step, tools};

/// Downloads a program's package and unpacks it into a folder of `target/servers`, unless the program is already there.
pub(super) fn unpack(program: Tool, root: &Path) -> Result<(), Failure> {
    let (package, installed) = (program.package(), program.installed_path(root));
    if installed.is_file() {
        return Ok(());
    }
    let manual = format!("install {program} yourself and set {} to its path", program.variable());
    if tools::on_path("apt-get").is_none() || tools::on_path("dpkg").is_none() {
        return Err(Failure::new(format!("no apt-get and dpkg to unpack the package {package}")).hint(manual));
    }
    step::announce(&format!(
        "Unpacking {program} from the distribution's package {package} (not installing it)"
    ));
    // The program is in `usr/bin` of its folder.
    let target = installed.ancestors().nth(3).expect("a folder of target/servers");
    let work = root.join("target/servers/apt");
    let deb = download(package, &work)?;
    let unpacked = work.join("unpacked");
    step::run_silently(Command::new("dpkg").arg("-x").arg(&deb).arg(&unpacked))?;
    let file = unpacked.join(installed.strip_prefix(target).expect("the program lies in its folder"));
    if !program.is_wanted(&file) {
        return Err(Failure::new(format!("the distribution's {package} is not {program}")).hint(manual));
    }
    // Only a complete folder gets the final name.
    fs::rename(&unpacked, target).map_err(|error| Failure::io("rename", &unpacked, &error))?;
    fs::remove_dir_all(&work).map_err(|error| Failure::io("remove", &work, &error))
}

/// Downloads the package into a new, empty folder and returns the path of the package file.
fn download(package: &str, work: &Path) -> Result<PathBuf, Failure> {
    if work.exists() {
        fs::remove_dir_all(work).map_err(|error| Failure::io("remove", work, &error))?;
    }
    for folder in ["lists/partial", "cache/archives/partial"] {
        let folder = work.join(folder);
        fs::create_dir_all(&folder).map_err(|error| Failure::io("make", &folder, &error))?;
    }
    if step::run_silently(apt(work).args(["download", package])).is_err() {
        // A fresh machine often has no package lists. They are fetched into a folder of our own.
        step::run_silently(apt_with_own_lists(work).arg("update"))?;
        step::run_silently(apt_with_own_lists(work).args(["download", package]))?;
    }
    let entries = fs::read_dir(work).map_err(|error| Failure::io("read", work, &error))?;
    let mut files = entries.filter_map(|entry| Some(entry.ok()?.path()));
    files.find(|path| path.extension().is_some_and(|extension| extension == "deb")).ok_or_else(|| {
        Failure::new(format!("apt-get download {package} left no package in {}", work.display()))
    })
}

/// Returns an apt-get command that runs in the folder. It does not switch to apt's download user, who often cannot
/// enter a home directory.
fn apt(work: &Path) -> Command {
    let mut command = Command::new("apt-get");
    command.current_dir(work).args(["-q", "-o", "APT::Sandbox::User=root"]);
    command
}

fn apt_with_own_lists(work: &Path) -> Command {
    let mut command = apt(work);
    command.arg("-o").arg(format!("Dir::State::lists={}", work.join("lists").display()));
    command.arg("-o").arg(format!("Dir::Cache={}", work.join("cache").display()));
    command
}
