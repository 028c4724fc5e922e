//! `calipam export`.

use std::fs;

use super::program::{EXAMPLE, Run, calipam, file, on_example, prepare};

#[test]
fn an_export_gives_the_same_report() {
    let folder = tempfile::tempdir().unwrap();
    let report = |path: &str| {
        let mut json = calipam(&format!("check -o json --datastore {path}")).json();
        json["cluster"]["location"].take();
        json
    };
    for name in ["copy.jsonl", "copy.jsonl.zst"] {
        let path = folder.path().join(name).display().to_string();
        let run = on_example(&["export", &path]).succeeded().prints_nothing();
        assert!(run.stderr.ends_with(&format!(
            "hint: check it with `calipam check --datastore {path}`\n"
        )));
        assert_eq!(report(&path), report(EXAMPLE), "{name}");
    }
}

#[test]
fn standard_output_and_input() {
    let exported = on_example("export -").succeeded().says_nothing();
    assert!(
        exported.stdout.starts_with("{\"format\":\"calipam-export\""),
        "{exported:?}"
    );
    let with = |input: &str, line: &str| Run::with_input(&mut prepare(line), input.as_bytes());
    let piped = with(&exported.stdout, "check -d - -o json")
        .exits(1)
        .prints("\"location\": \"standard input (exported from ");
    assert_eq!(
        piped.json()["findings"],
        on_example("check -o json").json()["findings"]
    );

    with(&exported.stdout[..5000], "check -d -")
        .exits(3)
        .says_first("error: standard input: ");
    with("", "release --handle - -d -").failed(2, "stdin cannot be both");
}

#[test]
fn a_file_that_cannot_be_written_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for ending in ["gz", "xz", "zip"] {
        let path = folder.path().join(format!("x.jsonl.{ending}"));
        on_example(&["export", path.to_str().unwrap()])
            .failed(2, &format!("exports are not compressed as .{ending}\nhint: "));
        assert!(!path.exists());
    }
    on_example("export /nonexistent/x.jsonl").failed(3, "/nonexistent/x.jsonl");
}

#[test]
fn a_file_that_exists_is_kept_unless_it_is_to_be_replaced() {
    let (_folder, path) = file("x.jsonl", "precious");
    let run = on_example(&["export", &path]).exits(2);
    let hint = format!("replace it: `calipam export {path} --overwrite --datastore {EXAMPLE}`");
    assert_eq!(
        run.stderr,
        format!("error: {path} exists\nhint: choose another name, or {hint}\n")
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    on_example(&["export", &path, "--overwrite"]).succeeded();
    assert!(fs::read_to_string(&path).unwrap().contains("calipam-export"));
}
