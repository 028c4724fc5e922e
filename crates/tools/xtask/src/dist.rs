//! `cargo xtask dist` and `cargo xtask image`: build the programs, and package them or make images.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;
use crate::foreign::Machine;
use crate::publisher::Publisher;
use crate::task::Task;
use crate::{protoc, servers, step, tools, workspace, zig};

pub(crate) const TASK: Task = Task {
    name: "dist",
    arguments: "[options]",
    summary: "Make archives, .deb, .rpm, SBOMs, sums and the manifest for krew",
    details: "\
Builds calipam and its CNI plugin by the profile dist, as static programs for
this machine (x86_64-unknown-linux-musl; --target TRIPLE: for another one),
unless --programs DIR names a folder in which they are, and writes into dist/
(--output DIR), for calipam and for calipam-cni:

  NAME-VERSION-TRIPLE.tar.gz    programs, completions, man pages, units, licence
  NAME_VERSION_ARCH.deb         for Linux
  NAME-VERSION-1.ARCH.rpm       for Linux
  NAME-VERSION-TRIPLE.cdx.json  what it is built of (CycloneDX)
  SHA256SUMS                    of all files in the folder

and docs/krew.yaml (--manifest FILE), by which krew installs `kubectl ipam` from
the archives in the folder, to be downloaded below the URL in Cargo.toml
(workspace.metadata.publisher). Run it once for each target with the same
--output, then upload the folder. The same programs give the same packages, byte
for byte.

With --check it then tries the programs: they need no library, run in a folder
with nothing else, find names by /etc/hosts there, and pass the tests of the
plugin, and those of checks, views, a release and its undo on an etcd. Needs
root or user namespaces, and what tests need. Programs for arm64 are run by
QEMU, which is unpacked from the package qemu-user-static; that takes Linux 6.7
or newer.
With --twice it first builds the commit that is checked out once more, in
another folder, and compares the programs byte for byte.

Needs Rust; rustup installs the standard library of a target. These were tried:

  x86_64-unknown-linux-musl, aarch64-unknown-linux-musl
      on any machine. pip installs Zig, which compiles the C code of crates;
      CC_TRIPLE names another compiler
  x86_64-pc-windows-gnu
      apt-get install gcc-mingw-w64-x86-64
      calipam alone; checked, released and undid on an etcd under Wine
  aarch64-apple-darwin, x86_64-apple-darwin
      calipam alone, linked on any machine by Rust's linker with the names of
      macOS's libraries; it was never run
",
    run,
};

pub(crate) const IMAGE: Task = Task {
    name: "image",
    arguments: "[options]",
    summary: "Make OCI images of calipam and of the plugin's installer",
    details: "\
Builds the programs as `cargo xtask dist` does (--target, --programs) and writes
two OCI layouts below dist/images (--output DIR): calipam, and
calipam-cni-installer for docs/kubernetes/cni. They hold one static program each
and nothing else. Run it once for each target: a layout holds images for several
machines. The same programs give the same images.

To a registry, or to a node without one:

  skopeo copy --all oci:dist/images/calipam docker://REGISTRY/calipam:VERSION
  tar -C dist/images/calipam -c . | ctr -n k8s.io images import -

With --check it then unpacks the images and runs what is in them: one checks an
export, the other installs the plugin, stays next to it, and removes it again.
Needs root or user namespaces.

Needs what `cargo xtask dist` needs.
",
    run: run_image,
};

/// Filters for the tests that also run with the packaged program. They check exports, an etcd and its snapshot, show
/// views, and undo releases.
const TESTS: [&str; 4] = ["cli::check::", "cli::etcd::", "cli::show::", "cli::repair::undo::"];

/// The options of `dist` and `image`.
#[derive(Debug, Default, PartialEq, Eq)]
struct Request {
    target: Option<String>,
    programs: Option<PathBuf>,
    output: Option<PathBuf>,
    manifest: Option<PathBuf>,
    check: bool,
    twice: bool,
}

