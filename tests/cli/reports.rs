//! Reports for programs: Prometheus metrics, JUnit, and reports in files.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use calipam_check::Code;
use calipam_testkit::cluster::{Cluster, ClusterSpec, Fault};
use serde_json::Value;

use super::program::{EXAMPLE, HOSTILE, Run, calipam, column, command, file, items, on_example, scratch};

/// Parses samples by name and labels. Asserts that the help and the type of each metric precede its samples, and that
/// no sample is repeated.
pub(super) fn samples(text: &str) -> BTreeMap<String, f64> {
    let mut samples = BTreeMap::new();
    let (mut helped, mut typed) = ("", "");
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            helped = rest.split_once(' ').expect("a help has a text").0;
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            assert!(rest.ends_with(" gauge"), "{line}");
            typed = rest.split_once(' ').unwrap().0;
            assert_eq!(helped, typed);
        } else {
            let (sample, value) = line.rsplit_once(' ').expect(line);
            let name = sample.split('{').next().unwrap();
            assert_eq!(name, typed, "{line}");
            assert!(name.starts_with("calipam_") && name.chars().all(|c| c.is_ascii_lowercase() || c == '_'));
            let is_new = samples
                .insert(sample.to_owned(), value.parse().expect(line))
                .is_none();
            assert!(is_new, "{line}");
        }
    }
    assert!(text.ends_with('\n'));
    samples
}

/// The numbers of `show`, of the metrics and of the page are one, whatever is wrong.
#[test]
fn show_metrics_and_page_have_the_same_numbers() {
    let faults = [
        Fault::PoolNearlyFullReserved,
        Fault::StrandedByLimit,
        Fault::AutoAllocationOff,
        Fault::StrictAffinity,
        Fault::DatastoreLocked,
        Fault::NoClusterInformation,
        Fault::StrandedBefore332,
        Fault::SmallPool,
        Fault::EmptyConfig,
    ];
    let mut without_address = 0;
    for (seed, fault) in (0..).zip(faults) {
        let (_folder, path) = scratch("cluster.jsonl");
        let cluster = Cluster::plain(ClusterSpec::new(seed), 3, 4).with(fault, 1);
        cluster.write_export(&path).unwrap();
        let run = |line: &str| calipam(&format!("{line} --datastore {}", path.display()));
        let metrics = samples(&run("check -o prometheus").stdout);
        let page = run("check -o html").stdout;

        let pools = run("show -o json").json();
        let mut shown = Vec::new();
        for pool in items(&pools["pools"]) {
            let [name, cidr] = ["name", "cidr"].map(|field| pool[field].as_str().unwrap());
            let labels = format!("{{cidr=\"{cidr}\",ippool=\"{name}\"}}");
            let metric = metrics.get(&format!("calipam_ippool_allocatable{labels}"));
            let allocatable = pool["allocatable"].as_f64();
            assert_eq!(metric.copied(), allocatable, "{fault:?} {name}");
            shown.push(allocatable.map_or("?".to_owned(), |number| number.to_string()));
        }
        let cells = page.split("data-head=\"Allocatable\"").skip(1);
        let on_page = cells.map(|cell| {
            let (begin, text) = cell.split_once('>').unwrap();
            let digits = begin.split('"').nth(1);
            digits
                .unwrap_or_else(|| text.split('<').next().unwrap())
                .replace(',', "")
        });
        assert_eq!(on_page.collect::<Vec<_>>(), shown, "{fault:?}");

        let nodes = run("show --nodes -o json").json();
        let is_counted = |family: &Value| family["withoutAddress"] == true && family["mayBeIntended"] != true;
        let counted = items(&nodes["nodes"])
            .iter()
            .filter(|node| items(&node["families"]).iter().any(is_counted));
        let counted = counted.count();
        assert_eq!(
            metrics["calipam_nodes_without_addresses"], counted as f64,
            "{fault:?}"
        );
        without_address += counted;
    }
    assert!(without_address > 6, "{without_address}");
}

