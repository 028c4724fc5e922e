//! Packages calipam and its CNI plugin for `cargo xtask dist`: archives, .deb, .rpm, SBOMs, checksums, and the manifest
//! with which krew installs the kubectl plugin. Also makes images of both for `cargo xtask image`.
//!
//! This program does not build the packaged programs. The caller names the folder that contains them.

mod archive;
mod deb;
mod files;
mod image;
mod krew;
mod package;
mod rpm;
mod sbom;
mod sums;
#[cfg(test)]
mod tests;
mod trial;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::files::Machine;
use crate::package::Package;

/// The programs to package, and the output folder.
struct Request {
    /// The root of the project.
    root: PathBuf,
    /// The folder with `calipam` and `calico-ipam`.
    programs: PathBuf,
    /// The target of the programs, such as `x86_64-unknown-linux-musl`.
    target: String,
    output: PathBuf,
}

/// The settings of krew's manifest.
struct Krew {
    /// The URL below which the archives can be downloaded.
    base_url: String,
    manifest: PathBuf,
}

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The authors in the Cargo.toml of the workspace.
const AUTHORS: &str = env!("CARGO_PKG_AUTHORS");
/// The repository in the same file; empty if it names none.
const REPOSITORY: &str = env!("CARGO_PKG_REPOSITORY");
type Result<T> = std::result::Result<T, Box<dyn Error>>;

const USAGE: &str = "\
error: calipam-dist packages ROOT PROGRAMS TARGET OUTPUT BASE_URL MANIFEST
       calipam-dist image ROOT PROGRAMS TARGET OUTPUT
       calipam-dist try-programs ROOT PROGRAMS TARGET OUTPUT
       calipam-dist try-images ROOT PROGRAMS TARGET OUTPUT
`cargo xtask dist` and `cargo xtask image` call it";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&words) {
        Some(Ok(written)) => {
            written.iter().for_each(|path| println!("{}", path.display()));
            ExitCode::SUCCESS
        }
        None => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
        Some(Err(error)) => {
            eprintln!("error: {error}");
            ExitCode::from(1)
        }
    }
}

/// Returns the written files; `None` if the command line is invalid.
fn run(words: &[&str]) -> Option<Result<Vec<PathBuf>>> {
    let [order, root, programs, target, output, rest @ ..] = words else { return None };
    let target = (*target).to_owned();
    let request = Request { root: root.into(), programs: programs.into(), target, output: output.into() };
    match (*order, rest) {
        ("packages", [base_url, manifest]) => {
            let base_url = base_url.trim_end_matches('/').to_owned();
            Some(packages(&request, &Krew { base_url, manifest: manifest.into() }))
        }
        ("image", []) => Some(images(&request)),
        ("try-programs", []) => Some(trial::programs(&request).map(|()| Vec::new())),
        ("try-images", []) => Some(trial::images(&request).map(|()| Vec::new())),
        _ => None,
    }
}

/// Writes the packages for one target, and the checksums and the manifest of all packages in the output folder.
fn packages(request: &Request, krew: &Krew) -> Result<Vec<PathBuf>> {
    let Request { root, target, output, .. } = request;
    let machine = machine(target)?;
    fs::create_dir_all(output).map_err(cannot("create", output))?;
    let metadata = sbom::metadata(root, target)?;
    let lock = root.join("Cargo.lock");
    let lock = fs::read_to_string(&lock).map_err(cannot("read", &lock))?;

    let mut paths = Vec::new();
    for package in Package::all(request, &machine)? {
        let stem = package.stem(target);
        let parts = sbom::document(package.name, &metadata, &lock)?;
        let mut written = vec![
            (format!("{stem}.tar.gz"), archive::build(&stem, &package.entries)?),
            (format!("{stem}.cdx.json"), serde_json::to_vec_pretty(&parts)?),
        ];
        if machine.os == "linux" {
            let (name, Machine { deb, rpm, .. }) = (package.name, machine);
            written.push((format!("{name}_{VERSION}_{deb}.deb"), deb::build(&package, &machine)?));
            written.push((format!("{name}-{VERSION}-1.{rpm}.rpm"), rpm::build(&package, &machine)?));
        }
        for (name, content) in written {
            let path = output.join(name);
            fs::write(&path, content).map_err(cannot("write", &path))?;
            paths.push(path);
        }
    }
    paths.push(sums::write(output)?);
    let manifest = krew::manifest(output, &krew.base_url)?;
    fs::write(&krew.manifest, manifest).map_err(cannot("write", &krew.manifest))?;
    paths.push(krew.manifest.clone());
    Ok(paths)
}

/// Writes the images for one target.
fn images(request: &Request) -> Result<Vec<PathBuf>> {
    let machine = machine(&request.target)?;
    if machine.os != "linux" || machine.needs_libc {
        return Err(format!(
            "{}: an image needs static programs for Linux, those of a target with musl",
            request.target
        )
        .into());
    }
    // Without git, or outside of a checkout, an image does not name its commit.
    let git = Command::new("git").arg("-C").arg(&request.root).args(["rev-parse", "HEAD"]).output();
    let commit = git.ok().filter(|git| git.status.success()).map(|git| git.stdout).unwrap_or_default();
    image::write_all(request, &machine, String::from_utf8_lossy(&commit).trim())
}

fn machine(target: &str) -> Result<Machine> {
    Ok(Machine::of(target).ok_or_else(|| format!("nothing is packaged for {target}"))?)
}

/// The maintainer that packages name: the first author.
fn maintainer() -> &'static str {
    AUTHORS.split(':').next().unwrap_or_default()
}

/// Describes an error with a file, for `map_err`.
fn cannot(act: &str, path: &Path) -> impl FnOnce(std::io::Error) -> Box<dyn Error> {
    let what = format!("cannot {act} {}", path.display());
    move |error| format!("{what}: {error}").into()
}
