//! Handles: what they count once the blocks are as planned.
//!
//! A handle is written under its version at most once, before the blocks: it is made to say what the blocks say
//! that the plan leaves alone. For every other block it counts up or down in the step that writes the block.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use calipam_check::{Code, Subject};
use calipam_model::IpNet;
use calipam_model::edit::{Edit, Expect, HandleEdit};
use calipam_model::handle::Handle;
use calipam_model::key::Key;
use calipam_model::snapshot::{Revision, Versioned};

use super::super::block_plan::moved;
use super::super::planner::{Planner, action};
use super::super::request::blocks_of;
use crate::handles::{Holdings, MOST_NAMED, clean};
use crate::leaks::too_early_orphan;
use crate::plan::{Change, Verb};
use crate::release::Sightings;
use crate::skipped::{SkipReason, Skipped};

/// What a step does to handles besides its block.
#[derive(Default)]
pub(in crate::rebuild) struct Counting {
    /// By clean ID: counts that rise, before the block is written.
    pub up: BTreeMap<String, Edit>,
    /// Counts that fall, after it.
    pub down: BTreeMap<String, Edit>,
    /// What is repaired thereby.
    pub changes: Vec<Change>,
}

/// By block.
pub(in crate::rebuild) type Countings = BTreeMap<IpNet, Counting>;

/// Codes of findings whose subject is a handle, and that counting repairs.
const CODES: [Code; 5] = [
    Code::MissingHandle,
    Code::HandleCount,
    Code::OrphanHandle,
    Code::HandleCarriageReturn,
    Code::HalfDeleted,
];

/// Plans the handles. `approved` are clean IDs whose objects with a carriage return may be deleted.
pub(in crate::rebuild) fn plan(
    planner: &mut Planner<'_, '_>,
    approved: &BTreeSet<String>,
    sightings: &[Sightings],
) -> Countings {
    let moved = moved(&planner.blocks);
    let mut found: BTreeMap<String, Vec<(Code, Subject)>> = BTreeMap::new();
    for code in CODES {
        for finding in planner.basis.findings(code) {
            let Subject::Handle(id) = &finding.subject else { continue };
            let id = clean(id);
            // A handle that counts an address which changes, or names a block that is created, is corrected as a whole.
            let is_new =
                |cidr: &IpNet| planner.blocks.get(cidr).is_some_and(|planned| planned.created.is_some());
            let in_scope =
                || planner.scope.has(finding, planner.index()) || blocks_of(finding).iter().any(is_new);
            if moved.contains_key(id) || in_scope() {
                let of_handle = found.entry(id.to_owned()).or_default();
                of_handle.push((finding.code, finding.subject.clone()));
            }
        }
    }
    found.retain(|id, of_handle| match planner.uncountable.why(id) {
        Some((reason, why)) => {
            skip_all(planner, of_handle, reason, &why);
            false
        }
        None => true,
    });
    let ids: BTreeSet<&String> = moved.keys().chain(found.keys()).collect();
    let holdings = Holdings::new(planner.basis, &ids.iter().map(|id| (*id).clone()).collect());
    let marked = planner.basis.snapshot.handles.iter().filter(|handle| handle.value.is_deleted());
    let marked: HashMap<String, &Revision> =
        marked.map(|handle| (handle.value.id().to_string(), &handle.revision)).collect();
    let none = BTreeMap::new();
    let mut countings = Countings::new();
    for id in ids {
        let plan = HandlePlan {
            id,
            recorded: holdings.counts(id),
            moved: moved.get(id).unwrap_or(&none),
            exact: holdings.objects(id).iter().copied().find(|object| object.value.id() == *id.as_str()),
            strays: holdings.objects(id).iter().copied().filter(|o| o.value.id() != *id.as_str()).collect(),
            marked: marked.get(id).copied(),
            found: found.get(id).map_or(&[], Vec::as_slice),
            approved: approved.contains(id),
        };
        match plan.too_early(planner, sightings) {
            Some((reason, why)) => skip_all(planner, plan.found, reason, &why),
            None => plan.plan(planner, &mut countings),
        }
    }
    countings
}

fn skip_all(planner: &mut Planner<'_, '_>, found: &[(Code, Subject)], reason: SkipReason, why: &str) {
    for (code, subject) in found {
        planner.skipped.push(Skipped::new(subject.clone(), reason, why).of(*code));
    }
}

/// What is known of one handle.
struct HandlePlan<'p, 's> {
    id: &'p str,
    /// What the blocks record now.
    recorded: BTreeMap<IpNet, i64>,
    /// What the plan changes about that.
    moved: &'p BTreeMap<IpNet, i64>,
    /// The object with this ID.
    exact: Option<&'s Versioned<Handle>>,
    /// Objects whose ID goes on after a carriage return.
    strays: Vec<&'s Versioned<Handle>>,
    /// The object with this ID, where it is marked deleted.
    marked: Option<&'s Revision>,
    found: &'p [(Code, Subject)],
    /// The strays are deleted.
    approved: bool,
}

