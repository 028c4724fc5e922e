//! Reports of earlier checks as programs read them, and what has changed since.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{BufReader, Read, Seek};

use calipam_model::snapshot::{Coverage, Source};
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::code::{Code, Severity};
use crate::finding::{Finding, Subject};
use crate::report::{Filter, Report};

/// Why a file is not a report.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoReport {
    /// Neither JSON nor YAML; this is what is wrong with it as JSON.
    #[error("{0}")]
    Unparsable(String),
    #[error("it is not a JSON object")]
    NotAnObject,
    #[error("neither `kind: CheckReport` of `apiVersion: calipam/v1`, nor `clusterGUID`")]
    OtherDocument,
    #[error(
        "not `kind: FleetReport` of `apiVersion: calipam/v1`: the report of a fleet is compared with one of a fleet"
    )]
    NotOfFleet,
    #[error("a finding names no cluster of the report: {0:?}")]
    OfNoCluster(String),
    #[error("it is in calicoctl's form, which has no findings")]
    WithoutFindings,
    #[error("no `{0}`")]
    Missing(&'static str),
    #[error("`{0}` is not a time")]
    NotATime(&'static str),
    #[error("a finding is not a JSON object")]
    FindingNotAnObject,
    #[error("a finding has no `{0}`")]
    FindingWithout(&'static str),
    #[error("a `{0}` cannot be read")]
    Undecodable(&'static str),
}

/// Reads a file of JSON or YAML. Of JSON, no more is in memory at a time than what is made of it.
pub fn read_document<T: DeserializeOwned>(mut file: impl Read + Seek) -> Result<T, NoReport> {
    serde_json::from_reader(BufReader::new(&mut file)).or_else(|json| {
        let yaml = file.rewind().ok().and_then(|()| serde_yaml::from_reader(file).ok());
        yaml.ok_or_else(|| NoReport::Unparsable(json.to_string()))
    })
}

/// What `calipam check -o json` or `-o yaml` has written, by this version or another one.
#[derive(Clone, Debug, PartialEq)]
pub struct EarlierReport {
    /// The GUID of the cluster; empty if it was not known.
    pub guid: String,
    pub taken_at: Timestamp,
    /// The sources that were read; `None` if the report does not say.
    pub read: Option<HashSet<Source>>,
    pub findings: Vec<EarlierFinding>,
}

/// A finding of an earlier report. Its code can be one that this version does not have.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EarlierFinding {
    pub code: String,
    /// `None` if it is none that this version has.
    pub severity: Option<Severity>,
    pub subject: EarlierSubject,
    pub message: String,
    #[serde(skip)]
    pub evidence: Value,
}

/// The subject of an earlier finding, as the report names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct EarlierSubject {
    pub kind: String,
    pub name: String,
}

/// The version of the schema of YAML and JSON, described in `docs/output.md`: the only one that is written and read.
pub const API_VERSION: &str = "calipam/v1";

impl EarlierReport {
    /// Reads a report.
    ///
    /// # Errors
    /// If it is none, or one of its findings has no code or no subject: passing over it would call it new.
    pub fn decode(fields: &Map<String, Value>) -> Result<Self, NoReport> {
        let whole = Self::without_findings(fields)?;
        let findings = list(fields, "findings")?.iter().map(EarlierFinding::decode);
        Ok(Self { findings: findings.collect::<Result<_, _>>()?, ..whole })
    }

    /// Reads a report but for its findings.
    ///
    /// # Errors
    /// If it is none.
    pub fn without_findings(fields: &Map<String, Value>) -> Result<Self, NoReport> {
        if !is_readable(fields, "CheckReport") {
            return Err(NoReport::OtherDocument);
        }
        let taken_at = text(cluster(fields)?, "takenAt").parse();
        Self::of_cluster(fields, taken_at.map_err(|_| NoReport::NotATime("cluster.takenAt"))?)
    }

    /// What a report, or its entry for one cluster of a fleet, says of the cluster, without findings.
    pub(crate) fn of_cluster(fields: &Map<String, Value>, taken_at: Timestamp) -> Result<Self, NoReport> {
        let read = fields.get("coverage").and_then(Value::as_object).map(sources);
        Ok(Self { guid: text(cluster(fields)?, "guid"), taken_at, read, findings: Vec::new() })
    }
}

fn cluster(fields: &Map<String, Value>) -> Result<&Map<String, Value>, NoReport> {
    fields.get("cluster").and_then(Value::as_object).ok_or(NoReport::Missing("cluster"))
}

/// True for a document of this kind and of this version.
pub(crate) fn is_readable(fields: &Map<String, Value>, kind: &str) -> bool {
    text(fields, "apiVersion") == API_VERSION && text(fields, "kind") == kind
}

pub(crate) fn list<'v>(
    fields: &'v Map<String, Value>,
    name: &'static str,
) -> Result<&'v Vec<Value>, NoReport> {
    fields.get(name).and_then(Value::as_array).ok_or(NoReport::Missing(name))
}

pub(crate) fn text(fields: &Map<String, Value>, name: &str) -> String {
    fields.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// The sources that count as read; those of other versions are left out.
fn sources(coverage: &Map<String, Value>) -> HashSet<Source> {
    let read = coverage.iter().filter(|(_, read)| **read == Coverage::Read.to_string());
    read.filter_map(|(source, _)| serde_json::from_value(Value::from(source.as_str())).ok()).collect()
}

/// What became of a finding since an earlier report. Code and subject make the same finding: owner, count and message
/// can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Change {
    /// The earlier report does not have it.
    New,
    /// It is more severe than it was.
    Worse,
    Stays,
}

