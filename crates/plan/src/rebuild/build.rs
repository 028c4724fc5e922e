//! Creates the steps of a rebuild.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use calipam_check::{Code, Subject};
use calipam_model::IpNet;
use calipam_model::attributes::Attribute;
use calipam_model::cidr::ordinal_of;
use calipam_model::edit::{BlockEdit, Condition, Edit, Evidence, Part, Precondition, Step, Unit};
use calipam_model::key::Key;
use calipam_model::writable::Object;

use super::block_plan::{AddressPlan, BlockPlan, Counting, Countings, RecordEdit};
use super::corrupt::{CorruptBlocks, Repaired};
use super::planner::Planner;
use crate::plan::{Action, Change, Verb};
use crate::release::gone_node::{clear_owner, expect_stored_nodes, release_affinity};

/// Creates the steps of a plan: those before the blocks, one for each block that changes, and those after them. Steps
/// without an edit are left out.
pub(super) fn actions(planner: Planner<'_, '_>, mut countings: Countings) -> Vec<Action> {
    let index = planner.index();
    let cooldown = planner.basis.cooldown;
    let Planner {
        blocks,
        before_blocks,
        after_blocks,
        corrupt,
        ..
    } = planner;
    let mut actions = before_blocks;

    // Corrupt blocks are written even if nothing else changes in them.
    let mut otherwise_unchanged: BTreeSet<IpNet> = corrupt.blocks.keys().copied().collect();
    for (cidr, planned) in blocks {
        otherwise_unchanged.remove(&cidr);
        let step = BlockStep {
            cidr,
            planned,
            counting: countings.remove(&cidr).unwrap_or_default(),
            cooldown,
        };
        actions.push(step.into_action(corrupt));
    }
    for cidr in otherwise_unchanged {
        let step = BlockStep {
            cidr,
            planned: BlockPlan::default(),
            counting: Counting::default(),
            cooldown,
        };
        actions.push(step.into_action(corrupt));
    }

    actions.extend(after_blocks);
    actions.retain(|action| action.step.edits().next().is_some());
    expect_stored_nodes(index, &mut actions);
    actions
}

/// The parts of the step that changes a block.
struct BlockStep<'s> {
    cidr: IpNet,
    planned: BlockPlan<'s>,
    counting: Counting,
    cooldown: i64,
}

