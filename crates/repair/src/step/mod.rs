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

    let mut groups = Vec::with_capacity(steps.len());
    for (index, step) in steps.iter().enumerate() {
        let mut tasks: Vec<Arc<dyn Task>> = Vec::new();
        for pieces in writes(step, limits) {
            let later = later_parts(step, index, &pieces, &shared);
            tasks.push(Arc::new(WriteTask::new(Arc::clone(step), pieces, later, limits)));
        }
        groups.push(Group {
            step: index,
            reason: step.reason.clone(),
            cooling: cooling(step.edits()),
            tasks,
        });
    }
    groups
}

/// Returns the handles whose addresses are freed by several parts, each with these parts and the indices of their
/// steps. A pod with an IPv4 and an IPv6 address has such a handle.
fn handles_of_several_steps(steps: &[Arc<Step>]) -> HashMap<&str, Vec<(usize, PartOf)>> {
    let mut positions_of_handle: HashMap<&str, Vec<(usize, usize)>> = HashMap::new();
    for (step_index, step) in steps.iter().enumerate() {
        for (part_index, part) in step.parts.iter().enumerate() {
            if let Unit::Handle(id) = &part.unit
                && part.releases()
            {
                let positions = positions_of_handle.entry(id).or_default();
                positions.push((step_index, part_index));
            }
        }
    }

    let mut handles: HashMap<&str, Vec<(usize, PartOf)>> = HashMap::new();
    for (id, positions) in positions_of_handle {
        if positions.len() == 1 {
            continue;
        }
        let mut parts = Vec::with_capacity(positions.len());
        for (step_index, part_index) in positions {
            parts.push((step_index, (Arc::clone(&steps[step_index]), part_index)));
        }
        handles.insert(id, parts);
    }
    handles
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
