//! Causes: what happened, each with the findings that it explains. A cause reads only the report and the snapshot. A new
//! one is a file and a line in [`LIST`].

mod block_size;
mod broken_off;
mod by_hand;
mod collector;
mod deleted_nodes;
mod finished_pods;
mod old_calico;
mod other_plugin;
mod pools;
mod recreated_services;
mod repeated_starts;
mod restored;
mod settings;

use std::collections::{BTreeSet, HashSet};

use calipam_check::{Code, Evidence, Finding, FindingKey, Remedy, Report, Severity, Subject, Topic};
use calipam_model::snapshot::Snapshot;

use super::cure::{Cure, RebuildScope, merged};
use super::trial::Trials;
use super::worst;

/// Finds the causes of one kind.
type Find = fn(&Facts<'_>) -> Vec<Found>;

/// The causes, in the order in which they take findings. Each finding belongs to one cause at most.
const LIST: [(&str, Find); 15] = [
    ("restored-backup", restored::find),
    ("deleted-nodes", deleted_nodes::find),
    ("finished-pods", finished_pods::find),
    ("leak-at-each-start", repeated_starts::find),
    ("other-plugin", other_plugin::plugin),
    ("address-by-annotation", other_plugin::annotation),
    ("other-load-balancer", other_plugin::load_balancer),
    ("recreated-service", recreated_services::find),
    ("block-size-changed", block_size::find),
    ("edited-by-hand", by_hand::find),
    ("old-calico", old_calico::find),
    ("broken-off-operation", broken_off::find),
    ("collector-off", collector::find),
    ("unusable-pool", pools::find),
    ("setting", settings::find),
];

/// The cause of some findings, and what helps.
#[derive(Clone, Debug, PartialEq)]
pub struct Cause {
    /// A stable name.
    pub name: &'static str,
    /// The worst severity of its findings.
    pub severity: Severity,
    /// The event, in one sentence with names and numbers.
    pub says: String,
    /// The findings that it explains, in the order of the report.
    pub findings: Vec<FindingKey>,
    /// The cures, the fastest first; those that cannot be tried come last.
    pub cures: Vec<Cure>,
    /// The remedies to try.
    pub(super) remedies: Vec<Remedy>,
}

/// A cause that was found, with the positions of its findings in the report.
pub(super) struct Found {
    pub says: String,
    pub findings: Vec<usize>,
    pub remedies: Vec<Remedy>,
}

/// A report and its snapshot, with the findings that no cause has taken yet.
pub(super) struct Facts<'r> {
    pub snapshot: &'r Snapshot,
    pub report: &'r Report,
    taken: Vec<bool>,
}

impl<'r> Facts<'r> {
    pub(super) fn new(snapshot: &'r Snapshot, report: &'r Report) -> Self {
        Self {
            snapshot,
            report,
            taken: vec![false; report.findings.len()],
        }
    }

    /// The findings with these codes that no cause has taken, by position.
    pub(super) fn open(&self, codes: &[Code]) -> impl Iterator<Item = (usize, &'r Finding)> {
        let findings = self.report.findings.iter().enumerate();
        findings.filter(|(position, finding)| !self.taken[*position] && codes.contains(&finding.code))
    }

    /// Makes a cause of what was found, and takes its findings.
    pub(super) fn cause(&mut self, name: &'static str, found: Found) -> Cause {
        let mut explained: Vec<&Finding> = Vec::new();
        for position in found.findings {
            explained.push(&self.report.findings[position]);
            self.taken[position] = true;
        }
        Cause {
            name,
            severity: worst(explained.iter().copied()),
            says: found.says,
            findings: explained.into_iter().map(Finding::key).collect(),
            cures: Vec::new(),
            remedies: found.remedies,
        }
    }
}

impl Found {
    /// A cause whose remedies are those of its findings.
    fn with_own_remedies(says: String, findings: Vec<(usize, &Finding)>) -> Self {
        let mut positions = Vec::new();
        let mut remedies = Vec::new();
        for (position, finding) in findings {
            positions.push(position);
            remedies.extend(finding.remedy());
        }
        Self {
            says,
            findings: positions,
            remedies: merged(remedies, RebuildScope::Everything),
        }
    }
}

