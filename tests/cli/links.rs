//! `calipam install-links`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use calipam_testkit::servers::{Tool, left_out};

use super::program::{Run, calipam, command, files, prepare, root};

#[test]
fn links_are_created_once_and_work() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().to_str().unwrap();
    let install = || {
        calipam(&["install-links", directory])
            .succeeded()
            .prints_nothing()
    };
    let expected: String = [
        "ipam",
        "kubectl-ipam",
        "kubectl-calico",
        "kubectl_complete-ipam",
        "kubectl_complete-calico",
    ]
    .map(|name| format!("created {directory}/{name}\n"))
    .concat();
    assert_eq!(install().stderr, expected);
    install().says_nothing();

    let called = |name: &str, word: &str| Run::of(command(folder.path().join(name)).arg(word)).succeeded();
    called("ipam", "--version");
    let completed = called("kubectl_complete-ipam", "expl").stdout;
    assert!(
        completed.starts_with("explain\t") && completed.ends_with(":36\n"),
        "{completed}"
    );
    calipam("install-links /nonexistent/bin").failed(1, "error: /nonexistent/bin is not a directory\nhint: ");
}

#[test]
fn existing_files_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for name in ["ipam", "kubectl_complete-ipam"] {
        fs::write(at(name), "mine").unwrap();
    }
    let run = calipam(&["install-links", folder.path().to_str().unwrap()]).exits(1);
    let found = run
        .stderr
        .matches("exists, but is a different file; it is not replaced")
        .count();
    assert_eq!(found, 2, "{run:?}");
    for name in ["ipam", "kubectl_complete-ipam"] {
        assert_eq!(fs::read_to_string(at(name)).unwrap(), "mine");
    }
    assert!(at("kubectl-ipam").is_symlink());

    let forced = calipam(&["install-links", folder.path().to_str().unwrap(), "--force"]).succeeded();
    assert_eq!(forced.stderr.matches("created ").count(), 2, "{forced:?}");
    assert!(at("ipam").is_symlink());
}

/// Returns the paths of files and links in a folder.
fn installed(prefix: &Path) -> BTreeSet<String> {
    let name = |path: PathBuf| path.strip_prefix(prefix).unwrap().display().to_string();
    files(prefix).into_iter().map(name).collect()
}

#[test]
fn completions_and_man_pages_are_installed_and_removed() {
    let prefix = tempfile::tempdir().unwrap();
    let bin = prefix.path().join("bin");
    fs::create_dir(&bin).unwrap();
    // Installs fake shells, so that the test does not depend on the shells of this machine.
    let shells = tempfile::tempdir().unwrap();
    for shell in ["bash", "fish"] {
        fs::write(shells.path().join(shell), "").unwrap();
    }
    let run = |options: &str| {
        Run::of(prepare(&format!("install-links {} {options}", bin.display())).env("PATH", shells.path()))
    };
    run("--completions --calicoctl").succeeded();
    let files = installed(prefix.path());
    for expected in [
        "bin/ipam",
        "bin/kubectl-ipam",
        "bin/calicoctl",
        "bin/kubectl_complete-ipam",
        "bin/kubectl_complete-calico",
        "share/bash-completion/completions/calipam",
        "share/bash-completion/completions/ipam",
        "share/fish/vendor_completions.d/calipam.fish",
        "share/man/man1/calipam.1",
        "share/man/man1/calipam-split.1",
    ] {
        assert!(files.contains(expected), "{expected}: {files:?}");
    }
    assert!(
        !files.iter().any(|path| path.contains("zsh")),
        "there is no zsh: {files:?}"
    );
    run("--completions").succeeded();
    assert_eq!(installed(prefix.path()), files, "again is the same");

    // Changed files are kept.
    let changed = prefix.path().join("share/man/man1/calipam.1");
    fs::write(&changed, "mine").unwrap();
    run("--completions").failed(1, "calipam.1 exists, but is a different file; it is not replaced");
    run("--remove --completions").succeeded();
    let left: Vec<String> = installed(prefix.path()).into_iter().collect();
    assert_eq!(left, ["share/man/man1/calipam.1"]);
    // Nothing is left of its own.
    run("--remove").succeeded();
    assert_eq!(fs::read_to_string(changed).unwrap(), "mine");
}

#[test]
fn man_pages_are_clean() {
    if left_out(&[Tool::Groff]) {
        return;
    }
    for page in fs::read_dir(root().join("docs/man")).unwrap() {
        let mut groff = Command::new("groff");
        groff
            .args(["-man", "-ww", "-Tutf8", "-P-cbou"])
            .arg(page.unwrap().path());
        Run::of(groff)
            .succeeded()
            .says_nothing()
            .prints("EXIT STATUS")
            .prints("SEE ALSO");
    }
}
