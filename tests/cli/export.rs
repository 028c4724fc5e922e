//! `calipam export`.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use serde_json::Value;

use super::program::{EXAMPLE, Run, calipam, command, on_example, scratch};

#[test]
fn an_export_gives_the_same_report() {
    let folder = tempfile::tempdir().unwrap();
    let report = |path: &str| {
        let run = calipam(&["check", "-o", "json", "--datastore", path]);
        let mut json = run.json();
        json["cluster"]["location"].take();
        json
    };
    for name in ["copy.jsonl", "copy.jsonl.zst"] {
        let path = folder.path().join(name);
        let path = path.to_str().unwrap();
        let run = on_example(&["export", path]).succeeded().prints_nothing();
        assert!(run.stderr.ends_with(&format!("hint: check it with `calipam check --datastore {path}`\n")));
        assert_eq!(report(path), report(super::program::EXAMPLE), "{name}");
    }
}

#[test]
fn standard_output_and_input() {
    let exported = on_example(&["export", "-"]);
    assert_eq!((exported.code, exported.stderr.as_str()), (0, ""), "{exported:?}");
    assert!(exported.stdout.starts_with("{\"format\":\"calipam-export\""), "{exported:?}");
    let with = |input: &[u8], arguments: &[&str]| {
        let mut program = command(crate::cli::PROGRAM);
        program.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = program.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        Run::ended(child.wait_with_output().unwrap())
    };
    let check = ["check", "-d", "-", "-o", "json"];
    let piped = with(exported.stdout.as_bytes(), &check);
    let findings = |run: &Run| serde_json::from_str::<Value>(&run.stdout).unwrap()["findings"].take();
    assert_eq!((piped.code, findings(&piped)), (1, findings(&on_example(&["check", "-o", "json"]))));
    assert!(piped.stdout.contains("\"location\": \"standard input (exported from "), "{piped:?}");

    let cut = with(&exported.stdout.as_bytes()[..5000], &check[..3]).exits(3);
    assert!(cut.stderr.starts_with("error: standard input: "), "{cut:?}");
    with(b"", &["release", "--handle", "-", "-d", "-"]).failed(2, "stdin cannot be both");
}

#[test]
fn a_compression_that_is_not_written_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for ending in ["gz", "xz", "zip"] {
        let path = folder.path().join(format!("x.jsonl.{ending}"));
        on_example(&["export", path.to_str().unwrap()])
            .failed(2, &format!("exports are not compressed as .{ending}\nhint: "));
        assert!(!path.exists());
    }
}

#[test]
fn a_file_that_exists_is_kept_unless_it_is_to_be_replaced() {
    let (_folder, path) = scratch("x.jsonl");
    fs::write(&path, "precious").unwrap();
    let text = path.to_str().unwrap();
    let run = on_example(&["export", text]).exits(2);
    assert_eq!(
        run.stderr,
        format!(
            "error: {text} exists\nhint: choose another name, or replace it: `calipam export {text} --overwrite --datastore {EXAMPLE}`\n"
        )
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    assert_eq!(on_example(&["export", text, "--overwrite"]).code, 0);
    assert!(fs::read_to_string(&path).unwrap().contains("calipam-export"));
}

#[test]
fn a_directory_that_is_missing_is_an_error_of_the_file() {
    on_example(&["export", "/nonexistent/x.jsonl"]).failed(3, "/nonexistent/x.jsonl");
}
