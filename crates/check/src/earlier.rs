//! Reports of earlier checks, read from JSON or YAML, and the changes since such a report.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io::{BufReader, Read, Seek};

use calipam_model::snapshot::{Coverage, Source};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::code::{Code, Severity, UnknownCode};
use crate::filter::Filter;
use crate::finding::{Finding, Subject};

/// The reason why a file is not a report.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoReport {
    /// Neither JSON nor YAML. Contains the JSON parser's error.
    #[error("{0}")]
    Unparsable(String),
    #[error("it is not a JSON object")]
    NotAnObject,
    #[error(
        "it is not a report: it has neither `kind: CheckReport` with `apiVersion: calipam/v1` nor `clusterGUID`"
    )]
    OtherDocument,
    #[error("not `kind: FleetReport` of `apiVersion: calipam/v1`: only two fleet reports can be compared")]
    NotOfFleet,
    #[error("a finding names a cluster that is not in the report: {0:?}")]
    OfNoCluster(String),
    #[error("it is in calicoctl's format, which has no findings")]
    WithoutFindings,
    /// A field is missing or has another type.
    #[error("it cannot be read: {0}")]
    Undecodable(String),
}

/// Reads a JSON or YAML file. JSON is decoded as a stream, so the whole file is never in memory.
///
/// # Errors
/// If it is neither. The error is that of the JSON decoder, since nearly all reports are JSON.
pub fn read_document<T: DeserializeOwned>(mut file: impl Read + Seek) -> Result<T, NoReport> {
    let json_error = match serde_json::from_reader(BufReader::new(&mut file)) {
        Ok(document) => return Ok(document),
        Err(error) => error,
    };
    if file.rewind().is_ok()
        && let Ok(document) = serde_yaml::from_reader(file)
    {
        return Ok(document);
    }
    Err(NoReport::Unparsable(json_error.to_string()))
}

/// A report from `calipam check -o json` or `-o yaml`, from this or another version of calipam.
#[derive(Clone, Debug, PartialEq)]
pub struct EarlierReport {
    /// The GUID of the cluster; empty if it was unknown.
    pub guid: String,
    pub taken_at: Timestamp,
    /// The sources that were read; `None` if the report does not say.
    pub read: Option<BTreeSet<Source>>,
    pub findings: Vec<EarlierFinding>,
}

/// A finding in an earlier report. Its code can be unknown to this version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EarlierFinding {
    /// The name of the cluster in a fleet.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cluster: String,
    pub code: String,
    /// `None` if this version does not know the severity.
    #[serde(default, deserialize_with = "known_severity")]
    pub severity: Option<Severity>,
    pub subject: EarlierSubject,
    #[serde(default)]
    pub message: String,
    #[serde(default, skip_serializing)]
    pub evidence: Value,
}

/// The subject of an earlier finding, as in the report.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EarlierSubject {
    pub kind: String,
    pub name: String,
}

/// Reads a severity; `None` if this version does not know it.
fn known_severity<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Severity>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let severity = Severity::ALL
        .into_iter()
        .find(|severity| severity.to_string() == text);
    Ok(severity)
}

/// A cluster's data in a report.
#[derive(Deserialize)]
pub(crate) struct WrittenCluster {
    /// The cluster's name in a fleet.
    #[serde(default)]
    pub name: String,
    cluster: WrittenIdentity,
    coverage: Option<BTreeMap<String, Value>>,
    /// The findings; `None` in a fleet's report, which lists the findings of all clusters together.
    findings: Option<Vec<EarlierFinding>>,
    #[serde(default)]
    changes: WrittenChanges,
}

/// The changes in a report that was compared with an earlier one.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WrittenChanges {
    /// Findings in the earlier report that could not be checked for this one. They may still exist.
    #[serde(default)]
    pub not_checked: Vec<EarlierFinding>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenIdentity {
    #[serde(default)]
    guid: String,
    taken_at: Timestamp,
}

/// The schema version of JSON and YAML output, described in `docs/output.md`. No other version is written or read.
pub const API_VERSION: &str = "calipam/v1";

