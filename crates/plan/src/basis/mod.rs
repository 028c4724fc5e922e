//! What a plan rests on: what was read, and what was found in it.

pub(crate) mod handles;
pub(crate) mod preconditions;

use std::collections::{BTreeMap, HashMap};

use calipam_check::{Code, Context, Finding, Options, Report, Subject};
use calipam_model::snapshot::Snapshot;

/// What planners look at. The report decides what may change; the snapshot says what it is now.
pub struct Basis<'s> {
    /// What was read.
    pub snapshot: &'s Snapshot,
    /// What was found in it, without anything that the recheck dropped.
    pub report: &'s Report,
    /// Lookups over the snapshot.
    pub context: Context<'s>,
    findings: HashMap<(Code, &'s Subject), &'s Finding>,
    /// What there is nothing of although much refers to it: nothing is leaked on its account.
    pub(crate) missing_evidence: Option<&'static str>,
}

/// So many leaked addresses may be all that a small cluster has left.
const FEW_LEAKS: usize = 50;

/// Of which kind of object there is none, although many addresses look leaked. In a cluster without a single node, or
/// without a single workload, these objects were lost, as by half a restore, and every address looks unused.
fn missing_evidence(snapshot: &Snapshot, report: &Report) -> Option<&'static str> {
    let leaks = report.findings.iter().filter(|finding| finding.code == Code::LeakedAddress);
    if leaks.take(FEW_LEAKS).count() < FEW_LEAKS {
        return None;
    }
    if snapshot.nodes.is_empty() {
        return Some("node");
    }
    (snapshot.endpoints.is_empty() && snapshot.pods.is_empty()).then_some("workload endpoint or pod")
}

impl<'s> Basis<'s> {
    /// Prepares to plan by the report of a check with `options`. The report must not be filtered: what it
    /// does not list counts as healthy.
    pub fn new(snapshot: &'s Snapshot, report: &'s Report, options: &Options) -> Self {
        Self {
            snapshot,
            report,
            context: Context::new(snapshot, options),
            missing_evidence: missing_evidence(snapshot, report),
            findings: report.findings.iter().map(|f| (f.key_ref(), f)).collect(),
        }
    }

    /// The finding of that code about that subject.
    pub fn finding(&self, code: Code, subject: &Subject) -> Option<&'s Finding> {
        self.findings.get(&(code, subject)).copied()
    }

    /// The code of the worst finding about a subject.
    pub fn worst(&self, subject: &Subject) -> Option<Code> {
        let found = Code::ALL.iter().filter_map(|code| self.finding(*code, subject));
        found.min_by_key(|finding| (finding.severity, finding.code)).map(|finding| finding.code)
    }

    /// The findings of one code, in the order of the report.
    pub fn findings(&self, code: Code) -> impl Iterator<Item = &'s Finding> {
        self.report.findings.iter().filter(move |f| f.code == code)
    }

    /// How many findings of each code there are.
    pub fn counts(&self) -> BTreeMap<Code, usize> {
        self.report.findings.iter().fold(BTreeMap::new(), |mut counts, finding| {
            *counts.entry(finding.code).or_default() += 1;
            counts
        })
    }
}
