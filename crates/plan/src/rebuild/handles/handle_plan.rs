//! The plan for one handle: the decision about its object, and the counts that are written with blocks.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use calipam_check::{Code, Subject};
use calipam_model::IpNet;
use calipam_model::edit::{Edit, HandleEdit, Precondition};
use calipam_model::handle::Handle;
use calipam_model::key::Key;
use calipam_model::snapshot::{Revision, Versioned};
use calipam_model::writable::Object;

use super::super::block_plan::Countings;
use super::super::planner::Planner;
use crate::basis::handles::{MOST_NAMED, recorded};
use crate::plan::{Action, Change, Verb};

/// The object of a handle as it is now.
pub(super) enum Observed<'s> {
    /// The object with the handle's clean ID.
    Object(&'s Versioned<Handle>),
    /// The object with the handle's clean ID, which is marked deleted.
    MarkedDeleted(&'s Revision),
    /// An object whose ID continues after a carriage return, if no live object has the clean ID. It stays, and the plan
    /// adjusts its counts.
    Stray(&'s Versioned<Handle>),
    Missing,
}

/// The plan for one handle.
pub(super) struct HandlePlan<'p, 's> {
    pub(super) id: &'p str,
    /// The numbers of addresses that the blocks record.
    pub(super) recorded: BTreeMap<IpNet, i64>,
    /// The numbers of addresses that the handle gains or loses, by block.
    pub(super) moved: &'p BTreeMap<IpNet, i64>,
    pub(super) observed: Observed<'s>,
    /// Objects to delete, whose IDs have a carriage return.
    pub(super) strays: Vec<&'s Versioned<Handle>>,
    /// The findings that are repaired. If there are none, the object's counts keep their difference from the blocks.
    pub(super) repairs: Vec<(Code, Subject)>,
}

/// A decision about a handle's object, apart from the counts that are written together with blocks.
enum Decision {
    /// The counts for untouched blocks are right, or are left wrong because no finding is repaired.
    Keep,
    /// No block records an address under the handle.
    Delete(Revision),
    /// The plan releases the handle's last addresses, but the object does not count them. The object is deleted after
    /// the write of the addresses' block.
    DeleteAfter(IpNet, Revision),
    /// Some counts are wrong or needless.
    Correct(Revision, Vec<(IpNet, i64)>),
    /// The object does not exist although blocks record addresses under the handle.
    Create(Handle),
    /// The object is marked deleted although blocks record addresses under the handle. It counts nothing, and becomes a
    /// handle again with its first count.
    Revive(Vec<(IpNet, i64)>),
}

impl HandlePlan<'_, '_> {
    /// Plans the writes of the handle: by themselves, or together with the blocks whose addresses it counts.
    pub(super) fn plan(self, planner: &mut Planner<'_, '_>, countings: &mut Countings) {
        let desired = self.desired();
        let decision = self.decide(&desired, |block| planner.index().is_unchecked(*block));
        let first_counted = match &decision {
            Decision::DeleteAfter(block, revision) => {
                let delete = self.delete(revision.clone());
                let down = &mut countings.entry(*block).or_default().down;
                down.insert(self.id.to_owned(), (delete, self.none_recorded()));
                Some(*block)
            }
            _ => self.count_with_blocks(countings),
        };

        let (mut edits, mut evidence) = self.edits(decision);
        // A corrupt block is replaced, so it cannot be compared.
        let is_corrupt =
            |key: &Key| matches!(key, Key::Block(block) if planner.corrupt.blocks.contains_key(block));
        evidence.retain(|(key, _)| !is_corrupt(key));
        let only_strays = edits.is_empty() && !self.strays.is_empty();
        for stray in &self.strays {
            let key = Key::Handle(stray.value.id().to_string());
            edits.push(Edit::Delete(key, stray.revision.clone()));
        }

        // The change is reported with the first write that makes it.
        let change = self.change(&desired, only_strays);
        if edits.is_empty() {
            self.report_with_block(change, first_counted, countings);
            return;
        }
        let action = Action::new(format!("handle {}", self.id), edits, vec![change]);
        planner.before_blocks.push(action.requiring(evidence));
    }

    /// Reports a change that repairs a finding with the first block that counts addresses of the handle, or that moves
    /// some.
    fn report_with_block(&self, mut change: Change, first_counted: Option<IpNet>, countings: &mut Countings) {
        if change.repairs.is_empty() {
            return;
        }
        if first_counted.is_none() {
            change.detail = "it is correct once the block is".to_owned();
        }
        let first_moved = self.moved.keys().next().copied();
        if let Some(block) = first_counted.or(first_moved) {
            countings.entry(block).or_default().changes.push(change);
        }
    }

    /// Returns the counts after the rebuild.
    fn desired(&self) -> BTreeMap<IpNet, i64> {
        let mut desired = self.recorded.clone();
        for (block, by) in self.moved {
            *desired.entry(*block).or_default() += by;
        }
        desired.retain(|_, count| *count != 0);
        desired
    }

    /// Returns the present counts of the object.
    fn claimed(&self) -> BTreeMap<IpNet, i64> {
        match self.observed {
            Observed::Object(object) => object.value.blocks().collect(),
            _ => BTreeMap::new(),
        }
    }

    fn edit(&self, edit: HandleEdit) -> Edit {
        Edit::Handle(self.id.to_owned(), edit)
    }

    fn delete(&self, revision: Revision) -> Edit {
        Edit::Delete(Key::Handle(self.id.to_owned()), revision)
    }

    /// Compares the desired counts with the observed ones. Counts for blocks that change are written with the block,
    /// and are ignored here.
    fn decide(&self, desired: &BTreeMap<IpNet, i64>, is_unchecked: impl Fn(&IpNet) -> bool) -> Decision {
        let is_untouched = |block: &IpNet| !self.moved.contains_key(block) && !is_unchecked(block);
        let is_corrected = !self.repairs.is_empty();
        let mut untouched_counts = self.recorded.clone();
        untouched_counts.retain(|block, _| is_untouched(block));

        match &self.observed {
            Observed::Object(object) => self.decide_on_object(object, desired, is_untouched),
            // The object has no findings, or they cannot be repaired.
            Observed::Stray(_) => Decision::Keep,
            Observed::MarkedDeleted(_) | Observed::Missing if !is_corrected => Decision::Keep,
            Observed::MarkedDeleted(revision) if desired.is_empty() => Decision::Delete((*revision).clone()),
            Observed::MarkedDeleted(_) => Decision::Revive(untouched_counts.into_iter().collect()),
            Observed::Missing => self.decide_on_missing(untouched_counts),
        }
    }

    /// Decides on a live object with the handle's clean ID.
    fn decide_on_object(
        &self,
        object: &Versioned<Handle>,
        desired: &BTreeMap<IpNet, i64>,
        is_untouched: impl Fn(&IpNet) -> bool,
    ) -> Decision {
        let claimed = self.claimed();
        let is_deleted = desired.is_empty() && !self.repairs.is_empty();
        let last_moved = self.moved.keys().next_back();
        if is_deleted && last_moved.is_none() && claimed.keys().all(&is_untouched) {
            return Decision::Delete(object.revision.clone());
        }
        // If it counts moved addresses, it is deleted when their last count is lowered.
        let counts_moved = self.moved.keys().any(|block| claimed.contains_key(block));
        if is_deleted
            && !counts_moved
            && let Some(last) = last_moved
        {
            return Decision::DeleteAfter(*last, object.revision.clone());
        }

        let corrections = self.corrections(&claimed, is_untouched);
        if corrections.is_empty() {
            return Decision::Keep;
        }
        Decision::Correct(object.revision.clone(), corrections)
    }

    /// Decides on a handle without an object. One that only changing blocks record is created with the first of these
    /// blocks.
    fn decide_on_missing(&self, untouched_counts: BTreeMap<IpNet, i64>) -> Decision {
        let mut handle = Handle::new(self.id);
        for (block, count) in untouched_counts {
            handle.set_count(block, count);
        }
        if handle.blocks().next().is_none() {
            return Decision::Keep;
        }
        Decision::Create(handle)
    }

    /// Returns corrections of wrong counts. Without findings to repair, these are only counts of 0, which would keep
    /// the object when its last address is released.
    fn corrections(
        &self,
        claimed: &BTreeMap<IpNet, i64>,
        is_untouched: impl Fn(&IpNet) -> bool,
    ) -> Vec<(IpNet, i64)> {
        let is_corrected = !self.repairs.is_empty();
        let blocks: BTreeSet<IpNet> = claimed.keys().chain(self.recorded.keys()).copied().collect();
        let mut corrections = Vec::new();
        for block in blocks {
            if !is_untouched(&block) {
                continue;
            }
            let claimed_count = claimed.get(&block).copied();
            let recorded_count = self.recorded.get(&block).copied().unwrap_or_default();
            let is_needless = claimed_count == Some(0) && recorded_count == 0;
            let is_wrong = claimed_count.unwrap_or_default() != recorded_count;
            if is_needless || (is_wrong && is_corrected) {
                corrections.push((block, recorded_count));
            }
        }
        corrections
    }

    /// Returns the edits to write before the blocks, with their preconditions. Under a deleted handle, blocks must
    /// record no addresses; under a created handle, at least one; under a corrected handle, numbers that its new counts
    /// allow.
    fn edits(&self, decision: Decision) -> (Vec<Edit>, Vec<(Key, Precondition)>) {
        match decision {
            Decision::Keep | Decision::DeleteAfter(..) => (Vec::new(), Vec::new()),
            Decision::Delete(revision) => (vec![self.delete(revision)], self.none_recorded()),
            Decision::Correct(revision, counts) => {
                let evidence = match self.observed {
                    Observed::Object(object) => {
                        recorded(self.id, &object.value, &counts.iter().copied().collect())
                    }
                    _ => Vec::new(),
                };
                (vec![self.edit(HandleEdit::Counts(revision, counts))], evidence)
            }
            Decision::Create(handle) => {
                let evidence = self.some_recorded(&handle);
                let key = Key::Handle(self.id.to_owned());
                let handle = Box::new(Object::Handle(handle));
                (vec![Edit::Create(key, handle)], evidence)
            }
            Decision::Revive(counts) => {
                let mut edits = Vec::new();
                for (block, count) in counts {
                    edits.push(self.edit(HandleEdit::Increment(block, count)));
                }
                (edits, Vec::new())
            }
        }
    }

    fn records(&self, block: IpNet, count: RangeInclusive<usize>) -> (Key, Precondition) {
        (
            Key::Block(block),
            Precondition::Records(self.id.to_owned(), count),
        )
    }

    /// Requires that the blocks of a new object record at least one address under the handle.
    fn some_recorded(&self, handle: &Handle) -> Vec<(Key, Precondition)> {
        let blocks = handle.blocks().take(MOST_NAMED);
        blocks
            .map(|(block, _)| self.records(block, 1..=usize::MAX))
            .collect()
    }

    /// Requires that the blocks of the handle's object record nothing under the handle.
    fn none_recorded(&self) -> Vec<(Key, Precondition)> {
        self.claimed()
            .into_keys()
            .take(MOST_NAMED)
            .map(|block| self.records(block, 0..=0))
            .collect()
    }

    /// Describes how the handle changes.
    fn change(&self, desired: &BTreeMap<IpNet, i64>, only_strays: bool) -> Change {
        let has_object = matches!(self.observed, Observed::Object(_));
        let (action, detail) = if has_object && only_strays {
            let detail = "its object whose key has a carriage return, which Calico never finds";
            (Verb::DeleteHandle, detail)
        } else if desired.is_empty() {
            (Verb::DeleteHandle, "no allocation refers to it")
        } else if has_object {
            let detail = "its counts differ from what the blocks record";
            (Verb::SetHandleCounts, detail)
        } else {
            (Verb::CreateHandle, "the blocks record addresses under it")
        };
        let subject = Subject::Handle(self.id.to_owned());
        Change {
            action,
            subject,
            detail: detail.to_owned(),
            repairs: self.repairs.clone(),
        }
    }

    /// Adds the counts that are written with each changing block. Afterwards the object agrees with the blocks, or, if
    /// it is not corrected, keeps its difference. Returns the first block with a count.
    fn count_with_blocks(&self, countings: &mut Countings) -> Option<IpNet> {
        let target = match self.observed {
            Observed::Stray(stray) => stray.value.id().to_string(),
            _ => self.id.to_owned(),
        };
        let is_corrected = !self.repairs.is_empty();
        let claimed = self.claimed();
        let mut first = None;
        for (block, moved) in self.moved {
            let recorded = self.recorded.get(block).copied().unwrap_or_default();
            // The counts of an object that is not corrected are treated as right, so they keep their difference.
            let count_before = if is_corrected {
                claimed.get(block).copied().unwrap_or_default()
            } else {
                recorded
            };
            let by = recorded + moved - count_before;
            let is_needless = count_before == 0 && claimed.contains_key(block);

            let counting = countings.entry(*block).or_default();
            let edit = |edit: HandleEdit| Edit::Handle(target.clone(), edit);
            if by > 0 {
                counting
                    .up
                    .insert(self.id.to_owned(), edit(HandleEdit::Increment(*block, by)));
            } else if by < 0 {
                let most = usize::try_from(recorded).unwrap_or_default();
                let mut evidence = Vec::new();
                if count_before > recorded {
                    evidence.push(self.records(*block, 0..=most));
                }
                let decrement = edit(HandleEdit::Decrement(*block, -by));
                counting.down.insert(self.id.to_owned(), (decrement, evidence));
            } else if is_needless {
                // An increment by 0 removes a count of 0, which would keep the handle after the release of its last
                // address.
                counting
                    .up
                    .insert(self.id.to_owned(), edit(HandleEdit::Increment(*block, 0)));
            } else {
                continue;
            }
            first.get_or_insert(*block);
        }
        first
    }
}