impl EarlierReport {
    /// Reads a report.
    ///
    /// # Errors
    /// If it is not a report, or a finding has no code or no subject.
    pub fn decode(report: &Value) -> Result<Self, NoReport> {
        if report.get("clusterGUID").is_some() {
            return Err(NoReport::WithoutFindings);
        }
        let mut written: WrittenCluster = decode(report, "CheckReport", NoReport::OtherDocument)?;
        let Some(mut findings) = written.findings.take() else {
            return Err(NoReport::Undecodable("missing field `findings`".into()));
        };
        findings.append(&mut written.changes.not_checked);
        Ok(Self {
            findings,
            ..Self::of_cluster(written)
        })
    }

    /// Reads a report except its findings, which may be missing.
    ///
    /// # Errors
    /// If it is not a report.
    pub fn without_findings(report: &Value) -> Result<Self, NoReport> {
        decode(report, "CheckReport", NoReport::OtherDocument).map(Self::of_cluster)
    }

    /// Takes the identity and the read sources of a cluster from its earlier report, without findings.
    pub(crate) fn of_cluster(written: WrittenCluster) -> Self {
        Self {
            guid: written.cluster.guid,
            taken_at: written.cluster.taken_at,
            read: written.coverage.map(read_sources),
            findings: Vec::new(),
        }
    }
}

/// The sources that were read according to a report. Sources that this version of calipam does not know are left out.
fn read_sources(coverage: BTreeMap<String, Value>) -> BTreeSet<Source> {
    let mut sources = BTreeSet::new();
    for (name, state) in coverage {
        if state == Coverage::Read.to_string()
            && let Ok(source) = serde_json::from_value(Value::from(name))
        {
            sources.insert(source);
        }
    }
    sources
}

/// Decodes a document, which must be of this kind and of [`API_VERSION`].
pub(crate) fn decode<T: DeserializeOwned>(
    document: &Value,
    kind: &str,
    other: NoReport,
) -> Result<T, NoReport> {
    if !document.is_object() {
        return Err(NoReport::NotAnObject);
    }
    if document["apiVersion"] != API_VERSION || document["kind"] != kind {
        return Err(other);
    }
    T::deserialize(document).map_err(|error| NoReport::Undecodable(error.to_string()))
}

/// The change in a finding since an earlier report. Code and subject identify a finding; owner, count and message can
/// differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Change {
    /// The earlier report does not have the finding.
    New,
    /// The finding is more severe than in the earlier report.
    Worse,
    Stays,
}

impl Change {
    /// True for new and for worse findings, which `--fail-on-new` counts.
    pub fn is_new_or_worse(self) -> bool {
        self != Self::Stays
    }
}

calipam_model::display_serialized!(Change);

/// The code and the subject of a finding.
type Identity = (String, EarlierSubject);

/// The changes since an earlier report.
#[derive(Clone, Debug, PartialEq)]
pub struct Changes {
    /// The time of the earlier report.
    pub since: Timestamp,
    before: HashMap<Identity, Option<Severity>>,
    /// The number of findings with [`Change::Stays`] that [`new_or_worse`](crate::Report::new_or_worse) has left out.
    pub removed: usize,
    /// Findings in the earlier report that this one does not have, although their rules ran.
    pub gone: Vec<EarlierFinding>,
    /// Findings in the earlier report that could not be checked for this one, because a source or another cluster of
    /// the fleet was not read this time, because their objects changed during the check, or because this version does
    /// not have the rule.
    pub not_checked: Vec<EarlierFinding>,
    /// Sources that were read for the earlier report, but not for this one.
    pub not_read_now: Vec<Source>,
    /// Sources that were read for this report, but not for the earlier one. Findings that depend on them can be old,
    /// even if they look new.
    pub not_read_then: Vec<Source>,
}

