//! Builds packages from a script, and reads them with the tools of distributions.

mod dependencies;
mod sbom;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use calipam_testkit::servers::{Tool, left_out};
use serde_json::Value;

use crate::{Request, VERSION, image, packages};

const PROGRAM: &[u8] = b"#!/bin/sh\necho a program\n";
const TARGET: &str = "x86_64-unknown-linux-musl";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(3)
        .unwrap()
        .to_owned()
}

/// The first of `authors` in the Cargo.toml of the workspace.
fn first_author() -> String {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let line = manifest
        .lines()
        .find(|line| line.starts_with("authors = "))
        .unwrap();
    line.split('"').nth(1).unwrap().to_owned()
}

/// A request for packages and images in a folder.
fn request(folder: &Path, target: &str) -> Request {
    for program in ["calipam", "calico-ipam"] {
        fs::write(folder.join(program), PROGRAM).unwrap();
    }
    Request::new(folder, target, &folder.join("dist")).unwrap()
}

/// Packages programs for a target.
fn packaged(folder: &Path, target: &str) -> Vec<PathBuf> {
    packages(
        &request(folder, target),
        "https://example.org/v0",
        &folder.join("krew.yaml"),
    )
    .unwrap()
}

/// Finds the file whose path ends with `end`.
fn ending<'a>(written: &'a [PathBuf], end: &str) -> &'a str {
    let found = written
        .iter()
        .filter_map(|path| path.to_str())
        .find(|path| path.ends_with(end));
    found.unwrap_or_else(|| panic!("{end}: {written:?}"))
}

/// Returns a program's standard output.
fn stdout(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_archive_holds_program_completions_man_pages_and_licence() {
    let folder = tempfile::tempdir().unwrap();
    let written = packaged(folder.path(), TARGET);
    let archive = ending(&written, &format!("/calipam-{VERSION}-{TARGET}.tar.gz"));
    let list = stdout("tar", &["-tzvf", archive]);
    let stem = format!("calipam-{VERSION}-{TARGET}");
    let lines: Vec<&str> = list.lines().collect();
    for (mode, name) in [
        ("-rwxr-xr-x root/root", "calipam"),
        ("-rw-r--r-- ", "completions/calipam.bash"),
        ("-rw-r--r-- ", "completions/calipam.zsh"),
        ("-rw-r--r-- ", "completions/calipam.fish"),
        ("-rw-r--r-- ", "completions/kubectl-calico.bash"),
        ("-rw-r--r-- ", "man/calipam.1"),
        ("-rw-r--r-- ", "man/calipam-check.1"),
        ("-rw-r--r-- ", "systemd/calipam-check.service"),
        ("-rw-r--r-- ", "LICENSE"),
    ] {
        let end = format!(" {stem}/{name}");
        let found = lines
            .iter()
            .any(|line| line.ends_with(&end) && (line.starts_with(mode) || mode.contains("root")));
        assert!(found, "{name}: {list}");
    }
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("-rwxr-xr-x") && line.ends_with("/calipam")),
        "{list}"
    );

    let target = folder.path().join("out");
    fs::create_dir(&target).unwrap();
    stdout("tar", &["-xzf", archive, "-C", target.to_str().unwrap()]);
    assert_eq!(fs::read(target.join(&stem).join("calipam")).unwrap(), PROGRAM);
}

