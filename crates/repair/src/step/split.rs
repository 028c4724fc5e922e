//! From steps to batches that the datastore takes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use calipam_datastore::write::Limits;
use calipam_model::edit::{BlockEdit, Edit, Expect, HandleEdit, Step};
use calipam_model::key::Key;

use super::task::EditTask;
use crate::engine::{Group, Task};

/// The groups of the steps. A step that is too large for one batch is made in several: the release of a
/// block's addresses handle by handle, anything else edit by edit.
pub(crate) fn groups(steps: Vec<Step>, limits: Limits) -> Vec<Group> {
    let group = |(index, step): (usize, Step)| {
        let parts = if fits(&step, limits) {
            vec![(step.edits, step.evidence)]
        } else {
            split(step.edits, step.evidence, limits)
        };
        let tasks = parts
            .into_iter()
            .map(|(edits, evidence)| -> Arc<dyn Task> { Arc::new(EditTask { edits, evidence }) })
            .collect();
        Group { step: index, reason: step.reason, tasks }
    };
    steps.into_iter().enumerate().map(group).collect()
}

fn fits(step: &Step, limits: Limits) -> bool {
    let changed: BTreeSet<Key> = step.edits.iter().map(Edit::key).collect();
    changed.len() <= limits.changes && changed.len() + step.evidence.len() <= limits.conditions
}

type Part = (Vec<Edit>, Vec<(Key, Expect)>);

fn split(edits: Vec<Edit>, evidence: Vec<(Key, Expect)>, limits: Limits) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for edit in edits {
        match parts.last_mut() {
            // Edits of one object stay together.
            Some((last, _)) if last.iter().any(|other| other.key() == edit.key()) => last.push(edit),
            // The evidence is about addresses and their blocks. A handle is counted right whatever has
            // happened since.
            _ if limits.changes == 1 && matches!(edit, Edit::Handle(..)) => {
                parts.push((vec![edit], Vec::new()))
            }
            _ => parts.push((vec![edit], evidence.clone())),
        }
    }
    if limits.changes > 1 { join(parts, limits) } else { parts }
}

/// Joins parts again as far as the limits allow, the releases of a block divided by handle.
fn join(parts: Vec<Part>, limits: Limits) -> Vec<Part> {
    let mut joined: Vec<Part> = Vec::new();
    for (edits, evidence) in by_handle(parts) {
        let room = |(have, seen): &Part| {
            let changed: BTreeSet<Key> = have.iter().chain(&edits).map(Edit::key).collect();
            let seen: BTreeSet<&Key> = seen.iter().chain(&evidence).map(|(key, _)| key).collect();
            changed.len() <= limits.changes && changed.len() + seen.len() <= limits.conditions
        };
        match joined.last_mut() {
            Some(last) if room(last) => {
                last.0.extend(edits);
                let new = evidence.into_iter().filter(|e| !last.1.contains(e)).collect::<Vec<_>>();
                last.1.extend(new);
            }
            _ => joined.push((edits, evidence)),
        }
    }
    joined
}

/// Divides the release of many addresses of a block by handle, each with its own decrement.
fn by_handle(parts: Vec<Part>) -> Vec<Part> {
    let (mut divided, mut decrements) = (Vec::new(), BTreeMap::new());
    for (edits, evidence) in parts {
        for edit in edits {
            match edit {
                Edit::Block(cidr, BlockEdit::Release { held, cooldown }) => {
                    let mut groups: BTreeMap<Option<String>, Vec<_>> = BTreeMap::new();
                    held.into_iter().for_each(|h| groups.entry(h.record.handle.clone()).or_default().push(h));
                    for (handle, held) in groups {
                        let edit = Edit::Block(cidr, BlockEdit::Release { held, cooldown });
                        decrements.insert((cidr, handle), divided.len());
                        divided.push((vec![edit], evidence.clone()));
                    }
                }
                Edit::Handle(id, HandleEdit::Decrement(cidr, by)) => {
                    let edit = Edit::Handle(id.clone(), HandleEdit::Decrement(cidr, by));
                    match decrements.get(&(cidr, Some(id))) {
                        Some(part) => divided[*part].0.push(edit),
                        None => divided.push((vec![edit], evidence.clone())),
                    }
                }
                other => divided.push((vec![other], evidence.clone())),
            }
        }
    }
    divided
}