fn run(arguments: &[String]) -> Result<(), Failure> {
    let request = parse(arguments)?;
    let publisher = Publisher::read()?;
    publisher.require_published()?;
    let (target, programs) = programs(&request)?;
    if request.twice {
        build_again(&target, &programs)?;
    }
    let manifest = request.manifest.unwrap_or_else(|| "docs/krew.yaml".into());
    let output = request.output.unwrap_or_else(|| "dist".into());
    let mut package = packager("packages", &programs, &target, &output)?;
    step::run("Packaging", package.arg(publisher.downloads).arg(manifest))?;
    if !request.check {
        return Ok(());
    }
    let machine = Machine::of(&target, &programs)?;
    let trial = packager("try-programs", &programs, &target, &output)?;
    step::run("Running the programs in an empty folder", &mut machine.on(trial))?;
    test(&programs, &machine)
}

fn run_image(arguments: &[String]) -> Result<(), Failure> {
    let request = parse(arguments)?;
    let (target, programs) = programs(&request)?;
    let output = request.output.unwrap_or_else(|| "dist/images".into());
    step::run("Writing images", &mut packager("image", &programs, &target, &output)?)?;
    if !request.check {
        return Ok(());
    }
    let trial = packager("try-images", &programs, &target, &output)?;
    step::run("Running the images", &mut Machine::of(&target, &programs)?.on(trial))
}

/// Returns a command that runs the packager. The packager is a separate program, so that building xtask does not build
/// its dependencies.
fn packager(order: &str, programs: &Path, target: &str, output: &Path) -> Result<Command, Failure> {
    let mut packager = workspace::cargo();
    packager.args(["run", "--package", "calipam-dist", "--", order]);
    packager.arg(workspace::root()).arg(programs).arg(target).arg(output);
    packager.envs(protoc::variables()?);
    Ok(packager)
}

/// Returns the target and the folder with its programs. Builds the programs unless the command line names a folder.
fn programs(request: &Request) -> Result<(String, PathBuf), Failure> {
    let target = match &request.target {
        Some(target) => target.clone(),
        None => host()?.replace("-linux-gnu", "-linux-musl"),
    };
    let programs = match &request.programs {
        Some(programs) => programs.clone(),
        None => build(&target, &workspace::root(), &workspace::target()?)?,
    };
    Ok((target, programs))
}

/// Builds the programs of a checkout with the profile dist. `folder` is cargo's target folder. Returns the folder with
/// the programs.
fn build(target: &str, checkout: &Path, folder: &Path) -> Result<PathBuf, Failure> {
    tools::need_c_compiler()?;
    tools::install_target(target)?;
    let mut build = workspace::cargo();
    build.args(["build", "--profile", "dist", "--target", target]);
    build.args(["--package", "calipam", "--bin", "calipam"]);
    // The plugin is for Linux.
    if target.contains("-linux-") {
        build.args(["--package", "calipam-cni", "--bin", "calico-ipam"]);
    }
    // Without the paths of this machine, other machines build the same bytes.
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::home_dir().map(|home| home.join(".cargo"))).unwrap_or_default();
    let map = |from: &Path, to: &str| format!("\"--remap-path-prefix={}={to}\"", from.display());
    let maps = [map(&home, "/cargo"), map(checkout, "/calipam")].join(",");
    build.args(["--config", &format!("target.{target}.rustflags=[{maps}]")]);
    build.current_dir(checkout).env("CARGO_TARGET_DIR", folder).envs(protoc::variables()?);
    build.envs(zig::variables(target)?).envs(zig::linker(target)?);
    // The C code of mimalloc embeds the time of its compilation. The C compiler reads this time from the variable.
    build.env("SOURCE_DATE_EPOCH", "0");
    step::run("Building the programs for packages", &mut build)?;
    Ok(folder.join(target).join("dist"))
}

