//! Handles: what they count once the blocks are as planned.
//!
//! A handle is written under its version at most once, before the blocks: it is made to say what the blocks say
//! that the plan leaves alone. For every other block it counts up or down in the step that writes the block.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use calipam_check::{Code, Subject};
use calipam_model::IpNet;
use calipam_model::edit::{Edit, HandleEdit};
use calipam_model::handle::Handle;
use calipam_model::snapshot::{Revision, Versioned};

use super::desk::{Desk, action};
use super::draft::moved;
use super::request::blocks_of;
use crate::handles::{Holdings, clean};
use crate::plan::{Change, Verb};

/// What a step does to handles beside its block.
#[derive(Default)]
pub(super) struct Counting {
    /// By clean ID: counts that rise, before the block is written.
    pub up: BTreeMap<String, Edit>,
    /// Counts that fall, behind it.
    pub down: BTreeMap<String, Edit>,
    /// What is repaired thereby.
    pub changes: Vec<Change>,
}

/// By block.
pub(super) type Countings = BTreeMap<IpNet, Counting>;

/// Codes of findings whose subject is a handle, and that counting repairs.
const CODES: [Code; 5] = [
    Code::MissingHandle,
    Code::HandleCount,
    Code::OrphanHandle,
    Code::HandleCarriageReturn,
    Code::HalfDeleted,
];

/// Plans the handles. `approved` are clean IDs whose objects with a carriage return may go.
pub(super) fn draft(desk: &mut Desk<'_, '_>, approved: &BTreeSet<String>) -> Countings {
    let moved = moved(&desk.drafts);
    let mut found: BTreeMap<String, Vec<(Code, Subject)>> = BTreeMap::new();
    for code in CODES {
        for finding in desk.basis.findings(code) {
            let Subject::Handle(id) = &finding.subject else { continue };
            let id = clean(id);
            // Whatever counts an address that changes, or names a block that comes back, is put right as a whole.
            let is_new = |cidr: &IpNet| desk.drafts.get(cidr).is_some_and(|draft| draft.created.is_some());
            let in_scope = || desk.scope.has(finding, desk.index()) || blocks_of(finding).iter().any(is_new);
            if moved.contains_key(id) || in_scope() {
                let of_handle = found.entry(id.to_owned()).or_default();
                of_handle.push((finding.code, finding.subject.clone()));
            }
        }
    }
    found.retain(|id, _| desk.frozen.why(id).is_none());
    let ids: BTreeSet<&String> = moved.keys().chain(found.keys()).collect();
    let holdings = Holdings::new(desk.basis, &ids.iter().map(|id| (*id).clone()).collect());
    let marked = desk.basis.snapshot.handles.iter().filter(|handle| handle.value.is_deleted());
    let marked: HashMap<String, &Revision> =
        marked.map(|handle| (handle.value.id().to_string(), &handle.revision)).collect();
    let none = BTreeMap::new();
    let mut countings = Countings::new();
    for id in ids {
        let plan = HandlePlan {
            id,
            now: holdings.counts(id),
            moved: moved.get(id).unwrap_or(&none),
            exact: holdings.objects(id).iter().copied().find(|object| object.value.id() == *id.as_str()),
            strays: holdings.objects(id).iter().copied().filter(|o| o.value.id() != *id.as_str()).collect(),
            marked: marked.get(id).copied(),
            found: found.get(id).map_or(&[], Vec::as_slice),
            approved: approved.contains(id),
        };
        plan.draft(desk, &mut countings);
    }
    countings
}

/// What is known of one handle.
struct HandlePlan<'p, 's> {
    id: &'p str,
    /// What the blocks record now.
    now: BTreeMap<IpNet, i64>,
    /// What the plan changes about that.
    moved: &'p BTreeMap<IpNet, i64>,
    /// The object with this ID.
    exact: Option<&'s Versioned<Handle>>,
    /// Objects whose ID goes on behind a carriage return.
    strays: Vec<&'s Versioned<Handle>>,
    /// The object with this ID, where it is marked deleted.
    marked: Option<&'s Revision>,
    found: &'p [(Code, Subject)],
    /// The strays go.
    approved: bool,
}

impl HandlePlan<'_, '_> {
    fn draft(&self, desk: &mut Desk<'_, '_>, countings: &mut Countings) {
        let mut repairs: Vec<(Code, Subject)> = self.found.to_vec();
        if !self.approved {
            repairs.retain(|(code, _)| *code != Code::HandleCarriageReturn);
            // Where only an object with a carriage return stands for it, that stays as it is.
            if self.exact.is_none() && !self.strays.is_empty() {
                repairs.clear();
            }
        }
        let judged = !repairs.is_empty();
        let mut edits = self.settle(desk, judged);
        let is_gone = self.after().is_empty();
        if self.approved {
            let delete = |stray: &&Versioned<Handle>| {
                let edit = HandleEdit::Delete(stray.revision.clone());
                Edit::Handle(stray.value.id().to_string(), edit)
            };
            edits.extend(self.strays.iter().map(delete));
        }
        let mut change = Change {
            action: if is_gone { Verb::DeleteHandle } else { Verb::SetHandleCounts },
            subject: Subject::Handle(self.id.to_owned()),
            detail: self.words(is_gone),
            repairs,
        };
        let only_strays = edits.len() == self.strays.len() && self.approved;
        match self.exact {
            None if !is_gone => change.action = Verb::CreateHandle,
            Some(_) if only_strays && !edits.is_empty() => {
                change.action = Verb::DeleteHandle;
                change.detail = "its object with a carriage return, which is never found".to_owned();
            }
            _ => {}
        }
        let in_blocks = self.count(countings, judged);
        if !edits.is_empty() {
            desk.early.push(action(format!("handle {}", self.id), edits, Vec::new(), change));
        } else if let (Some(block), false) = (in_blocks, change.repairs.is_empty()) {
            countings.entry(block).or_default().changes.push(change);
        } else if let (Some(block), false) = (self.moved.keys().next(), change.repairs.is_empty()) {
            change.detail = "it is right as soon as the block is".to_owned();
            countings.entry(*block).or_default().changes.push(change);
        }
    }

