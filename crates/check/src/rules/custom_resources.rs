//! Faults of data in custom resources of Kubernetes.

use std::collections::{BTreeMap, BTreeSet};

use calipam_model::affinity::{Affinity, AffinityType};
use calipam_model::key::Key;
use calipam_model::snapshot::{DatastoreKind, Revision, Versioned};

use super::affinities::affinity_evidence;
use crate::Context;
use crate::code::{Code, Severity};
use crate::finding::{BlockEvidence, Detail, Evidence, Finding, HandleEvidence, Subject};

/// Checks deletions that stopped half-way, labels, and names that Kubernetes cannot tell apart.
pub(crate) fn check(context: &Context<'_>, out: &mut Vec<Finding>) {
    half_deleted(context, out);
    if context.snapshot.datastore == DatastoreKind::Kubernetes {
        affinity_labels(context, out);
        case_collisions(context, out);
    }
}

/// Reports deletions that stopped after the first of two steps: Calico marks an object, then removes it (facts 2.9).
fn half_deleted(context: &Context<'_>, out: &mut Vec<Finding>) {
    let snapshot = context.snapshot;
    let mut add = |subject: Subject, key: Key, evidence: Evidence| {
        out.push(Finding::new(Code::HalfDeleted, subject, evidence).depending_on([key]));
    };
    for block in snapshot.blocks.iter().filter(|b| b.value.content.is_deleted()) {
        let owner = block.value.content.owner().cloned();
        let evidence = Evidence::Block(Box::new(BlockEvidence { owner, ..BlockEvidence::default() }));
        add(Subject::Block(block.value.key), Key::Block(block.value.key), evidence);
    }
    for affinity in snapshot.affinities.iter().filter(|a| a.value.deleted) {
        let evidence = Evidence::Affinity(Box::new(affinity_evidence(context, affinity)));
        add(Subject::affinity(&affinity.value.key), Key::Affinity(affinity.value.key.clone()), evidence);
    }
    for handle in snapshot.handles.iter().filter(|h| h.value.is_deleted()) {
        let id = handle.value.id().to_string();
        let revision = Some(handle.revision.to_string());
        let evidence = Evidence::Handle(Box::new(HandleEvidence { revision, ..HandleEvidence::default() }));
        add(Subject::Handle(id.clone()), Key::Handle(id), evidence);
    }
}

/// Checks the labels by which Calico 3.31 and later finds the affinities of a node (facts 2.5). Its calico-node adds
/// them at its first start after the upgrade.
fn affinity_labels(context: &Context<'_>, out: &mut Vec<Finding>) {
    let snapshot = context.snapshot;
    let mut live: Vec<&Versioned<Affinity>> =
        snapshot.affinities.iter().filter(|a| !a.value.deleted).collect();
    if !snapshot.labels_affinities() {
        return;
    }
    live.sort_by_key(|a| holder(a));
    for of_holder in live.chunk_by(|a, b| holder(a) == holder(b)) {
        // Without any label, the holder has not been upgraded yet.
        let severity =
            if of_holder.iter().copied().any(is_labelled) { Severity::Warning } else { Severity::Info };
        for affinity in of_holder {
            out.extend(wrong_labels(context, affinity, severity));
        }
    }
}

fn holder(affinity: &Versioned<Affinity>) -> (&AffinityType, &str) {
    (&affinity.value.key.kind, &affinity.value.key.node)
}

fn labels(affinity: &Versioned<Affinity>) -> Option<&BTreeMap<String, String>> {
    match &affinity.revision {
        Revision::Kubernetes(version) => Some(&version.labels),
        Revision::Etcd(_) => None,
    }
}

fn is_labelled(affinity: &Versioned<Affinity>) -> bool {
    let expected = affinity.value.key.labels();
    labels(affinity).is_some_and(|found| expected.iter().any(|(name, _)| found.contains_key(*name)))
}

fn wrong_labels(
    context: &Context<'_>,
    affinity: &Versioned<Affinity>,
    severity: Severity,
) -> Option<Finding> {
    let expected = affinity.value.key.labels();
    let is_right =
        |name: &str, value: &String| labels(affinity).is_some_and(|found| found.get(name) == Some(value));
    let wrong: Vec<&'static str> =
        expected.iter().filter(|(name, value)| !is_right(name, value)).map(|(name, _)| *name).collect();
    if wrong.is_empty() {
        return None;
    }
    let subject = Subject::affinity(&affinity.value.key);
    let evidence = Evidence::Affinity(Box::new(affinity_evidence(context, affinity)));
    let finding = Finding::new(Code::AffinityLabels, subject, evidence).with_severity(severity);
    Some(
        finding
            .with_detail(Detail::Labels(wrong))
            .on_nodes([affinity.value.key.node.clone()])
            .depending_on([Key::Affinity(affinity.value.key.clone())]),
    )
}

/// Reports IDs that differ only in case. They share one object, whose name is the lower-cased ID (facts 2.3).
fn case_collisions(context: &Context<'_>, out: &mut Vec<Finding>) {
    let ids = || {
        let blocks = context.index.blocks.iter().filter_map(|block| block.sound);
        let recorded = blocks.flat_map(|b| b.attributes()).filter_map(|a| a.clean_handle());
        let stored = context.snapshot.handles.iter().filter(|h| !h.value.is_deleted());
        recorded.chain(stored.map(|h| h.value.id()))
    };
    // At least one of two such IDs has a capital letter. Few IDs have any.
    let mut forms: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for id in ids().filter(|id| id.has_capital()) {
        let id = id.to_string();
        forms.entry(id.to_lowercase()).or_default().insert(id);
    }
    if forms.is_empty() {
        return;
    }
    for id in ids().filter(|id| !id.has_capital()) {
        let id = id.to_string();
        if let Some(forms) = forms.get_mut(&id) {
            forms.insert(id);
        }
    }
    for (lower, forms) in forms.into_iter().filter(|(_, forms)| forms.len() > 1) {
        let evidence =
            HandleEvidence { recorded_as: forms.into_iter().collect(), ..HandleEvidence::default() };
        out.push(Finding::new(
            Code::HandleCaseCollision,
            Subject::Handle(lower),
            Evidence::Handle(Box::new(evidence)),
        ));
    }
}
