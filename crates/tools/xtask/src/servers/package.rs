//! Unpacks a Debian or Ubuntu package without installing it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;
use crate::tool::Tool;
use crate::{step, tools, workspace};

/// Downloads a program's package and unpacks it below `target/servers`, unless the program is already there. Returns the
/// program's path.
pub(super) fn unpack(program: Tool) -> Result<PathBuf, Failure> {
    let package = program.package();
    let installed = program.installed_path(&workspace::root());
    if installed.is_file() {
        return Ok(installed);
    }
    let manual = format!(
        "install {program} yourself and set {} to its path",
        program.variable()
    );
    if tools::on_path("apt-get").is_none() || tools::on_path("dpkg").is_none() {
        return Err(
            Failure::new(format!("no apt-get and dpkg to unpack the package {package}")).hint(manual),
        );
    }
    step::announce(&format!(
        "Unpacking {program} from the distribution's package {package} (not installing it)"
    ));
    let target = installed
        .ancestors()
        .nth(3)
        .expect("the path is FOLDER/usr/bin/PROGRAM");
    let work = target.with_file_name("apt");
    let unpacked = work.join("unpacked");
    step::run_silently(
        Command::new("dpkg")
            .arg("-x")
            .arg(download(package, &work)?)
            .arg(&unpacked),
    )?;
    let file = unpacked.join(
        installed
            .strip_prefix(target)
            .expect("the program is in its folder"),
    );
    if !program.is_wanted(&file) {
        return Err(Failure::new(format!("the distribution's {package} is not {program}")).hint(manual));
    }
    // Only a complete folder gets the final name.
    fs::rename(&unpacked, target).map_err(|error| Failure::io("rename", &unpacked, &error))?;
    fs::remove_dir_all(&work).map_err(|error| Failure::io("remove", &work, &error))?;
    Ok(installed)
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
    let apt_get = |lists: &[String], words: &[&str]| {
        let mut command = Command::new("apt-get");
        // apt's download user often cannot enter a home directory.
        command
            .current_dir(work)
            .args(["-q", "-o", "APT::Sandbox::User=root"])
            .args(lists)
            .args(words);
        step::run_silently(&mut command)
    };
    if apt_get(&[], &["download", package]).is_err() {
        // A fresh machine often has no package lists. They are fetched into a folder of our own.
        let own = [("Dir::State::lists", "lists"), ("Dir::Cache", "cache")]
            .map(|(option, folder)| format!("-o{option}={}", work.join(folder).display()));
        apt_get(&own, &["update"])?;
        apt_get(&own, &["download", package])?;
    }
    let entries = fs::read_dir(work).map_err(|error| Failure::io("read", work, &error))?;
    let mut files = entries.filter_map(|entry| Some(entry.ok()?.path()));
    files
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .ok_or_else(|| {
            Failure::new(format!(
                "apt-get download {package} left no package in {}",
                work.display()
            ))
        })
}
