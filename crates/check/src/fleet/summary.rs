//! The summary of a cluster: what a check of a fleet needs of one, in a file that the cluster itself writes.

use std::collections::BTreeMap;

use calipam_model::cidr;
use calipam_model::snapshot::{Coverage, Source};
use serde::Deserialize;
use serde_json::Value;

use super::ranges::Ranges;
use crate::code::{Code, Severity};
use crate::earlier::API_VERSION;
use crate::finding::{Evidence, Finding, Subject, WrittenEvidence};
use crate::report::{ClusterIdentity, Counts, Report};
use crate::views::{OutsidePools, PoolList, PoolView};

/// The `kind` of a summary. It has the fields of a report, those of a list of pools, and `ranges`.
pub const SUMMARY: &str = "ClusterSummary";

/// What a check of a fleet needs of a cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    pub report: Report,
    pub pools: PoolList,
    pub ranges: Ranges,
}

/// What is looked at first: a reader of a later format must not misread it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head {
    api_version: String,
    kind: String,
}

#[derive(Deserialize)]
struct Written {
    cluster: ClusterIdentity,
    rechecked: bool,
    coverage: BTreeMap<String, Coverage>,
    notes: Vec<String>,
    counts: Counts,
    pools: Vec<PoolView>,
    outside: Option<OutsidePools>,
    ranges: Ranges,
    findings: Vec<WrittenFinding>,
}

#[derive(Deserialize)]
struct WrittenFinding {
    code: String,
    severity: Severity,
    subject: WrittenSubject,
    message: String,
    evidence: Value,
}

#[derive(Deserialize)]
struct WrittenSubject {
    kind: String,
    name: String,
}

impl Summary {
    /// Reads the JSON of a summary. Findings of rules that this version does not have are left out, with a note.
    ///
    /// # Errors
    /// If it is none, or one of another format.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Head { api_version, kind } = serde_json::from_str(text)
            .map_err(|error| format!("it is not the JSON of a summary: {error}"))?;
        if api_version != API_VERSION || kind != SUMMARY {
            return Err(format!(
                "it is a {kind} of {api_version}; a summary is a {SUMMARY} of {API_VERSION}"
            ));
        }
        let written: Written =
            serde_json::from_str(text).map_err(|error| format!("it is not a summary: {error}"))?;

        let number = written.findings.len();
        let mut findings: Vec<Finding> = written.findings.into_iter().filter_map(finding).collect();
        findings.shrink_to_fit();
        let mut notes = written.notes;
        if findings.len() < number {
            let unknown = number - findings.len();
            notes.push(format!("Findings of rules that this version does not have were left out: {unknown}"));
        }
        let source = |name: String| serde_json::from_value::<Source>(Value::from(name)).ok();
        let coverage = written.coverage.into_iter().filter_map(|(name, read)| Some((source(name)?, read)));
        let mut report = Report {
            cluster: written.cluster,
            rechecked: written.rechecked,
            coverage: coverage.collect(),
            notes,
            counts: written.counts,
            findings: Vec::new(),
        };
        report.add(findings);
        let pools = PoolList { pools: written.pools, outside: written.outside };
        Ok(Self { report, pools, ranges: written.ranges })
    }
}

/// `None` for a rule or a kind of subject that this version does not have.
fn finding(written: WrittenFinding) -> Option<Finding> {
    let WrittenFinding { code, severity, subject, message, evidence } = written;
    let (code, subject): (Code, _) = (code.parse().ok()?, subject.read()?);
    let says = match &subject {
        Subject::Address(address) => {
            message.strip_prefix(&format!("{address} ")).unwrap_or(&message).to_owned()
        }
        _ => message,
    };
    let nodes = match &subject {
        Subject::Node(node) | Subject::Affinity { node, .. } => vec![node.clone()],
        _ => Vec::new(),
    };
    let evidence = Evidence::Written(Box::new(WrittenEvidence { value: evidence, says }));
    Some(Finding::new(code, subject, evidence).with_severity(severity).on_nodes(nodes))
}

impl WrittenSubject {
    fn read(self) -> Option<Subject> {
        let Self { kind, name } = self;
        Some(match kind.as_str() {
            "address" => Subject::Address(name.parse().ok()?),
            "block" => Subject::Block(cidr::parse_cidr(&name)?),
            "pool" => Subject::Pool(cidr::parse_cidr(&name)?),
            "handle" => Subject::Handle(name),
            "affinity" => {
                let (position, _) = name.rmatch_indices('/').nth(1)?;
                let cidr = cidr::parse_cidr(&name[position + 1..])?;
                Subject::Affinity { node: name[..position].to_owned(), cidr }
            }
            "endpoint" => Subject::Endpoint(name),
            "service" => Subject::Service(name),
            "node" => Subject::Node(name),
            "configuration" => Subject::Configuration(name),
            "object" => Subject::Object(name),
            "cluster" => Subject::Cluster(name),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_are_read_as_they_are_written() {
        let cidr = "10.0.0.0/26".parse().unwrap();
        let name = || "a/b".to_owned();
        let subjects = [
            Subject::Address("10.0.0.1".parse().unwrap()),
            Subject::Block(cidr),
            Subject::Pool(cidr),
            Subject::Handle(name()),
            Subject::Affinity { node: name(), cidr },
            Subject::Endpoint(name()),
            Subject::Service(name()),
            Subject::Node(name()),
            Subject::Configuration(name()),
            Subject::Object(name()),
            Subject::Cluster(name()),
        ];
        for subject in subjects {
            let written = WrittenSubject { kind: subject.kind().to_owned(), name: subject.to_string() };
            assert_eq!(written.read(), Some(subject));
        }
        assert_eq!(WrittenSubject { kind: "of the future".into(), name: name() }.read(), None);
    }
}
