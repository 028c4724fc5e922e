//! `simulate`.

use std::fs;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use calipam_testkit::cluster::Cluster;
use calipam_testkit::servers::Etcd;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::program::{EXAMPLE, calipam, command, expected, on_example};

/// A cluster of a few seconds.
const SMALL: &[&str] = &["simulate", "--nodes", "6", "--pods-per-node", "8", "--pool", "10.0.0.0/24"];

fn small(more: &[&str]) -> super::program::Run {
    calipam(&[SMALL, more].concat())
}

fn json(more: &[&str]) -> Value {
    let run = small(&[more, &["-o", "json"]].concat());
    assert_eq!(run.code, 0, "{run:?}");
    run.json()
}

#[test]
fn each_question_has_its_answer() {
    let scale = ["simulate", "--nodes", "4,8", "--pods-per-node", "5", "--pool", "10.0.0.0/22"];
    expected!("simulate-scale", calipam(&scale).transcript());
    expected!("simulate-block-sizes", small(&["--block-size", "26..29"]).transcript());
    expected!("simulate-failure", small(&["--fail-node", "--block-size", "28"]).transcript());
    expected!(
        "simulate-failure-runs",
        small(&["--fail-node", "--block-size", "28", "--runs", "3"]).transcript()
    );
    expected!(
        "simulate-clashes",
        small(&["--clashes=freed-by-hand", "--runs", "2", "--block-size", "29"]).transcript()
    );
    expected!("simulate-one", small(&["--lifetime", "2m", "--duration", "6m"]).transcript());
    expected!("simulate-runs", small(&["--runs", "3"]).transcript());
    expected!("simulate-advice", small(&["--advise", "--max-pods-per-node", "12"]).transcript());
}

#[test]
fn a_seed_gives_one_answer_and_a_file_repeats_it() {
    let options = ["--lifetime", "2m", "--duration", "6m", "--latency", "read=2ms,write=5ms"];
    let first = json(&options);
    assert_eq!(first, json(&options));
    assert_eq!(first["kind"], "Simulation");
    assert_ne!(first["run"], json(&[&options[..], &["--seed", "2"]].concat())["run"]);

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("scenario.yaml");
    fs::write(&path, small(&[&options[..], &["--print-scenario"]].concat()).stdout).unwrap();
    let run = calipam(&["simulate", "--scenario", path.to_str().unwrap(), "--nodes", "6", "-o", "json"]);
    let again = run.json();
    assert_eq!(again["run"], first["run"]);
}

#[test]
fn a_cluster_that_was_exported_is_where_a_simulation_begins() {
    let run = on_example(&["simulate", "--pods-per-node", "2", "-o", "json"]);
    assert_eq!(run.code, 0, "{run:?}");
    let shown = run.json();
    let before = on_example(&["show", "--nodes", "-o", "json"]).json();
    let nodes = before["nodes"].as_array().unwrap().iter().filter(|node| node["exists"] == true).count();
    assert_eq!(shown["run"]["nodes"], nodes);
    assert!(shown["run"]["adds"]["started"].as_u64().unwrap() > 0, "{shown}");
    let run = calipam(&["simulate", "--datastore", EXAMPLE, "--nodes", "5"]);
    assert!(run.code == 2 && run.stderr.contains("omit `--nodes`"), "{run:?}");
}

#[test]
fn a_page_shows_each_answer_and_loads_nothing() {
    let page = small(&["--block-size", "26..28", "-o", "html"]).stdout;
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("<svg") && page.contains("<rect"), "{page}");
    assert!(!page.contains("<script") && !page.contains("http:") && !page.contains("https:"), "{page}");
    let failure = small(&["--fail-node", "-o", "html"]).stdout;
    assert!(failure.contains("<polyline"), "{failure}");
    let run = small(&["-o", "junit"]);
    assert!(run.code == 2 && run.stderr.contains("junit"), "{run:?}");
}