impl Changes {
    /// Compares an earlier report with the coverage and the findings of this one. They must not be filtered yet, since
    /// findings that a filter hides would count as gone. `dropped` are the findings whose objects had changed by the
    /// second read.
    pub fn since(
        earlier: EarlierReport,
        coverage: &BTreeMap<Source, Coverage>,
        findings: &[Finding],
        dropped: &[Finding],
    ) -> Self {
        let mut read_now: BTreeSet<Source> = BTreeSet::new();
        for (source, coverage) in coverage {
            if *coverage == Coverage::Read {
                read_now.insert(*source);
            }
        }
        let read_then = earlier.read.unwrap_or_else(|| read_now.clone());
        let not_read_now: Vec<Source> = read_then.difference(&read_now).copied().collect();
        let not_read_then = read_now.difference(&read_then).copied().collect();

        let current: HashSet<Identity> = findings.iter().map(identity_of).collect();
        let changing: HashSet<Identity> = dropped.iter().map(identity_of).collect();
        let before = earlier
            .findings
            .iter()
            .map(|finding| (finding.identity(), finding.severity))
            .collect();
        let mut gone = Vec::new();
        let mut not_checked = Vec::new();
        for finding in earlier.findings {
            let identity = finding.identity();
            if current.contains(&identity) {
                continue;
            }
            let code = finding.code.parse::<Code>();
            let is_checked = code.is_ok_and(|code| is_checked(code, &not_read_now));
            if is_checked && !changing.contains(&identity) {
                gone.push(finding);
            } else {
                not_checked.push(finding);
            }
        }
        Self {
            since: earlier.taken_at,
            before,
            removed: 0,
            gone,
            not_checked,
            not_read_now,
            not_read_then,
        }
    }

    /// Returns the change in a finding since the earlier report. If its severity there is not known, it has not become
    /// worse.
    pub fn of(&self, finding: &Finding) -> Change {
        let Some(severity_before) = self.before.get(&identity_of(finding)) else {
            return Change::New;
        };
        // Severities are ordered from the most to the least severe.
        if severity_before.is_some_and(|severity_before| finding.severity < severity_before) {
            Change::Worse
        } else {
            Change::Stays
        }
    }

    /// The number of findings by change, including removed ones.
    pub fn counts(&self, findings: &[Finding]) -> BTreeMap<Change, usize> {
        let mut counts = BTreeMap::from([
            (Change::New, 0),
            (Change::Worse, 0),
            (Change::Stays, self.removed),
        ]);
        for finding in findings {
            *counts.entry(self.of(finding)).or_default() += 1;
        }
        counts
    }

    /// The worst severity among the findings that are new or worse than before.
    pub fn worst_new_or_worse(&self, findings: &[Finding]) -> Option<Severity> {
        findings
            .iter()
            .filter(|finding| self.of(finding).is_new_or_worse())
            .map(|finding| finding.severity)
            .min()
    }

    /// Removes the earlier findings whose rules a filter excludes. Earlier findings have no nodes, so the filter's
    /// other conditions apply only to the report.
    pub(crate) fn narrow(&mut self, filter: &Filter) {
        let is_admitted = |finding: &EarlierFinding| match finding.code.parse::<Code>() {
            Ok(code) => filter.admits_rule(code),
            // A filter cannot name the code of another version.
            Err(UnknownCode(_)) => filter.rules.is_empty(),
        };
        self.gone.retain(is_admitted);
        self.not_checked.retain(is_admitted);
    }
}

impl EarlierFinding {
    fn identity(&self) -> Identity {
        (self.code.clone(), self.subject.clone())
    }
}

/// The identity of a finding in texts, as an earlier report contains it.
fn identity_of(finding: &Finding) -> Identity {
    let Finding { code, subject, .. } = finding;
    (
        code.name().to_owned(),
        EarlierSubject {
            kind: subject.kind().into(),
            name: Subject::to_string(subject),
        },
    )
}

/// True if the rule needs none of the sources in `not_read`. A rule that does not look at users of addresses does not
/// need endpoints, pods, services and machines.
fn is_checked(code: Code, not_read: &[Source]) -> bool {
    if not_read.is_empty() {
        return true;
    }
    let lacks_only_users = not_read.iter().all(|source| {
        matches!(
            source,
            Source::Endpoints | Source::Pods | Source::Services | Source::Machines
        )
    });
    lacks_only_users && !code.looks_at_users()
}

#[cfg(test)]
#[path = "earlier_tests.rs"]
mod tests;
