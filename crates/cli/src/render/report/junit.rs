//! JUnit's XML: a test case for each rule. It fails where the rule found something that makes the check fail, and is
//! skipped where nothing could be said.

use std::collections::BTreeMap;
use std::io::{self, Write};

use calipam_check::{Changes, Code, Finding, Report, Severity};
use calipam_model::snapshot::{Coverage, Source};
use quick_xml::Writer;
use quick_xml::events::{BytesDecl, BytesText, Event};

use super::Checked;
use crate::render::check::unread;
use crate::render::text::{count, escape};

/// Readers show a failure's text as a whole: so many lines of it are enough, the sum stands in front.
const SHOWN: usize = 1000;

pub(super) fn write(checked: &Checked<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut by_code: BTreeMap<Code, Vec<&Finding>> =
        Code::ALL.iter().map(|code| (*code, Vec::new())).collect();
    for finding in &checked.report.findings {
        by_code.entry(finding.code).or_default().push(finding);
    }
    let failed = by_code.values().filter(|findings| fails(findings, checked.changes)).count();
    let skipped =
        by_code.keys().filter(|code| unread_of(**code, checked.report).is_some()).count().to_string();
    let counts = [
        ("tests", by_code.len().to_string()),
        ("failures", failed.to_string()),
        ("errors", "0".to_owned()),
        ("time", format!("{:.3}", checked.took.as_secs_f64())),
    ];
    let counts: Vec<(&str, &str)> = counts.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let taken_at = checked.report.cluster.taken_at.strftime("%Y-%m-%dT%H:%M:%S").to_string();

    let mut xml = Writer::new_with_indent(&mut *out, b' ', 2);
    xml.write_event(Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)))?;
    let suites = xml.create_element("testsuites").with_attributes([("name", "calipam check")]);
    suites.with_attributes(counts.iter().copied()).write_inner_content(|xml| {
        let suite = xml
            .create_element("testsuite")
            .with_attributes([
                ("name", "calipam check"),
                ("timestamp", taken_at.as_str()),
                ("skipped", skipped.as_str()),
            ])
            .with_attributes(counts.iter().copied());
        suite.write_inner_content(|xml| {
            properties(checked, xml)?;
            by_code.iter().try_for_each(|(code, findings)| case(*code, findings, checked, xml))
        })?;
        Ok(())
    })?;
    writeln!(out)
}

/// An information is told, but fails no test. In a comparison only what is new fails one.
fn fails(findings: &[&Finding], changes: Option<&Changes>) -> bool {
    let counts = |finding: &Finding| changes.is_none_or(|changes| changes.of(finding).is_news());
    findings.iter().any(|finding| finding.severity < Severity::Info && counts(finding))
}

/// A source without which the rule could judge nothing.
fn unread_of(code: Code, report: &Report) -> Option<Source> {
    let is_read = |source: &Source| report.coverage.get(source) == Some(&Coverage::Read);
    code.needs().iter().copied().find(|source| !is_read(source))
}

/// Which cluster it is, and what was not read.
fn properties<W: Write>(checked: &Checked<'_>, xml: &mut Writer<W>) -> io::Result<()> {
    let cluster = &checked.report.cluster;
    let unread = unread(&checked.report.coverage, checked.report.cluster.datastore).unwrap_or_default();
    let properties = [
        ("guid", cluster.guid.as_str()),
        ("location", &cluster.location),
        ("revision", &cluster.revision),
        ("calicoVersion", &cluster.calico_version),
        ("notRead", &unread),
    ];
    xml.create_element("properties").write_inner_content(|xml| {
        for (name, value) in properties.iter().filter(|(_, value)| !value.is_empty()) {
            let value = printable(value);
            xml.create_element("property")
                .with_attributes([("name", *name), ("value", &value)])
                .write_empty()?;
        }
        Ok(())
    })?;
    Ok(())
}

fn case<W: Write>(
    code: Code,
    findings: &[&Finding],
    checked: &Checked<'_>,
    xml: &mut Writer<W>,
) -> io::Result<()> {
    let attributes = [("classname", "calipam.check"), ("name", code.name()), ("time", "0")];
    let case = xml.create_element("testcase").with_attributes(attributes);
    let Some(worst) = findings.first() else {
        match unread_of(code, checked.report) {
            None => case.write_empty()?,
            Some(source) => case.write_inner_content(|xml| {
                let reason = format!("{source} were not read");
                xml.create_element("skipped").with_attribute(("message", reason.as_str())).write_empty()?;
                Ok(())
            })?,
        };
        return Ok(());
    };
    let message = format!("{}: {}", count(findings.len(), "finding", "findings"), code.summary());
    let text = lines(findings, checked.changes);
    case.write_inner_content(|xml| {
        let element = if fails(findings, checked.changes) {
            let severity = worst.severity.to_string();
            xml.create_element("failure")
                .with_attributes([("message", message.as_str()), ("type", severity.as_str())])
        } else {
            xml.create_element("system-out")
        };
        element.write_text_content(BytesText::new(&text))?;
        Ok(())
    })?;
    Ok(())
}

fn lines(findings: &[&Finding], changes: Option<&Changes>) -> String {
    let line = |finding: &&Finding| {
        let change = changes.map(|changes| format!(" ({})", changes.of(finding))).unwrap_or_default();
        format!("{}{change}: {}", finding.severity, printable(&finding.message()))
    };
    let mut lines: Vec<String> = findings.iter().take(SHOWN).map(line).collect();
    if findings.len() > SHOWN {
        lines.push(format!("and {} more", findings.len() - SHOWN));
    }
    lines.join("\n")
}

/// Without characters that XML cannot hold, not even as references.
fn printable(text: &str) -> String {
    escape(text).replace(['\u{fffe}', '\u{ffff}'], "\u{fffd}")
}
