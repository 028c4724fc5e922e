//! Creates the steps of a release.

use std::collections::{BTreeMap, BTreeSet};

use calipam_check::{Code, ReadObject, Remedy, Subject};
use calipam_model::IpNet;
use calipam_model::affinity::{Affinity, AffinityType};
use calipam_model::edit::{BlockEdit, Edit, Evidence, HandleEdit, Part, Precondition, Step, Unit};
use calipam_model::key::Key;
use calipam_model::snapshot::Versioned;

use super::select::Selection;
use crate::basis::handles::{Allocated, MOST_NAMED};
use crate::basis::preconditions::Preconditions;
use crate::plan::{Action, Change, Verb};
use crate::release::gone_node::{clear_owner, expect_stored_nodes, release_affinity};
use crate::release::may_release::Chosen;
use crate::release::unselected::{give_up, unselected};
use crate::skipped::{SkipReason, Skipped, SuggestedAction};

type AffinitiesByBlock<'s> = BTreeMap<IpNet, Vec<&'s Versioned<Affinity>>>;

impl<'s> Selection<'_, 's> {
    /// Returns the steps in this order: handle counts, blocks, other affinities of deleted nodes, handles without
    /// allocations.
    pub(super) fn actions(&mut self) -> Vec<Action> {
        let mut actions = Vec::new();
        self.correct_counts(&mut actions);
        self.release_blocks(&mut actions);
        self.delete_orphans(&mut actions);
        expect_stored_nodes(&self.basis.context.index, &mut actions);
        actions
    }

    /// Corrects wrong counts of handles that are released completely. If their counts stayed wrong, the handles could
    /// remain.
    fn correct_counts(&self, actions: &mut Vec<Action>) {
        let handles: BTreeSet<String> = self
            .chosen
            .values()
            .filter_map(|chosen| chosen.allocated.handle())
            .collect();
        for id in handles {
            let is_chosen = |held: &Allocated| self.chosen.contains_key(&(held.block, held.guard.ordinal));
            if !self.handles.allocated(&id).iter().all(is_chosen) {
                continue;
            }
            for (edit, evidence) in self.handles.corrections(&id) {
                actions.push(self.correction(&id, edit).requiring(evidence));
            }
        }
    }

    /// Returns the step that corrects the counts of a handle.
    fn correction(&self, id: &str, edit: Edit) -> Action {
        let subject = Subject::Handle(id.to_owned());
        let finding = self.basis.finding(Code::HandleCount, &subject);
        let detail = match finding {
            Some(finding) => finding.message(),
            None => "its counts differ from what the blocks record".to_owned(),
        };
        let code = finding.map(|finding| finding.code);
        let change = Change::new(Verb::SetHandleCounts, subject, detail, code.as_slice());
        Action::new(format!("handle-count {id}"), vec![edit], vec![change])
    }

    /// Adds a step for each block. The step covers the block's addresses and their handles, and the owner or affinities
    /// that the block loses.
    fn release_blocks(&mut self, actions: &mut Vec<Action>) {
        let mut owned = self.blocks_of_deleted_nodes();
        let mut affinities = self.affinities_of_deleted_nodes();
        let findings = self.chosen.values().filter_map(|chosen| chosen.finding);
        let preconditions = Preconditions::new(self.basis.snapshot, findings);
        let mut chosen_by_block: BTreeMap<IpNet, Vec<&Chosen<'s>>> = BTreeMap::new();
        for ((block, _), chosen) in &self.chosen {
            chosen_by_block.entry(*block).or_default().push(chosen);
        }

        let blocks: BTreeSet<IpNet> = chosen_by_block.keys().chain(owned.keys()).copied().collect();
        for block in blocks {
            let chosen = chosen_by_block.remove(&block).unwrap_or_default();
            let mut action = self.step_of_block(block, &chosen, &preconditions);
            if let Some(node) = owned.remove(&block) {
                clear_owner(&mut action, block, &node);
            } else if let Some(affinity) = unselected(self.basis, block, chosen.len()) {
                let node = &affinity.value.key.node;
                let why = format!("it will be empty, and its pool does not select {node}");
                give_up(&mut action, affinity, why);
            }
            for affinity in affinities.remove(&block).unwrap_or_default() {
                release_affinity(&mut action, affinity);
            }
            actions.push(action);
        }

        // Affinities for blocks that do not change have a step of their own.
        for affinity in affinities.into_values().flatten() {
            let reason = format!("affinity {}", affinity.value.key);
            let mut action = Action::new(reason, Vec::new(), Vec::new());
            release_affinity(&mut action, affinity);
            actions.push(action);
        }
    }

    /// Releases the chosen addresses of a block, with one part for each handle.
    fn step_of_block(&self, block: IpNet, chosen: &[&Chosen<'_>], preconditions: &Preconditions) -> Action {
        let mut units: BTreeMap<Unit, Vec<&Chosen<'_>>> = BTreeMap::new();
        let mut changes: Vec<Change> = Vec::with_capacity(chosen.len());
        for selected in chosen {
            units.entry(selected.allocated.unit()).or_default().push(selected);
            changes.push(selected.change());
        }

        let mut parts = Vec::with_capacity(units.len());
        for (unit, chosen_of_unit) in units {
            parts.push(self.part_of_unit(block, unit, chosen_of_unit, preconditions));
        }
        let reason = match changes.as_slice() {
            [only] => format!("{} {}", only.action, only.subject),
            _ => format!("{} addresses of block {block}", changes.len()),
        };
        Action {
            step: Step { reason, parts },
            changes,
        }
    }

    /// Releases the addresses of one handle, or one address without a handle. Lowers the counts of all objects of the
    /// handle: a second object may have a carriage return in its ID.
    fn part_of_unit(
        &self,
        block: IpNet,
        unit: Unit,
        chosen: Vec<&Chosen<'_>>,
        preconditions: &Preconditions,
    ) -> Part {
        let held = chosen
            .iter()
            .map(|chosen| chosen.allocated.guard.clone())
            .collect();
        let release = BlockEdit::Release {
            held,
            cooldown: self.basis.cooldown,
        };
        let mut part = Part {
            unit,
            edits: vec![Edit::Block(block, release)],
            evidence: Evidence::default(),
        };

        if let Unit::Handle(id) = &part.unit {
            let count = chosen.len() as i64;
            for object in self.handles.objects(id) {
                let decrement = HandleEdit::Decrement(block, count);
                part.edits
                    .push(Edit::Handle(object.value.id().to_string(), decrement));
            }
        }
        for finding in chosen.iter().filter_map(|chosen| chosen.finding) {
            part.evidence.extend(preconditions.of_finding(finding));
        }

        // A plan can have a hundred thousand parts.
        part.edits.shrink_to_fit();
        part.evidence.shrink_to_fit();
        part
    }

    /// Adds a step for each chosen handle without allocations. It deletes the handle if the blocks in its counts still
    /// record nothing under it.
    fn delete_orphans(&self, actions: &mut Vec<Action>) {
        let wanted = self.orphans.keys().map(|id| Key::Handle(id.clone())).collect();
        let objects = calipam_check::objects(self.basis.snapshot, &wanted);

        for (id, finding) in &self.orphans {
            let Some(ReadObject::Handle(object)) = objects.get(&Key::Handle(id.clone())) else {
                continue;
            };
            let subject = finding.subject.clone();
            let detail = "no allocation refers to it";
            let change = Change::new(Verb::DeleteHandle, subject, detail, &[finding.code]);
            let delete = Edit::Delete(Key::Handle(id.clone()), object.revision.clone());
            let mut evidence = Vec::new();
            for (block, _) in object.value.blocks().take(MOST_NAMED) {
                let records_nothing = Precondition::Records(id.clone(), 0..=0);
                evidence.push((Key::Block(block), records_nothing));
            }
            let reason = format!("orphan-handle {id}");
            actions.push(Action::new(reason, vec![delete], vec![change]).requiring(evidence));
        }
    }

    /// Returns the blocks that deleted nodes still own, each with its owner's name. Corrupt blocks are skipped in the
    /// plan.
    fn blocks_of_deleted_nodes(&mut self) -> BTreeMap<IpNet, String> {
        let index = &self.basis.context.index;
        let mut owned = BTreeMap::new();
        for block in &index.blocks {
            let Some(node) = block.host() else {
                continue;
            };
            if !self.nodes.contains(node) || !self.scope.has_block(block.key) {
                continue;
            }
            if block.sound.is_some() && !index.is_unchecked(block.key) {
                owned.insert(block.key, node.to_owned());
            } else {
                let detail = format!("block {} of {node} is corrupt", block.key);
                let corrupt = Skipped::new(Subject::Block(block.key), SkipReason::Unchecked, detail);
                let rebuild = SuggestedAction::Remedy(Remedy::Rebuild([block.key].into()));
                self.plan.skipped.push(corrupt.suggesting(rebuild));
            }
        }

        owned
    }

    /// Returns the affinities that deleted nodes still hold, by block.
    fn affinities_of_deleted_nodes(&self) -> AffinitiesByBlock<'s> {
        let index = &self.basis.context.index;
        let mut affinities = AffinitiesByBlock::new();
        for affinity in &self.basis.snapshot.affinities {
            let key = &affinity.value.key;
            let is_of_node = key.kind == AffinityType::Host && self.nodes.contains(&key.node);
            let is_in_scope = !affinity.value.deleted && self.scope.has_block(key.cidr);
            if is_of_node && is_in_scope && !index.is_unchecked(key.cidr) {
                affinities.entry(key.cidr).or_default().push(affinity);
            }
        }
        affinities
    }
}
