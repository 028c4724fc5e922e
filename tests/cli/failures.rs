//! Failures in machine-readable formats, which are printed as documents.

use calipam_testkit::cluster::Cluster;
use calipam_testkit::servers::Etcd;
use serde_json::Value;

use super::program::{Run, calipam, on_etcd, prepare};
use super::pty::{Terminal, interrupt};

/// Parses the single document of a failed run.
fn error(run: &Run) -> Value {
    let json = run.json();
    assert_eq!(
        (&json["apiVersion"], &json["kind"]),
        (&"calipam/v1".into(), &"Error".into()),
        "{run:?}"
    );
    assert_eq!(json["exitCode"], run.code, "{run:?}");
    json
}

#[test]
fn every_failure_is_a_document() {
    let other = "`calipam release --leaked` has this option";
    for (line, code, message, hint) in [
        (
            "check --datastore README.md",
            3,
            "README.md: ",
            "use a file written by",
        ),
        (
            "check --etcd-endpoints http://127.0.0.1:1",
            3,
            "connection refused",
            "is etcd running there",
        ),
        (
            "check --datastore etcd",
            2,
            "no etcd endpoints are set",
            "--etcd-endpoints",
        ),
        ("check --leaked", 2, "unexpected argument '--leaked' found", other),
        ("chek", 2, "unrecognized subcommand 'chek'", "check"),
        (
            "check --rule leaked",
            2,
            "leaked",
            "did you mean `leaked-address`?",
        ),
        ("export", 2, "required arguments were not provided: <FILE>", ""),
        ("release", 2, "what to release", "release --help"),
        (
            "check --datastore docs/examples/cluster.jsonl --node nowhere",
            1,
            "nowhere",
            "show --nodes",
        ),
        (
            "show --datastore docs/examples/cluster.jsonl --handle nowhere",
            1,
            "nowhere",
            "missing-handle",
        ),
        (
            "undo /nonexistent/journal",
            3,
            "cannot read the journal",
            "name the journal",
        ),
    ] {
        let run = calipam(&format!("-o json {line}")).exits(code);
        let document = error(&run);
        let text = |name: &str| document[name].as_str().unwrap_or_default().to_owned();
        assert!(
            text("message").contains(message) && !text("message").contains("Usage"),
            "{run:?}"
        );
        assert!(
            text("hint").contains(hint) && (hint.is_empty() == text("hint").is_empty()),
            "{run:?}"
        );
        // stderr contains the same message.
        run.says(text("message").split(": <").next().unwrap());

        let yaml = calipam(&format!("{line} --output=yaml")).exits(code);
        let start = format!("apiVersion: calipam/v1\nkind: Error\nexitCode: {code}\nmessage: ");
        assert!(yaml.stdout.starts_with(&start), "{yaml:?}");
        // A table is no place for an error.
        calipam(line).prints_nothing();
    }
}

#[test]
fn a_run_on_a_live_datastore_prints_one_document() {
    let etcd = Etcd::of(&Cluster::example()).unwrap();
    let run = |line: &str| on_etcd(&etcd, &format!("{line} --grace 0 --settle 0 -o json"));
    let no_terminal = run("release --leaked").exits(2);
    assert!(
        error(&no_terminal)["hint"].as_str().unwrap().contains("--yes"),
        "{no_terminal:?}"
    );
    let too_many = run("release --leaked --yes --max-changes 1").exits(1);
    assert!(
        error(&too_many)["message"]
            .as_str()
            .unwrap()
            .contains("more than the limit of 1")
    );
    // Findings are a report, not a failure.
    assert_eq!(run("check").exits(1).json()["kind"], "CheckReport");

    // A closed stderr does not abort.
    for level in ["-v", "-vv", "-vvv"] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut check = prepare(&["check", level, "--settle", "0", "-o", "json", "--etcd-endpoints"]);
        let child = check
            .arg(etcd.endpoint())
            .stdout(std::process::Stdio::piped())
            .stderr(writer)
            .spawn();
        let run = Run::ended(child.unwrap().wait_with_output().unwrap()).exits(1);
        assert_eq!(run.json()["kind"], "CheckReport", "{level}");
    }

    // Ctrl-c during the wait for a second check also prints a document.
    let mut check = prepare("check --settle 1h -o json --etcd-endpoints");
    check.arg(etcd.endpoint()).env("TERM", "xterm");
    let waiting = "waiting to recheck";
    let shown = Terminal::new(200)
        .converse(&mut check, waiting, |_, it| interrupt(it))
        .exits(130);
    let mut lines = shown
        .text
        .lines()
        .map(|line| line.trim_end_matches([',', '\r']).trim());
    for field in [
        "\"kind\": \"Error\"",
        "\"exitCode\": 130",
        "\"message\": \"interrupted\"",
    ] {
        assert!(lines.any(|line| line == field), "{field}: {shown:?}");
    }
}
