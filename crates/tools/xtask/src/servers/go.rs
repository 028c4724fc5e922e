//! Builds servers from the Go modules of `tests/servers/go.mod`, and the CNI client of `tests/cni-client`.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

use crate::failure::Failure;
use crate::tool::Tool;
use crate::{step, tools, workspace};

/// The programs that are built with Go, and their packages. Most tests need only etcd.
pub(super) const PACKAGES: [(Tool, &str); 5] = [
    (Tool::Etcd, "go.etcd.io/etcd/server/v3"),
    (Tool::KubeApiserver, "k8s.io/kubernetes/cmd/kube-apiserver"),
    (Tool::Kubectl, "k8s.io/kubernetes/cmd/kubectl"),
    (Tool::Jv, "github.com/santhosh-tekuri/jsonschema/cmd/jv"),
    (Tool::CniClient, "."),
];

/// The Go package that contains the version that kube-apiserver and kubectl report. A plain build leaves the version at
/// v0.0.0.
const VERSION_PACKAGE: &str = "k8s.io/component-base/version";

/// Returns the command that builds a program into `target/servers`; `None` if the program is newer than the files that
/// name its version.
pub(super) fn build(program: Tool) -> Result<Option<Command>, Failure> {
    let package = PACKAGES.into_iter().find(|(known, _)| *known == program);
    let (_, package) =
        package.ok_or_else(|| Failure::new(format!("{program} is not built from a Go module")))?;
    let (folder, sources): (_, &[&str]) = match program {
        Tool::CniClient => ("cni-client", &["go.mod", "go.sum", "main.go"]),
        _ => ("servers", &["go.mod", "go.sum"]),
    };
    let root = workspace::root();
    let module = root.join("tests").join(folder);
    let output = program.installed_path(&root);
    let sources: Vec<_> = sources.iter().map(|file| changed(&module.join(file))).collect();
    if is_current(&output, &sources) {
        return Ok(None);
    }
    let text = workspace::read(module.join("go.mod"))?;
    let mut go = Command::new(tools::go()?);
    go.current_dir(&module)
        .env("CGO_ENABLED", "0")
        // Some installations forbid fetching the toolchain that go.mod names.
        .env("GOTOOLCHAIN", "auto")
        .env("GOWORK", "off")
        .args(["build", "-trimpath", "-buildvcs=false"])
        .arg(format!("-ldflags={}", linker_flags(program, &text)?))
        .arg("-o")
        .arg(&output)
        .arg(package);
    Ok(Some(go))
}

/// Runs a command that [`build`] returned.
pub(super) fn run(program: Tool, build: &mut Command) -> Result<(), Failure> {
    let title = format!("Building {program} (minutes the first time, seconds later)");
    step::run(&title, build).map_err(|failure| failure.hint(tools::GO_HINT))
}

/// Returns flags that strip symbols, which makes the programs a third smaller, and flags that set the version that the
/// programs report.
fn linker_flags(program: Tool, go_mod: &str) -> Result<String, Failure> {
    if !matches!(program, Tool::KubeApiserver | Tool::Kubectl) {
        return Ok("-s -w".to_owned());
    }
    let version = required(go_mod, "k8s.io/kubernetes")
        .ok_or_else(|| Failure::new("tests/servers/go.mod names no version of k8s.io/kubernetes"))?;
    let mut numbers = version.trim_start_matches('v').split('.');
    let major = numbers.next().unwrap_or_default();
    let minor = numbers.next().unwrap_or_default();
    let set = |name: &str, value: &str| format!(" -X {VERSION_PACKAGE}.{name}={value}");
    Ok(format!(
        "-s -w{}{}{}",
        set("gitVersion", version),
        set("gitMajor", major),
        set("gitMinor", minor)
    ))
}

/// The version of a module that a `go.mod` requires.
fn required<'a>(go_mod: &'a str, module: &str) -> Option<&'a str> {
    let mut lines = go_mod
        .lines()
        .map(|line| line.trim().trim_start_matches("require ").split_whitespace());
    lines.find_map(|mut words| {
        words.next().filter(|name| *name == module)?;
        words.next().filter(|version| version.starts_with('v'))
    })
}

/// The time of a file's last change; `None` if it does not exist.
fn changed(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}

/// True if a file exists, and none of its inputs has changed since it was written.
fn is_current(output: &Path, inputs: &[Option<SystemTime>]) -> bool {
    changed(output).is_some_and(|made| {
        inputs
            .iter()
            .all(|input| input.is_some_and(|input| input <= made))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const GO_MOD: &str = "module servers\n\ngo 1.26.0\n\ntool (\n\tk8s.io/kubernetes/cmd/kube-apiserver\n)\n\nrequire (\n\
        \tk8s.io/kubernetes-x v0.1.0 // indirect\n\tk8s.io/kubernetes v1.36.3 // indirect\n)\n\nrequire a.b/c v2.0.0\n";

    #[test]
    fn versions_are_read_from_go_mod() {
        assert_eq!(required(GO_MOD, "k8s.io/kubernetes"), Some("v1.36.3"));
        assert_eq!(required(GO_MOD, "a.b/c"), Some("v2.0.0"));
        assert_eq!(required(GO_MOD, "k8s.io/kubernetes/cmd/kube-apiserver"), None);
    }

    #[test]
    fn linker_flags_set_the_version() {
        let flags = linker_flags(Tool::KubeApiserver, GO_MOD).expect("a version");
        let package = "k8s.io/component-base/version";
        assert_eq!(
            flags,
            format!("-s -w -X {package}.gitVersion=v1.36.3 -X {package}.gitMajor=1 -X {package}.gitMinor=36")
        );
        assert_eq!(linker_flags(Tool::Etcd, GO_MOD).expect("none needed"), "-s -w");
        assert!(linker_flags(Tool::KubeApiserver, "go 1.26\n").is_err());
    }

    #[test]
    fn a_program_is_built_again_when_its_versions_changed() {
        let output = std::env::temp_dir().join(format!("calipam-xtask-current-{}", std::process::id()));
        let now = SystemTime::now();
        assert!(!is_current(&output, &[Some(now)]), "not there yet");
        fs::write(&output, "").expect("a file");
        let (before, after) = (now - Duration::from_secs(60), now + Duration::from_secs(60));
        assert!(is_current(&output, &[Some(before), Some(before)]));
        assert!(!is_current(&output, &[Some(before), Some(after)]));
        assert!(!is_current(&output, &[Some(before), None]));
        fs::remove_file(&output).expect("clean up");
    }
}
