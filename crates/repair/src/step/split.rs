//! From steps to batches that the datastore takes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use calipam_datastore::write::Limits;
use calipam_model::IpNet;
use calipam_model::edit::{BlockEdit, Edit, Expect, Held, Step};
use calipam_model::key::Key;

use super::parts::{Parts, held, id};
use super::task::EditTask;
use crate::engine::{Group, Part, Task};

/// The groups of the steps. A step that is too large for one batch is made in several: the release of a
/// block's addresses handle by handle, anything else edit by edit.
pub(crate) fn groups(steps: Vec<Step>, limits: Limits) -> Vec<Group> {
    let mut later = in_several_steps(&steps);
    let group = |(index, step): (usize, Step)| {
        let parts = Arc::new(Parts::of(&step.edits));
        let pieces = if limits.changes == 1 {
            one_by_one(step.edits)
        } else if size(&step.edits, &step.evidence) <= limits.conditions.min(limits.changes) {
            vec![step.edits]
        } else {
            join(&parts, step.edits, &step.evidence, limits)
        };
        let task = |edits: Vec<Edit>| -> Arc<dyn Task> {
            // The evidence is about addresses and their blocks. A handle is counted right whatever has
            // happened since.
            let counts_only = edits.iter().all(|edit| matches!(edit, Edit::Handle(..)));
            let evidence =
                if limits.changes == 1 && counts_only { Vec::new() } else { step.evidence.clone() };
            let later = take_later(&mut later, index, &edits);
            Arc::new(EditTask { edits, evidence, parts: Arc::clone(&parts), later })
        };
        Group { step: index, reason: step.reason, tasks: pieces.into_iter().map(task).collect() }
    };
    steps.into_iter().enumerate().map(group).collect()
}

/// By handle: the addresses that steps free of it, in the order of the steps.
type OfHandle = HashMap<String, Vec<(usize, IpNet, Held)>>;

/// What is freed of handles that occur in several steps: those of pods with an IPv4 and an IPv6 address.
fn in_several_steps(steps: &[Step]) -> OfHandle {
    let mut first: HashMap<&str, usize> = HashMap::new();
    let mut several: BTreeSet<&str> = BTreeSet::new();
    let all =
        || steps.iter().enumerate().flat_map(|(index, step)| held(&step.edits).map(move |h| (index, h)));
    for (index, (_, held)) in all() {
        if let Some(id) = id(&held.record)
            && *first.entry(id).or_insert(index) != index
        {
            several.insert(id);
        }
    }
    let mut found = OfHandle::new();
    if several.is_empty() {
        return found;
    }
    for (index, (block, held)) in all() {
        if let Some(id) = id(&held.record).filter(|id| several.contains(id)) {
            found.entry(id.to_owned()).or_default().push((index, block, held.clone()));
        }
    }
    found
}

/// What later steps free of the handles that these edits free addresses of.
fn take_later(all: &mut OfHandle, index: usize, edits: &[Edit]) -> Vec<(IpNet, Held)> {
    if all.is_empty() {
        return Vec::new();
    }
    let ids: BTreeSet<&str> = held(edits).filter_map(|(_, held)| id(&held.record)).collect();
    let of_handles = ids.into_iter().filter_map(|id| all.get(id)).flatten();
    let later = of_handles.filter(|(step, ..)| *step > index);
    later.map(|(_, block, held)| (*block, held.clone())).collect()
}

/// How many comparisons a batch takes: one for each object that changes, and one for each piece of evidence.
fn size(edits: &[Edit], evidence: &[(Key, Expect)]) -> usize {
    let changed: BTreeSet<Key> = edits.iter().map(Edit::key).collect();
    let of_addresses = held(edits).flat_map(|(_, held)| &held.evidence);
    let seen: BTreeSet<&Key> = evidence.iter().chain(of_addresses).map(|(key, _)| key).collect();
    changed.len() + seen.len()
}

/// The edits by object; those of one object stay together.
fn one_by_one(edits: Vec<Edit>) -> Vec<Vec<Edit>> {
    let mut pieces: Vec<Vec<Edit>> = Vec::new();
    for edit in edits {
        match pieces.last_mut() {
            Some(last) if last.iter().any(|other| other.key() == edit.key()) => last.push(edit),
            _ => pieces.push(vec![edit]),
        }
    }
    pieces
}

/// As much as a batch takes at a time. What is freed of a handle stays together with its decrement.
fn join(parts: &Parts, edits: Vec<Edit>, evidence: &[(Key, Expect)], limits: Limits) -> Vec<Vec<Edit>> {
    let mut joined: Vec<Vec<Edit>> = Vec::new();
    for piece in by_part(parts, edits) {
        let taken = joined.last_mut().and_then(|last| {
            let both = [last.as_slice(), piece.as_slice()].concat();
            (size(&both, evidence) <= limits.conditions.min(limits.changes)).then(|| *last = both)
        });
        if taken.is_none() {
            joined.push(piece);
        }
    }
    joined
}

/// Divides the release of many addresses of a block by handle, each with its own decrement.
fn by_part(parts: &Parts, edits: Vec<Edit>) -> Vec<Vec<Edit>> {
    let mut divided: Vec<Vec<Edit>> = Vec::new();
    let mut places: BTreeMap<Part, usize> = BTreeMap::new();
    let mut add = |part: Part, edit: Edit| {
        let place = *places.entry(part.clone()).or_insert(divided.len());
        match divided.get_mut(place) {
            // What is done besides keeps its order, edit by edit.
            Some(piece) if part != Part::Rest || piece.last().is_some_and(|e| e.key() == edit.key()) => {
                piece.push(edit);
            }
            _ => {
                places.insert(part, divided.len());
                divided.push(vec![edit]);
            }
        }
    };
    for edit in edits {
        match edit {
            Edit::Block(cidr, BlockEdit::Release { held, cooldown }) => {
                for held in held {
                    let part = parts.of_held(cidr, &held);
                    add(part, Edit::Block(cidr, BlockEdit::Release { held: vec![held], cooldown }));
                }
            }
            other => add(parts.of_edit(&other), other),
        }
    }
    divided
}