#[test]
fn metrics_say_what_the_report_and_the_pools_say() {
    let metrics = samples(&on_example("check -o prometheus").stdout);
    let json = on_example("check -o json").json();
    assert_eq!(
        (metrics["calipam_up"], metrics["calipam_last_run_exit_code"]),
        (1.0, 1.0)
    );

    let sum = |begin: &str| -> f64 {
        metrics
            .iter()
            .filter(|(name, _)| name.starts_with(begin))
            .map(|(_, number)| number)
            .sum()
    };
    let codes = column(&json["findings"], "code");
    assert_eq!(sum("calipam_findings{"), codes.len() as f64);
    let leaks = codes.iter().filter(|code| *code == "leaked-address").count();
    assert_eq!(
        metrics[r#"calipam_findings{code="leaked-address",severity="error"}"#],
        leaks as f64
    );
    for code in Code::of_one_cluster() {
        let name = format!(
            r#"calipam_findings{{code="{code}",severity="{}"}}"#,
            code.severity()
        );
        assert!(metrics.contains_key(&name), "{name}");
    }
    for (object, field) in [
        ("block", "blocks"),
        ("allocation", "allocations"),
        ("handle", "handles"),
    ] {
        let name = format!(r#"calipam_objects{{kind="{object}"}}"#);
        assert_eq!(metrics[&name], json["counts"][field].as_f64().unwrap(), "{name}");
    }

    // The states of a pool add up to its size, and are those that `show` prints.
    for pool in items(&on_example("show -o json").json()["pools"]) {
        let (name, cidr) = (pool["name"].as_str().unwrap(), pool["cidr"].as_str().unwrap());
        let labels = format!(r#"{{cidr="{cidr}",ippool="{name}""#);
        let size = metrics[&format!("calipam_ippool_size{labels}}}")];
        assert_eq!(sum(&format!("calipam_ippool_addresses{labels}")), size, "{name}");
        for (state, field) in [("in_use", "inUse"), ("cooling", "cooling"), ("free", "free")] {
            let metric = format!(r#"calipam_ippool_addresses{labels},state="{state}"}}"#);
            let shown = pool[field]
                .as_f64()
                .or_else(|| pool[field].as_str()?.parse().ok())
                .unwrap();
            assert_eq!(metrics[&metric], shown, "{metric}");
        }
    }
}

#[test]
fn a_check_that_fails_says_so_in_its_metrics() {
    let (folder, report) = file("report.json", "the last report");
    let metrics = folder.path().join("calipam.prom");
    let files = format!(
        "--output-file prometheus={} --output-file json={report}",
        metrics.display()
    );
    calipam(&format!("check -d /no/such/file {files}"))
        .exits(3)
        .prints_nothing();
    let written = samples(&fs::read_to_string(&metrics).unwrap());
    assert_eq!(
        (written["calipam_up"], written["calipam_last_run_exit_code"]),
        (0.0, 3.0)
    );
    assert!(written["calipam_last_run_timestamp_seconds"] > 1.7e9);
    assert_eq!(fs::read_to_string(&report).unwrap(), "the last report");

    assert_eq!(
        samples(&calipam("check -d /no/such/file -o prometheus").stdout)["calipam_up"],
        0.0
    );
}

/// Returns the attribute `name` of each `element` in an XML document.
pub(super) fn attributes(xml: &str, element: &str, name: &str) -> Vec<String> {
    let document = uppsala::parse(xml).unwrap();
    let elements = document.get_elements_by_tag_name(element);
    elements
        .iter()
        .map(|id| document.get_attribute(*id, name).unwrap().to_owned())
        .collect()
}

#[test]
fn junit_has_a_test_case_for_each_rule() {
    let xml = on_example("check -o junit").stdout;
    let cases = attributes(&xml, "testcase", "name");
    assert_eq!(
        cases,
        Code::of_one_cluster()
            .map(|code| code.name().to_owned())
            .collect::<Vec<_>>()
    );
    let failures = attributes(&xml, "failure", "type").len();
    // The example has no pods or services, so the rules about them are skipped.
    let skipped = attributes(&xml, "skipped", "message").len();
    assert!(failures > 10 && skipped >= 4, "{failures} {skipped}");
    for (name, number) in [
        ("tests", cases.len()),
        ("failures", failures),
        ("skipped", skipped),
    ] {
        assert_eq!(
            attributes(&xml, "testsuite", name),
            [number.to_string()],
            "{name}"
        );
    }
}

/// Returns the text between `before` and `after`.
fn between<'t>(text: &'t str, before: &str, after: &str) -> &'t str {
    text.split_once(before)
        .expect(before)
        .1
        .split_once(after)
        .expect(after)
        .0
}

#[test]
fn the_page_holds_every_finding_pool_and_block_and_loads_nothing() {
    let run = on_example("check -o html");
    let page = &run.stdout;
    let json = on_example("check -o json").json();
    let rows = between(page, "<section id=\"findings\">", "</section>")
        .matches("<a href=\"#code-")
        .count();
    assert_eq!(rows, items(&json["findings"]).len());
    for finding in items(&json["findings"]) {
        assert!(page.contains(&format!(
            "<a href=\"#code-{}\">",
            finding["code"].as_str().unwrap()
        )));
        if let Some(repair) = finding["repair"].as_str() {
            assert!(page.contains(&format!("<code>{repair}</code>")), "{repair}");
        }
    }
    let blocks = on_example("show --blocks -o json").json();
    for block in items(&blocks["blocks"])
        .iter()
        .filter(|block| !block["pool"].is_null())
    {
        assert!(page.contains(&format!("\"><td>{}<td>", block["cidr"].as_str().unwrap())));
    }

    let maps = between(
        page,
        "<script id=\"map-data\" type=\"application/json\">",
        "</script>",
    );
    let maps: Value = serde_json::from_str(maps).unwrap();
    let expected = (&"10.244.0.0/16".into(), &1024.into());
    assert_eq!((&maps["pools"][0]["cidr"], &maps["pools"][0]["size"]), expected);
    run.prints("default-src 'none'")
        .omits("src=")
        .omits("href=\"http")
        .omits("url(");
}

#[test]
fn hostile_names_break_no_format_and_become_no_markup() {
    let run = |format: &str| calipam(&format!("check -d {HOSTILE} -o {format}")).stdout;
    samples(&run("prometheus"));
    assert_eq!(
        attributes(&run("junit"), "testcase", "name").len(),
        Code::of_one_cluster().count()
    );
    for format in ["prometheus", "junit", "name", "html"] {
        let text = run(format);
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{format}");
    }
    let page = run("html").to_lowercase();
    let own = on_example("check -o html").stdout.to_lowercase();
    assert_eq!(page.matches("<script").count(), own.matches("<script").count());
    for dangerous in ["<img", "<svg", "<iframe", "onerror=", "javascript:"] {
        assert!(!page.contains(dangerous), "{dangerous}");
    }
}

#[test]
fn one_read_writes_several_files_for_all_to_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let formats = [
        "json",
        "yaml",
        "table",
        "wide",
        "prometheus",
        "junit",
        "html",
        "name",
    ];
    let options = formats.map(|format| format!("--output-file {format}={}", path(format).display()));
    on_example(&format!("check {}", options.join(" ")))
        .exits(1)
        .prints_exactly(&on_example("check").stdout);
    for format in ["json", "wide", "name"] {
        let printed = on_example(&["check", "-o", format]).stdout;
        assert_eq!(fs::read_to_string(path(format)).unwrap(), printed, "{format}");
    }
    for format in formats {
        let mode = fs::metadata(path(format)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o644, "{format}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), formats.len());
}

#[test]
fn an_unwritable_file_is_named_and_the_others_are_written() {
    let (folder, good) = scratch("good.json");
    let files = format!(
        "--output-file json=/no/such/folder/a.json --output-file json={}",
        good.display()
    );
    // The report is still printed.
    on_example(&format!("check {files}"))
        .failed(3, "error: cannot write /no/such/folder/a.json")
        .prints("findings");
    assert!(serde_json::from_str::<Value>(&fs::read_to_string(&good).unwrap()).is_ok());

    on_example(&format!("check --output-file name={}", folder.path().display())).exits(3);
    assert!(good.exists());
}

/// With a limit on the size of files, as on a full disk, old reports are kept, and no partial ones remain.
#[test]
fn a_full_disk_leaves_the_old_files_whole() {
    let folder = tempfile::tempdir().unwrap();
    let [json, report] = ["a.json", "report"].map(|name| folder.path().join(name));
    for (file, option) in [(&json, "--output-file json="), (&report, "--report=")] {
        fs::write(file, "old").unwrap();
        let check = format!(
            "{} check -d {EXAMPLE} {option}{}",
            crate::cli::PROGRAM,
            file.display()
        );
        let script = format!("trap '' XFSZ; ulimit -f 1; exec {check}");
        let told = format!("cannot write {}: File too large", file.display());
        // The report is still printed.
        Run::of(command("/bin/sh").args(["-c", &script]))
            .failed(3, &told)
            .prints("\n34 findings");
        assert_eq!(fs::read(file).unwrap(), b"old");
    }
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count(),
        2,
        "what was half written is taken away"
    );
}
