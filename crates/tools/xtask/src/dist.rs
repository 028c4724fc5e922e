//! `cargo xtask dist` and `cargo xtask image`: packages and images of the programs, which are built for it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;
use crate::task::Task;
use crate::{protoc, step, tools, workspace};

pub(crate) const TASK: Task = Task {
    name: "dist",
    arguments: "--base-url URL [options]",
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
  SHA256SUMS                    of all that lie there

and docs/krew.yaml (--manifest FILE), by which krew installs `kubectl ipam` from
the archives that lie there, to be downloaded below --base-url. Run it once for
each target with the same --output, then upload the folder. The same commit
gives the same bytes, wherever it is built with the same toolchain.

With --check it then tries the programs: they need no library, run in a folder
with nothing else, and find names by /etc/hosts there. Needs root or user
namespaces.

Needs Rust, the target (`rustup target add TRIPLE`) and a C compiler for it:

  x86_64-unknown-linux-musl
      apt-get install musl-tools
  aarch64-unknown-linux-musl, on another machine; not tried
      apt-get install gcc-aarch64-linux-gnu
      export CC_aarch64_unknown_linux_musl=aarch64-linux-gnu-gcc
      export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER=rust-lld
  aarch64-apple-darwin, x86_64-apple-darwin
      calipam alone, on a Mac; not tried
  x86_64-pc-windows-gnu
      does not build: files are opened and locked by calls of Unix
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

Needs what `cargo xtask dist` needs.
",
    run: run_image,
};

/// What the call asks for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Request {
    base_url: String,
    target: Option<String>,
    programs: Option<PathBuf>,
    output: Option<PathBuf>,
    manifest: Option<PathBuf>,
    check: bool,
}

fn run(arguments: &[String]) -> Result<(), Failure> {
    let request = parse(arguments)?;
    let is_url = ["https://", "http://"].iter().any(|scheme| request.base_url.starts_with(scheme));
    if !is_url {
        return Err(usage(
            "dist",
            "`--base-url` names where the archives can be downloaded, such as https://…".to_owned(),
        ));
    }
    let (target, programs) = programs(&request)?;
    let manifest = request.manifest.unwrap_or_else(|| "docs/krew.yaml".into());
    let mut package = packager("packages", &programs, &target);
    package.arg(request.output.unwrap_or_else(|| "dist".into())).arg(&request.base_url).arg(manifest);
    step::run("Packaging", &mut package)?;
    if request.check { try_programs(&programs) } else { Ok(()) }
}

fn run_image(arguments: &[String]) -> Result<(), Failure> {
    let request = parse(arguments)?;
    let (target, programs) = programs(&request)?;
    let mut image = packager("image", &programs, &target);
    image.arg(request.output.unwrap_or_else(|| "dist/images".into()));
    step::run("Writing images", &mut image)
}

/// The tool that packages, which is apart: not every build of a task needs its crates.
fn packager(order: &str, programs: &Path, target: &str) -> Command {
    let mut packager = workspace::cargo();
    packager.args(["run", "--package", "calipam-dist", "--", order]);
    packager.arg(workspace::root()).arg(programs).arg(target);
    packager
}

/// The target, and the folder with its programs.
fn programs(request: &Request) -> Result<(String, PathBuf), Failure> {
    let target = match &request.target {
        Some(target) => target.clone(),
        None => host()?.replace("-linux-gnu", "-linux-musl"),
    };
    let programs = match &request.programs {
        Some(programs) => programs.clone(),
        None => build(&target)?,
    };
    Ok((target, programs))
}

/// Builds the programs by the profile of packages, and gives their folder.
fn build(target: &str) -> Result<PathBuf, Failure> {
    tools::need_c_compiler()?;
    tools::need_target(target)?;
    let mut build = workspace::cargo();
    build.args(["build", "--profile", "dist", "--target", target]);
    build.args(["--package", "calipam", "--bin", "calipam"]);
    // The plugin is for Linux.
    if target.contains("-linux-") {
        build.args(["--package", "calipam-cni", "--bin", "calico-ipam"]);
    }
    // No path of this machine, so that another one builds the same bytes.
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::home_dir().map(|home| home.join(".cargo"))).unwrap_or_default();
    let map = |from: &Path, to: &str| format!("\"--remap-path-prefix={}={to}\"", from.display());
    let maps = [map(&home, "/cargo"), map(&workspace::root(), "/calipam")].join(",");
    build.args(["--config", &format!("target.{target}.rustflags=[{maps}]")]);
    build.envs(protoc::variables()?);
    step::run("Building the programs for packages", &mut build)?;
    let folder = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    Ok(folder.join(target).join("dist"))
}

