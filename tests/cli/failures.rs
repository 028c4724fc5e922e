//! Failures in machine-readable formats, which are printed as documents.

use std::collections::BTreeSet;
use std::process::Stdio;

use calipam_testkit::cluster::Cluster;
use calipam_testkit::servers::Etcd;
use serde_json::Value;

use super::program::{EXAMPLE, Run, calipam, command};
use super::pty::{Terminal, interrupt};

/// Parses the single document of a failed run.
fn error(run: &Run) -> Value {
    let json = run.json();
    assert_eq!((&json["apiVersion"], &json["kind"]), (&"calipam/v1".into(), &"Error".into()), "{run:?}");
    assert_eq!(json["exitCode"], run.code, "{run:?}");
    json
}

#[test]
fn every_failure_is_a_document() {
    let cases: [(&[&str], i32, &str, &str); 11] = [
        (&["check", "--datastore", "README.md"], 3, "README.md: ", "use a file written by"),
        (
            &["check", "--etcd-endpoints", "http://127.0.0.1:1"],
            3,
            "connection refused",
            "is etcd running there",
        ),
        (&["check", "--datastore", "etcd"], 2, "no etcd endpoints are set", "--etcd-endpoints"),
        (
            &["check", "--leaked"],
            2,
            "unexpected argument '--leaked' found",
            "`calipam release --leaked` has this option",
        ),
        (&["chek"], 2, "unrecognized subcommand 'chek'", "check"),
        (&["check", "--rule", "leaked"], 2, "leaked", "did you mean `leaked-address`?"),
        (&["export"], 2, "required arguments were not provided: <FILE>", ""),
        (&["release"], 2, "what to release", "release --help"),
        (&["check", "--datastore", EXAMPLE, "--node", "nowhere"], 1, "nowhere", "show --nodes"),
        (&["show", "--datastore", EXAMPLE, "--handle", "nowhere"], 1, "nowhere", "missing-handle"),
        (&["undo", "/nonexistent/journal"], 3, "cannot read the journal", "name the journal"),
    ];
    for (arguments, code, message, hint) in cases {
        let run = calipam(&[&["-o", "json"], arguments].concat()).exits(code);
        let document = error(&run);
        let text = |name: &str| document[name].as_str().unwrap_or_default().to_owned();
        assert!(text("message").contains(message) && !text("message").contains("Usage"), "{run:?}");
        assert!(text("hint").contains(hint) && (hint.is_empty() == text("hint").is_empty()), "{run:?}");
        // stderr contains the same message.
        assert!(run.stderr.contains(text("message").split(": <").next().unwrap()), "{run:?}");

        let yaml = calipam(&[arguments, &["--output=yaml"]].concat()).exits(code);
        let start = format!("apiVersion: calipam/v1\nkind: Error\nexitCode: {code}\nmessage: ");
        assert!(yaml.stdout.starts_with(&start), "{yaml:?}");
        assert_eq!(calipam(arguments).stdout, "", "a table is no place for an error");
    }
}

#[test]
fn a_run_that_fails_prints_one_document() {
    let etcd = Etcd::of(&Cluster::example()).unwrap();
    let at = ["--etcd-endpoints", &etcd.endpoint(), "--grace", "0", "--settle", "0", "-o", "json"];
    let no_terminal = calipam(&[&["release", "--leaked"], &at[..]].concat()).exits(2);
    assert!(error(&no_terminal)["hint"].as_str().unwrap().contains("--yes"), "{no_terminal:?}");
    let too_many = calipam(&[&["release", "--leaked", "--yes", "--max-changes", "1"], &at[..]].concat());
    assert_eq!(too_many.code, 1);
    assert!(error(&too_many)["message"].as_str().unwrap().contains("more than the limit of 1"));

    // Findings are a report, not a failure.
    let found = calipam(&[&["check"], &at[..]].concat());
    let json = found.json();
    assert_eq!((found.code, &json["kind"]), (1, &"CheckReport".into()));
}

#[test]
fn a_closed_stderr_does_not_abort() {
    for level in ["-v", "-vv", "-vvv"] {
        let etcd = Etcd::of(&Cluster::example()).unwrap();
        let mut check = command(crate::cli::PROGRAM);
        check.args(["check", level, "--settle", "0", "-o", "json", "--etcd-endpoints", &etcd.endpoint()]);
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = check.stdin(Stdio::null()).stderr(writer).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{level}: {:?}", output.status);
        let json: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(json["kind"], "CheckReport", "{level}");
    }
}

/// Ctrl-c during the wait for a second check also prints a document.
#[test]
fn an_interrupted_run_is_a_document() {
    let etcd = Etcd::of(&Cluster::example()).unwrap();
    let mut check = command(crate::cli::PROGRAM);
    check.args(["check", "--settle", "1h", "-o", "json", "--etcd-endpoints", &etcd.endpoint()]);
    let check = check.env("TERM", "xterm");
    let shown = Terminal::new(200).converse(check, "waiting to recheck", |_, it| interrupt(it)).exits(130);
    let fields: BTreeSet<&str> =
        shown.text.lines().map(|line| line.trim_end_matches([',', '\r'])).map(str::trim).collect();
    for field in ["\"kind\": \"Error\"", "\"exitCode\": 130", "\"message\": \"interrupted\""] {
        assert!(fields.contains(field), "{field}: {shown:?}");
    }
}