#[test]
fn scenarios_stand_side_by_side() {
    let varied = small(&["--vary", "podsPerNode=4,8,40"]);
    expected!("simulate-comparison", varied.transcript());
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    for (name, size) in [("large.yaml", 26), ("small.yaml", 29)] {
        let scenario =
            format!("{{nodes: 4, podsPerNode: 12, pools: [{{cidr: 10.0.0.0/22, blockSize: {size}}}]}}");
        fs::write(path(name), scenario).unwrap();
    }
    let files = [path("large.yaml"), path("small.yaml")];
    let call = ["simulate", "--compare", &files[0], &files[1], "--runs", "2"];
    let shown = calipam(&[&call[..], &["-o", "json"]].concat()).json();
    let blocks: Vec<u64> = shown["comparison"]["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["blocks"]["blocks"].as_u64().unwrap())
        .collect();
    assert!(blocks[0] == 4 && blocks[1] > 4, "{blocks:?}");
    let page = calipam(&[&call[..], &["-o", "html"]].concat()).stdout;
    assert!(page.contains("Scenarios side by side") && page.contains("blockSize: 29"), "{page}");
    for (options, says) in [
        (&["--vary", "podsPerNode=4"][..], "two or more values"),
        (&["--vary", "pods=4,5"], "pods=4: unknown field `pods`"),
        (&["--vary", "zones=1,2", "--advise"], "cannot be used with"),
        (&["--vary", "zones=1,2", "--block-size", "26..28"], "either block sizes or scenarios"),
    ] {
        let run = small(options);
        assert!(run.code == 2 && run.stderr.contains(says), "{options:?}: {run:?}");
    }
}

#[test]
fn latency_comes_from_a_profile_or_the_metrics_of_a_server() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("metrics");
    let bucket = "etcd_disk_wal_fsync_duration_seconds_bucket";
    fs::write(
        &path,
        format!("{bucket}{{le=\"0.004\"}} 0\n{bucket}{{le=\"0.008\"}} 10\n{bucket}{{le=\"+Inf\"}} 10\n"),
    )
    .unwrap();
    let metrics = ["--metrics", path.to_str().unwrap()];
    let shown = json(&metrics);
    assert_eq!(shown["scenario"]["latency"], "write=5000us/7000us/8600us/8600us/8600us");
    assert!(!shown["assumedCosts"].as_array().unwrap().contains(&"write".into()), "{shown}");
    assert_eq!(json(&[&metrics[..], &["--latency", "write=1ms"]].concat())["costs"]["write"], "1ms");
    let median = |profile: &str| {
        let shown = json(&["--latency", profile]);
        shown["run"]["timeToAddress"]["median"].as_str().unwrap().to_owned()
    };
    assert_ne!(median("local-nvme"), median("loaded"));
    for (options, says) in [
        (&["--latency", "local"][..], "a profile (local-nvme, cloud-disk, loaded)"),
        (&["--latency", "loaded", "--model", "kubernetes"], "the profile loaded is of an etcd"),
        (&[&metrics[..], &["--model", "kubernetes"]].concat(), "there is no histogram apiserver_request"),
    ] {
        let run = small(options);
        assert!(run.code == 2 && run.stderr.contains(says), "{options:?}: {run:?}");
    }
}

/// Writes of a real etcd are timed where the operator agrees, and leave nothing, however they end.
#[test]
fn writes_are_measured_with_a_handle_that_is_removed() {
    let etcd = Etcd::start().unwrap();
    Cluster::example().write_to_etcd(&etcd.endpoint()).unwrap();
    let endpoint = etcd.endpoint();
    let call = ["simulate", "--measure", "--writes", "--etcd-endpoints", &endpoint];
    let before = handles(&endpoint);

    let refused = calipam(&call);
    assert!(refused.code == 2 && refused.stderr.contains("confirmation needed"), "{refused:?}");
    let run = calipam(&[&call[..], &["--yes", "-o", "json"]].concat());
    assert_eq!(run.code, 0, "{run:?}");
    let shown = run.json();
    assert!(shown["writeMedian"].is_string() && shown["writeAssumed"].is_null(), "{shown}");
    let latency = shown["latency"].as_str().unwrap();
    assert_eq!(small(&["--latency", latency]).code, 0, "{latency}");
    assert_eq!(handles(&endpoint), before);

    for millis in [20, 60, 150, 250] {
        let mut child = command(env!("CARGO_BIN_EXE_calipam"))
            .args(call)
            .arg("--yes")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        thread::sleep(Duration::from_millis(millis));
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        child.wait().unwrap();
        assert_eq!(handles(&endpoint), before, "after {millis} ms");
    }
}

