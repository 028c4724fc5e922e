//! The clean-up of a pool that is no longer used. It frees leaked addresses with the guards of a release, then deletes
//! empty blocks and affinities in Calico's order. Calico itself does not clean up a disabled pool: its collector keeps
//! the last block of each node.

use std::collections::{BTreeSet, HashMap};

use calipam_check::index::IndexedBlock;
use calipam_check::{Remedy, Scope, Subject};
use calipam_model::IpNet;
use calipam_model::affinity::Affinity;
use calipam_model::cidr::overlap;
use calipam_model::edit::{BlockEdit, Edit, Step};
use calipam_model::key::Key;
use calipam_model::snapshot::Versioned;
use calipam_model::words::count;

use super::Migration;
use crate::basis::Basis;
use crate::plan::{Action, Change, Plan, PlanKind, Verb};
use crate::release::gone_node::not_owned_by_holder;
use crate::release::may_release::too_early_affinity;
use crate::release::unselected::give_up;
use crate::release::{self, Request};
use crate::skipped::{SkipReason, Skipped, SuggestedAction};

/// Plans the clean-up of the old pool. Skips blocks and affinities that have to stay, with the reason. Observations and
/// the cooldown come from the basis.
pub fn clean_up(basis: &Basis<'_>, migration: &Migration) -> Plan {
    let old = migration.old.cidr;
    let leaked = Request {
        scope: Scope::of_networks([old]),
        leaked: true,
        ..Request::default()
    };
    let plan = Plan {
        kind: PlanKind::Migrate,
        ..release::plan(basis, &leaked)
    };
    let mut releases = HashMap::new();
    for (position, action) in plan.actions.iter().enumerate() {
        for edit in action.step.edits() {
            if let Edit::Block(block, BlockEdit::Release { .. }) = edit {
                releases.insert(*block, position);
            }
        }
    }
    let mut planner = Planner {
        basis,
        pool: &migration.old.name,
        plan,
        releases,
        done: BTreeSet::new(),
    };

    for block in &basis.context.index.blocks {
        if overlap(block.key, old) {
            planner.block(block);
        }
    }
    for hidden in basis.snapshot.hidden_blocks() {
        if overlap(hidden, old) && basis.context.index.block(hidden).is_none() {
            planner.unchecked(hidden);
        }
    }
    planner.finish_half_deleted(old);
    planner.affinities(old);

    // An action whose edits were moved into that of a block is empty now.
    let mut plan = planner.plan;
    plan.actions.retain(|action| action.step.edits().next().is_some());
    plan.skipped.sort();
    plan.skipped.dedup();
    plan
}

struct Planner<'b, 's> {
    basis: &'b Basis<'s>,
    /// The name of the old pool.
    pool: &'b str,
    plan: Plan,
    /// The positions of the actions that release addresses, by block.
    releases: HashMap<IpNet, usize>,
    /// Affinities that are deleted with their blocks, by block and holder.
    done: BTreeSet<(IpNet, String)>,
}

