//! `cargo xtask dist`.

use std::path::PathBuf;

use crate::failure::Failure;
use crate::task::Task;
use crate::{protoc, step, tools, workspace};

pub(crate) const TASK: Task = Task {
    name: "dist",
    arguments: "--base-url URL [options]",
    summary: "Make the archive, .deb, .rpm, sums and the manifest for krew",
    details: "\
Builds calipam by the profile dist (--target TRIPLE: for another machine than
this one), unless --binary FILE names a program that is built, and writes into
dist/ (--output DIR):

  calipam-VERSION-TRIPLE.tar.gz   binary, completions, man pages, licence
  calipam_VERSION_ARCH.deb        for Linux
  calipam-VERSION-1.ARCH.rpm      for Linux
  SHA256SUMS                      of all packages that lie there

and docs/krew.yaml (--manifest FILE), by which krew installs `kubectl ipam` from
the archives that lie there, to be downloaded below --base-url. Run it once for
each target with the same --output, then upload the folder.

Needs Rust and a C compiler.
",
    run,
};

/// What the call asks for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Request {
    base_url: String,
    target: Option<String>,
    binary: Option<PathBuf>,
    output: Option<PathBuf>,
    manifest: Option<PathBuf>,
}

fn run(arguments: &[String]) -> Result<(), Failure> {
    let request = parse(arguments)?;
    tools::need_c_compiler()?;
    let target = match &request.target {
        Some(target) => target.clone(),
        None => host()?,
    };
    let binary = match &request.binary {
        Some(binary) => binary.clone(),
        None => build(&target)?,
    };
    let mut package = workspace::cargo();
    package.args(["run", "--package", "calipam-dist", "--"]).arg(workspace::root()).arg(binary).arg(&target);
    package.arg(request.output.unwrap_or_else(|| "dist".into())).arg(&request.base_url);
    package.arg(request.manifest.unwrap_or_else(|| "docs/krew.yaml".into()));
    step::run("Packaging", &mut package)
}

/// Builds the program by the profile of packages.
fn build(target: &str) -> Result<PathBuf, Failure> {
    let mut build = workspace::cargo();
    build.args([
        "build",
        "--profile",
        "dist",
        "--package",
        "calipam",
        "--bin",
        "calipam",
        "--target",
        target,
    ]);
    build.envs(protoc::variables()?);
    step::run("Building calipam for packages", &mut build)?;
    let name = if target.contains("windows") { "calipam.exe" } else { "calipam" };
    let folder = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    Ok(folder.join(target).join("dist").join(name))
}

/// The machine that this runs on, as rustc names it.
fn host() -> Result<String, Failure> {
    let output = std::process::Command::new("rustc").arg("-vV").output();
    let output = output.map_err(|error| Failure::new(format!("cannot run `rustc -vV`: {error}")))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| Failure::new("`rustc -vV` does not name the host"))
}

fn parse(arguments: &[String]) -> Result<Request, Failure> {
    let usage = |what: String| Failure::new(what).hint("`cargo xtask help dist` says what it takes");
    let mut request = Request::default();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, value.to_owned()),
            None => {
                let value = words.next().ok_or_else(|| usage(format!("`{word}` needs a value")))?;
                (word.as_str(), value.clone())
            }
        };
        match name {
            "--base-url" => request.base_url = value,
            "--target" => request.target = Some(value),
            "--binary" => request.binary = Some(value.into()),
            "--output" => request.output = Some(value.into()),
            "--manifest" => request.manifest = Some(value.into()),
            _ => return Err(usage(format!("unknown option `{name}`"))),
        }
    }
    let is_url = ["https://", "http://"].iter().any(|scheme| request.base_url.starts_with(scheme));
    if !is_url {
        return Err(usage(
            "`--base-url` names where the archives can be downloaded, such as https://…".to_owned(),
        ));
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn options_are_read_in_both_forms() {
        let request = parse(&words("--base-url=https://e.org/v1 --binary p --output out")).unwrap();
        let expected = Request {
            base_url: "https://e.org/v1".into(),
            binary: Some("p".into()),
            output: Some("out".into()),
            ..Request::default()
        };
        assert_eq!(request, expected);
        for text in ["", "--base-url", "--base-url ftp://e.org", "--base-url=https://e.org --colour red"] {
            assert!(parse(&words(text)).is_err(), "{text}");
        }
    }
}
