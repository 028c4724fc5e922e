//! SARIF 2.1.0, the form in which reviewers of code take findings.

use std::io::{self, Write};

use calipam_check::{Code, Finding, Report, Severity};
use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::hints::remedy;
use crate::render::text::escape;

const SCHEMA: &str =
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Run<'a> {
    tool: Value,
    column_kind: &'static str,
    properties: Value,
    #[serde(serialize_with = "results")]
    results: &'a [Finding],
}

#[derive(Serialize)]
struct Log<'a> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    version: &'static str,
    runs: [Run<'a>; 1],
}

pub fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let driver = json!({
        "name": "calipam",
        "semanticVersion": env!("CARGO_PKG_VERSION"),
        "rules": Code::ALL.iter().map(rule).collect::<Vec<_>>(),
    });
    let run = Run {
        tool: json!({ "driver": driver }),
        column_kind: "unicodeCodePoints",
        properties: json!({ "cluster": report.cluster, "coverage": report.coverage, "notes": report.notes }),
        results: &report.findings,
    };
    serde_json::to_writer(&mut *out, &Log { schema: SCHEMA, version: "2.1.0", runs: [run] })?;
    writeln!(out)
}

fn rule(code: &Code) -> Value {
    json!({
        "id": code.name(),
        "shortDescription": { "text": code.summary() },
        "defaultConfiguration": { "level": level(code.severity()) },
        "properties": { "severity": code.severity() },
    })
}

/// Findings are written one by one: a hundred thousand of them need not be in memory twice.
fn results<S: Serializer>(findings: &[Finding], serializer: S) -> Result<S::Ok, S::Error> {
    let mut sequence = serializer.serialize_seq(Some(findings.len()))?;
    for finding in findings {
        sequence.serialize_element(&result(finding))?;
    }
    sequence.end()
}

fn result(finding: &Finding) -> Value {
    let name = finding.subject.to_string();
    let kind = finding.subject.kind();
    let mut properties = json!({ "severity": finding.severity, "evidence": finding.evidence });
    if let Some(remedy) = finding.remedy() {
        properties["repair"] = remedy::in_document(&remedy).into();
    }
    json!({
        "ruleId": finding.code.name(),
        "ruleIndex": Code::ALL.iter().position(|code| *code == finding.code),
        "level": level(finding.severity),
        "message": { "text": escape(&finding.message) },
        "locations": [{
            "logicalLocations": [{ "name": name, "kind": kind, "fullyQualifiedName": format!("{kind}/{name}") }],
        }],
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
