//! `simulate`.

use serde_json::Value;

use super::program::{EXAMPLE, calipam, expected, on_example};

/// The arguments for a small cluster, whose simulation takes seconds.
const SMALL: &[&str] = &["simulate", "--nodes", "6", "--pods-per-node", "8", "--pool", "10.0.0.0/24"];

fn small(more: &[&str]) -> super::program::Run {
    calipam(&[SMALL, more].concat())
}

fn json(more: &[&str]) -> Value {
    let run = small(&[more, &["-o", "json"]].concat()).succeeded();
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
fn a_seed_gives_one_answer() {
    let options = ["--lifetime", "2m", "--duration", "6m", "--latency", "read=2ms,write=5ms"];
    let first = json(&options);
    assert_eq!(first, json(&options));
    assert_eq!(first["kind"], "Simulation");
    assert_ne!(first["run"], json(&[&options[..], &["--seed", "2"]].concat())["run"]);
}

#[test]
fn a_cluster_that_was_exported_is_where_a_simulation_begins() {
    let run = on_example(&["simulate", "--pods-per-node", "2", "-o", "json"]).succeeded();
    let shown = run.json();
    let before = on_example(&["show", "--nodes", "-o", "json"]).json();
    let nodes = before["nodes"].as_array().unwrap().iter().filter(|node| node["exists"] == true).count();
    assert_eq!(shown["run"]["nodes"], nodes);
    assert!(shown["run"]["adds"]["started"].as_u64().unwrap() > 0, "{shown}");
    calipam(&["simulate", "--datastore", EXAMPLE, "--nodes", "5"]).failed(2, "omit `--nodes`");
}

/// None of these clusters can be read, so a run that tries to read one fails.
#[test]
fn a_named_cluster_is_read() {
    let named = [
        ["--context", "prod"],
        ["--cluster", "prod"],
        ["--server", "http://127.0.0.1:1"],
        ["--kubeconfig", "/none"],
    ];
    for option in named {
        let run = calipam(&[&["simulate"], &option[..]].concat());
        assert!(run.code > 1 && run.stdout.is_empty(), "{option:?}: {run:?}");
    }
}

#[test]
fn a_page_shows_each_answer_and_loads_nothing() {
    let page = small(&["--block-size", "26..28", "-o", "html"]).stdout;
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("<svg") && page.contains("<rect"), "{page}");
    assert!(!page.contains("<script") && !page.contains("http:") && !page.contains("https:"), "{page}");
    let failure = small(&["--fail-node", "-o", "html"]).stdout;
    assert!(failure.contains("<polyline"), "{failure}");
    small(&["-o", "junit"]).failed(2, "junit");
}

#[test]
fn latency_comes_from_a_profile() {
    let shown = json(&["--latency", "loaded,start=1ms"]);
    let expected = (&"1ms".into(), &"loaded,start=1ms".into());
    assert_eq!((&shown["costs"]["start"], &shown["scenario"]["latency"]), expected);
    assert!(!shown["assumedCosts"].as_array().unwrap().contains(&"write".into()), "{shown}");
    let median = |profile: &str| {
        let shown = json(&["--latency", profile]);
        shown["run"]["timeToAddress"]["median"].as_str().unwrap().to_owned()
    };
    assert_ne!(median("local-nvme"), median("loaded"));
    for (options, says) in [
        (&["--latency", "local"][..], "a profile (local-nvme, cloud-disk, loaded)"),
        (&["--latency", "loaded", "--model", "kubernetes"], "the profile loaded is for etcd"),
    ] {
        small(options).failed(2, says);
    }
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
        ])
        .succeeded();
        run.stdout
    };
    let found = advice("10.0.0.0/22");
    assert!(found.contains("Block size: /28. Of the sizes") && found.contains("large enough"), "{found}");
    let found = advice("10.0.0.0/24");
    assert!(found.contains("Block size: /28, in a pool that is large enough"), "{found}");
    assert!(found.contains("Pool: /23 or larger"), "{found}");
    assert!(found.contains("the existing pools are smaller"), "{found}");
}

#[test]
fn impossible_clusters_are_refused_with_a_hint() {
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
        (&["simulate", "--pool", "10.0.0.0/20", "--runs", "0"], "invalid value '0'", ""),
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
        (&["simulate", "--pool", "10.0.0.0/20", "--fail-node", "node-7000"], "node node-7000 not found", ""),
        (
            &["simulate", "--pool", "10.0.0.0/20", "--latency", "read=fast"],
            "not a value of read",
            "--latency",
        ),
    ] {
        calipam(options).refused(2, says).says(hint);
    }
}
