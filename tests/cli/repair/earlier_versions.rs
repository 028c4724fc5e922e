//! What earlier versions of calipam have written is read, or refused, as docs/versions.md says. The samples in `tests/fixtures/earlier` are
//! of builds that wrote them: the README there says of which.

use std::fs;
use std::path::{Path, PathBuf};

use calipam_testkit::servers::Etcd;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::site::*;
use crate::cli::program::{Run, calipam, root};

/// The findings of the cluster that the samples are of: two addresses of pods that are gone.
const LEAKED: [&str; 2] = ["error leaked-address 10.7.0.1", "error leaked-address 10.7.0.2"];

fn sample(name: &str) -> PathBuf {
    root().join("tests/fixtures/earlier").join(name)
}

/// A copy of a sample in the folder of a site, if it may be written to.
fn copied(site: &Site, name: &str) -> String {
    let copy = site.home.path().join(name);
    fs::write(&copy, fs::read(sample(name)).unwrap()).unwrap();
    copy.to_str().unwrap().to_owned()
}

/// A line of an export.
#[derive(Deserialize)]
struct Line {
    key: Option<String>,
    revision: Option<String>,
    value: Option<Box<RawValue>>,
}

/// An etcd that is as it was for an export: each key with its value and its revision.
fn as_exported(name: &str) -> Site {
    let text = fs::read_to_string(sample(name)).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Line>(line).unwrap());
    let entry = |Line { key, revision, value }: Line| {
        let revision: i64 = revision?.parse().unwrap();
        Some((revision, key?, value.map(|value| value.get().to_owned()).unwrap_or_default()))
    };
    let mut entries: Vec<_> = lines.filter_map(entry).collect();
    entries.sort();

    let etcd = Etcd::start().unwrap();
    let written = etcd.with_client(async move |mut client| {
        let mut last = client.get("/other", None).await?.header().unwrap().revision();
        for (revision, key, value) in entries {
            // What has had the revisions in between is gone.
            while last < revision - 1 {
                last = client.put("/other", "", None).await?.header().unwrap().revision();
            }
            last = client.put(key.as_str(), value, None).await?.header().unwrap().revision();
            assert_eq!(last, revision, "{key}");
        }
        client.delete("/other", None).await
    });
    written.unwrap();
    Site { etcd, home: tempfile::tempdir().unwrap() }
}

#[test]
fn a_run_of_an_earlier_version_is_undone() {
    let before = as_exported("before.jsonl");
    for journal in ["journal-1", "journal-2-edits"] {
        let site = as_exported("after.jsonl");
        assert_eq!(site.findings(&[]), set::<&str>([]), "{journal}");
        let (copy, endpoint) = (copied(&site, journal), site.etcd.endpoint());
        // It names the etcd of then.
        let undone = site.run(&["undo", &copy, "--yes", "--etcd-endpoints", &endpoint]);
        assert_eq!(undone.code, 0, "{journal}: {undone:?}");
        assert_eq!(values(&site.dump()), values(&before.dump()), "{journal}");
        assert_eq!(site.findings(&[]), set(LEAKED), "{journal}");
    }
}

#[test]
fn a_report_of_an_earlier_version_is_read() {
    let site = as_exported("before.jsonl");
    for form in ["report-1.json", "report-1.yaml"] {
        let report = sample(form);
        let report = report.to_str().unwrap();
        let again =
            site.run(&["check", "--settle", "0", "--compare-with", report, "--fail-on-new", "-o", "json"]);
        assert_eq!(again.code, 0, "{form}: {again:?}");
        let states = again.json()["findings"].clone();
        assert!(states.as_array().unwrap().iter().all(|finding| finding["change"] == "stays"), "{states}");
        // Seen then and now: nothing is waited for.
        let planned =
            site.run(&["release", "--from-report", report, "--settle", "0", "--dry-run", "-o", "json"]);
        assert_eq!(planned.code, 0, "{form}: {planned:?}");
        let released = ["10.7.0.1", "10.7.0.2"].map(|address| format!("release-address {address}"));
        assert!(changes(&planned.json()).is_superset(&set(released)), "{form}: {planned:?}");
    }
}

#[test]
fn an_export_of_an_earlier_version_is_read_and_belongs_to_an_archive() {
    let name = sample("before.jsonl");
    let run = calipam(&["check", "-o", "json", "--datastore", name.to_str().unwrap()]);
    let report = run.json();
    let subjects = report["findings"].as_array().unwrap().iter();
    let subjects = set(subjects.map(|finding| finding["subject"]["name"].as_str().unwrap()));
    assert_eq!(subjects, set(["10.7.0.1", "10.7.0.2"]));

    let (before, after) = (sample("before.jsonl"), sample("after.jsonl"));
    let between = calipam(&["diff", before.to_str().unwrap(), after.to_str().unwrap(), "-o", "json"]);
    assert_eq!(between.json()["addresses"].as_array().unwrap().len(), 2, "{between:?}");
}

#[test]
fn each_sample_is_read_by_a_test() {
    let this = include_str!("earlier_versions.rs");
    for file in fs::read_dir(Path::new(&sample(""))).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        assert!(name == "README.md" || this.contains(&format!("\"{name}\"")), "{name}");
    }
}