/// Builds the checked-out commit from scratch in another folder, and compares the result with `programs`.
fn build_again(target: &str, programs: &Path) -> Result<(), Failure> {
    let git = |words: &[&str]| {
        let mut git = Command::new("git");
        git.args(words);
        git
    };
    let unchanged = git(&["diff", "--quiet", "HEAD"]).status().is_ok_and(|status| status.success());
    if !unchanged {
        return Err(Failure::new("--twice builds a commit, and files differ from it")
            .hint("commit or stash what has changed"));
    }
    let copy = workspace::root().join("target/tmp/dist-again");
    fs::remove_dir_all(&copy).ok();
    let mut clone = git(&["clone", "--quiet"]);
    step::run("Copying the commit to another folder", clone.arg(workspace::root()).arg(&copy))?;
    let again = build(target, &copy, &copy.join("target"))?;
    for name in ["calipam", "calico-ipam"].into_iter().filter(|name| programs.join(name).is_file()) {
        let read = |path: PathBuf| fs::read(&path).map_err(|error| Failure::io("read", &path, &error));
        if read(programs.join(name))? != read(again.join(name))? {
            let what = format!("{} and {} differ", programs.join(name).display(), again.join(name).display());
            return Err(Failure::new(what).hint("`diffoscope` shows where"));
        }
        step::announce(&format!("{name}: both builds are the same"));
    }
    fs::remove_dir_all(&copy).map_err(|error| Failure::io("remove", &copy, &error))
}

/// Runs the plugin's tests, and some of calipam's, with the packaged programs.
fn test(programs: &Path, machine: &Machine) -> Result<(), Failure> {
    let variables = servers::prepare()?.build()?;
    let programs = programs.canonicalize().map_err(|error| Failure::io("find", programs, &error))?;
    let tests = |variable: &str, program: &str, words: &[&str]| -> Result<Command, Failure> {
        let mut tests = workspace::cargo();
        tests.arg("test").args(words).env(variable, programs.join(program));
        tests.envs(protoc::variables()?).envs(variables.clone());
        Ok(tests)
    };
    let plugin = ["--package", "calipam-cni", "--test", "integration"];
    let plugin = tests("CALIPAM_TEST_PLUGIN", "calico-ipam", &plugin)?;
    step::run("Testing the packaged plugin", &mut machine.on(plugin))?;
    let program = [&["--workspace", "--test", "tests", "--"][..], &TESTS].concat();
    let program = tests("CALIPAM_TEST_PROGRAM", "calipam", &program)?;
    step::run("Testing the packaged program", &mut machine.on(program))
}

/// Returns the target triple of this machine, as rustc reports it.
fn host() -> Result<String, Failure> {
    let output = std::process::Command::new("rustc").arg("-vV").output();
    let output = output.map_err(|error| Failure::new(format!("cannot run `rustc -vV`: {error}")))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| Failure::new("`rustc -vV` does not name the host"))
}

fn usage(what: String) -> Failure {
    Failure::new(what).hint("`cargo xtask help dist` says what it takes")
}

/// Parses the options of `dist` and `image`.
fn parse(arguments: &[String]) -> Result<Request, Failure> {
    let mut request = Request::default();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        if let "--check" | "--twice" = word.as_str() {
            *(if word == "--check" { &mut request.check } else { &mut request.twice }) = true;
            continue;
        }
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, value.to_owned()),
            None => {
                let value = words.next().ok_or_else(|| usage(format!("`{word}` needs a value")))?;
                (word.as_str(), value.clone())
            }
        };
        match name {
            "--target" => request.target = Some(value),
            "--programs" => request.programs = Some(value.into()),
            "--output" => request.output = Some(value.into()),
            "--manifest" => request.manifest = Some(value.into()),
            _ => return Err(usage(format!("unknown option `{name}`"))),
        }
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
        let request = parse(&words("--programs=p --check --output out")).unwrap();
        let expected = Request {
            programs: Some("p".into()),
            output: Some("out".into()),
            check: true,
            ..Request::default()
        };
        assert_eq!(request, expected);
        for text in ["--output", "--output=out --colour red"] {
            assert!(parse(&words(text)).is_err(), "{text}");
        }
    }
}
