//! SARIF 2.1.0, the form in which reviewers of code take findings.

use std::collections::BTreeSet;
use std::io::{self, Write};

use calipam_check::{Change, Changes, Code, EarlierFinding, Finding, Report, Severity};
use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::hints::remedy;
use crate::render::fleet::FleetReport;
use crate::render::text::escape;

const SCHEMA: &str =
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Run<'a> {
    tool: Value,
    /// Of a cluster of a fleet: its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    automation_details: Option<Value>,
    column_kind: &'static str,
    properties: Value,
    results: Results<'a>,
}

struct Results<'a> {
    findings: &'a [Finding],
    changes: Option<&'a Changes>,
    codes: Vec<Code>,
}

#[derive(Serialize)]
struct Log<'a> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    version: &'static str,
    runs: Vec<Run<'a>>,
}

pub(super) fn write(report: &Report, changes: Option<&Changes>, out: &mut dyn Write) -> io::Result<()> {
    log(vec![run(report, changes, Code::of_one_cluster().collect())], out)
}

/// The same of many clusters: a run for each, with the rules that found something there.
pub(in crate::render) fn write_fleet(report: &FleetReport, out: &mut dyn Write) -> io::Result<()> {
    let runs = report.each().map(|(cluster, changes)| {
        let codes: BTreeSet<Code> = cluster.report.findings.iter().map(|finding| finding.code).collect();
        let name = json!({ "id": format!("calipam check/{}", escape(&cluster.name)) });
        let of_cluster = run(&cluster.report, changes, codes.into_iter().collect());
        Run { automation_details: Some(name), ..of_cluster }
    });
    log(runs.collect(), out)
}

fn log(runs: Vec<Run<'_>>, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer(&mut *out, &Log { schema: SCHEMA, version: "2.1.0", runs })?;
    writeln!(out)
}

fn run<'a>(report: &'a Report, changes: Option<&'a Changes>, codes: Vec<Code>) -> Run<'a> {
    let driver = json!({
        "name": "calipam",
        "semanticVersion": env!("CARGO_PKG_VERSION"),
        "rules": codes.iter().copied().map(rule).collect::<Vec<_>>(),
    });
    Run {
        tool: json!({ "driver": driver }),
        automation_details: None,
        column_kind: "unicodeCodePoints",
        properties: json!({ "cluster": report.cluster, "coverage": report.coverage, "notes": report.notes }),
        results: Results { findings: &report.findings, changes, codes },
    }
}

fn rule(code: Code) -> Value {
    json!({
        "id": code.name(),
        "shortDescription": { "text": code.summary() },
        "defaultConfiguration": { "level": level(code.severity()) },
        "properties": { "severity": code.severity() },
    })
}

/// Findings are written one by one: a hundred thousand of them need not be in memory twice. In a comparison those that
/// are gone follow; what was not checked has no state that SARIF knows.
impl Serialize for Results<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut sequence = serializer.serialize_seq(None)?;
        for finding in self.findings {
            let mut result = result(finding, &self.codes);
            if let Some(changes) = self.changes {
                result["baselineState"] = match changes.of(finding) {
                    Change::New => "new",
                    Change::Worse => "updated",
                    Change::Stays => "unchanged",
                }
                .into();
            }
            sequence.serialize_element(&result)?;
        }
        for finding in self.changes.iter().flat_map(|changes| &changes.gone) {
            sequence.serialize_element(&absent(finding))?;
        }
        sequence.end()
    }
}

fn absent(finding: &EarlierFinding) -> Value {
    let EarlierFinding { code, subject, message, severity, .. } = finding;
    json!({
        "ruleId": code,
        "level": level(severity.unwrap_or(Severity::Info)),
        "message": { "text": escape(message) },
        "locations": [place(&subject.kind, &subject.name)],
        "partialFingerprints": { "subject/v1": format!("{code}/{}/{}", subject.kind, subject.name) },
        "baselineState": "absent",
    })
}

fn place(kind: &str, name: &str) -> Value {
    json!({
        "logicalLocations": [{ "name": name, "kind": kind, "fullyQualifiedName": format!("{kind}/{name}") }],
    })
}

fn result(finding: &Finding, codes: &[Code]) -> Value {
    let name = finding.subject.to_string();
    let kind = finding.subject.kind();
    let mut properties = json!({ "severity": finding.severity, "evidence": finding.evidence });
    if let Some(remedy) = finding.remedy() {
        properties["repair"] = remedy::in_document(&remedy).into();
    }
    json!({
        "ruleId": finding.code.name(),
        "ruleIndex": codes.iter().position(|code| *code == finding.code),
        "level": level(finding.severity),
        "message": { "text": escape(&finding.message()) },
        "locations": [place(kind, &name)],
        "partialFingerprints": { "subject/v1": format!("{}/{kind}/{name}", finding.code) },
        "properties": properties,
    })
}

fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::Critical | Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Info => "note",
    }
}