impl HandlePlan<'_, '_> {
    fn plan(&self, planner: &mut Planner<'_, '_>, countings: &mut Countings) {
        let repairs = self.repairs();
        // Where nothing was found about a handle, its object keeps its difference.
        let is_corrected = !repairs.is_empty();
        let is_unjudged = |block: &IpNet| planner.index().is_unjudged(*block);

        let mut edits = if self.is_deleted_after_blocks(is_corrected) {
            Vec::new()
        } else {
            self.before_blocks(is_corrected, is_unjudged)
        };
        let of_strays = if self.approved { self.delete_strays() } else { Vec::new() };
        let only_strays = edits.is_empty() && !of_strays.is_empty();
        edits.extend(of_strays);
        let counted = self.with_blocks(is_corrected, countings);

        // The change is told with the first write that makes it.
        let mut change = self.change(only_strays, repairs);
        if !edits.is_empty() {
            let evidence = self.evidence(&edits);
            planner.before_blocks.push(action(format!("handle {}", self.id), edits, evidence, change));
            return;
        }
        if change.repairs.is_empty() {
            return;
        }
        if counted.is_none() {
            change.detail = "it is right as soon as the block is".to_owned();
        }
        if let Some(block) = counted.or_else(|| self.moved.keys().next().copied()) {
            countings.entry(block).or_default().changes.push(change);
        }
    }

    /// Why a handle that nothing refers to, and that the plan leaves so, is not deleted yet.
    fn too_early(&self, planner: &Planner<'_, '_>, sightings: &[Sightings]) -> Option<(SkipReason, String)> {
        if !self.moved.is_empty() {
            return None;
        }
        let orphans = self.found.iter().filter(|(code, _)| *code == Code::OrphanHandle);
        let mut findings = orphans.filter_map(|(code, subject)| planner.basis.finding(*code, subject));
        findings.find_map(|finding| too_early_orphan(planner.basis, finding, sightings))
    }