/// Runs the programs where there is nothing but them and two files that say how names are found.
fn try_programs(programs: &Path) -> Result<(), Failure> {
    let root = workspace::root().join("target/tmp/dist-check");
    let written =
        |path: &Path, result: std::io::Result<()>| result.map_err(|error| Failure::io("write", path, &error));
    fs::remove_dir_all(&root).ok();
    written(&root, fs::create_dir_all(root.join("etc")))?;
    let hosts = "127.0.0.1 etcd.of.the.check\n";
    for (name, text) in [("hosts", hosts), ("resolv.conf", "nameserver 127.0.0.1\n")] {
        let path = root.join("etc").join(name);
        written(&path, fs::write(&path, text))?;
    }
    for name in ["calipam", "calico-ipam"] {
        let (from, to) = (programs.join(name), root.join(name));
        written(&to, fs::copy(&from, &to).map(drop))?;
        let linked = Command::new("ldd").arg(&from).output();
        let linked = linked.map_err(|error| Failure::new(format!("cannot run `ldd`: {error}")))?;
        let text = [linked.stdout, linked.stderr].concat();
        if !String::from_utf8_lossy(&text).contains("not a dynamic executable") {
            return Err(Failure::new(format!("{} needs libraries: see `ldd`", from.display())));
        }
    }
    let within = |words: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--root"]).arg(&root).args(words).env_clear();
        command
    };
    step::run("Running calipam in an empty folder", &mut within(&["/calipam", "version"]))?;
    step::run("Running the plugin in an empty folder", &mut within(&["/calico-ipam", "-v"]))?;

    // Nothing listens there; what matters is that the name has led to an address.
    step::announce("Asking for a server by a name of /etc/hosts");
    let endpoint = "http://etcd.of.the.check:1";
    let mut asked = within(&["/calipam", "check", "--etcd-endpoints", endpoint]);
    let asked = asked.output().map_err(|error| Failure::new(format!("cannot run `unshare`: {error}")))?;
    let said = String::from_utf8_lossy(&asked.stderr);
    eprint!("{said}");
    if asked.status.success() || !said.contains("refused") {
        return Err(Failure::new("the name was not found"));
    }
    fs::remove_dir_all(&root).map_err(|error| Failure::io("remove", &root, &error))
}

/// The machine that this runs on, as rustc names it.
fn host() -> Result<String, Failure> {
    let output = std::process::Command::new("rustc").arg("-vV").output();
    let output = output.map_err(|error| Failure::new(format!("cannot run `rustc -vV`: {error}")))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| Failure::new("`rustc -vV` does not name the host"))
}

fn usage(task: &str, what: String) -> Failure {
    Failure::new(what).hint(format!("`cargo xtask help {task}` says what it takes"))
}

/// Reads the words of either task: what they share, and what the packages need.
fn parse(arguments: &[String]) -> Result<Request, Failure> {
    let mut request = Request::default();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        if word == "--check" {
            request.check = true;
            continue;
        }
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, value.to_owned()),
            None => {
                let value = words.next().ok_or_else(|| usage("dist", format!("`{word}` needs a value")))?;
                (word.as_str(), value.clone())
            }
        };
        match name {
            "--base-url" => request.base_url = value,
            "--target" => request.target = Some(value),
            "--programs" => request.programs = Some(value.into()),
            "--output" => request.output = Some(value.into()),
            "--manifest" => request.manifest = Some(value.into()),
            _ => return Err(usage("dist", format!("unknown option `{name}`"))),
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
        let request = parse(&words("--base-url=https://e.org/v1 --programs p --check --output out")).unwrap();
        let expected = Request {
            base_url: "https://e.org/v1".into(),
            programs: Some("p".into()),
            output: Some("out".into()),
            check: true,
            ..Request::default()
        };
        assert_eq!(request, expected);
        for text in ["--base-url", "--base-url=https://e.org --colour red"] {
            assert!(parse(&words(text)).is_err(), "{text}");
        }
        for text in ["", "--base-url ftp://e.org"] {
            assert!(run(&words(text)).is_err(), "{text}");
        }
    }
}
