//! Which edits of a step go together.

use std::collections::BTreeSet;

use calipam_model::IpNet;
use calipam_model::attributes::Attribute;
use calipam_model::cidr::address_at;
use calipam_model::edit::{BlockEdit, Edit, HandleEdit, Held};
use calipam_model::handle::clean_id as clean;

use crate::engine::Part;

/// The parts of a step. Where a step frees addresses, each handle is a part of its own, with what the step
/// frees of it and counts it down by; what a step does besides is one part.
#[derive(Debug, Default)]
pub(super) struct Parts {
    /// IDs up to the first carriage return of handles that the step only frees addresses of.
    handles: BTreeSet<String>,
}

impl Parts {
    pub fn of(edits: &[Edit]) -> Self {
        let (mut handles, mut others) = (BTreeSet::new(), BTreeSet::new());
        for edit in edits {
            match edit {
                Edit::Block(_, BlockEdit::Release { held, .. }) => {
                    handles.extend(held.iter().filter_map(|held| id(&held.record)));
                }
                Edit::Block(_, BlockEdit::Assign { records }) => {
                    others.extend(records.iter().filter_map(|(_, record)| id(record)));
                }
                Edit::Block(_, BlockEdit::Record { held, record }) => {
                    others.extend([&held.record, record].into_iter().filter_map(id));
                }
                Edit::Handle(_, HandleEdit::Decrement(..)) | Edit::Block(..) | Edit::Affinity(..) => {}
                Edit::Handle(handle, _) => {
                    others.insert(clean(handle));
                }
            }
        }
        let handles = handles.difference(&others).map(|id| (*id).to_owned()).collect();
        Self { handles }
    }

    /// The part of an address that is freed.
    pub fn of_held(&self, block: IpNet, held: &Held) -> Part {
        match id(&held.record) {
            None => Part::Address(address_at(block, held.ordinal)),
            Some(id) => self.of_handle(id),
        }
    }

    /// The part of an edit that is no release.
    pub fn of_edit(&self, edit: &Edit) -> Part {
        match edit {
            Edit::Handle(id, _) => self.of_handle(clean(id)),
            Edit::Block(..) | Edit::Affinity(..) => Part::Rest,
        }
    }

    fn of_handle(&self, id: &str) -> Part {
        if self.handles.contains(id) { Part::Handle(id.to_owned()) } else { Part::Rest }
    }

    /// The edits, as far as they belong to parts that are wanted, in their order.
    pub fn only(&self, edits: &[Edit], wanted: impl Fn(&Part) -> bool) -> Vec<Edit> {
        let mut kept = Vec::with_capacity(edits.len());
        for edit in edits {
            match edit {
                Edit::Block(cidr, BlockEdit::Release { held, cooldown }) => {
                    let is_wanted = |held: &&Held| wanted(&self.of_held(*cidr, held));
                    let held: Vec<Held> = held.iter().filter(is_wanted).cloned().collect();
                    if !held.is_empty() {
                        kept.push(Edit::Block(*cidr, BlockEdit::Release { held, cooldown: *cooldown }));
                    }
                }
                edit if wanted(&self.of_edit(edit)) => kept.push(edit.clone()),
                _ => {}
            }
        }
        kept
    }

    /// All parts of the edits.
    pub fn all(&self, edits: &[Edit]) -> BTreeSet<Part> {
        let held = held(edits).map(|(block, held)| self.of_held(block, held));
        let is_release = |edit: &&Edit| matches!(edit, Edit::Block(_, BlockEdit::Release { .. }));
        held.chain(edits.iter().filter(|edit| !is_release(edit)).map(|edit| self.of_edit(edit))).collect()
    }
}

/// The addresses that some edits free, with their blocks.
pub(super) fn held(edits: &[Edit]) -> impl Iterator<Item = (IpNet, &Held)> {
    edits.iter().flat_map(|edit| {
        let (block, held) = match edit {
            Edit::Block(block, BlockEdit::Release { held, .. }) => (Some(*block), held.as_slice()),
            _ => (None, [].as_slice()),
        };
        held.iter().filter_map(move |held| Some((block?, held)))
    })
}

/// The ID of the handle that a record names, as Calico compares it (facts 3.13).
pub(super) fn id(record: &Attribute) -> Option<&str> {
    record.handle.as_deref().map(clean).filter(|id| !id.is_empty())
}
