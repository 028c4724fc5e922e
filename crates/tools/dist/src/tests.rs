//! Packages of a program that is none, read by others than those who wrote them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use calipam_testkit::servers::{Tool, left_out};
use serde_json::Value;

use crate::{Request, VERSION, run};

const PROGRAM: &[u8] = b"#!/bin/sh\necho a program\n";
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// The first of `authors` in the Cargo.toml of the workspace.
fn first_author() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(3).unwrap();
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let line = manifest.lines().find(|line| line.starts_with("authors = ")).unwrap();
    line.split('"').nth(1).unwrap().to_owned()
}

/// Packages a program for a target.
fn packaged(folder: &Path, target: &str) -> Vec<PathBuf> {
    let binary = folder.join("program");
    fs::write(&binary, PROGRAM).unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(3).unwrap().to_owned();
    let request = Request {
        root,
        binary,
        target: target.to_owned(),
        output: folder.join("dist"),
        base_url: "https://example.org/v0".to_owned(),
        manifest: folder.join("krew.yaml"),
    };
    run(&request).unwrap()
}

/// What a program says on stdout.
fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_archive_holds_program_completions_man_pages_and_licence() {
    let folder = tempfile::tempdir().unwrap();
    let archive = &packaged(folder.path(), TARGET)[0];
    let list = said("tar", &["-tzvf", archive.to_str().unwrap()]);
    let stem = format!("calipam-{VERSION}-{TARGET}");
    let lines: Vec<&str> = list.lines().collect();
    for (mode, name) in [
        ("-rwxr-xr-x root/root", "calipam"),
        ("-rw-r--r-- ", "completions/calipam.bash"),
        ("-rw-r--r-- ", "completions/calipam.zsh"),
        ("-rw-r--r-- ", "completions/calipam.fish"),
        ("-rw-r--r-- ", "man/calipam.1"),
        ("-rw-r--r-- ", "man/calipam-check.1"),
        ("-rw-r--r-- ", "LICENSE"),
    ] {
        let end = format!(" {stem}/{name}");
        let found = lines
            .iter()
            .any(|line| line.ends_with(&end) && (line.starts_with(mode) || mode.contains("root")));
        assert!(found, "{name}: {list}");
    }
    assert!(lines.iter().any(|line| line.starts_with("-rwxr-xr-x") && line.ends_with("/calipam")), "{list}");

    let target = folder.path().join("out");
    fs::create_dir(&target).unwrap();
    said("tar", &["-xzf", archive.to_str().unwrap(), "-C", target.to_str().unwrap()]);
    assert_eq!(fs::read(target.join(&stem).join("calipam")).unwrap(), PROGRAM);
}

#[test]
fn dpkg_reads_the_package() {
    let folder = tempfile::tempdir().unwrap();
    let package = &packaged(folder.path(), TARGET)[1];
    let path = package.to_str().unwrap();
    assert!(path.ends_with(&format!("calipam_{VERSION}_amd64.deb")));
    let names: Vec<String> = {
        let mut archive = ar::Archive::new(fs::File::open(package).unwrap());
        let mut names = Vec::new();
        while let Some(entry) = archive.next_entry() {
            names.push(String::from_utf8(entry.unwrap().header().identifier().to_vec()).unwrap());
        }
        names
    };
    assert_eq!(names, ["debian-binary", "control.tar.gz", "data.tar.gz"]);

    if left_out(&[Tool::Dpkg]) {
        return;
    }
    let fields = said("dpkg-deb", &["--field", path]);
    let maintainer = format!("Maintainer: {}", first_author());
    let version = format!("Version: {VERSION}");
    for line in ["Package: calipam", "Architecture: amd64", "Depends: libc6", &version, &maintainer] {
        assert!(fields.lines().any(|found| found == line), "{line}: {fields}");
    }
    let list = said("dpkg-deb", &["--contents", path]);
    for place in [
        "usr/bin/calipam",
        "usr/bin/kubectl-ipam -> calipam",
        "usr/share/bash-completion/completions/calipam",
        "usr/share/zsh/site-functions/_calipam",
        "usr/share/fish/vendor_completions.d/calipam.fish",
        "usr/share/man/man1/calipam-check.1.gz",
        "usr/share/doc/calipam/copyright",
    ] {
        assert!(list.lines().any(|line| line.ends_with(place)), "{place}: {list}");
    }
    let target = folder.path().join("root");
    said("dpkg-deb", &["--extract", path, target.to_str().unwrap()]);
    assert_eq!(fs::read(target.join("usr/bin/kubectl-ipam")).unwrap(), PROGRAM);
    let page = said("gzip", &["-dc", target.join("usr/share/man/man1/calipam.1.gz").to_str().unwrap()]);
    assert!(page.contains(".TH calipam 1"));
}

#[test]
fn the_rpm_can_be_read_and_holds_the_same_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = &packaged(folder.path(), "aarch64-unknown-linux-musl")[2];
    assert!(path.ends_with(format!("calipam-{VERSION}-1.aarch64.rpm")));
    let package = rpm::Package::open(path).unwrap();
    let metadata = &package.metadata;
    assert_eq!(metadata.get_name().unwrap(), "calipam");
    assert_eq!(metadata.get_arch().unwrap(), "aarch64");
    assert_eq!(metadata.get_packager().unwrap(), first_author());
    let entries = metadata.get_file_entries().unwrap();
    let entry = |place: &str| entries.iter().find(|entry| entry.path() == Path::new(place));
    assert_eq!(entry("/usr/bin/calipam").unwrap().mode().permissions(), 0o755);
    for place in ["/usr/bin/ipam", "/usr/share/man/man1/calipam.1.gz", "/usr/share/doc/calipam/copyright"] {
        assert!(entry(place).is_some(), "{place}");
    }
}

#[test]
fn sums_and_manifest_are_about_all_archives() {
    let folder = tempfile::tempdir().unwrap();
    packaged(folder.path(), TARGET);
    let written = packaged(folder.path(), "aarch64-apple-darwin");
    assert_eq!(written.len(), 3, "no packages of Linux: {written:?}");
    let dist = folder.path().join("dist");
    let check =
        Command::new("sha256sum").args(["--check", "SHA256SUMS"]).current_dir(&dist).output().unwrap();
    assert!(check.status.success(), "{check:?}");
    assert_eq!(String::from_utf8(check.stdout).unwrap().lines().count(), 4);

    let text = fs::read_to_string(folder.path().join("krew.yaml")).unwrap();
    let manifest: Value = serde_yaml::from_str(&text).unwrap();
    assert_eq!(manifest["metadata"]["name"], "ipam");
    assert_eq!(manifest["spec"]["version"], format!("v{VERSION}"));
    let platforms = manifest["spec"]["platforms"].as_array().unwrap();
    let os: Vec<&str> =
        platforms.iter().map(|p| p["selector"]["matchLabels"]["os"].as_str().unwrap()).collect();
    assert_eq!(os, ["darwin", "linux"]);
    for platform in platforms {
        let name = platform["uri"].as_str().unwrap().strip_prefix("https://example.org/v0/").unwrap();
        let sum = said("sha256sum", &[dist.join(name).to_str().unwrap()]);
        assert!(sum.starts_with(platform["sha256"].as_str().unwrap()), "{sum}");
    }
}

#[test]
fn the_same_input_gives_the_same_packages() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for (one, two) in packaged(one.path(), TARGET).iter().zip(packaged(two.path(), TARGET)) {
        assert_eq!(fs::read(one).unwrap(), fs::read(&two).unwrap(), "{}", two.display());
    }
}