impl BlockStep<'_> {
    /// Creates the step, by the state of the block: it is replaced if it is corrupt, created if it is missing, and
    /// edited address by address otherwise.
    fn into_action(mut self, corrupt: &CorruptBlocks) -> Action {
        if let Some(repaired) = corrupt.blocks.get(&self.cidr) {
            return self.replace(repaired);
        }

        match self.planned.created.take() {
            Some(created) => {
                let create = Edit::Create(Key::Block(self.cidr), Box::new(Object::from(*created)));
                self.write_whole(vec![create])
            }
            None => self.edit_addresses(),
        }
    }

    /// Replaces or deletes a corrupt block in one write. If it took two writes, an address in use would be free between
    /// them.
    fn replace(mut self, repaired: &Repaired) -> Action {
        let cidr = self.cidr;
        let mut edits = Vec::new();
        if self.planned.deleted {
            self.planned.addresses.clear();
            edits.push(Edit::Delete(Key::Block(cidr), repaired.revision.clone()));
        } else {
            let block = Box::new(Object::from(repaired.block.clone()));
            edits.push(Edit::Replace(Key::Block(cidr), repaired.revision.clone(), block));
            edits.extend(hold_unrecorded(cidr, repaired, &self.planned));
        }

        let subject = Subject::Block(cidr);
        let detail = repaired.broken.clone();
        let rebuilt = Change::new(Verb::RebuildBlock, subject, detail, &[Code::CorruptBlock]);
        // The changes of its addresses are consequences of this one.
        self.planned.changes.insert(0, rebuilt);
        self.write_whole(edits)
    }

    /// Writes an entire block at once. An address that should be freed but is in use again stays recorded. An address
    /// whose user no longer exists stays free. All other addresses are written.
    fn write_whole(mut self, write: Vec<Edit>) -> Action {
        let step = Step::new(format!("block {}", self.cidr));
        let mut action = Action {
            step,
            changes: std::mem::take(&mut self.planned.changes),
        };
        let mut groups = group(std::mem::take(&mut self.planned.addresses));
        groups.sort_by_key(|addresses| addresses.iter().map(|address| address.address).min());
        let mut block = Part {
            unit: Unit::Block,
            edits: Vec::new(),
            evidence: Evidence::default(),
        };
        let mut parts = Vec::new();
        for mut addresses in groups {
            keep_in_use(&mut addresses, &mut block);
            parts.push(self.part_of(&addresses));
            action
                .changes
                .extend(addresses.into_iter().map(|address| address.change));
        }

        let Self {
            cidr,
            planned,
            counting,
            ..
        } = self;
        block.edits.extend(counting.up.into_values());
        block.edits.extend(write);
        for (edit, evidence) in counting.down.into_values() {
            block.edits.push(edit);
            block.evidence.extend(evidence);
        }
        action.changes.extend(counting.changes);
        for (edit, change) in planned.affinities {
            block.edits.push(edit);
            action.changes.push(change);
        }
        action.step.parts.push(block);
        action.step.parts.append(&mut parts);

        if let Some(node) = planned.loses_owner {
            clear_owner(&mut action, cidr, &node);
        }
        for affinity in planned.released {
            release_affinity(&mut action, affinity);
        }
        action
    }

    /// Edits a sound block address by address. The preconditions of an address hold only for its part: if they fail,
    /// the other parts are written anyway.
    fn edit_addresses(mut self) -> Action {
        let mut action = Action {
            step: Step::new(""),
            changes: Vec::new(),
        };
        for addresses in group(std::mem::take(&mut self.planned.addresses)) {
            action.step.parts.push(self.part_of(&addresses));
            action
                .changes
                .extend(addresses.into_iter().map(|address| address.change));
        }

        let Self {
            cidr,
            planned,
            counting,
            ..
        } = self;
        action.changes.extend(counting.changes);
        action.step.reason = match action.changes.as_slice() {
            [only] => format!("{} {}", only.action, only.subject),
            _ => format!("block {cidr}"),
        };

        if let Some(node) = planned.loses_owner {
            clear_owner(&mut action, cidr, &node);
        }
        action.changes.extend(planned.changes);
        for (edit, change) in planned.affinities {
            action.step.whole().edits.push(edit);
            action.changes.push(change);
        }
        for affinity in planned.released {
            release_affinity(&mut action, affinity);
        }
        action
    }

    /// Returns the part that changes these addresses together, and counts them in their handles.
    fn part_of(&mut self, addresses: &[AddressPlan]) -> Part {
        let mut ids: BTreeSet<String> = BTreeSet::new();
        for address in addresses {
            ids.extend(address.edit.handles().into_iter().flatten());
        }
        let mut part = Part {
            unit: unit_of(addresses),
            edits: Vec::new(),
            evidence: Evidence::default(),
        };

        // Counts are raised before the block is written, and lowered after it.
        for id in &ids {
            part.edits.extend(self.counting.up.remove(id));
        }
        part.edits
            .extend(address_edits(self.cidr, addresses, self.cooldown));
        for id in &ids {
            if let Some((edit, evidence)) = self.counting.down.remove(id) {
                part.edits.push(edit);
                part.evidence.extend(evidence);
            }
        }

        for address in addresses {
            part.evidence.extend(address.evidence.iter().cloned());
        }
        part
    }
}

/// Returns the unit of addresses that change together: the first handle that gains or loses one of them, or else the
/// address.
fn unit_of(addresses: &[AddressPlan]) -> Unit {
    for address in addresses {
        let [losing, gaining] = address.edit.handles();
        if let Some(id) = gaining.or(losing) {
            return Unit::Handle(id);
        }
    }
    match addresses.first() {
        Some(address) => Unit::Address(address.address),
        None => Unit::Handle(String::new()),
    }
}

/// Relaxes the preconditions of a group of addresses in a block that is written at once. An address that is left out of
/// the new block could be assigned to a pod, so only an unused address is left out. If its user has merely changed, the
/// address is recorded as planned. If the group also frees or rewrites an address, the preconditions of that address
/// hold for the entire block.
fn keep_in_use(addresses: &mut [AddressPlan], block: &mut Part) {
    let is_assigned = |address: &AddressPlan| matches!(address.edit, RecordEdit::Assign(_));
    if !addresses.iter().any(is_assigned) {
        return;
    }

    for address in addresses {
        if !is_assigned(address) {
            block.evidence.extend(address.evidence.drain(..));
            continue;
        }
        for (_, expect) in &mut address.evidence {
            *expect = relaxed(std::mem::replace(expect, Precondition::Absent));
        }
    }
}

