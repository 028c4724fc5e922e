//! `calipam install-links`.

use std::fs;

use calipam_testkit::servers::{Tool, left_out};

use super::program::{Run, calipam, command};

#[test]
fn links_are_created_once_and_work() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().to_str().unwrap();
    let run = calipam(&["install-links", directory]).succeeded().prints_nothing();
    let expected: String =
        ["ipam", "kubectl-ipam", "kubectl-calico", "kubectl_complete-ipam", "kubectl_complete-calico"]
            .map(|name| format!("created {directory}/{name}\n"))
            .concat();
    assert_eq!(run.stderr, expected);
    let again = calipam(&["install-links", directory]);
    assert_eq!((again.code, again.stderr.as_str()), (0, ""), "{again:?}");

    Run::of(command(folder.path().join("ipam")).arg("--version")).succeeded();

    let mut completer = command(folder.path().join("kubectl_complete-ipam"));
    let completed = Run::of(completer.arg("expl"));
    assert!(completed.stdout.starts_with("explain\t"), "{completed:?}");
    assert!(completed.stdout.ends_with(":36\n"), "{completed:?}");
}

#[test]
fn existing_files_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("ipam"), "mine").unwrap();
    fs::write(folder.path().join("kubectl_complete-ipam"), "mine, too").unwrap();
    let run = calipam(&["install-links", folder.path().to_str().unwrap()]).exits(1);
    let found = run.stderr.matches("exists, but is a different file; it is not replaced").count();
    assert_eq!(found, 2, "{run:?}");
    assert_eq!(fs::read_to_string(folder.path().join("ipam")).unwrap(), "mine");
    assert_eq!(fs::read_to_string(folder.path().join("kubectl_complete-ipam")).unwrap(), "mine, too");
    assert!(folder.path().join("kubectl-ipam").is_symlink());

    let forced = calipam(&["install-links", folder.path().to_str().unwrap(), "--force"]);
    assert_eq!((forced.code, forced.stderr.matches("created ").count()), (0, 2), "{forced:?}");
    assert!(folder.path().join("ipam").is_symlink());
}

#[test]
fn a_missing_directory_is_named() {
    calipam(&["install-links", "/nonexistent/bin"])
        .failed(1, "error: /nonexistent/bin is not a directory\nhint: ");
}

/// Runs `install-links --completions` in a prefix with `bin` and `share`, and returns the created paths.
fn installed(prefix: &std::path::Path) -> std::collections::BTreeSet<String> {
    let mut found = std::collections::BTreeSet::new();
    let mut folders = vec![prefix.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() && !path.is_symlink() {
                true => folders.push(path),
                false => drop(found.insert(path.strip_prefix(prefix).unwrap().to_str().unwrap().to_owned())),
            }
        }
    }
    found
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
    let run = |options: &[&str]| {
        let mut program = command(crate::cli::PROGRAM);
        program.arg("install-links").arg(&bin).args(options).env("PATH", shells.path());
        Run::of(program)
    };
    run(&["--completions", "--calicoctl"]).succeeded();
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
    assert!(!files.iter().any(|path| path.contains("zsh")), "there is no zsh: {files:?}");
    assert_eq!(run(&["--completions"]).code, 0);
    assert_eq!(installed(prefix.path()), files, "again is the same");

    // Changed files are kept.
    let changed = prefix.path().join("share/man/man1/calipam.1");
    fs::write(&changed, "mine").unwrap();
    let refused = run(&["--completions"]).exits(1);
    let says = "calipam.1 exists, but is a different file; it is not replaced";
    assert!(refused.stderr.contains(says), "{refused:?}");
    run(&["--remove"]).succeeded();
    let left: Vec<String> = installed(prefix.path()).into_iter().collect();
    assert_eq!(left, ["share/man/man1/calipam.1"]);
    assert_eq!(run(&["--remove"]).code, 0, "nothing is left of its own");
    assert_eq!(fs::read_to_string(changed).unwrap(), "mine");
}

#[test]
fn man_pages_are_clean() {
    if left_out(&[Tool::Groff]) {
        return;
    }
    let pages = super::program::root().join("docs/man");
    for page in fs::read_dir(pages).unwrap() {
        let page = page.unwrap().path();
        let groff = std::process::Command::new("groff")
            .args(["-man", "-ww", "-Tutf8", "-P-cbou"])
            .arg(&page)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&groff.stderr);
        assert!(groff.status.success() && said.is_empty(), "{}: {said}", page.display());
        let text = String::from_utf8_lossy(&groff.stdout);
        assert!(text.contains("EXIT STATUS") && text.contains("SEE ALSO"), "{}", page.display());
    }
}
