//! `simulate`.

use std::fs;
use std::path::Path;

use calipam_testkit::browser::Browser;
use serde_json::{Value, json};

use super::pages::evaluate;
use super::program::{Run, calipam, command, expected, items, on_example};

/// Simulates a small cluster, which takes seconds.
fn small(options: &str) -> Run {
    calipam(&format!(
        "simulate --nodes 6 --pods-per-node 8 --pool 10.0.0.0/24 {options}"
    ))
}

fn answer(options: &str) -> Value {
    small(&format!("{options} -o json")).succeeded().json()
}

#[test]
fn each_question_has_its_answer() {
    let scale = calipam("simulate --nodes 4,8 --pods-per-node 5 --pool 10.0.0.0/22");
    expected!("simulate-scale", scale.transcript());
    for (name, options) in [
        ("block-sizes", "--block-size 26..29"),
        ("failure", "--fail-node --block-size 28"),
        ("failure-runs", "--fail-node --block-size 28 --runs 3"),
        ("clashes", "--clashes=freed-by-hand --runs 2 --block-size 29"),
        ("one", "--lifetime 2m --duration 6m"),
        ("runs", "--runs 3"),
        ("advice", "--advise --max-pods-per-node 12"),
    ] {
        expected!(format!("simulate-{name}"), small(options).transcript());
    }
}

#[test]
fn a_seed_gives_one_answer() {
    let options = "--lifetime 2m --duration 6m --latency read=2ms,write=5ms";
    let first = answer(options);
    assert_eq!(first, answer(options));
    assert_eq!(first["kind"], "Simulation");
    assert_ne!(first["run"], answer(&format!("{options} --seed 2"))["run"]);
}

#[test]
fn a_cluster_that_was_exported_is_where_a_simulation_begins() {
    let shown = on_example("simulate --pods-per-node 2 -o json")
        .succeeded()
        .json();
    let before = on_example("show --nodes -o json").json();
    let nodes = items(&before["nodes"])
        .iter()
        .filter(|node| node["exists"] == true)
        .count();
    assert_eq!(shown["run"]["nodes"], nodes);
    assert!(shown["run"]["adds"]["started"].as_u64().unwrap() > 0, "{shown}");
    on_example("simulate --nodes 5").failed(2, "omit `--nodes`");
}

/// None of these clusters can be read, so a run that tries to read one fails.
#[test]
fn a_named_cluster_is_read() {
    for option in [
        "--context prod",
        "--cluster prod",
        "--server http://127.0.0.1:1",
        "--kubeconfig /none",
    ] {
        let run = calipam(&format!("simulate {option}")).prints_nothing();
        assert!(run.code > 1, "{option}: {run:?}");
    }
}

#[test]
fn a_page_shows_each_answer_and_loads_nothing() {
    let page = small("--block-size 26..28 -o html")
        .prints("<svg")
        .prints("<rect");
    assert!(page.stdout.starts_with("<!DOCTYPE html>"), "{page:?}");
    page.omits("<script").omits("http:").omits("https:");
    small("--fail-node -o html").prints("<polyline");
    small("-o junit").failed(2, "junit");
}

#[test]
fn latency_comes_from_a_profile() {
    let shown = answer("--latency loaded,start=1ms");
    let expected = (&"1ms".into(), &"loaded,start=1ms".into());
    assert_eq!(
        (&shown["costs"]["start"], &shown["scenario"]["latency"]),
        expected
    );
    assert!(
        !items(&shown["assumedCosts"]).contains(&"write".into()),
        "{shown}"
    );
    let median =
        |profile: &str| answer(&format!("--latency {profile}"))["run"]["timeToAddress"]["median"].take();
    assert_ne!(median("local-nvme"), median("loaded"));
    small("--latency local").failed(2, "a profile (local-nvme, cloud-disk, loaded)");
    small("--latency loaded --model kubernetes").failed(2, "the profile loaded is for etcd");
}

#[test]
fn advice_names_the_pool_that_a_cluster_needs() {
    let advice = |pool: &str| {
        let size = "--nodes 20 --pods-per-node 12 --max-pods-per-node 12";
        calipam(&format!("simulate --advise {size} --pool {pool}")).succeeded()
    };
    advice("10.0.0.0/22")
        .prints("Block size: /28. Of the sizes")
        .prints("large enough");
    advice("10.0.0.0/24")
        .prints("Block size: /28, in a pool that is large enough")
        .prints("Pool: /23 or larger")
        .prints("the existing pools are smaller");
}