impl Change {
    /// True for what an alert has to tell.
    pub fn is_news(self) -> bool {
        self != Self::Stays
    }
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::New => "new",
            Self::Worse => "worse",
            Self::Stays => "stays",
        })
    }
}

type Identity = (String, EarlierSubject);

/// What has changed since an earlier report.
#[derive(Clone, Debug, PartialEq)]
pub struct Changes {
    /// When the cluster was read for the earlier report.
    pub since: Timestamp,
    before: HashMap<Identity, Option<Severity>>,
    /// What the earlier report has and this one has not, although it looked.
    pub gone: Vec<EarlierFinding>,
    /// What the earlier report has and this one cannot check: a source was not read this time, the objects changed
    /// while they were looked at, or this version does not have the rule.
    pub not_checked: Vec<EarlierFinding>,
    /// Sources that were read for the earlier report and not for this one.
    pub not_read_now: Vec<Source>,
    /// Sources that were read for this report and not for the earlier one: what is new may be older.
    pub not_read_then: Vec<Source>,
}

impl Changes {
    /// Compares. `report` must not be filtered yet: what a filter hides is not gone. `dropped` is what was found and had
    /// changed when it was read again.
    pub fn since(earlier: EarlierReport, report: &Report, dropped: &[Finding]) -> Self {
        let has_read = |source: &Source| report.coverage.get(source) == Some(&Coverage::Read);
        let then = earlier.read.unwrap_or_else(|| report.coverage.keys().copied().filter(has_read).collect());
        let not_read_now: Vec<Source> = sorted(then.iter().copied().filter(|source| !has_read(source)));
        let now = report.coverage.keys().copied().filter(has_read);
        let not_read_then = sorted(now.filter(|source| !then.contains(source)));

        let found: HashSet<Identity> = report.findings.iter().map(identity).collect();
        let changing: HashSet<Identity> = dropped.iter().map(identity).collect();
        let before = earlier.findings.iter().map(|f| (f.identity(), f.severity)).collect();
        let absent = earlier.findings.into_iter().filter(|finding| !found.contains(&finding.identity()));
        let (gone, not_checked) = absent.partition(|finding| {
            let code = finding.code.parse::<Code>();
            code.is_ok_and(|code| is_checked(code, &not_read_now)) && !changing.contains(&finding.identity())
        });
        Self { since: earlier.taken_at, before, gone, not_checked, not_read_now, not_read_then }
    }

    /// What became of a finding of the report.
    pub fn of(&self, finding: &Finding) -> Change {
        match self.before.get(&identity(finding)) {
            None => Change::New,
            Some(Some(severity)) if finding.severity < *severity => Change::Worse,
            Some(_) => Change::Stays,
        }
    }

    /// How many findings of the report are of each kind.
    pub fn counts(&self, report: &Report) -> BTreeMap<Change, usize> {
        let mut counts =
            BTreeMap::from([Change::New, Change::Worse, Change::Stays].map(|change| (change, 0)));
        for finding in &report.findings {
            *counts.entry(self.of(finding)).or_default() += 1;
        }
        counts
    }

    /// The worst severity among what is news.
    pub fn worst_news(&self, report: &Report) -> Option<Severity> {
        let news = report.findings.iter().filter(|finding| self.of(finding).is_news());
        news.map(|finding| finding.severity).min()
    }

    /// Leaves out rules that a filter leaves out. An earlier finding does not say which nodes it concerns: of the rest of
    /// a filter only the report knows.
    pub fn narrow(&mut self, filter: &Filter) {
        let wanted = |finding: &EarlierFinding| {
            let code = finding.code.parse::<Code>();
            code.map_or(filter.rules.is_empty(), |code| filter.admits_rule(code))
        };
        self.gone.retain(wanted);
        self.not_checked.retain(wanted);
    }
}

impl EarlierFinding {
    /// Reads a finding of a report.
    ///
    /// # Errors
    /// If it has no code or no subject.
    pub fn decode(value: &Value) -> Result<Self, NoReport> {
        let fields = value.as_object().ok_or(NoReport::FindingNotAnObject)?;
        let subject = fields.get("subject").and_then(Value::as_object);
        let subject = subject.ok_or(NoReport::FindingWithout("subject"))?;
        let code = text(fields, "code");
        if code.is_empty() {
            return Err(NoReport::FindingWithout("code"));
        }
        let severity = text(fields, "severity");
        Ok(Self {
            code,
            severity: Severity::ALL.into_iter().find(|known| known.to_string() == severity),
            subject: EarlierSubject { kind: text(subject, "kind"), name: text(subject, "name") },
            message: text(fields, "message"),
            evidence: fields.get("evidence").cloned().unwrap_or_default(),
        })
    }

    fn identity(&self) -> Identity {
        (self.code.clone(), self.subject.clone())
    }
}

fn identity(finding: &Finding) -> Identity {
    let Finding { code, subject, .. } = finding;
    (
        code.name().to_owned(),
        EarlierSubject { kind: subject.kind().into(), name: Subject::to_string(subject) },
    )
}

fn sorted(sources: impl Iterator<Item = Source>) -> Vec<Source> {
    let mut sources: Vec<Source> = sources.collect();
    sources.sort();
    sources
}

/// True if a rule would have found again what it found before, although these sources are no longer read. Calico's own
/// data decides about blocks, affinities, handles and pools; of the others only the users of addresses can be left out.
fn is_checked(code: Code, not_read: &[Source]) -> bool {
    let only_users = not_read.iter().all(|source| {
        matches!(source, Source::Endpoints | Source::Pods | Source::Services | Source::Machines)
    });
    not_read.is_empty() || only_users && !code.looks_at_users()
}

#[cfg(test)]
#[path = "earlier_tests.rs"]
mod tests;
