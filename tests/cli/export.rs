//! `calipam export`.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use serde_json::Value;

use super::program::{EXAMPLE, Run, calipam, command, on_example};

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
        let run = on_example(&["export", path]);
        assert_eq!((run.code, run.stdout.as_str()), (0, ""), "{run:?}");
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
        Run::of(child.wait_with_output().unwrap())
    };
    let check = ["check", "-d", "-", "-o", "json"];
    let piped = with(exported.stdout.as_bytes(), &check);
    let findings = |run: &Run| serde_json::from_str::<Value>(&run.stdout).unwrap()["findings"].take();
    assert_eq!((piped.code, findings(&piped)), (1, findings(&on_example(&["check", "-o", "json"]))));
    assert!(piped.stdout.contains("\"location\": \"standard input (exported from "), "{}", piped.stdout);

    let cut = with(&exported.stdout.as_bytes()[..5000], &check[..3]);
    assert_eq!(cut.code, 3, "{cut:?}");
    assert!(cut.stderr.starts_with("error: standard input: "), "{cut:?}");
    let both = with(b"", &["release", "--handle", "-", "-d", "-"]);
    assert_eq!(both.code, 2, "{both:?}");
    assert!(both.stderr.contains("stdin cannot be both"), "{both:?}");
}

#[test]
fn a_compression_that_is_not_written_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for ending in ["gz", "xz", "zip"] {
        let path = folder.path().join(format!("x.jsonl.{ending}"));
        let run = on_example(&["export", path.to_str().unwrap()]);
        assert_eq!(run.code, 2, "{run:?}");
        assert!(run.stderr.contains(&format!("exports are not compressed as .{ending}\nhint: ")), "{run:?}");
        assert!(!path.exists());
    }
}

#[test]
fn a_file_that_exists_is_kept_unless_it_is_to_be_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.jsonl");
    fs::write(&path, "precious").unwrap();
    let text = path.to_str().unwrap();
    let run = on_example(&["export", text]);
    assert_eq!(run.code, 2, "{run:?}");
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
    let run = on_example(&["export", "/nonexistent/x.jsonl"]);
    assert_eq!(run.code, 3, "{run:?}");
    assert!(run.stderr.contains("/nonexistent/x.jsonl"), "{run:?}");
}
