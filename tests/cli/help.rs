//! Help of each command, and under each name of the program.

use std::os::unix::fs::symlink;

use super::program::{EXAMPLE, Run, calipam, command, expected};

#[test]
fn help_of_each_command() {
    expected!("help", calipam(&["--help"]).transcript());
    expected!("help-short", calipam(&["-h"]).transcript());
    for name in
        ["check", "show", "serve", "assign", "simulate", "export", "explain", "completion", "install-links"]
    {
        expected!(format!("help-{name}"), calipam(&[name, "--help"]).transcript());
    }
}

#[test]
fn the_version_is_that_of_the_package() {
    let run = calipam(&["--version"]);
    assert_eq!(run.stdout, format!("calipam {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn lines_of_help_fit_a_terminal() {
    for name in
        ["check", "show", "serve", "assign", "simulate", "export", "explain", "completion", "install-links"]
    {
        let text = calipam(&[name, "--help"]).stdout;
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }
}

/// Runs the program under another name.
fn called(name: &str, arguments: &[&str]) -> Run {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join(name);
    symlink(env!("CARGO_BIN_EXE_calipam"), &link).unwrap();
    Run::of(command(&link).args(arguments).output().unwrap())
}

#[test]
fn each_name_has_its_own_help() {
    let usage = |name: &str, arguments: &[&str]| {
        let run = called(name, arguments);
        assert_eq!(run.code, 0, "{run:?}");
        let line = run.stdout.lines().find(|line| line.starts_with("Usage:")).unwrap();
        line.to_owned()
    };
    assert_eq!(usage("ipam", &["-h"]), "Usage: ipam [OPTIONS] <COMMAND>");
    assert_eq!(usage("ipam", &["check", "-h"]), "Usage: ipam check [OPTIONS]");
    assert_eq!(usage("kubectl-ipam", &["show", "-h"]), "Usage: kubectl ipam show [OPTIONS]");
    assert_eq!(usage("kubectl-calico", &["ipam", "show", "-h"]), "Usage: kubectl calico ipam show [OPTIONS]");
    assert_eq!(usage("calicoctl", &["ipam", "check", "-h"]), "Usage: calicoctl ipam check [OPTIONS]");
    assert_eq!(usage("calipam-0.1", &["ipam", "check", "-h"]), "Usage: calipam ipam check [OPTIONS]");
}

#[test]
fn the_plugin_calico_shows_ipam_only() {
    expected!("help-kubectl-calico", called("kubectl-calico", &["-h"]).transcript());
    expected!("help-kubectl-ipam", called("kubectl-ipam", &["-h"]).transcript());
}

#[test]
fn usage_errors_name_the_program_as_it_was_called() {
    expected!("usage-error", calipam(&["check", "--fial-on", "never"]).transcript());
    let run = called("kubectl-ipam", &["check", "--nonsense"]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("Usage: kubectl ipam check"), "{}", run.stderr);
}

#[test]
fn hints_repeat_the_name_and_the_connection() {
    for (name, arguments, typed) in [
        ("kubectl-ipam", &["check"][..], "kubectl ipam"),
        ("kubectl-calico", &["ipam", "check"], "kubectl calico ipam"),
        ("ipam", &["check"], "ipam"),
    ] {
        let run = called(name, &[arguments, &["--datastore", EXAMPLE]].concat());
        let release = format!("`{typed} release --leaked --datastore {EXAMPLE}`\n");
        assert!(run.stderr.contains(&release), "{run:?}");
        assert!(run.stderr.contains(&format!("`{typed} explain duplicate-address`;")), "{run:?}");
    }
}

#[test]
fn without_a_command_help_is_shown_as_an_error() {
    let run = calipam(&[]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("Usage: calipam [OPTIONS] <COMMAND>"), "{}", run.stderr);
}
