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
    machine: Machine,
    output: PathBuf,
}

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The authors in the Cargo.toml of the workspace.
const AUTHORS: &str = env!("CARGO_PKG_AUTHORS");
/// The repository in the same file; empty if it names none.
const REPOSITORY: &str = env!("CARGO_PKG_REPOSITORY");
type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(written) => {
            written.iter().for_each(|path| println!("{}", path.display()));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Does what `cargo xtask dist` or `cargo xtask image` orders, and returns the written files.
fn run(words: &[&str]) -> Result<Vec<PathBuf>> {
    let [order, programs, target, output, rest @ ..] = words else {
        return Err("`cargo xtask dist` and `cargo xtask image` call this program".into());
    };
    let request = Request::new(Path::new(programs), target, Path::new(output))?;
    match (*order, rest) {
        // The packages are published below a URL. krew's manifest is written into a file.
        ("packages", [url, manifest]) => packages(&request, url.trim_end_matches('/'), Path::new(manifest)),
        ("image", []) => images(&request),
        ("try-programs", []) => trial::programs(&request).map(|()| Vec::new()),
        ("try-images", []) => trial::images(&request).map(|()| Vec::new()),
        _ => Err(format!("there is no order `{}`", words.join(" ")).into()),
    }
}

impl Request {
    fn new(programs: &Path, target: &str, output: &Path) -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(3);
        Ok(Self {
            root: root
                .ok_or("the packager is three folders below the root")?
                .to_owned(),
            programs: programs.to_owned(),
            target: target.to_owned(),
            machine: Machine::of(target).ok_or_else(|| format!("nothing is packaged for {target}"))?,
            output: output.to_owned(),
        })
    }

    /// Reads a built program.
    fn program(&self, name: &str) -> Result<Vec<u8>> {
        read(&self.programs.join(name))
    }
}

/// Writes the packages for one target, and the checksums and krew's manifest of all packages in the output folder.
fn packages(request: &Request, url: &str, manifest: &Path) -> Result<Vec<PathBuf>> {
    let Request {
        root,
        target,
        machine,
        output,
        ..
    } = request;
    let metadata = sbom::metadata(root, target)?;
    let lock = String::from_utf8(read(&root.join("Cargo.lock"))?)?;

    let mut paths = Vec::new();
    for package in Package::all(request)? {
        let (name, stem) = (package.name, package.stem(target));
        let parts = sbom::document(name, &metadata, &lock)?;
        let mut files = vec![
            (format!("{stem}.tar.gz"), archive::build(&stem, &package.entries)?),
            (format!("{stem}.cdx.json"), serde_json::to_vec_pretty(&parts)?),
        ];
        if machine.os == "linux" {
            let Machine { deb, rpm, .. } = machine;
            files.push((
                format!("{name}_{VERSION}_{deb}.deb"),
                deb::build(&package, machine)?,
            ));
            files.push((
                format!("{name}-{VERSION}-1.{rpm}.rpm"),
                rpm::build(&package, machine)?,
            ));
        }
        for (name, content) in files {
            paths.push(write(output.join(name), content)?);
        }
    }
    paths.push(sums::write(output)?);
    paths.push(write(manifest.to_owned(), krew::manifest(output, url)?)?);
    Ok(paths)
}

/// Writes the images for one target.
fn images(request: &Request) -> Result<Vec<PathBuf>> {
    let Request {
        root,
        target,
        machine,
        ..
    } = request;
    if machine.os != "linux" || machine.needs_libc {
        let what = "an image needs static programs for Linux, those of a target with musl";
        return Err(format!("{target}: {what}").into());
    }
    // Without git, or outside of a checkout, an image does not name its commit.
    let git = Command::new("git")
        .arg("-C")
        .arg(root)
        .args(["rev-parse", "HEAD"])
        .output();
    let commit = git
        .ok()
        .filter(|git| git.status.success())
        .map(|git| git.stdout)
        .unwrap_or_default();
    image::write_all(request, String::from_utf8_lossy(&commit).trim())
}

/// The maintainer that packages name: the first author.
fn maintainer() -> &'static str {
    AUTHORS.split(':').next().unwrap_or_default()
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(cannot("read", path))
}

/// Writes a file, and creates its folder. Returns the path.
fn write(path: PathBuf, content: impl AsRef<[u8]>) -> Result<PathBuf> {
    let written = path
        .parent()
        .map_or(Ok(()), fs::create_dir_all)
        .and_then(|()| fs::write(&path, content));
    written.map_err(cannot("write", &path))?;
    Ok(path)
}

/// Describes an error with a file, for `map_err`.
fn cannot(act: &str, path: &Path) -> impl FnOnce(std::io::Error) -> Box<dyn Error> {
    let what = format!("cannot {act} {}", path.display());
    move |error| format!("{what}: {error}").into()
}
