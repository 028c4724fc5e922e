//! `calipam install-links`.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::program::{Run, calipam, command};

#[test]
fn links_are_created_once_and_work() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().to_str().unwrap();
    let run = calipam(&["install-links", directory]);
    assert_eq!((run.code, run.stdout.as_str()), (0, ""), "{run:?}");
    let expected: String = ["ipam", "kubectl-ipam", "kubectl-calico", "kubectl_complete-ipam"]
        .map(|name| format!("created {directory}/{name}\n"))
        .concat();
    assert_eq!(run.stderr, expected);
    let again = calipam(&["install-links", directory]);
    assert_eq!((again.code, again.stderr.as_str()), (0, ""), "{again:?}");

    let version = Run::of(command(folder.path().join("ipam")).arg("--version").output().unwrap());
    assert_eq!(version.code, 0);

    let mode = fs::metadata(folder.path().join("kubectl_complete-ipam")).unwrap().permissions().mode();
    assert_eq!(mode & 0o111, 0o111);
    let path = format!("{directory}:{}", std::env::var("PATH").unwrap());
    let mut script = command(folder.path().join("kubectl_complete-ipam"));
    let completed = Run::of(script.env("PATH", path).arg("expl").output().unwrap());
    assert!(
        completed.stdout.starts_with("explain\t") && completed.stdout.ends_with(":36\n"),
        "{completed:?}"
    );
}

#[test]
fn what_is_there_already_stays() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("ipam"), "mine").unwrap();
    fs::write(folder.path().join("kubectl_complete-ipam"), "mine, too").unwrap();
    let run = calipam(&["install-links", folder.path().to_str().unwrap()]);
    assert_eq!(run.code, 1, "{run:?}");
    assert_eq!(run.stderr.matches("exists and is something else; it is not replaced").count(), 2, "{run:?}");
    assert_eq!(fs::read_to_string(folder.path().join("ipam")).unwrap(), "mine");
    assert_eq!(fs::read_to_string(folder.path().join("kubectl_complete-ipam")).unwrap(), "mine, too");
    assert!(folder.path().join("kubectl-ipam").is_symlink());
}

#[test]
fn a_missing_directory_is_named() {
    let run = calipam(&["install-links", "/nonexistent/bin"]);
    assert_eq!(run.code, 1);
    assert!(run.stderr.contains("error: /nonexistent/bin is not a directory\nhint: "), "{run:?}");
}
