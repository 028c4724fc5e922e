//! Faults in Kubernetes custom resources.

use std::collections::{BTreeMap, BTreeSet};

use calipam_model::affinity::{Affinity, AffinityType};
use calipam_model::handle::resource_name;
use calipam_model::key::Key;
use calipam_model::snapshot::{DatastoreKind, Revision, Versioned};
use calipam_model::text::TextRef;

use super::affinities::about_affinity;
use crate::Context;
use crate::code::{Code, Severity};
use crate::finding::{BlockEvidence, Evidence, Finding, HandleEvidence, Subject};
use crate::names::{list, short};

/// Checks deletions that stopped half-way, labels, and IDs that Kubernetes cannot tell apart.
pub(crate) fn check(context: &Context<'_>, out: &mut Vec<Finding>) {
    half_deleted(context, out);
    if context.snapshot.datastore == DatastoreKind::Kubernetes {
        affinity_labels(context, out);
        case_collisions(context, out);
    }
}

const HALF_DELETED: &str = "is marked deleted, but still exists";

/// Reports deletions that stopped after the first of two steps: Calico marks an object, then removes it (facts 2.9).
fn half_deleted(context: &Context<'_>, out: &mut Vec<Finding>) {
    let snapshot = context.snapshot;
    let new_finding = |subject: Subject, key: Key, evidence: Evidence| {
        let message = format!("{} {HALF_DELETED}", short(&subject.to_string()));
        Finding::new(Code::HalfDeleted, subject, message, evidence).depending_on([key])
    };
    for block in &snapshot.blocks {
        if !block.value.content.is_deleted() {
            continue;
        }
        let evidence = Evidence::Block(Box::new(BlockEvidence {
            owner: block.value.content.owner().cloned(),
            ..BlockEvidence::default()
        }));
        out.push(new_finding(
            Subject::Block(block.value.key),
            Key::Block(block.value.key),
            evidence,
        ));
    }
    for affinity in &snapshot.affinities {
        if affinity.value.deleted {
            let finding = about_affinity(context, affinity, Code::HalfDeleted, HALF_DELETED);
            out.push(finding.depending_on([Key::Affinity(affinity.value.key.clone())]));
        }
    }
    for handle in &snapshot.handles {
        if !handle.value.is_deleted() {
            continue;
        }
        let id = handle.value.id().to_string();
        let evidence = Evidence::Handle(Box::new(HandleEvidence {
            revision: Some(handle.revision.to_string()),
            ..HandleEvidence::default()
        }));
        out.push(new_finding(
            Subject::Handle(id.clone()),
            Key::Handle(id),
            evidence,
        ));
    }
}

/// Checks the labels by which Calico 3.31 and later finds a node's affinities (facts 2.5). calico-node adds them at its
/// first start after the upgrade.
fn affinity_labels(context: &Context<'_>, out: &mut Vec<Finding>) {
    let snapshot = context.snapshot;
    if !snapshot.needs_affinity_labels() {
        return;
    }
    let mut affinities: Vec<&Versioned<Affinity>> = snapshot.affinities.iter().collect();
    affinities.retain(|affinity| !affinity.value.deleted);
    affinities.sort_by_key(|affinity| holder(affinity));
    for same_holder in affinities.chunk_by(|a, b| holder(a) == holder(b)) {
        // If none of the holder's affinities has labels, the holder has not been upgraded yet.
        let severity = if same_holder.iter().copied().any(has_any_label) {
            Severity::Warning
        } else {
            Severity::Info
        };
        for affinity in same_holder {
            out.extend(wrong_labels(context, affinity, severity));
        }
    }
}

fn holder(affinity: &Versioned<Affinity>) -> (&AffinityType, &str) {
    (&affinity.value.key.kind, &affinity.value.key.node)
}

/// True if the object has one of the labels, whatever its value.
fn has_any_label(affinity: &Versioned<Affinity>) -> bool {
    let Revision::Kubernetes(version) = &affinity.revision else {
        return false;
    };
    let labels = affinity.value.key.labels();
    labels.iter().any(|(name, _)| version.labels.contains_key(*name))
}

/// Reports an affinity whose labels are not those that Calico selects it by; `None` if they are right.
fn wrong_labels(
    context: &Context<'_>,
    affinity: &Versioned<Affinity>,
    severity: Severity,
) -> Option<Finding> {
    let key = &affinity.value.key;
    let wrong = affinity.wrong_labels();
    if wrong.is_empty() {
        return None;
    }
    let problem = if severity == Severity::Info {
        let holder = short(&key.node);
        format!("has no labels yet, like all affinities of {holder}, which has not been upgraded yet")
    } else {
        format!("lacks the right labels: {}", list(wrong))
    };
    let finding = about_affinity(context, affinity, Code::AffinityLabels, &problem)
        .with_severity(severity)
        .on_nodes([key.node.clone()])
        .depending_on([Key::Affinity(key.clone())]);
    Some(finding)
}

/// Reports handle IDs that differ only in case. They share one object, whose name is the lowercase ID (facts 2.3).
fn case_collisions(context: &Context<'_>, out: &mut Vec<Finding>) {
    for (lowercase_id, forms) in forms_by_lowercase(context) {
        if forms.len() < 2 {
            continue;
        }
        let message = format!("{} share one handle object", list(&forms));
        let evidence = HandleEvidence {
            recorded_as: forms.into_iter().collect(),
            ..HandleEvidence::default()
        };
        out.push(Finding::new(
            Code::HandleCaseCollision,
            Subject::Handle(lowercase_id),
            message,
            Evidence::Handle(Box::new(evidence)),
        ));
    }
}

/// Groups the handle IDs that have a capital letter, and those that differ from them only in case, by lowercase ID.
fn forms_by_lowercase(context: &Context<'_>) -> BTreeMap<String, BTreeSet<String>> {
    let mut forms: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    // At least one of two such IDs has a capital letter, and few IDs have any.
    for id in handle_ids(context).filter(|id| id.has_capital()) {
        let id = id.to_string();
        forms.entry(resource_name(&id)).or_default().insert(id);
    }
    if forms.is_empty() {
        return forms;
    }
    for id in handle_ids(context).filter(|id| !id.has_capital()) {
        let id = id.to_string();
        if let Some(forms_of_id) = forms.get_mut(&id) {
            forms_of_id.insert(id);
        }
    }
    forms
}

/// The IDs of recorded handles, then those of stored handles that are not marked deleted.
fn handle_ids<'c>(context: &'c Context<'_>) -> impl Iterator<Item = TextRef<'c>> {
    let blocks = context.index.blocks.iter().filter_map(|block| block.sound);
    let attributes = blocks.flat_map(|block| block.attributes());
    let recorded = attributes.filter_map(|attribute| attribute.clean_handle());
    let handles = context.snapshot.handles.iter().map(|stored| &stored.value);
    let stored = handles.filter(|handle| !handle.is_deleted());
    recorded.chain(stored.map(|handle| handle.id()))
}