fn handles(endpoint: &str) -> Value {
    let run = calipam(&["check", "--etcd-endpoints", endpoint, "-o", "json", "--settle", "0"]);
    run.json()["counts"]["handles"].take()
}

#[test]
fn advice_names_the_pool_that_a_cluster_needs() {
    let advice = |pool: &str| {
        let run = calipam(&[
            "simulate",
            "--advise",
            "--nodes",
            "20",
            "--pods-per-node",
            "12",
            "--max-pods-per-node",
            "12",
            "--pool",
            pool,
        ]);
        assert_eq!(run.code, 0, "{run:?}");
        run.stdout
    };
    let found = advice("10.0.0.0/22");
    assert!(found.contains("Block size: /28. Of the sizes") && found.contains("large enough"), "{found}");
    let found = advice("10.0.0.0/24");
    assert!(found.contains("Block size: /28, in a pool that is large enough"), "{found}");
    assert!(found.contains("Pool: /23 or larger") && found.contains("the pools are smaller"), "{found}");
}

#[test]
fn what_no_cluster_can_be_is_refused_with_a_hint() {
    for (options, says, hint) in [
        (&["simulate"][..], "there is no pool", "--pool"),
        (
            &["simulate", "--pool", "10.0.0.0/20", "--nodes", "3,5", "--fail-node"],
            "several numbers in `--nodes`",
            "",
        ),
        (
            &["simulate", "--pool", "10.0.0.0/28", "--block-size", "26"],
            "larger than the pool",
            "prefix length",
        ),
        (&["simulate", "--pool", "10.0.0.0/20", "--arrival", "-3/s"], "negative", ""),
        (&["simulate", "--pool", "10.0.0.0/20", "--arrival", "0"], "no pod ever arrives", ""),
        (&["simulate", "--pool", "10.0.0.0/20", "--arrival", "fast"], "not a rate", "300/m"),
        (&["simulate", "--pool", "10.0.0.0/20", "--nodes=-3"], "invalid value '-3'", ""),
        (&["simulate", "--pool", "10.0.0.0/20", "--lifetime=-3m"], "not a duration", ""),
        (
            &["simulate", "--pool", "10.0.0.0/20", "--latency", "read=-1ms"],
            "not a value of read",
            "--latency",
        ),
        (&["simulate", "--pool", "10.0.0.0/20", "--threads", "0"], "invalid value '0'", ""),
        (&["simulate", "--pool", "10.0.0.0/20", "--fail-zone", "2"], "no zone 2", ""),
        (&["simulate", "--pool", "10.0.0.0/20", "--pool", "10.0.8.0/24"], "overlap", ""),
        (
            &[
                "simulate",
                "--pool",
                "10.0.0.0/20",
                "--nodes",
                "6",
                "--pods-per-node",
                "8",
                "--block-size",
                "19..26",
            ],
            "/20 to /32",
            "prefix length",
        ),
        (
            &["simulate", "--pool", "10.0.0.0/20", "--max-blocks-per-host", "2"],
            "strict affinity",
            "--strict-affinity",
        ),
        (&["simulate", "--pool", "10.0.0.0/20", "--fail-node", "node-7000"], "no node node-7000", ""),
        (
            &["simulate", "--pool", "10.0.0.0/20", "--latency", "read=fast"],
            "not a value of read",
            "--latency",
        ),
        (&["simulate", "--measure", "--datastore", EXAMPLE], "a file has no latency", ""),
        (&["simulate", "--scenario", "Cargo.toml"], "Cargo.toml", "--print-scenario"),
    ] {
        let run = calipam(options);
        assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{options:?}: {run:?}");
        assert!(run.stderr.contains(says) && run.stderr.contains(hint), "{options:?}: {}", run.stderr);
    }
    let run = calipam(&["simulate", "--scenario", "/nonexistent/scenario.yaml"]);
    assert_eq!(run.code, 3, "{run:?}");
}
