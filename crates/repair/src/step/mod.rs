//! Steps of a plan as tasks of the engine.

mod pack;
mod task;

use std::collections::HashMap;
use std::sync::Arc;

use calipam_datastore::write::Limits;
use calipam_model::edit::{Step, Unit, cooling};

use self::pack::{Piece, writes};
use self::task::WriteTask;
use crate::engine::{Group, Task};

/// A step, and the index of one of its parts.
type PartOf = (Arc<Step>, usize);

/// Turns each step into a group, with as many writes as the datastore needs.
pub(crate) fn groups(steps: Vec<Step>, limits: Limits) -> Vec<Group> {
    let steps: Vec<Arc<Step>> = steps.into_iter().map(Arc::new).collect();
    let shared = handles_of_several_steps(&steps);

    let group = |(index, step): (usize, &Arc<Step>)| {
        let task = |pieces: Vec<Piece>| -> Arc<dyn Task> {
            let later = later_parts(step, index, &pieces, &shared);
            Arc::new(WriteTask::new(Arc::clone(step), pieces, later, limits))
        };
        let tasks = writes(step, limits).into_iter().map(task).collect();
        Group {
            step: index,
            reason: step.reason.clone(),
            cooling: cooling(step.edits()),
            tasks,
        }
    };
    steps.iter().enumerate().map(group).collect()
}

/// Returns the handles whose addresses are freed by several parts, each with these parts and the indices of their
/// steps. A pod with an IPv4 and an IPv6 address has such a handle.
fn handles_of_several_steps(steps: &[Arc<Step>]) -> HashMap<&str, Vec<(usize, PartOf)>> {
    let mut handles: HashMap<&str, Vec<(usize, usize)>> = HashMap::new();
    for (index, step) in steps.iter().enumerate() {
        for (part, found) in step.parts.iter().enumerate().filter(|(_, part)| part.releases()) {
            if let Unit::Handle(id) = &found.unit {
                handles.entry(id).or_default().push((index, part));
            }
        }
    }

    handles.retain(|_, parts| parts.len() > 1);
    let with_step = |(step, part): (usize, usize)| (step, (Arc::clone(&steps[step]), part));
    handles
        .into_iter()
        .map(|(id, parts)| (id, parts.into_iter().map(with_step).collect()))
        .collect()
}

/// Returns the parts of later steps that free addresses of the same handles as `pieces`.
fn later_parts(
    step: &Step,
    index: usize,
    pieces: &[Piece],
    shared: &HashMap<&str, Vec<(usize, PartOf)>>,
) -> Vec<PartOf> {
    let mut later = Vec::new();
    if shared.is_empty() {
        return later;
    }
    for piece in pieces.iter().filter(|piece| piece.frees(step)) {
        let Unit::Handle(id) = &step.parts[piece.part].unit else {
            continue;
        };
        for (other_step, part) in shared.get(id.as_str()).into_iter().flatten() {
            if *other_step > index {
                later.push(part.clone());
            }
        }
    }
    later
}