/// Finds all causes.
pub(super) fn all(facts: &mut Facts<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (name, find) in LIST {
        for found in find(facts) {
            causes.push(facts.cause(name, found));
        }
    }
    causes
}

impl Cause {
    /// Tries the remedies, and keeps those that help.
    pub(super) fn try_all(&mut self, trials: &mut Trials<'_, '_>) {
        for remedy in std::mem::take(&mut self.remedies) {
            self.cures.extend(trials.cure(remedy));
        }

        let findings: HashSet<&FindingKey> = self.findings.iter().collect();
        self.cures.retain(|cure| may_help(cure, &findings));

        // Cures that were not tried come last.
        self.cures
            .sort_by_key(|cure| (cure.delay().is_none(), cure.delay()));
    }

    /// Adds where to read what helps, if no remedy does: the answer for a waiting pod or for a node, which names the next
    /// steps, or else the page of the rule.
    pub(super) fn add_next_step(&mut self, report: &Report) {
        if !self.cures.is_empty() {
            return;
        }
        if let Some((code, subject)) = self.findings.first() {
            self.cures.push(Cure {
                remedy: Remedy::Explain(topic_of(*code, subject, report)),
                effect: None,
            });
        }
    }

    /// Takes the nodes and pods that get an address with the first cure: they get none because of this cause.
    pub(super) fn gather_symptoms(&mut self, facts: &mut Facts<'_>) {
        let Some(effect) = self.cures.first().and_then(|cure| cure.effect.as_ref()) else {
            return;
        };
        if effect.nodes.is_empty() && effect.pods.is_empty() {
            return;
        }

        let mut resolved: HashSet<(Code, &Subject)> = HashSet::new();
        for (code, subject) in &effect.resolved {
            resolved.insert((*code, subject));
        }
        let open = facts.open(&[Code::NodeWithoutAddresses, Code::PodWithoutAddress]);
        let symptoms: Vec<(usize, &Finding)> = open
            .filter(|(_, finding)| resolved.contains(&finding.key_ref()))
            .collect();
        for (position, finding) in symptoms {
            facts.taken[position] = true;
            // The worst severity is the least.
            self.severity = self.severity.min(finding.severity);
            self.findings.push(finding.key());
        }
    }
}

/// Returns true if a cure resolves one of the findings, gives a node or pod an address, or could not be tried.
fn may_help(cure: &Cure, findings: &HashSet<&FindingKey>) -> bool {
    let Some(effect) = &cure.effect else {
        return true;
    };
    let serves = !effect.nodes.is_empty() || !effect.pods.is_empty();
    serves || effect.resolved.iter().any(|key| findings.contains(key))
}

/// Returns the topic that explains a finding best: its waiting pod, its node, or else its rule.
fn topic_of(code: Code, subject: &Subject, report: &Report) -> Topic {
    if code == Code::PodWithoutAddress
        && let Subject::Endpoint(pod) = subject
    {
        return Topic::Pod(pod.clone());
    }
    if code == Code::NodeWithoutAddresses
        && let Some(node) = first_node(report, (code, subject))
    {
        return Topic::Node(node);
    }
    Topic::Rule(code)
}

/// The first node of a finding.
fn first_node(report: &Report, key: (Code, &Subject)) -> Option<String> {
    let finding = report.findings.iter().find(|finding| finding.key_ref() == key)?;
    finding.nodes.first().cloned()
}

/// The names of the nodes that findings concern.
fn nodes_of<'f>(findings: impl IntoIterator<Item = &'f Finding>) -> BTreeSet<String> {
    findings
        .into_iter()
        .flat_map(|finding| finding.nodes.iter().cloned())
        .collect()
}

/// The reasons for which a finding's address counts as leaked.
fn leak_reasons(finding: &Finding) -> &[calipam_check::LeakReason] {
    match &finding.evidence {
        Evidence::Address(evidence) => &evidence.reasons,
        _ => &[],
    }
}
