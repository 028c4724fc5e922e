//! Packages of calipam, for `cargo xtask dist`: an archive with binary, completions, man pages and licence, a .deb, an .rpm,
//! their sums, and the manifest by which krew installs the kubectl plugin.
//!
//! `calipam-dist ROOT BINARY TARGET OUTPUT BASE_URL MANIFEST`. It packages the binary that it is given, and builds none.

mod archive;
mod deb;
mod files;
mod krew;
mod rpm;
mod sums;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What is packaged, and where it goes.
struct Request {
    /// The root of the project.
    root: PathBuf,
    binary: PathBuf,
    /// For which machines the binary is, such as `x86_64-unknown-linux-gnu`.
    target: String,
    output: PathBuf,
    /// Where the archives can be downloaded.
    base_url: String,
    manifest: PathBuf,
}

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// From the Cargo.toml of the workspace.
const AUTHORS: &str = env!("CARGO_PKG_AUTHORS");
/// From the same place; empty where it names none.
const REPOSITORY: &str = env!("CARGO_PKG_REPOSITORY");
const SUMMARY: &str = "Inspects, checks and repairs the IP address management (IPAM) data of Calico";
const DESCRIPTION: &str = "\
calipam reads blocks, affinities, handles and pools from etcd, Kubernetes or a file, compares them
with what really uses addresses, and says what is wrong, how it is known, and what to do.
Repairs show a plan, ask, and keep a journal from which they can be undone.
";

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [root, binary, target, output, base_url, manifest] = arguments.as_slice() else {
        eprintln!(
            "error: calipam-dist ROOT BINARY TARGET OUTPUT BASE_URL MANIFEST; `cargo xtask dist` calls it"
        );
        return ExitCode::from(2);
    };
    let request = Request {
        root: root.into(),
        binary: binary.into(),
        target: target.clone(),
        output: output.into(),
        base_url: base_url.trim_end_matches('/').to_owned(),
        manifest: manifest.into(),
    };
    match run(&request) {
        Ok(written) => {
            written.iter().for_each(|path| println!("{}", path.display()));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(1)
        }
    }
}

/// Writes the packages for one target, and the sums and the manifest over all that lie in the output folder.
fn run(request: &Request) -> Result<Vec<PathBuf>> {
    let Request { output, target, .. } = request;
    fs::create_dir_all(output).map_err(named("create", output))?;
    let files = files::of(request)?;
    let stem = format!("calipam-{VERSION}-{target}");
    let mut written = vec![(format!("{stem}.tar.gz"), archive::build(&stem, &files)?)];
    // Packages of Linux distributions.
    if let Some(machine) = files::Machine::of(target).filter(|machine| machine.os == "linux") {
        written.push((format!("calipam_{VERSION}_{}.deb", machine.deb), deb::build(&files, &machine)?));
        written.push((format!("calipam-{VERSION}-1.{}.rpm", machine.rpm), rpm::build(&files, &machine)?));
    }

    let mut paths = Vec::new();
    for (name, content) in written {
        let path = output.join(name);
        fs::write(&path, content).map_err(named("write", &path))?;
        paths.push(path);
    }
    paths.push(sums::write(output)?);
    let manifest = krew::manifest(output, &request.base_url)?;
    fs::write(&request.manifest, manifest).map_err(named("write", &request.manifest))?;
    paths.push(request.manifest.clone());
    Ok(paths)
}

/// Who packages name as their maintainer: the first author.
fn maintainer() -> &'static str {
    AUTHORS.split(':').next().unwrap_or_default()
}

/// For `map_err`: what was being done with a file.
fn named(doing: &str, path: &Path) -> impl FnOnce(std::io::Error) -> Box<dyn Error> {
    let what = format!("cannot {doing} {}", path.display());
    move |error| format!("{what}: {error}").into()
}
