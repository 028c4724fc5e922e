//! What has to be true of objects that a step does not change.

use std::collections::{BTreeSet, HashMap};

use calipam_check::{Evidence, Finding, LeakReason, revisions};
use calipam_model::edit::Expect;
use calipam_model::key::Key;
use calipam_model::snapshot::{Revision, Snapshot};

/// The versions of what findings rest on.
pub(crate) struct Grounds<'s> {
    revisions: HashMap<Key, &'s Revision>,
}

impl<'s> Grounds<'s> {
    /// Looks up what the findings rest on. One pass over the snapshot, however many they are.
    pub fn new<'f>(snapshot: &'s Snapshot, findings: impl IntoIterator<Item = &'f Finding>) -> Self {
        let wanted: BTreeSet<Key> = findings.into_iter().flat_map(grounds).collect();
        Self { revisions: revisions(snapshot, &wanted) }
    }

    /// What must be as it was read for the finding to hold: the owner that a record names is absent, or the
    /// version that was read. That holds for nodes of Kubernetes, too, although their version changes with
    /// every heartbeat: where an address is freed, a needless conflict is better than a wrong write.
    pub fn of(&self, finding: &Finding) -> Vec<(Key, Expect)> {
        let expect = |key: Key| {
            let revision = self.revisions.get(&key).map(|revision| Expect::At((*revision).clone()));
            (key, revision.unwrap_or(Expect::Absent))
        };
        grounds(finding).into_iter().map(expect).collect()
    }
}

/// What a finding rests on besides blocks and handles, which have guards of their own.
fn grounds(finding: &Finding) -> BTreeSet<Key> {
    let dependencies = finding
        .depends_on
        .iter()
        .filter(|key| !matches!(key, Key::Block(_) | Key::Handle(_) | Key::Affinity(_)));
    dependencies.cloned().chain(gone_nodes(finding)).collect()
}

/// The nodes whose absence makes the addresses leaked.
fn gone_nodes(finding: &Finding) -> Vec<Key> {
    let Evidence::Address(evidence) = &finding.evidence else { return Vec::new() };
    if !evidence.reasons.contains(&LeakReason::NodeGone) {
        return Vec::new();
    }
    evidence.recorded_nodes().map(|node| Key::Node(node.to_owned())).collect()
}
