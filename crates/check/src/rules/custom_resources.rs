//! What can only be wrong where Calico keeps its data in custom resources of Kubernetes.

use std::collections::{BTreeMap, BTreeSet};

use calipam_model::affinity::Affinity;
use calipam_model::key::Key;
use calipam_model::snapshot::{DatastoreKind, Revision, Versioned};

use super::affinities::of_affinity;
use super::wording::{list, short};
use crate::Context;
use crate::code::Code;
use crate::finding::{BlockEvidence, Evidence, Finding, HandleEvidence, Subject};

/// Judges deletions that stopped half-way, labels, and names that Kubernetes cannot tell apart.
pub(crate) fn check(context: &Context<'_>, out: &mut Vec<Finding>) {
    half_deleted(context, out);
    if context.snapshot.datastore == DatastoreKind::Kubernetes {
        affinity_labels(context, out);
        case_collisions(context, out);
    }
}

/// Calico deletes in two steps: it marks the object, then removes it (facts 2.9).
fn half_deleted(context: &Context<'_>, out: &mut Vec<Finding>) {
    let snapshot = context.snapshot;
    let mut add = |subject: Subject, key: Key, evidence: Evidence| {
        let message = format!("{} is marked deleted, but still there", short(&subject.to_string()));
        out.push(Finding::new(Code::HalfDeleted, subject, message, evidence).depending_on([key]));
    };
    for block in snapshot.blocks.iter().filter(|b| b.value.content.is_deleted()) {
        let owner = block.value.content.owner().cloned();
        let evidence = Evidence::Block(Box::new(BlockEvidence { owner, ..BlockEvidence::default() }));
        add(Subject::Block(block.value.key), Key::Block(block.value.key), evidence);
    }
    for affinity in snapshot.affinities.iter().filter(|a| a.value.deleted) {
        let evidence = Evidence::Affinity(Box::new(of_affinity(context, affinity)));
        add(Subject::affinity(&affinity.value.key), Key::Affinity(affinity.value.key.clone()), evidence);
    }
    for handle in snapshot.handles.iter().filter(|h| h.value.is_deleted()) {
        let id = handle.value.id().to_string();
        let revision = Some(handle.revision.to_string());
        let evidence = Evidence::Handle(Box::new(HandleEvidence { revision, ..HandleEvidence::default() }));
        add(Subject::Handle(id.clone()), Key::Handle(id), evidence);
    }
}

/// Calico 3.31 and later finds a node's affinities by their labels (facts 2.5).
fn affinity_labels(context: &Context<'_>, out: &mut Vec<Finding>) {
    let snapshot = context.snapshot;
    let live = || snapshot.affinities.iter().filter(|a| !a.value.deleted);
    let labels = |affinity: &'_ Versioned<Affinity>| match &affinity.revision {
        Revision::Kubernetes(version) => version.labels.clone(),
        Revision::Etcd(_) => BTreeMap::new(),
    };
    let is_labelled =
        |a: &Versioned<Affinity>| a.value.key.labels().iter().any(|(name, _)| labels(a).contains_key(*name));
    let version = snapshot.cluster.as_ref().map_or("", |c| c.calico_version.as_str());
    if !uses_labels(version) && !live().any(is_labelled) {
        return;
    }
    for affinity in live() {
        let found = labels(affinity);
        let expected = affinity.value.key.labels();
        let wrong =
            expected.iter().filter(|(name, value)| found.get(*name) != Some(value)).map(|(name, _)| *name);
        let wrong: Vec<&str> = wrong.collect();
        if wrong.is_empty() {
            continue;
        }
        let subject = Subject::affinity(&affinity.value.key);
        let message = format!("{} lacks the right labels: {}", short(&subject.to_string()), list(&wrong));
        let evidence = Evidence::Affinity(Box::new(of_affinity(context, affinity)));
        out.push(
            Finding::new(Code::AffinityLabels, subject, message, evidence)
                .on_nodes([affinity.value.key.node.clone()])
                .depending_on([Key::Affinity(affinity.value.key.clone())]),
        );
    }
}

/// True for Calico 3.31 and later.
fn uses_labels(version: &str) -> bool {
    let mut numbers = version.trim_start_matches('v').split('.').map(|n| n.parse::<u32>().ok());
    match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(3), Some(minor)) => minor >= 31,
        (Some(major), _) => major > 3,
        _ => false,
    }
}

/// IDs that differ by case only share one object, since its name is the lower-cased ID (facts 2.3).
fn case_collisions(context: &Context<'_>, out: &mut Vec<Finding>) {
    let ids = || {
        let blocks = context.index.blocks.iter().filter_map(|b| b.sound);
        let recorded = blocks.flat_map(|b| b.attributes()).filter_map(|a| a.clean_handle());
        let stored = context.snapshot.handles.iter().filter(|h| !h.value.is_deleted());
        recorded.chain(stored.map(|h| h.value.id()))
    };
    // Of two such IDs at least one holds a capital letter, which few do.
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
        let message = format!("{} share one handle object", list(&forms));
        let evidence =
            HandleEvidence { recorded_as: forms.into_iter().collect(), ..HandleEvidence::default() };
        out.push(Finding::new(
            Code::HandleCaseCollision,
            Subject::Handle(lower),
            message,
            Evidence::Handle(Box::new(evidence)),
        ));
    }
}
