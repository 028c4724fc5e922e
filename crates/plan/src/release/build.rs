//! Creates the steps of a release.

use std::collections::{BTreeMap, BTreeSet};

use calipam_check::{Code, ReadObject, Remedy, Subject};
use calipam_model::IpNet;
use calipam_model::affinity::{Affinity, AffinityType};
use calipam_model::edit::{BlockEdit, Edit, Evidence, HandleEdit, Part, Precondition, Step, Unit};
use calipam_model::handle::Handle;
use calipam_model::key::Key;
use calipam_model::snapshot::Versioned;

use super::select::Selection;
use crate::basis::handles::MOST_NAMED;
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
        self.miscounts(&mut actions);
        self.blocks(&mut actions);
        self.delete_orphans(&mut actions);
        expect_stored_nodes(&self.basis.context.index, &mut actions);
        actions
    }

    /// Corrects wrong counts of handles that are released completely. If their counts stayed wrong, the handles could
    /// remain.
    fn miscounts(&self, actions: &mut Vec<Action>) {
        let handles: BTreeSet<String> = self
            .chosen
            .values()
            .filter_map(|chosen| chosen.allocated.handle())
            .collect();
        for id in handles {
            let mut allocated = self.handles.allocated(&id).iter();
            if !allocated.all(|held| self.chosen.contains_key(&(held.block, held.guard.ordinal))) {
                continue;
            }
            for (edit, evidence) in self.handles.corrections(&id) {
                let subject = Subject::Handle(id.clone());
                let finding = self.basis.finding(Code::HandleCount, &subject);
                let detail = finding.map_or_else(
                    || "its counts differ from what the blocks record".into(),
                    |f| f.message(),
                );
                let codes = finding.map(|f| f.code);
                let change = Change::new(Verb::SetHandleCounts, subject, detail, codes.as_slice());
                let action = Action::new(format!("handle-count {id}"), vec![edit], vec![change]);
                actions.push(action.requiring(evidence));
            }
        }
    }

    /// Adds a step for each block. The step covers the block's addresses and their handles, and the owner or affinities
    /// that the block loses.
    fn blocks(&mut self, actions: &mut Vec<Action>) {
        let (mut owned, mut affinities) = self.held_by_gone_nodes();
        let findings = self.chosen.values().filter_map(|chosen| chosen.finding);
        let preconditions = Preconditions::new(self.basis.snapshot, findings);
        let mut of_block: BTreeMap<IpNet, Vec<&Chosen<'s>>> = BTreeMap::new();
        for ((block, _), chosen) in &self.chosen {
            of_block.entry(*block).or_default().push(chosen);
        }

        let all: BTreeSet<IpNet> = of_block.keys().chain(owned.keys()).copied().collect();
        for block in all {
            let chosen = of_block.remove(&block).unwrap_or_default();
            let mut action = self.release(block, &chosen, &preconditions);
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

        for affinity in affinities.into_values().flatten() {
            let reason = format!("affinity {}", affinity.value.key);
            let mut action = Action::new(reason, Vec::new(), Vec::new());
            release_affinity(&mut action, affinity);
            actions.push(action);
        }
    }

    fn release(&self, block: IpNet, chosen: &[&Chosen<'_>], preconditions: &Preconditions) -> Action {
        let mut units: BTreeMap<Unit, Vec<&Chosen<'_>>> = BTreeMap::new();
        chosen
            .iter()
            .for_each(|chosen| units.entry(chosen.allocated.unit()).or_default().push(chosen));
        let part = |(unit, chosen)| self.part(block, unit, chosen, preconditions);
        let parts = units.into_iter().map(part).collect();

        let changes: Vec<Change> = chosen.iter().map(|chosen| chosen.change()).collect();
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
    fn part(
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
            let decrement = |object: &&Versioned<Handle>| {
                Edit::Handle(object.value.id().to_string(), HandleEdit::Decrement(block, count))
            };
            part.edits.extend(self.handles.objects(id).iter().map(decrement));
        }
        let findings = chosen.iter().filter_map(|chosen| chosen.finding);
        part.evidence
            .extend(findings.flat_map(|finding| preconditions.of(finding)));
        // A plan can have a hundred thousand parts.
        part.edits.shrink_to_fit();
        part.evidence.shrink_to_fit();
        part
    }

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
            let is_empty = |block| (Key::Block(block), Precondition::Records(id.clone(), 0..=0));
            let named = object.value.blocks().map(|(block, _)| block).take(MOST_NAMED);
            let evidence = named.map(is_empty);
            let reason = format!("orphan-handle {id}");
            actions.push(Action::new(reason, vec![delete], vec![change]).requiring(evidence));
        }
    }

    /// Returns the blocks that deleted nodes still hold, each with its owner's name, and the affinities, by block.
    /// Corrupt blocks are skipped in the plan.
    fn held_by_gone_nodes(&mut self) -> (BTreeMap<IpNet, String>, AffinitiesByBlock<'s>) {
        let index = &self.basis.context.index;
        let mut owned = BTreeMap::new();
        let mut affinities = AffinitiesByBlock::new();
        for block in index
            .blocks
            .iter()
            .filter(|block| self.scope.has_block(block.key))
        {
            let Some(node) = block.host().filter(|node| self.nodes.contains(*node)) else {
                continue;
            };
            if block.sound.is_some() && !index.is_unchecked(block.key) {
                owned.insert(block.key, node.to_owned());
            } else {
                let detail = format!("block {} of {node} is corrupt", block.key);
                let corrupt = Skipped::new(Subject::Block(block.key), SkipReason::Unchecked, detail);
                let rebuild = SuggestedAction::Remedy(Remedy::Rebuild([block.key].into()));
                self.plan.skipped.push(corrupt.suggesting(rebuild));
            }
        }

        for affinity in &self.basis.snapshot.affinities {
            let key = &affinity.value.key;
            let gone = key.kind == AffinityType::Host
                && self.nodes.contains(&key.node)
                && !affinity.value.deleted
                && self.scope.has_block(key.cidr);
            if gone && !index.is_unchecked(key.cidr) {
                affinities.entry(key.cidr).or_default().push(affinity);
            }
        }
        (owned, affinities)
    }
}
