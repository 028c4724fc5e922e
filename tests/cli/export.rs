//! `calipam export`.

use std::fs;

use super::program::{calipam, on_example};

#[test]
fn an_export_gives_the_same_report() {
    let folder = tempfile::tempdir().unwrap();
    let report = |path: &str| {
        let run = calipam(&["check", "-o", "json", "--datastore", path]);
        let mut json: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
        json["cluster"]["location"].take();
        json
    };
    for name in ["copy.jsonl", "copy.jsonl.zst"] {
        let path = folder.path().join(name);
        let path = path.to_str().unwrap();
        let run = on_example(&["export", path]);
        assert_eq!((run.code, run.stdout.as_str()), (0, ""), "{run:?}");
        assert!(run.stderr.ends_with(&format!("hint: look at it with `calipam check --datastore {path}`\n")));
        assert_eq!(report(path), report(super::program::EXAMPLE), "{name}");
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
        format!("error: {text} exists\nhint: choose another name, or replace it with `--overwrite`\n")
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
