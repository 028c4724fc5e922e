//! JUnit XML: a test case for each rule. A test case fails if its rule has findings that are more severe than
//! informational. In a comparison, only new or worse findings count. A test case is skipped if its rule could not be
//! checked and has no findings.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use calipam_check::{Change, Code, Report, Severity};
use calipam_model::snapshot::{Coverage, Source};
use calipam_plan::advice::Advice;
use maud::{Markup, html};

use crate::render::advice;
use crate::render::findings::Found;
use crate::render::sources::unread;
use crate::render::text::{count, escape, joined, thousands};

/// The maximum number of findings in the text of a failure, since viewers show the whole text. The failure's message
/// contains the total number.
const SHOWN: usize = 1000;

/// Writes the findings of clusters as test results: a suite for each cluster, with a test case for each code, which
/// fails if the code has findings. Each report comes with its cluster's name and advice.
pub(in crate::render) fn write<'a>(
    clusters: impl Iterator<Item = (&'a str, &'a Report, &'a Advice)>,
    codes: impl Iterator<Item = Code> + Clone,
    took: Duration,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut suites: Vec<Suite<'_>> = Vec::new();
    for (name, report, advice) in clusters {
        suites.push(Suite::new(name, report, advice, codes.clone()));
    }
    let time = format!("{:.3}", took.as_secs_f64());
    let tests: usize = suites.iter().map(|suite| suite.by_code.len()).sum();
    let failed: usize = suites.iter().map(|suite| suite.failed).sum();
    let document = html! {
        testsuites name="calipam check" tests=(tests) failures=(failed) errors="0" time=(time) {
            "\n"
            @for suite in &suites { (suite_element(suite, &time)) }
        }
    };
    writeln!(
        out,
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{}",
        document.into_string()
    )
}

/// The test cases of a cluster.
struct Suite<'a> {
    name: &'a str,
    report: &'a Report,
    advice: &'a Advice,
    by_code: BTreeMap<Code, Vec<Found<'a>>>,
    failed: usize,
}

impl<'a> Suite<'a> {
    /// Groups the findings of a report by code. Each code is a test case.
    fn new(name: &'a str, report: &'a Report, advice: &'a Advice, codes: impl Iterator<Item = Code>) -> Self {
        let mut by_code: BTreeMap<Code, Vec<Found<'_>>> = codes.map(|code| (code, Vec::new())).collect();
        // The place among clusters matters only in a report on all of them.
        let place = 0;
        for found in Found::of_cluster(report, place, name) {
            by_code.entry(found.finding.code).or_default().push(found);
        }
        let failed = by_code.values().filter(|findings| fails(findings)).count();
        Self {
            name,
            report,
            advice,
            by_code,
            failed,
        }
    }
}

/// Creates the test suite of one report.
fn suite_element(suite: &Suite<'_>, time: &str) -> Markup {
    let Suite {
        name,
        report,
        advice,
        by_code,
        failed,
    } = suite;
    let mut skipped = 0;
    for (code, findings) in by_code {
        if findings.is_empty() && unread_of(*code, report).is_some() {
            skipped += 1;
        }
    }
    let tests = by_code.len();
    let taken_at = report.cluster.taken_at.strftime("%Y-%m-%dT%H:%M:%S").to_string();
    html! {
        testsuite name=(printable(name)) timestamp=(taken_at) skipped=(skipped) tests=(tests) failures=(failed) errors="0" time=(time) {
            "\n"
            (properties(report))
            @for (code, findings) in by_code {
                (case(*code, findings, report))
            }
            @if !advice.is_empty() { system-out { (printable_lines(&advice::plain(name, advice))) } "\n" }
        }
        "\n"
    }
}

/// True if any finding fails the test. Informational findings never do and, in a comparison, only new or worse findings
/// do.
fn fails(findings: &[Found<'_>]) -> bool {
    findings.iter().any(|found| {
        // Without a comparison, all findings count as new.
        let is_new_or_worse = found.change.is_none_or(Change::is_new_or_worse);
        is_new_or_worse && found.finding.severity < Severity::Info
    })
}

/// Returns a source that the rule requires, but that was not read completely, if there is one.
fn unread_of(code: Code, report: &Report) -> Option<Source> {
    let is_read = |source: &Source| report.coverage.get(source) == Some(&Coverage::Read);
    code.needs().iter().copied().find(|source| !is_read(source))
}

/// Creates the properties: the identity of the cluster, and the sources that were not read.
fn properties(report: &Report) -> Markup {
    let cluster = &report.cluster;
    let unread = unread(&report.coverage, report.cluster.datastore).unwrap_or_default();
    let properties = [
        ("guid", cluster.guid.as_str()),
        ("location", &cluster.location),
        ("revision", &cluster.revision),
        ("calicoVersion", &cluster.calico_version),
        ("notRead", &unread),
    ];
    html! {
        properties {
            @for (name, value) in properties.iter().filter(|(_, value)| !value.is_empty()) {
                property name=(name) value=(printable(value)) {}
            }
        }
        "\n"
    }
}

/// Creates the test case of one code. It passes without an element if there are no findings and everything was read.
fn case(code: Code, findings: &[Found<'_>], report: &Report) -> Markup {
    let message = format!(
        "{}: {}",
        count(findings.len(), "finding", "findings"),
        code.summary()
    );
    html! {
        testcase classname="calipam.check" name=(code.name()) time="0" {
            @if let Some(worst) = findings.first() {
                @if fails(findings) {
                    failure message=(message) type=(worst.finding.severity) { (lines(findings)) }
                } @else {
                    system-out { (lines(findings)) }
                }
            } @else if let Some(source) = unread_of(code, report) {
                skipped message={ (source) " were not read" } {}
            }
        }
        "\n"
    }
}

/// Formats the first findings, a line for each.
fn lines(findings: &[Found<'_>]) -> String {
    let mut lines: Vec<String> = Vec::new();
    for Found { finding, change, .. } in findings.iter().take(SHOWN) {
        let change = match change {
            Some(change) => format!(" ({change})"),
            None => String::new(),
        };
        let message = printable(&finding.message());
        lines.push(format!("{}{change}: {message}", finding.severity));
    }
    if findings.len() > SHOWN {
        lines.push(format!("and {} more", thousands(findings.len() - SHOWN)));
    }
    lines.join("\n")
}

fn printable_lines(lines: &[String]) -> String {
    joined(lines.iter().map(|line| printable(line)), "\n")
}

/// Replaces characters that XML does not allow, not even as references.
fn printable(text: &str) -> String {
    escape(text).replace(['\u{fffe}', '\u{ffff}'], "\u{fffd}")
}