    fn words(&self, is_gone: bool) -> String {
        match (is_gone, self.exact) {
            (true, _) => "no allocation refers to it".to_owned(),
            (false, Some(_)) => "to what the blocks record".to_owned(),
            (false, None) => "for what the blocks record under it".to_owned(),
        }
    }

    /// What the blocks record under it in the end.
    fn after(&self) -> BTreeMap<IpNet, i64> {
        let mut after = self.now.clone();
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

    /// Makes the object say what the blocks record that the plan leaves alone. Where nothing was found about it, it
    /// only loses counts of 0, which would keep it when its last address goes.
    fn settle(&self, desk: &Desk<'_, '_>, judged: bool) -> Vec<Edit> {
        let id = || self.id.to_owned();
        let untouched = |block: &IpNet| !self.moved.contains_key(block) && !desk.index().is_unjudged(*block);
        let Some(exact) = self.exact else {
            return if judged { self.create(untouched) } else { Vec::new() };
        };
        let claimed = self.claimed();
        if self.goes_with_block(judged) {
            return Vec::new();
        }
        if judged && self.after().is_empty() && claimed.keys().all(untouched) {
            return vec![Edit::Handle(id(), HandleEdit::Delete(exact.revision.clone()))];
        }
        let blocks: BTreeSet<IpNet> = claimed.keys().chain(self.now.keys()).copied().collect();
        let of =
            |counts: &BTreeMap<IpNet, i64>, block: &IpNet| counts.get(block).copied().unwrap_or_default();
        let wrong = blocks.into_iter().filter(untouched);
        let wrong = wrong.map(|block| (block, of(&claimed, &block), of(&self.now, &block)));
        let corrections: Vec<(IpNet, i64)> = wrong
            .filter(
                |(block, says, is)| if says == is { *is == 0 && claimed.contains_key(block) } else { judged },
            )
            .map(|(block, _, is)| (block, is))
            .collect();
        if corrections.is_empty() {
            return Vec::new();
        }
        vec![Edit::Handle(id(), HandleEdit::Counts(exact.revision.clone(), corrections))]
    }

    /// True where the last addresses of the handle go, of which its object knows nothing: it goes behind them.
    fn goes_with_block(&self, judged: bool) -> bool {
        let claimed = self.claimed();
        judged
            && self.after().is_empty()
            && !claimed.keys().any(|block| self.moved.contains_key(block))
            && !self.moved.is_empty()
    }

    /// There is no such object, or it is marked deleted.
    fn create(&self, untouched: impl Fn(&IpNet) -> bool) -> Vec<Edit> {
        let counts: Vec<(IpNet, i64)> = self
            .now
            .iter()
            .filter(|(block, _)| untouched(block))
            .map(|(block, count)| (*block, *count))
            .collect();
        let id = || self.id.to_owned();
        match self.marked {
            Some(revision) if self.after().is_empty() => {
                vec![Edit::Handle(id(), HandleEdit::Delete(revision.clone()))]
            }
            // What is marked deleted counts nothing, and becomes a handle again with the first count.
            Some(_) => {
                let up = |(block, by)| Edit::Handle(id(), HandleEdit::Increment(block, by));
                counts.into_iter().map(up).collect()
            }
            None if counts.is_empty() => Vec::new(),
            None => {
                let mut handle = Handle::new(self.id);
                counts.into_iter().for_each(|(block, count)| handle.set_count(block, count));
                vec![Edit::Handle(id(), HandleEdit::Create(handle))]
            }
        }
    }

    /// Counts beside each block that changes. Gives the first block with a count.
    fn count(&self, countings: &mut Countings, judged: bool) -> Option<IpNet> {
        let claimed = self.claimed();
        if let (true, Some(exact), Some(last)) =
            (self.goes_with_block(judged), self.exact, self.moved.keys().next_back())
        {
            let delete = HandleEdit::Delete(exact.revision.clone());
            let down = &mut countings.entry(*last).or_default().down;
            down.insert(self.id.to_owned(), Edit::Handle(self.id.to_owned(), delete));
            return Some(*last);
        }
        let mut first = None;
        // Objects that are found by a stray ID only, and stay so.
        let stray = self.strays.first().filter(|_| self.exact.is_none() && !self.approved);
        let target = stray.map_or_else(|| self.id.to_owned(), |stray| stray.value.id().to_string());
        for (block, by) in self.moved {
            let now = self.now.get(block).copied().unwrap_or_default();
            // Where the object was judged, it is made to agree; else it keeps its difference.
            let says =
                if judged && stray.is_none() { claimed.get(block).copied().unwrap_or_default() } else { now };
            let by = now + by - says;
            let counting = countings.entry(*block).or_default();
            let edit = |edit: HandleEdit| Edit::Handle(target.clone(), edit);
            if by > 0 {
                counting.up.insert(self.id.to_owned(), edit(HandleEdit::Increment(*block, by)));
            } else if by < 0 {
                counting.down.insert(self.id.to_owned(), edit(HandleEdit::Decrement(*block, -by)));
            } else if says == 0 && claimed.contains_key(block) && stray.is_none() {
                // A count of 0 goes, too, so that the handle can.
                counting.up.insert(self.id.to_owned(), edit(HandleEdit::Increment(*block, 0)));
            } else {
                continue;
            }
            first.get_or_insert(*block);
        }
        first
    }
}