#[test]
fn impossible_clusters_are_refused_with_a_hint() {
    // Without a pool, the cluster of the environment counts.
    let nowhere = calipam("simulate");
    assert!(
        nowhere.code != 0 && nowhere.stderr.contains("`--datastore FILE`"),
        "{nowhere:?}"
    );
    nowhere.says("`--pool 10.244.0.0/16`");
    let mut by_environment = command(Path::new(crate::cli::PROGRAM));
    let run = Run::of(by_environment.arg("simulate").env("KUBECONFIG", "/none/such"));
    run.exits(3).says("/none/such");
    for (options, says, hint) in [
        ("--nodes 3,5 --fail-node", "several numbers in `--nodes`", ""),
        ("--arrival -3/s", "negative", ""),
        ("--arrival 0", "no pod ever arrives", ""),
        ("--arrival fast", "not a rate", "300/m"),
        ("--nodes=-3", "invalid value '-3'", ""),
        ("--lifetime=-3m", "not a duration", ""),
        ("--latency read=-1ms", "not a value of read", "--latency"),
        ("--latency read=fast", "not a value of read", "--latency"),
        ("--runs 0", "invalid value '0'", ""),
        ("--pool 10.0.8.0/24", "overlap", ""),
        (
            "--nodes 6 --pods-per-node 8 --block-size 19..26",
            "/20 to /32",
            "prefix length",
        ),
        ("--max-blocks-per-host 2", "strict affinity", "--strict-affinity"),
        ("--fail-node node-7000", "node node-7000 not found", ""),
    ] {
        calipam(&format!("simulate --pool 10.0.0.0/20 {options}"))
            .refused(2, says)
            .says(hint);
    }
    let size = "simulate --pool 10.0.0.0/28 --block-size 26";
    calipam(size)
        .refused(2, "larger than the pool")
        .says("prefix length");
}

/// Opens the pages in a real browser. Their charts show the same numbers as their tables.
#[test]
fn the_page_of_a_simulation_draws_what_its_tables_say() {
    let Some(mut browser) = Browser::unless_left_out() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let mut page = browser.page().unwrap();
    for (name, question, charts) in [
        ("scale", "--nodes 4,8", 2),
        ("sizes", "--nodes 6 --block-size 26..29", 3),
        ("failure", "--nodes 6 --fail-node --block-size 28", 2),
        (
            "clashes",
            "--nodes 6 --clashes=none,freed-by-hand --runs 1 --block-size 29",
            1,
        ),
        ("advice", "--nodes 6 --advise --max-pods-per-node 12", 3),
    ] {
        let simulate = "simulate --pods-per-node 8 --pool 10.0.0.0/24 -o html";
        let run = calipam(&format!("{simulate} {question}")).succeeded();
        let file = folder.path().join(format!("{name}.html"));
        fs::write(&file, &run.stdout).unwrap();
        for scheme in ["light", "dark"] {
            page.appearance(scheme, "screen").unwrap();
            page.open(&file).unwrap();
            assert_eq!(
                page.evaluate("document.querySelectorAll('svg').length").unwrap(),
                charts,
                "{name}"
            );
            // Each bar, curve and label is visible, has its own color, and stays within its chart.
            assert_eq!(page.evaluate(STRAY).unwrap(), json!([]), "{name}, {scheme}");
        }
        // In a narrow window, the tables scroll, not the page.
        page.resize(400, 900).unwrap();
        let is_wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth";
        assert_eq!(page.evaluate(is_wide).unwrap(), false, "{name}");
        page.resize(1280, 900).unwrap();
        assert_eq!(page.complaints().unwrap(), [] as [String; 0]);
    }
    let asked = page.requests().unwrap();
    assert!(
        asked
            .iter()
            .all(|url| url.starts_with("file://") && url.ends_with(".html")),
        "{asked:?}"
    );

    // The highest bar is as high as the axis, and the others are in proportion to their values.
    page.open(&folder.path().join("sizes.html")).unwrap();
    let bars: Vec<(f64, f64)> = evaluate(&mut page, WASTED);
    let (most, highest) = bars
        .iter()
        .copied()
        .fold((0.0, 0.0), |a: (f64, f64), b| (a.0.max(b.0), a.1.max(b.1)));
    assert!(bars.len() == 4 && most > 0.0 && highest > 100.0, "{bars:?}");
    for (value, height) in bars {
        assert!((value / most - height / highest).abs() < 0.01, "{value} {height}");
    }
}

/// An expression for the parts of charts that are outside their chart or invisible.
const STRAY: &str = "[...document.querySelectorAll('svg')].flatMap(svg => { \
    const box = svg.getBoundingClientRect(); \
    return [...svg.querySelectorAll('rect, polyline, text')].filter(part => { \
        const own = part.getBoundingClientRect(), style = getComputedStyle(part); \
        const paint = part.tagName === 'polyline' ? style.stroke : style.fill; \
        return paint === 'none' || paint === 'rgb(0, 0, 0)' || own.left < box.left - 1 || own.right > box.right + 1 \
            || own.top < box.top - 1 || own.bottom > box.bottom + 1; \
    }).map(part => part.outerHTML); })";

/// An expression for the value and height of each bar in the chart of wasted addresses.
const WASTED: &str = "[...document.querySelectorAll('figure')].filter(figure => \
    figure.textContent.includes('Wasted addresses')).flatMap(figure => [...figure.querySelectorAll('rect')]).map(rect => \
    [Number(rect.textContent.match(/([0-9,]+)$/)[1].replaceAll(',', '')), Number(rect.getAttribute('height'))])";
