//! The result of a check.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use calipam_model::snapshot::{Coverage, DatastoreKind, Snapshot, Source};
use jiff::Timestamp;
use serde::Serialize;

use crate::code::{Code, Severity};
use crate::earlier::Changes;
use crate::filter::Filter;
use crate::finding::Finding;

/// The identity of the cluster that was read, and the location and time of the read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterIdentity {
    /// The cluster's GUID; empty if cluster information is missing.
    pub guid: String,
    pub datastore: DatastoreKind,
    /// The datastore's endpoints, or the file that was read; without secrets.
    pub location: String,
    /// The revision at which the cluster was read.
    pub revision: String,
    /// The version of the Calico component that wrote ClusterInformation last.
    pub calico_version: String,
    pub taken_at: Timestamp,
}

impl ClusterIdentity {
    /// Takes the identity of the cluster, and the place and time of the read, from a snapshot.
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

/// The numbers of objects that were read, and of findings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    /// Allocation blocks.
    pub blocks: usize,
    /// Addresses that sound blocks record as allocated or as reserved for Windows, even if IP reservations cover them.
    pub allocations: usize,
    /// Addresses that are cooling down.
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
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    pub cluster: ClusterIdentity,
    /// True if findings that a half-done Calico operation could explain were confirmed: their objects were read again
    /// or watched for some time, and had not changed.
    pub rechecked: bool,
    pub coverage: BTreeMap<Source, Coverage>,
    /// Notes about the report in general.
    pub notes: Vec<String>,
    pub counts: Counts,
    /// The findings, ordered by severity, code and subject. The CLI adds their remedies when it writes them.
    #[serde(skip)]
    pub findings: Vec<Finding>,
    /// The changes since an earlier report, if this one was compared with one.
    #[serde(skip)]
    pub changes: Option<Changes>,
}

impl Report {
    /// Makes the report on a snapshot with the findings, which are sorted and counted, and the numbers of objects.
    pub(crate) fn new(snapshot: &Snapshot, notes: Vec<String>, findings: Vec<Finding>) -> Self {
        let addresses = snapshot.allocation_counts();
        let mut report = Self {
            cluster: ClusterIdentity::of(snapshot),
            rechecked: snapshot.rechecked,
            coverage: snapshot.coverage.clone(),
            notes,
            counts: Counts {
                blocks: snapshot.blocks.len(),
                allocations: addresses.allocated,
                cooling: addresses.cooling,
                affinities: snapshot.affinities.len(),
                handles: snapshot.handles.len(),
                pools: snapshot.pools.len(),
                nodes: snapshot.nodes.len(),
                endpoints: snapshot.endpoints.len(),
                pods: snapshot.pods.len(),
                findings: BTreeMap::new(),
            },
            findings,
            changes: None,
        };
        report.add(Vec::new());
        report
    }

    /// Adds findings and restores the order.
    pub fn add(&mut self, findings: Vec<Finding>) {
        self.findings.extend(findings);
        self.findings
            .sort_by(|a, b| (a.severity, a.code, &a.subject).cmp(&(b.severity, b.code, &b.subject)));
        self.count();
    }

    /// Keeps the findings that the filter admits, and the earlier ones whose rules it admits.
    pub fn filter(&mut self, filter: &Filter) {
        self.retain(|finding| filter.admits(finding));
        if let Some(changes) = &mut self.changes {
            changes.narrow(filter);
        }
    }

    /// Keeps the findings for which `keep` is true.
    pub fn retain(&mut self, keep: impl FnMut(&Finding) -> bool) {
        self.findings.retain(keep);
        self.count();
    }

    /// Returns a copy without the findings that are neither new nor worse than in the earlier report, if there is one.
    #[must_use]
    pub fn new_or_worse(&self) -> Self {
        let mut copy = self.clone();
        if let Some(changes) = &self.changes {
            copy.retain(|finding| changes.of(finding).is_new_or_worse());
        }
        let left_out = self.findings.len() - copy.findings.len();
        if let Some(changes) = &mut copy.changes {
            changes.removed = left_out;
        }
        copy
    }

    /// Keeps only the findings that `earlier` also has, with the same evidence.
    pub fn confirm(&mut self, earlier: &Self) {
        let mut earlier_evidence = HashMap::new();
        for finding in &earlier.findings {
            earlier_evidence.insert(finding.key_ref(), &finding.evidence);
        }
        self.retain(|finding| earlier_evidence.get(&finding.key_ref()) == Some(&&finding.evidence));
    }

    /// The addresses that have a finding with the code [`Code::LeakedAddress`].
    pub fn leaked(&self) -> impl Iterator<Item = IpAddr> {
        let leaked = self
            .findings
            .iter()
            .filter(|finding| finding.code == Code::LeakedAddress);
        leaked.filter_map(|finding| finding.subject.address())
    }

    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).min()
    }

    /// Removes and returns the findings for which `keep` is false.
    pub(crate) fn take_unless(&mut self, mut keep: impl FnMut(&Finding) -> bool) -> Vec<Finding> {
        let taken = self.findings.extract_if(.., |finding| !keep(finding)).collect();
        self.count();
        taken
    }

    fn count(&mut self) {
        self.counts.findings = Severity::ALL.into_iter().map(|severity| (severity, 0)).collect();
        for finding in &self.findings {
            *self.counts.findings.entry(finding.severity).or_default() += 1;
        }
    }
}