    /// What a handle that is deleted or created rests on: its blocks record nothing under it, or still do.
    fn evidence(&self, edits: &[Edit]) -> Vec<(Key, Expect)> {
        let expect = |block: &IpNet, is_recorded| {
            (Key::Block(*block), Expect::Records(self.id.to_owned(), is_recorded))
        };
        let edit = edits.iter().find_map(|edit| match edit {
            Edit::Handle(id, edit) if id == self.id => Some(edit),
            _ => None,
        });
        match edit {
            Some(HandleEdit::Delete(_)) => {
                self.claimed().keys().take(MOST_NAMED).map(|block| expect(block, false)).collect()
            }
            Some(HandleEdit::Create(handle)) => {
                handle.blocks().take(MOST_NAMED).map(|(block, _)| expect(&block, true)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The findings that are gone afterwards.
    fn repairs(&self) -> Vec<(Code, Subject)> {
        let only_strays = self.exact.is_none() && !self.strays.is_empty();
        match self.approved {
            true => self.found.to_vec(),
            // Where only an object with a carriage return stands for the handle, that stays as it is.
            false if only_strays => Vec::new(),
            false => {
                let others = self.found.iter().filter(|(code, _)| *code != Code::HandleCarriageReturn);
                others.cloned().collect()
            }
        }
    }

    fn change(&self, only_strays: bool, repairs: Vec<(Code, Subject)>) -> Change {
        let (verb, detail) = match self.exact {
            Some(_) if only_strays => {
                (Verb::DeleteHandle, "its object with a carriage return, which is never found")
            }
            _ if self.after().is_empty() => (Verb::DeleteHandle, "no allocation refers to it"),
            Some(_) => (Verb::SetHandleCounts, "to what the blocks record"),
            None => (Verb::CreateHandle, "for what the blocks record under it"),
        };
        let subject = Subject::Handle(self.id.to_owned());
        Change { action: verb, subject, detail: detail.to_owned(), repairs }
    }

    /// What the blocks record under it in the end.
    fn after(&self) -> BTreeMap<IpNet, i64> {
        let mut after = self.recorded.clone();
        for (block, by) in self.moved {
            *after.entry(*block).or_default() += by;
        }
        after.retain(|_, count| *count != 0);
        after
    }

    /// What the object says now.
    fn claimed(&self) -> BTreeMap<IpNet, i64> {
        self.exact.map(|object| object.value.blocks().collect()).unwrap_or_default()
    }

    /// True where the last addresses of the handle are released, of which its object knows nothing: it is deleted after
    /// them.
    fn is_deleted_after_blocks(&self, is_corrected: bool) -> bool {
        let knows_of_them = self.claimed().keys().any(|block| self.moved.contains_key(block));
        let loses_all = self.after().is_empty() && !self.moved.is_empty();
        is_corrected && self.exact.is_some() && loses_all && !knows_of_them
    }

    fn edit(&self, edit: HandleEdit) -> Edit {
        Edit::Handle(self.id.to_owned(), edit)
    }

    fn delete_strays(&self) -> Vec<Edit> {
        let delete = |stray: &&Versioned<Handle>| {
            let edit = HandleEdit::Delete(stray.revision.clone());
            Edit::Handle(stray.value.id().to_string(), edit)
        };
        self.strays.iter().map(delete).collect()
    }

    /// What is written before the blocks: the object then says what the blocks record that the plan leaves alone.
    fn before_blocks(&self, is_corrected: bool, is_unjudged: impl Fn(&IpNet) -> bool) -> Vec<Edit> {
        let is_untouched = |block: &IpNet| !self.moved.contains_key(block) && !is_unjudged(block);
        match self.exact {
            Some(exact) => self.correct(exact, is_corrected, is_untouched),
            None if is_corrected => self.create(is_untouched),
            None => Vec::new(),
        }
    }

    /// Corrects the counts of the object. Where nothing was found about it, it only loses counts of 0, which would keep
    /// it when its last address is released.
    fn correct(
        &self,
        exact: &Versioned<Handle>,
        is_corrected: bool,
        is_untouched: impl Fn(&IpNet) -> bool,
    ) -> Vec<Edit> {
        let claimed = self.claimed();
        let revision = exact.revision.clone();
        if is_corrected && self.after().is_empty() && claimed.keys().all(&is_untouched) {
            return vec![self.edit(HandleEdit::Delete(revision))];
        }

        let blocks: BTreeSet<IpNet> = claimed.keys().chain(self.recorded.keys()).copied().collect();
        let mut corrections: Vec<(IpNet, i64)> = Vec::new();
        for block in blocks.into_iter().filter(is_untouched) {
            let says = claimed.get(&block).copied();
            let is = self.recorded.get(&block).copied().unwrap_or_default();
            let is_needless = says == Some(0) && is == 0;
            let is_wrong = says.unwrap_or_default() != is;
            if is_needless || (is_wrong && is_corrected) {
                corrections.push((block, is));
            }
        }
        if corrections.is_empty() {
            return Vec::new();
        }
        vec![self.edit(HandleEdit::Counts(revision, corrections))]
    }

    /// There is no such object, or it is marked deleted.
    fn create(&self, is_untouched: impl Fn(&IpNet) -> bool) -> Vec<Edit> {
        let counts = self.recorded.iter().filter(|(block, _)| is_untouched(block));
        let counts = counts.map(|(block, count)| (*block, *count));
        match self.marked {
            Some(revision) if self.after().is_empty() => {
                vec![self.edit(HandleEdit::Delete(revision.clone()))]
            }
            // What is marked deleted counts nothing, and becomes a handle again with the first count.
            Some(_) => counts.map(|(block, by)| self.edit(HandleEdit::Increment(block, by))).collect(),
            None => {
                let mut handle = Handle::new(self.id);
                counts.for_each(|(block, count)| handle.set_count(block, count));
                let is_empty = handle.blocks().next().is_none();
                if is_empty { Vec::new() } else { vec![self.edit(HandleEdit::Create(handle))] }
            }
        }
    }

    /// What is written with each block that changes: the object counts by so much up or down that it says afterwards what
    /// the block records. Gives the first block with a count.
    fn with_blocks(&self, is_corrected: bool, countings: &mut Countings) -> Option<IpNet> {
        if let (true, Some(exact)) = (self.is_deleted_after_blocks(is_corrected), self.exact) {
            let last = *self.moved.keys().next_back()?;
            let delete = self.edit(HandleEdit::Delete(exact.revision.clone()));
            countings.entry(last).or_default().down.insert(self.id.to_owned(), delete);
            return Some(last);
        }

        // An object with a carriage return in its ID that stands for the handle, and stays, counts in its place.
        let stray = self.strays.first().filter(|_| self.exact.is_none() && !self.approved);
        let target = stray.map_or_else(|| self.id.to_owned(), |stray| stray.value.id().to_string());
        let claimed = self.claimed();
        let mut first = None;
        for (block, moved) in self.moved {
            let recorded = self.recorded.get(block).copied().unwrap_or_default();
            // An object that is not corrected counts as if it was right, and so keeps its difference.
            let says = match stray {
                None if is_corrected => claimed.get(block).copied().unwrap_or_default(),
                _ => recorded,
            };
            let by = recorded + moved - says;
            let is_needless = says == 0 && claimed.contains_key(block) && stray.is_none();

            let counting = countings.entry(*block).or_default();
            let edit = |edit: HandleEdit| Edit::Handle(target.clone(), edit);
            if by > 0 {
                counting.up.insert(self.id.to_owned(), edit(HandleEdit::Increment(*block, by)));
            } else if by < 0 {
                counting.down.insert(self.id.to_owned(), edit(HandleEdit::Decrement(*block, -by)));
            } else if is_needless {
                // Counting up by 0 removes a count of 0, which would keep the handle when its last address is released.
                counting.up.insert(self.id.to_owned(), edit(HandleEdit::Increment(*block, 0)));
            } else {
                continue;
            }
            first.get_or_insert(*block);
        }
        first
    }
}