#[test]
fn dpkg_installs_and_removes_both_packages() {
    let folder = tempfile::tempdir().unwrap();
    let written = packaged(folder.path(), TARGET);
    let calipam = ending(&written, &format!("/calipam_{VERSION}_amd64.deb"));
    let names: Vec<String> = {
        let mut archive = ar::Archive::new(fs::File::open(calipam).unwrap());
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
    let fields = stdout("dpkg-deb", &["--field", calipam]);
    let maintainer = format!("Maintainer: {}", first_author());
    let version = format!("Version: {VERSION}");
    for line in ["Package: calipam", "Architecture: amd64", &version, &maintainer] {
        assert!(fields.lines().any(|found| found == line), "{line}: {fields}");
    }
    assert!(!fields.contains("Depends:"), "the programs are static: {fields}");

    let system = folder.path().join("system");
    fs::create_dir_all(system.join("var/lib/dpkg/info")).unwrap();
    for list in ["status", "available"] {
        fs::write(system.join("var/lib/dpkg").join(list), "").unwrap();
    }
    let dpkg = |order: &str, arguments: &[&str]| {
        let system = format!("--root={}", system.display());
        // The test runs without root privileges, and the folder is not a complete system.
        stdout(
            "dpkg",
            &[
                &[
                    &*system,
                    "--force-not-root",
                    "--force-bad-path",
                    "--log=/dev/null",
                    order,
                ],
                arguments,
            ]
            .concat(),
        )
    };
    for name in ["calipam", "calipam-cni"] {
        dpkg(
            "--install",
            &[ending(&written, &format!("/{name}_{VERSION}_amd64.deb"))],
        );
    }
    assert_installed(&system);
    let page = stdout(
        "gzip",
        &[
            "-dc",
            system.join("usr/share/man/man1/calipam.1.gz").to_str().unwrap(),
        ],
    );
    assert!(page.contains(".TH calipam 1"));
    dpkg("--remove", &["calipam", "calipam-cni"]);
    assert_removed(&system);
}

/// The files that both packages install.
const INSTALLED: [&str; 13] = [
    "usr/bin/calipam",
    "usr/bin/kubectl-ipam",
    "usr/bin/kubectl_complete-calico",
    "usr/bin/calipam-cni",
    "usr/lib/systemd/system/calipam-check.timer",
    "usr/lib/systemd/system/calipam-cni.service",
    "usr/lib/sysusers.d/calipam.conf",
    "usr/share/bash-completion/completions/calipam",
    "usr/share/zsh/site-functions/_calipam",
    "usr/share/fish/vendor_completions.d/calipam.fish",
    "usr/share/man/man1/calipam-check.1.gz",
    "usr/share/doc/calipam/copyright",
    "usr/share/doc/calipam-cni/cni.md",
];

#[track_caller]
fn assert_installed(system: &Path) {
    for place in INSTALLED {
        assert!(system.join(place).is_file(), "{place}");
    }
    for program in ["calipam", "kubectl-ipam", "calipam-cni"] {
        assert_eq!(fs::read(system.join("usr/bin").join(program)).unwrap(), PROGRAM);
    }
}

#[track_caller]
fn assert_removed(system: &Path) {
    for place in INSTALLED {
        assert!(!system.join(place).exists(), "{place}");
    }
}

#[test]
fn rpm_installs_and_removes_both_packages() {
    if left_out(&[Tool::Rpm]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let written = packaged(folder.path(), TARGET);
    let system = folder.path().join("system");
    fs::create_dir(&system).unwrap();
    let rpm = |arguments: &[&str]| {
        let system = system.to_str().unwrap();
        stdout(
            "rpm",
            &[
                &["--root", system, "--dbpath", "/var/lib/rpm", "--nosignature"],
                arguments,
            ]
            .concat(),
        )
    };
    rpm(&["--initdb"]);
    for name in ["calipam", "calipam-cni"] {
        // Debian's rpm has no records of the installed packages, so it cannot check dependencies.
        rpm(&[
            "--install",
            "--nodeps",
            ending(&written, &format!("/{name}-{VERSION}-1.x86_64.rpm")),
        ]);
    }
    assert_installed(&system);
    let verified = rpm(&["--verify", "--nodeps", "calipam", "calipam-cni"]);
    assert_eq!(verified, "", "every file is as the package says");
    rpm(&["--erase", "--nodeps", "calipam", "calipam-cni"]);
    assert_removed(&system);
}

/// Writes both images with a small static program, and returns the layouts.
fn images(folder: &Path, target: &str) -> Vec<PathBuf> {
    let request = request(folder, target);
    let source = "#include <stdio.h>\nint main(void) { puts(\"a static program\"); }\n";
    fs::write(folder.join("program.c"), source).unwrap();
    let program = folder.join("calipam").display().to_string();
    stdout(
        "cc",
        &[
            "-static",
            "-o",
            &program,
            folder.join("program.c").to_str().unwrap(),
        ],
    );
    fs::copy(&program, folder.join("calico-ipam")).unwrap();
    image::write_all(&request, "0123abc").unwrap()
}

/// Reads the JSON of a blob, and checks that the blob's name is its checksum.
fn blob(layout: &Path, descriptor: &Value) -> Value {
    let digest = descriptor["digest"]
        .as_str()
        .unwrap()
        .strip_prefix("sha256:")
        .unwrap();
    let path = layout.join("blobs/sha256").join(digest);
    assert!(stdout("sha256sum", &[path.to_str().unwrap()]).starts_with(digest));
    let content = fs::read(path).unwrap();
    assert_eq!(descriptor["size"], content.len());
    serde_json::from_slice(&content).unwrap_or_default()
}

#[test]
fn images_are_unpacked_and_run_in_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    for (layout, user, program) in images(folder.path(), TARGET)
        .iter()
        .zip([
            ("65532:65532", "/usr/bin/calipam"),
            ("0:0", "/usr/bin/calipam-cni"),
        ])
        .map(|(l, (u, p))| (l, u, p))
    {
        let top: Value = serde_json::from_slice(&fs::read(layout.join("index.json")).unwrap()).unwrap();
        assert_eq!(
            top["manifests"][0]["annotations"]["org.opencontainers.image.ref.name"],
            VERSION
        );
        let index = blob(layout, &top["manifests"][0]);
        assert_eq!(
            index["manifests"][0]["platform"],
            serde_json::json!({"architecture": "amd64", "os": "linux"})
        );
        let manifest = blob(layout, &index["manifests"][0]);
        let config = blob(layout, &manifest["config"]);
        assert_eq!(
            (&config["config"]["User"], &config["config"]["Entrypoint"][0]),
            (&user.into(), &program.into())
        );
        assert_eq!(
            config["config"]["Labels"]["org.opencontainers.image.revision"],
            "0123abc"
        );

        blob(layout, &manifest["layers"][0]);
        let layer = manifest["layers"][0]["digest"]
            .as_str()
            .unwrap()
            .strip_prefix("sha256:")
            .unwrap();
        let layer = layout.join("blobs/sha256").join(layer);
        let unpacked = Command::new("sh")
            .arg("-c")
            .arg(format!("gzip -dc '{}' | sha256sum", layer.display()))
            .output()
            .unwrap();
        let sum = String::from_utf8(unpacked.stdout).unwrap();
        assert_eq!(
            config["rootfs"]["diff_ids"][0],
            format!("sha256:{}", sum.split(' ').next().unwrap())
        );

        let system = folder.path().join(format!("system of {user}"));
        fs::create_dir(&system).unwrap();
        stdout(
            "tar",
            &["-xzf", layer.to_str().unwrap(), "-C", system.to_str().unwrap()],
        );
        // In a new user namespace, any user can be root.
        let words = ["--map-root-user", "--root", system.to_str().unwrap(), program];
        assert_eq!(stdout("unshare", &words), "a static program\n");
    }
}

#[test]
fn a_layout_holds_images_for_several_machines_and_nothing_old() {
    let folder = tempfile::tempdir().unwrap();
    images(folder.path(), "aarch64-unknown-linux-musl");
    images(folder.path(), TARGET);
    let layout = &images(folder.path(), TARGET)[0];
    let top: Value = serde_json::from_slice(&fs::read(layout.join("index.json")).unwrap()).unwrap();
    let index = blob(layout, &top["manifests"][0]);
    let machines: Vec<&str> = index["manifests"]
        .as_array()
        .unwrap()
        .iter()
        .map(|manifest| manifest["platform"]["architecture"].as_str().unwrap())
        .collect();
    assert_eq!(machines, ["amd64", "arm64"]);
    // The blobs are the index, two manifests with their configurations, and the layer, which both images share here.
    assert_eq!(fs::read_dir(layout.join("blobs/sha256")).unwrap().count(), 6);
}

#[test]
fn the_rpm_can_be_read_and_holds_the_same_files() {
    let folder = tempfile::tempdir().unwrap();
    let written = packaged(folder.path(), "aarch64-unknown-linux-musl");
    let path = ending(&written, &format!("/calipam-{VERSION}-1.aarch64.rpm"));
    let package = rpm::Package::open(path).unwrap();
    let metadata = &package.metadata;
    assert_eq!(metadata.get_name().unwrap(), "calipam");
    assert_eq!(metadata.get_arch().unwrap(), "aarch64");
    assert_eq!(metadata.get_packager().unwrap(), first_author());
    let entries = metadata.get_file_entries().unwrap();
    let entry = |place: &str| entries.iter().find(|entry| entry.path() == Path::new(place));
    assert_eq!(entry("/usr/bin/calipam").unwrap().mode().permissions(), 0o755);
    for place in [
        "/usr/bin/ipam",
        "/usr/share/man/man1/calipam.1.gz",
        "/usr/share/doc/calipam/copyright",
    ] {
        assert!(entry(place).is_some(), "{place}");
    }
}

#[test]
fn sums_and_manifest_are_about_all_archives() {
    let folder = tempfile::tempdir().unwrap();
    for target in [TARGET, "aarch64-unknown-linux-musl", "x86_64-apple-darwin"] {
        packaged(folder.path(), target);
    }
    let written = packaged(folder.path(), "aarch64-apple-darwin");
    assert_eq!(written.len(), 4, "no packages of Linux: {written:?}");
    let dist = folder.path().join("dist");
    let check = Command::new("sha256sum")
        .args(["--check", "SHA256SUMS"])
        .current_dir(&dist)
        .output()
        .unwrap();
    assert!(check.status.success(), "{check:?}");
    assert_eq!(String::from_utf8(check.stdout).unwrap().lines().count(), 20);

    let text = fs::read_to_string(folder.path().join("krew.yaml")).unwrap();
    let manifest: Value = serde_yaml::from_str(&text).unwrap();
    assert_eq!(manifest["metadata"]["name"], "ipam");
    assert_eq!(manifest["spec"]["version"], format!("v{VERSION}"));
    let platforms = manifest["spec"]["platforms"].as_array().unwrap();
    let machines: Vec<[&str; 2]> = platforms
        .iter()
        .map(|platform| &platform["selector"]["matchLabels"])
        .map(|labels| ["os", "arch"].map(|label| labels[label].as_str().unwrap()))
        .collect();
    assert_eq!(
        machines,
        [
            ["darwin", "arm64"],
            ["linux", "arm64"],
            ["darwin", "amd64"],
            ["linux", "amd64"]
        ]
    );
    for platform in platforms {
        let name = platform["uri"]
            .as_str()
            .unwrap()
            .strip_prefix("https://example.org/v0/")
            .unwrap();
        let sum = stdout("sha256sum", &[dist.join(name).to_str().unwrap()]);
        assert!(sum.starts_with(platform["sha256"].as_str().unwrap()), "{sum}");
    }
}

#[test]
fn the_same_programs_give_the_same_packages_and_images() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for (one, two) in packaged(one.path(), TARGET)
        .iter()
        .zip(packaged(two.path(), TARGET))
    {
        assert_eq!(
            fs::read(one).unwrap(),
            fs::read(&two).unwrap(),
            "{}",
            two.display()
        );
    }
    let layouts = [&one, &two].map(|folder| image::write_all(&request(folder.path(), TARGET), "").unwrap());
    for (one, two) in layouts[0].iter().zip(&layouts[1]) {
        stdout(
            "diff",
            &["--recursive", one.to_str().unwrap(), two.to_str().unwrap()],
        );
    }
}