/// Requires of an unchanged object, or of the same user, only that it is still there.
fn relaxed(precondition: Precondition) -> Precondition {
    match precondition {
        Precondition::At(_) => Precondition::Matches(Condition::StillThere(None)),
        Precondition::Matches(Condition::SameUser(uid, user)) => {
            Precondition::Matches(Condition::StillThere(Some((uid, user))))
        }
        other => other,
    }
}

/// Keeps addresses in use allocated, but without an owner, if their records are lost and no new record is planned.
fn hold_unrecorded(cidr: IpNet, repaired: &Repaired, planned: &BlockPlan<'_>) -> Option<Edit> {
    let mut records: Vec<(u32, Attribute)> = Vec::new();
    for ordinal in &repaired.unrecorded {
        if !planned.addresses.contains_key(ordinal) {
            records.push((*ordinal, Attribute::default()));
        }
    }
    if records.is_empty() {
        return None;
    }
    Some(Edit::Block(cidr, BlockEdit::Assign { records }))
}

/// Returns the edits of a block for these addresses: all that are freed and all that are assigned are in one edit each.
fn address_edits(cidr: IpNet, addresses: &[AddressPlan], cooldown: i64) -> Vec<Edit> {
    let mut held = Vec::new();
    let mut records = Vec::new();
    let mut rewritten = Vec::new();
    for address in addresses {
        match &address.edit {
            RecordEdit::Release(found) => held.push(found.clone()),
            RecordEdit::Assign(record) => {
                if let Some(ordinal) = ordinal_of(cidr, address.address) {
                    records.push((ordinal, record.clone()));
                }
            }
            RecordEdit::Rewrite(found, record) => rewritten.push(BlockEdit::Record {
                held: Box::new(found.clone()),
                record: Box::new(record.clone()),
            }),
        }
    }

    let mut edits = Vec::new();
    if !held.is_empty() {
        edits.push(BlockEdit::Release { held, cooldown });
    }
    if !records.is_empty() {
        edits.push(BlockEdit::Assign { records });
    }
    edits.extend(rewritten);
    edits.into_iter().map(|edit| Edit::Block(cidr, edit)).collect()
}

/// Groups the addresses of a block that change together: those of one handle, and those of handles between which an
/// address moves. An address without a handle changes alone.
fn group(addresses: BTreeMap<u32, AddressPlan>) -> Vec<Vec<AddressPlan>> {
    let mut addresses: Vec<AddressPlan> = addresses.into_values().collect();
    addresses.sort_by_cached_key(|address| {
        let [losing, gaining] = address.edit.handles();
        gaining.or(losing)
    });

    let mut groups = Groups::default();
    for address in addresses {
        groups.add(address);
    }
    groups.addresses.retain(|group| !group.is_empty());
    groups.addresses
}

/// Groups of addresses that change together. A group that was joined to another one is empty.
#[derive(Default)]
struct Groups {
    addresses: Vec<Vec<AddressPlan>>,
    /// The position of the group of each handle.
    by_handle: HashMap<String, usize>,
}

impl Groups {
    /// Adds an address to the group of its handles, or to a new one.
    fn add(&mut self, address: AddressPlan) {
        let ids: Vec<String> = address.edit.handles().into_iter().flatten().collect();
        let mut groups_of_address: BTreeSet<usize> = BTreeSet::new();
        for id in &ids {
            groups_of_address.extend(self.by_handle.get(id));
        }

        let group = match groups_of_address.pop_first() {
            Some(first) => first,
            None => {
                self.addresses.push(Vec::new());
                self.addresses.len() - 1
            }
        };
        // An address that moves between handles of two groups joins the groups.
        for other in groups_of_address {
            self.join(group, other);
        }
        for id in ids {
            self.by_handle.insert(id, group);
        }
        self.addresses[group].push(address);
    }

    /// Moves the addresses and handles of the group `other` to `group`.
    fn join(&mut self, group: usize, other: usize) {
        let joined = std::mem::take(&mut self.addresses[other]);
        self.addresses[group].extend(joined);
        for position in self.by_handle.values_mut() {
            if *position == other {
                *position = group;
            }
        }
    }
}
