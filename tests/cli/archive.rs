//! The files of an archive: how exports are added and removed, and how errors are handled.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use calipam_testkit::cluster::{Cluster, ClusterSpec};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::program::{EXAMPLE, GUID, Run, calipam, command, edited_example, file, on_example, scratch};

/// A run must not wait on a pipe, which anyone with access to the folder can create.
#[test]
fn a_pipe_in_an_archive_or_in_place_of_a_file_is_an_error() {
    let (_folder, archive) = scratch("archive");
    let archive = archive.to_str().unwrap();
    on_example(&["export", "--archive", archive]).succeeded();
    let mut files = fs::read_dir(archive).unwrap().map(|entry| entry.unwrap().path());
    let export = files
        .find(|path| path.extension().is_some_and(|ending| ending == "zst"))
        .unwrap();
    fs::remove_file(&export).unwrap();
    mknodat(CWD, &export, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();

    let pipe = export.to_str().unwrap();
    let in_archive = ["history", "--archive", archive, "--ip", "10.244.1.7"];
    for arguments in [&in_archive[..], &["check", "--datastore", pipe]] {
        calipam(arguments).failed(3, "it is not a regular file");
    }
    for arguments in [["check", "--ignore", pipe], ["check", "--compare-with", pipe]] {
        on_example(&arguments).failed(3, "it is not a regular file");
    }
    on_example(&["check", "--archive", archive]).says("it is not a regular file");

    // In an archive with exports, it is named and left out.
    on_example(&["export", "--archive", archive]).succeeded();
    let folder = Path::new(archive).join("calipam-20260101T000000Z.jsonl.zst");
    fs::create_dir(&folder).unwrap();
    let left_out = "it is not a regular file, and is left out";
    let run = calipam(&in_archive)
        .succeeded()
        .says(left_out)
        .says(folder.to_str().unwrap());
    assert!(run.stdout.contains("10.244.1.7"), "{run:?}");
}

/// A file that contains only the first page of a list is incomplete, which is an error.
#[test]
fn a_list_that_was_cut_off_is_an_error() {
    for metadata in [r#"{"continue":"eyJ2"}"#, r#"{"remainingItemCount":7}"#] {
        let list = format!(r#"{{"apiVersion":"v1","kind":"PodList","metadata":{metadata},"items":[]}}"#);
        let (_folder, path) = file("pods.json", list);
        calipam(&format!("check --datastore {path}"))
            .refused(3, "PodList")
            .says(&path);
    }
}

#[test]
fn an_archive_has_complete_exports_of_one_cluster() {
    let (folder, archive) = scratch("archive");
    let text = archive.to_str().unwrap();
    on_example(&["export", "--archive", text]).succeeded();
    let named = "calipam-20260601T080000Z.jsonl.zst".to_owned();
    assert_eq!(names(&archive), [".calipam-lock".to_owned(), named.clone()]);
    on_example(&["export", "--archive", text])
        .succeeded()
        .says("nothing was added");

    // The leftovers of a killed run are removed. A file of the user is kept.
    fs::create_dir(archive.join(".calipam-writing")).unwrap();
    fs::write(archive.join(".calipam-writing/export.jsonl.zst"), "half").unwrap();
    fs::write(archive.join("notes.txt"), "mine").unwrap();
    on_example(&["export", "--archive", text, "--keep", "1h:all"]).succeeded();
    assert_eq!(
        names(&archive),
        [".calipam-lock".to_owned(), named.clone(), "notes.txt".to_owned()]
    );

    // Another run is writing.
    let lock = fs::File::open(archive.join(".calipam-lock")).unwrap();
    lock.lock().unwrap();
    on_example(&["export", "--archive", text]).failed(3, "another run is writing to this archive");
    drop(lock);

    // The lock was replaced by another file.
    let lock = archive.join(".calipam-lock");
    for odd in ["it is a link", "it is not a regular file"] {
        fs::remove_file(&lock).unwrap();
        match odd {
            "it is a link" => symlink(archive.join("notes.txt"), &lock).unwrap(),
            _ => mknodat(CWD, &lock, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap(),
        }
        on_example(&["export", "--archive", text]).failed(3, odd);
    }
    fs::remove_file(&lock).unwrap();
    assert_eq!(fs::read_to_string(archive.join("notes.txt")).unwrap(), "mine");

    // An archive accepts only exports of its own cluster.
    let other = edited_example(folder.path(), "other.jsonl", &[(GUID, &"f".repeat(32))]);
    calipam(&["export", "--archive", text, "--datastore", &other])
        .failed(3, "an archive of cluster \"0f0e1d2c");
    let checked = calipam(&["check", "--archive", text, "--datastore", &other]).exits(2);
    assert!(
        checked.stderr.ends_with("hint: name this cluster's archive\n"),
        "{checked:?}"
    );
    assert_eq!(names(&archive).len(), 3);

    // A cluster without a GUID cannot be identified. The export warns of that.
    let unknown = edited_example(folder.path(), "unknown.jsonl", &[(GUID, "")]);
    let elsewhere = folder.path().join("unknown");
    calipam(&[
        "export",
        "--archive",
        elsewhere.to_str().unwrap(),
        "--datastore",
        &unknown,
    ])
    .succeeded()
    .says("the cluster has no GUID");

    // An export that the user has renamed is not pruned.
    let own = archive.join("calipam-before-the-restore.jsonl.zst");
    fs::copy(archive.join(&named), &own).unwrap();
    let keep = |name, edits: &[(&str, &str)]| {
        let export = edited_example(folder.path(), name, edits);
        calipam(&[
            "export",
            "--archive",
            text,
            "--keep",
            "1h:all",
            "--datastore",
            &export,
        ])
        .succeeded()
    };
    let later = [
        ("2026-06-01T08:00:00Z", "2026-06-03T08:00:00Z"),
        ("\"48250\"", "\"48249\""),
    ];
    keep("later.jsonl", &later).says("holds 1 export; 1 export removed");
    let newer = "calipam-20260603T080000Z.jsonl.zst";
    let expected = [
        ".calipam-lock",
        newer,
        "calipam-before-the-restore.jsonl.zst",
        "notes.txt",
    ];
    assert_eq!(names(&archive), expected);

    // A limit on the size of files acts like a full disk. No partial file remains, and no data is lost.
    let script = format!(
        "trap '' XFSZ; ulimit -f 1; exec {} export --archive {text} --datastore {EXAMPLE}",
        crate::cli::PROGRAM
    );
    Run::of(command("/bin/sh").args(["-c", &script])).failed(3, "File too large");
    assert_eq!(names(&archive), expected);

    // The clock was set back, so the new export is older than an existing one. Every read of the archive warns of it.
    on_example(&["export", "--archive", text])
        .succeeded()
        .says("a clock was set back");
    let history = |archive| calipam(&["history", "--archive", archive, "--ip", "10.244.10.6"]);
    let warning =
        "the export from 2026-06-03T08:00:00Z has older data than the one from 2026-06-01T08:00:00Z";
    history(text).succeeded().says(warning);

    // A damaged export is an error. It never counts as an empty export.
    fs::write(archive.join(&named), "half").unwrap();
    history(text).refused(3, "hint: move the file out of the archive");
    // The damaged export is kept, and does not affect the other exports.
    let newest = [("2026-06-01T08:00:00Z", "2026-06-05T08:00:00Z")];
    keep("newest.jsonl", &newest).says("this export in the archive is damaged");
    assert_eq!(fs::read_to_string(archive.join(&named)).unwrap(), "half");
    fs::remove_file(archive.join(&named)).unwrap();
    // A single changed bit is detected.
    let path = archive.join("calipam-20260605T080000Z.jsonl.zst");
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&path, &bytes).unwrap();
    history(text).exits(3).prints_nothing();
    fs::remove_file(&path).unwrap();
    for wrong in ["24h", "30d:daily,24h:all", "soon:all"] {
        on_example(&["export", "--archive", text, "--keep", wrong]).exits(2);
    }
    history(folder.path().to_str().unwrap()).failed(3, "holds no export\nhint: ");
}

/// Returns the names of the files in a folder.
fn names(folder: &Path) -> Vec<String> {
    let files = fs::read_dir(folder).into_iter().flatten();
    let mut names: Vec<String> = files
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_killed_export_leaves_nothing_that_counts() {
    let folder = tempfile::tempdir().unwrap();
    let (large, archive) = (folder.path().join("large.jsonl"), folder.path().join("archive"));
    Cluster::sized(ClusterSpec::new(1), 20_000)
        .write_export(&large)
        .unwrap();
    let arguments = ["--archive", archive.to_str().unwrap()];
    let export = [
        &["export", "--datastore", large.to_str().unwrap()],
        &arguments[..],
    ]
    .concat();
    let mut program = command(crate::cli::PROGRAM);
    let mut killed = program.args(&export).stderr(Stdio::null()).spawn().unwrap();
    while !names(&archive).iter().any(|name| name == ".calipam-writing") {
        assert!(killed.try_wait().unwrap().is_none(), "it ended before it wrote");
        thread::sleep(Duration::from_millis(1));
    }
    killed.kill().unwrap();
    assert_eq!(killed.wait().unwrap().code(), None);
    assert_eq!(names(&archive), [".calipam-lock", ".calipam-writing"]);
    calipam(&[&["history", "--ip", "10.0.0.1"], &arguments[..]].concat()).failed(3, "holds no export");

    calipam(&export).succeeded();
    let left = names(&archive);
    assert!(left.len() == 2 && left[1].ends_with(".jsonl.zst"), "{left:?}");
}
