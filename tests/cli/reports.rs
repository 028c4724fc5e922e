//! Reports for programs: Prometheus metrics, JUnit, and reports in files.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use calipam_check::Code;
use serde_json::Value;

use super::program::{EXAMPLE, HOSTILE, Run, calipam, command, on_example, scratch};

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
            let is_new = samples.insert(sample.to_owned(), value.parse().expect(line)).is_none();
            assert!(is_new, "{line}");
        }
    }
    assert!(text.ends_with('\n'));
    samples
}

fn metrics(arguments: &[&str]) -> BTreeMap<String, f64> {
    samples(&calipam(arguments).stdout)
}

#[test]
fn metrics_say_what_the_report_says() {
    let metrics = samples(&on_example(&["check", "-o", "prometheus"]).stdout);
    let json = on_example(&["check", "-o", "json"]).json();
    assert_eq!((metrics["calipam_up"], metrics["calipam_last_run_exit_code"]), (1.0, 1.0));

    let findings = json["findings"].as_array().unwrap();
    let counted: f64 =
        metrics.iter().filter(|(name, _)| name.starts_with("calipam_findings{")).map(|(_, n)| n).sum();
    assert_eq!(counted, findings.len() as f64);
    let leaks = findings.iter().filter(|finding| finding["code"] == "leaked-address").count();
    assert_eq!(metrics[r#"calipam_findings{code="leaked-address",severity="error"}"#], leaks as f64);
    for code in Code::of_one_cluster() {
        let name = format!(r#"calipam_findings{{code="{code}",severity="{}"}}"#, code.severity());
        assert!(metrics.contains_key(&name), "{name}");
    }

    for (object, field) in [("block", "blocks"), ("allocation", "allocations"), ("handle", "handles")] {
        let name = format!(r#"calipam_objects{{kind="{object}"}}"#);
        assert_eq!(metrics[&name], json["counts"][field].as_f64().unwrap(), "{name}");
    }
}

#[test]
fn the_states_of_a_pool_add_up_to_its_size_and_are_those_that_show_prints() {
    let metrics = samples(&on_example(&["check", "-o", "prometheus"]).stdout);
    let pools = on_example(&["show", "-o", "json"]).json();
    for pool in pools["pools"].as_array().unwrap() {
        let (name, cidr) = (pool["name"].as_str().unwrap(), pool["cidr"].as_str().unwrap());
        let labels = format!(r#"{{cidr="{cidr}",ippool="{name}""#);
        let states =
            metrics.iter().filter(|(m, _)| m.starts_with(&format!("calipam_ippool_addresses{labels}")));
        let sum: f64 = states.map(|(_, number)| number).sum();
        assert_eq!(sum, metrics[&format!("calipam_ippool_size{labels}}}")], "{name}");
        for (state, field) in [("in_use", "inUse"), ("cooling", "cooling"), ("free", "free")] {
            let metric = format!(r#"calipam_ippool_addresses{labels},state="{state}"}}"#);
            let shown = pool[field].as_f64().or_else(|| pool[field].as_str()?.parse().ok()).unwrap();
            assert_eq!(metrics[&metric], shown, "{metric}");
        }
    }
}

#[test]
fn a_check_that_fails_says_so_in_its_metrics() {
    let (folder, file) = scratch("calipam.prom");
    let json = folder.path().join("report.json");
    fs::write(&json, "the last report").unwrap();
    let output = format!("prometheus={}", file.display());
    let report = format!("json={}", json.display());
    let run = calipam(&["check", "-d", "/no/such/file", "--output-file", &output, "--output-file", &report]);
    assert_eq!((run.code, run.stdout.as_str()), (3, ""));
    let written = samples(&fs::read_to_string(&file).unwrap());
    assert_eq!((written["calipam_up"], written["calipam_last_run_exit_code"]), (0.0, 3.0));
    assert!(written["calipam_last_run_timestamp_seconds"] > 1.7e9);
    assert_eq!(fs::read_to_string(&json).unwrap(), "the last report");

    let printed = metrics(&["check", "-d", "/no/such/file", "-o", "prometheus"]);
    assert_eq!(printed["calipam_up"], 0.0);
}

/// Returns the attribute `name` of each `element` in an XML document.
pub(super) fn attributes(xml: &str, element: &str, name: &str) -> Vec<String> {
    let document = uppsala::parse(xml).unwrap();
    let elements = document.get_elements_by_tag_name(element);
    elements.iter().map(|id| document.get_attribute(*id, name).unwrap().to_owned()).collect()
}

#[test]
fn junit_has_a_test_case_for_each_rule() {
    let xml = on_example(&["check", "-o", "junit"]).stdout;
    let cases = attributes(&xml, "testcase", "name");
    assert_eq!(cases, Code::of_one_cluster().map(|code| code.name().to_owned()).collect::<Vec<_>>());
    assert_eq!(attributes(&xml, "testsuite", "tests"), [Code::of_one_cluster().count().to_string()]);
    let failures = attributes(&xml, "failure", "type").len();
    assert_eq!(attributes(&xml, "testsuite", "failures"), [failures.to_string()]);
    assert!(failures > 10);
    // The example has no pods or services, so the rules about them are skipped.
    let skipped = attributes(&xml, "skipped", "message").len();
    assert_eq!(attributes(&xml, "testsuite", "skipped"), [skipped.to_string()]);
    assert!(skipped >= 4);
}

/// Returns the text between `before` and `after`.
fn between<'t>(text: &'t str, before: &str, after: &str) -> &'t str {
    text.split_once(before).expect(before).1.split_once(after).expect(after).0
}

#[test]
fn the_page_holds_every_finding_pool_and_block_and_loads_nothing() {
    let page = on_example(&["check", "-o", "html"]).stdout;
    let json = on_example(&["check", "-o", "json"]).json();
    let rows = between(&page, "<section id=\"findings\">", "</section>").matches("<a href=\"#code-").count();
    assert_eq!(rows, json["findings"].as_array().unwrap().len());
    for finding in json["findings"].as_array().unwrap() {
        assert!(page.contains(&format!("<a href=\"#code-{}\">", finding["code"].as_str().unwrap())));
        if let Some(repair) = finding["repair"].as_str() {
            assert!(page.contains(&format!("<code>{repair}</code>")), "{repair}");
        }
    }
    let blocks = on_example(&["show", "--blocks", "-o", "json"]).json();
    for block in blocks["blocks"].as_array().unwrap().iter().filter(|block| !block["pool"].is_null()) {
        assert!(page.contains(&format!("\"><td>{}<td>", block["cidr"].as_str().unwrap())));
    }

    let maps: Value = serde_json::from_str(between(
        &page,
        "<script id=\"map-data\" type=\"application/json\">",
        "</script>",
    ))
    .unwrap();
    let expected = (&"10.244.0.0/16".into(), &1024.into());
    assert_eq!((&maps["pools"][0]["cidr"], &maps["pools"][0]["size"]), expected);
    assert!(page.contains("default-src 'none'"));
    assert!(!page.contains("src=") && !page.contains("href=\"http"), "it loads something");
    assert!(!page.contains("url("), "it loads something");
}

#[test]
fn no_hostile_name_becomes_markup() {
    let page = calipam(&["check", "-d", HOSTILE, "-o", "html"]).stdout;
    let own = on_example(&["check", "-o", "html"]).stdout;
    let scripts = |page: &str| page.to_lowercase().matches("<script").count();
    assert_eq!(scripts(&page), scripts(&own));
    for dangerous in ["<img", "<svg", "<iframe", "onerror=", "javascript:"] {
        assert!(!page.to_lowercase().contains(dangerous), "{dangerous}");
    }
    assert!(page.chars().all(|c| c == '\n' || !c.is_control()));
}

#[test]
fn hostile_names_break_no_format() {
    let run = |format: &str| calipam(&["check", "-d", HOSTILE, "-o", format]).stdout;
    samples(&run("prometheus"));
    assert_eq!(attributes(&run("junit"), "testcase", "name").len(), Code::of_one_cluster().count());
    for format in ["prometheus", "junit", "name"] {
        let text = run(format);
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{format}");
    }
}

#[test]
fn one_read_writes_several_files_for_all_to_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let option = |format: &str| format!("{format}={}", path(format).display());
    let formats = ["json", "yaml", "table", "wide", "prometheus", "junit", "html", "name"];
    let mut arguments = vec!["check".to_owned()];
    for format in formats {
        arguments.extend(["--output-file".to_owned(), option(format)]);
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let run = on_example(&arguments).exits(1);
    assert_eq!(run.stdout, on_example(&["check"]).stdout);
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
    let (bad, good_option) = ("json=/no/such/folder/a.json", format!("json={}", good.display()));
    let run = calipam(&["check", "-d", EXAMPLE, "--output-file", bad, "--output-file", &good_option])
        .failed(3, "error: cannot write /no/such/folder/a.json");
    assert!(run.stdout.contains("findings"), "the report is still printed");
    assert!(serde_json::from_str::<Value>(&fs::read_to_string(&good).unwrap()).is_ok());

    let folder_as_file = format!("name={}", folder.path().display());
    calipam(&["check", "-d", EXAMPLE, "--output-file", &folder_as_file]).exits(3);
    assert!(good.exists());
}

/// With a limit on the size of files, as on a full disk, old reports are kept, and no partial ones remain.
#[test]
fn a_full_disk_leaves_the_old_files_whole() {
    let folder = tempfile::tempdir().unwrap();
    let [json, report] = ["a.json", "report"].map(|name| folder.path().join(name));
    for file in [&json, &report] {
        fs::write(file, "old").unwrap();
    }
    for (file, option) in [
        (&json, format!("--output-file json={}", json.display())),
        (&report, format!("--report {}", report.display())),
    ] {
        let check = format!("{} check -d {EXAMPLE} {option}", crate::cli::PROGRAM);
        let script = format!("trap '' XFSZ; ulimit -f 1; exec {check}");
        let told = format!("cannot write {}: File too large", file.display());
        let run = Run::of(command("/bin/sh").args(["-c", &script])).failed(3, &told);
        assert!(run.stdout.contains("\n34 findings"), "the report is still printed: {run:?}");
        assert_eq!(fs::read(file).unwrap(), b"old");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "what was half written is taken away");
}