impl<'s> Planner<'_, 's> {
    /// Deletes a block with its affinity if it is empty, or will be empty once its leaked addresses are released.
    fn block(&mut self, block: &IndexedBlock<'s>) {
        let cidr = block.key;
        if self.basis.context.index.is_unchecked(cidr) {
            self.unchecked(cidr);
            return;
        }
        let Some(sound) = block.sound else {
            self.unchecked(cidr);
            return;
        };

        let release = self.releases.get(&cidr).copied();
        let released = release.map_or(0, |position| releases(&self.plan.actions[position], cidr));
        let config = self.basis.snapshot.effective_ipam_config().unwrap_or_default();
        let current = sound.without_cooled(self.basis.context.now, config.cooldown());
        let held = current
            .allocations()
            .filter(|held| !held.attribute.is_windows_reserved());
        let (cooling, held): (Vec<_>, Vec<_>) = held.partition(|held| held.attribute.is_cooling());
        // Released addresses cool down first. Calico keeps a block while addresses are cooling down.
        if !cooling.is_empty() || (released > 0 && self.basis.cooldown > 0) {
            let detail = format!("addresses in block {cidr} have to cool down before it can be deleted");
            self.plan
                .skipped
                .push(Skipped::new(Subject::Block(cidr), SkipReason::Cooling, detail));
            return;
        }
        if held.len() > released {
            let detail = format!(
                "block {cidr} holds unused addresses that are not known to be leaked ({}, such as {})",
                count(held.len() - released, "address", "addresses"),
                held[0].address
            );
            let skipped = Skipped::new(Subject::Block(cidr), SkipReason::OwnerMayLive, detail);
            self.plan
                .skipped
                .push(skipped.suggesting(SuggestedAction::ListFindings));
            return;
        }

        let mut action = match release {
            Some(position) => std::mem::replace(&mut self.plan.actions[position], nothing()),
            None => Action::new(format!("empty block {cidr}"), Vec::new(), Vec::new()),
        };
        if current.allocated() < sound.allocated() {
            let collect = BlockEdit::CollectCooled {
                cooldown: config.cooldown_seconds,
            };
            action.step.whole().edits.push(Edit::Block(cidr, collect));
        }
        let why = format!("it is empty, and pool {} is disabled", self.pool);
        match (self.basis.affinity_of(block), sound.owner()) {
            (Some(affinity), _) => {
                give_up(&mut action, affinity, why);
                self.done.insert((cidr, affinity.value.key.node.clone()));
            }
            (None, owner) => {
                let edit = match owner {
                    Some(owner) => Edit::Block(cidr, BlockEdit::GiveUp(owner.clone())),
                    // The block is deleted when its last address is released.
                    None if released > 0 => return self.plan.actions.push(action),
                    None => Edit::Delete(Key::Block(cidr), block.revision.clone()),
                };
                action.step.whole().edits.push(edit);
                action
                    .changes
                    .push(Change::new(Verb::DeleteBlock, Subject::Block(cidr), why, &[]));
            }
        }
        self.plan.actions.push(action);
    }

    /// Finishes half-done deletions of the old pool's blocks.
    fn finish_half_deleted(&mut self, old: IpNet) {
        for block in &self.basis.snapshot.blocks {
            let cidr = block.value.key;
            if !block.value.content.is_deleted() || !overlap(cidr, old) {
                continue;
            }
            let delete = Edit::Delete(Key::Block(cidr), block.revision.clone());
            let subject = Subject::Block(cidr);
            let why = "its deletion stopped half-way";
            let changes = vec![Change::new(Verb::DeleteBlock, subject, why, &[])];
            self.plan.actions.push(Action::new(
                format!("half-deleted block {cidr}"),
                vec![delete],
                changes,
            ));
        }
    }

    /// Deletes affinities that are marked deleted, or whose block does not belong to the holder.
    fn affinities(&mut self, old: IpNet) {
        for affinity in &self.basis.snapshot.affinities {
            let key = &affinity.value.key;
            if !overlap(key.cidr, old) {
                continue;
            }
            let block = self.basis.context.index.block(key.cidr);
            let is_own = block.is_some_and(|block| block.owner == Some(&key.owner()));
            let is_kept = is_own && !affinity.value.deleted;
            if is_kept || self.done.contains(&(key.cidr, key.node.clone())) {
                continue;
            }
            // The affinity's holder may be about to create the block, which it would not find without the affinity.
            if let Some(refusal) = too_early_affinity(self.basis, affinity) {
                let skipped = Skipped::new(Subject::affinity(key), refusal.reason, refusal.detail);
                self.plan.skipped.push(skipped);
                continue;
            }
            let deletion = self.deletion_of(affinity);
            self.plan.actions.push(deletion);
        }
    }

    /// Returns the step that deletes an affinity.
    fn deletion_of(&self, affinity: &Versioned<Affinity>) -> Action {
        let key = &affinity.value.key;
        let mut evidence = None;
        let mut cause = "it is marked deleted";
        // An affinity that is marked deleted can be removed even if its holder owns the block.
        if !affinity.value.deleted {
            evidence = Some(not_owned_by_holder(key));
            cause = "its holder has no such block";
        }
        let why = format!("{cause}, and pool {} is disabled", self.pool);
        let change = Change::new(Verb::DeleteAffinity, Subject::affinity(key), why, &[]);
        let delete = Edit::Delete(Key::Affinity(key.clone()), affinity.revision.clone());
        Action::new(format!("affinity {key}"), vec![delete], vec![change]).requiring(evidence)
    }

    fn unchecked(&mut self, cidr: IpNet) {
        let detail = format!("block {cidr} is corrupt or cannot be decoded");
        let skipped = Skipped::new(Subject::Block(cidr), SkipReason::Unchecked, detail);
        self.plan
            .skipped
            .push(skipped.suggesting(SuggestedAction::Remedy(Remedy::Rebuild([cidr].into()))));
    }
}

/// Takes the place of an action that was moved.
fn nothing() -> Action {
    Action {
        step: Step::new(""),
        changes: Vec::new(),
    }
}

/// Counts the addresses of the block that the action releases.
fn releases(action: &Action, cidr: IpNet) -> usize {
    let mut released = 0;
    for edit in action.step.edits() {
        if let Edit::Block(block, BlockEdit::Release { held, .. }) = edit
            && *block == cidr
        {
            released += held.len();
        }
    }
    released
}
