//! The result of a check.

use std::collections::BTreeMap;

use calipam_model::snapshot::{Coverage, DatastoreKind, Snapshot, Source};
use jiff::Timestamp;
use serde::Serialize;

use crate::code::{Code, Severity};
use crate::finding::Finding;
use crate::scope::Scope;

/// Which cluster was read, where and when.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterIdentity {
    /// The cluster's GUID; empty if cluster information is missing.
    pub guid: String,
    pub datastore: DatastoreKind,
    /// Endpoints or file, without secrets.
    pub location: String,
    /// The revision at which it was read.
    pub revision: String,
    /// The newest Calico version that wrote to it.
    pub calico_version: String,
    pub taken_at: Timestamp,
}

impl ClusterIdentity {
    /// What a snapshot says about where it comes from.
    pub fn of(snapshot: &Snapshot) -> Self {
        let cluster = snapshot.cluster.clone().unwrap_or_default();
        Self {
            guid: cluster.guid,
            datastore: snapshot.datastore,
            location: snapshot.location.clone(),
            revision: snapshot.revision.clone(),
            calico_version: cluster.calico_version,
            taken_at: snapshot.taken_at,
        }
    }
}

/// How much was read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    /// Allocation blocks.
    pub blocks: usize,
    /// Addresses that blocks record for an owner, reserved ones included.
    pub allocations: usize,
    /// Addresses that cool down.
    pub cooling: usize,
    /// Block affinities.
    pub affinities: usize,
    pub handles: usize,
    /// IP pools.
    pub pools: usize,
    pub nodes: usize,
    /// Workload endpoints.
    pub endpoints: usize,
    pub pods: usize,
    pub findings: BTreeMap<Severity, usize>,
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Which cluster was read.
    pub cluster: ClusterIdentity,
    /// What a half-done Calico operation could explain was read again and had not changed.
    pub rechecked: bool,
    /// Which sources were read.
    pub coverage: BTreeMap<Source, Coverage>,
    /// Things to know about the whole.
    pub notes: Vec<String>,
    /// How much was read and found.
    pub counts: Counts,
    /// The findings, ordered by severity, code and subject. The program writes them, each with its remedy in words.
    #[serde(skip)]
    pub findings: Vec<Finding>,
}

/// Which findings a reader wants to see. It never changes what is known, only what is shown.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Only these codes; all if empty.
    pub rules: Vec<Code>,
    /// None of these codes.
    pub skip: Vec<Code>,
    /// Only what is in this part of the cluster.
    pub scope: Scope,
}

impl Filter {
    /// True if the finding is wanted.
    pub fn admits(&self, finding: &Finding) -> bool {
        self.admits_rule(finding.code) && self.scope.has(finding)
    }

    /// True if findings of the rule are wanted, as far as that is known without them.
    pub fn admits_rule(&self, code: Code) -> bool {
        (self.rules.is_empty() || self.rules.contains(&code)) && !self.skip.contains(&code)
    }
}

impl Report {
    /// A report of the findings about a snapshot, ordered.
    pub(crate) fn new(snapshot: &Snapshot, notes: Vec<String>, findings: Vec<Finding>) -> Self {
        let (allocations, cooling) = snapshot.allocation_counts();
        let mut report = Self {
            cluster: ClusterIdentity::of(snapshot),
            rechecked: snapshot.rechecked,
            coverage: snapshot.coverage.clone(),
            notes,
            counts: Counts {
                blocks: snapshot.blocks.len(),
                allocations,
                cooling,
                affinities: snapshot.affinities.len(),
                handles: snapshot.handles.len(),
                pools: snapshot.pools.len(),
                nodes: snapshot.nodes.len(),
                endpoints: snapshot.endpoints.len(),
                pods: snapshot.pods.len(),
                findings: BTreeMap::new(),
            },
            findings,
        };
        report.add(Vec::new());
        report
    }

    /// The report of a cluster that could not be read.
    pub(crate) fn unread(cluster: ClusterIdentity, why: Finding) -> Self {
        let (rechecked, coverage, notes, counts) = Default::default();
        let mut report = Self { cluster, rechecked, coverage, notes, counts, findings: Vec::new() };
        report.add(vec![why]);
        report
    }

    /// Adds findings in their places.
    pub(crate) fn add(&mut self, findings: Vec<Finding>) {
        self.findings.extend(findings);
        self.findings.sort_by(|a, b| (a.severity, a.code, &a.subject).cmp(&(b.severity, b.code, &b.subject)));
        self.count();
    }

    /// Keeps what the filter admits.
    pub fn filter(&mut self, filter: &Filter) {
        self.retain(|finding| filter.admits(finding));
    }

    /// Keeps the findings for which `keep` is true.
    pub fn retain(&mut self, keep: impl FnMut(&Finding) -> bool) {
        self.findings.retain(keep);
        self.count();
    }

    /// Keeps what `earlier`, the report of an earlier read, has found as well, with the same evidence.
    pub fn confirm(&mut self, earlier: &Self) {
        let seen: std::collections::HashMap<_, _> =
            earlier.findings.iter().map(|f| (f.key_ref(), f)).collect();
        self.findings.retain(|f| seen.get(&f.key_ref()).is_some_and(|before| before.evidence == f.evidence));
        self.count();
    }

    /// The worst severity among the findings.
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|f| f.severity).min()
    }

    /// Takes out the findings for which `keep` is false.
    pub(crate) fn take_unless(&mut self, mut keep: impl FnMut(&Finding) -> bool) -> Vec<Finding> {
        let taken = self.findings.extract_if(.., |finding| !keep(finding)).collect();
        self.count();
        taken
    }

    fn count(&mut self) {
        self.counts.findings = Severity::ALL.into_iter().map(|s| (s, 0)).collect();
        for finding in &self.findings {
            *self.counts.findings.entry(finding.severity).or_default() += 1;
        }
    }
}
