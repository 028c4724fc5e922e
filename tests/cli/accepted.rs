//! `--ignore`: findings that are known and accepted.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

use super::program::{EXAMPLE, HOSTILE, Run, calipam, on_example, scratch};

fn file(text: &str) -> (TempDir, PathBuf) {
    let (folder, path) = scratch("accepted");
    fs::write(&path, text).unwrap();
    (folder, path)
}

/// Checks the example cluster with a file of accepted findings. The example cluster dates from 2026-06-01.
fn check(text: &str, more: &[&str]) -> (Run, String) {
    let (_folder, path) = file(text);
    let path = path.to_str().unwrap();
    (on_example(&[&["check", "--ignore", path], more].concat()), path.to_owned())
}

const FULL: [&str; 2] = ["--rule", "pool-nearly-full"];

#[test]
fn accepted_findings_are_left_out() {
    let (run, _) = check("# ours\npool-nearly-full 172.16.5.0/28  # is to be full\n", &FULL);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{run:?}");
    assert!(run.stdout.contains("No findings"), "{run:?}");

    let (run, path) = check("pool-nearly-ful 172.16.5.0/28\n", &[]);
    let says = format!("error: {path}:1: unknown rule \"pool-nearly-ful\"");
    run.failed(2, &says).says("`until 2027-01-31`");

    on_example(&["check", "--ignore", "/nonexistent/accepted"])
        .failed(3, "error: cannot read /nonexistent/accepted: No such file");
}

#[test]
fn entries_without_a_match_are_named() {
    let text = "leaked-address 10.244.99.99\npool-nearly-full 172.16.5.0/28\nduplicate-address 10.244.10.3\n";
    // An entry also matches a finding that a filter option removes.
    let (run, path) = check(text, &FULL);
    let told = format!("note: {path}:1: leaked-address 10.244.99.99 matches no finding\n");
    assert_eq!((run.code, &run.stderr), (0, &told), "{run:?}");
    let (quiet, _) = check(text, &[&FULL[..], &["-q"]].concat());
    assert_eq!(quiet.stderr, "", "{quiet:?}");
}

#[test]
fn an_acceptance_can_end() {
    for (until, left_out) in [("2026-06-01", true), ("2026-05-31", false), ("2027-01-31", true)] {
        let (run, path) = check(&format!("pool-nearly-full 172.16.5.0/28 until {until} # see #12\n"), &FULL);
        assert_eq!(run.code, i32::from(!left_out), "{until}: {run:?}");
        let told = format!("note: {path}:1: pool-nearly-full 172.16.5.0/28 was accepted until {until}\n");
        assert_eq!(run.stderr.contains(&told), !left_out, "{until}: {run:?}");
    }
    let (run, path) = check("pool-nearly-full 172.16.5.0/28 until tomorrow\n", &[]);
    run.failed(2, &format!("{path}:1: until \"tomorrow\": expected a date"));
}

/// The lines that `-o ignore` prints accept every finding, whatever its subject is.
#[test]
fn ignore_lines_accept_every_finding() {
    for data in [EXAMPLE, HOSTILE] {
        let lines = calipam(&["check", "-o", "ignore", "--datastore", data]);
        let found = calipam(&["check", "-o", "json", "--datastore", data]);
        let json = found.json();
        assert_eq!(lines.stdout.lines().count(), json["findings"].as_array().unwrap().len(), "{lines:?}");
        assert_eq!((lines.code, lines.stderr.as_str()), (1, ""), "{lines:?}");

        let (_folder, path) = file(&lines.stdout);
        let path = path.to_str().unwrap();
        let all = calipam(&["check", "--ignore", path, "--datastore", data]);
        assert_eq!((all.code, all.stderr.as_str()), (0, ""), "{all:?}");
        assert!(all.stdout.contains("No findings"), "{all:?}");
    }
    let one = on_example(&[&["check", "-o", "ignore"], &FULL[..]].concat());
    assert_eq!(one.stdout, "pool-nearly-full 172.16.5.0/28\n");
    for other in [&["show"][..], &["explain"], &["release", "--leaked"]] {
        on_example(&[other, &["-o", "ignore"]].concat())
            .refused(2, " has no format `ignore`; it has table, wide, ");
    }
}
