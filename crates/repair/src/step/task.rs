//! One write of a step as a task of the engine.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use calipam_datastore::clock;
use calipam_datastore::write::{Batch, Change, Limits, Stored};
use calipam_model::IpNet;
use calipam_model::block::BlockContent;
use calipam_model::edit::{
    Current, Edit, EditError, Found, HandleEdit, Part, Precondition, Step, Unit, apply,
};
use calipam_model::handle::clean_id;
use calipam_model::key::Key;
use calipam_model::text::TextRef;
use calipam_model::words::joined;
use calipam_model::writable::Object;
use jiff::Timestamp;

use super::PartOf;
use super::pack::Piece;
use crate::engine::{Decision, Objects, Omission, Omitted, Task, change};

/// Edits of a step that are written together. If guards of some parts fail, the other parts are written.
pub(super) struct WriteTask {
    step: Arc<Step>,
    pieces: Vec<Piece>,
    /// Parts of later steps that free addresses of the same handles. A handle is released completely or not at all, so
    /// these parts are checked before the handle's first address is freed.
    later: Vec<PartOf>,
    /// True if this write changes only handle counts, and another one changes the block. The counts need no evidence,
    /// because they must follow the blocks in any case.
    counts_only: bool,
    /// The handles whose counts are lowered after this write of their block.
    counted_later: Vec<Key>,
    /// The largest number of objects that one write can change or compare.
    conditions: usize,
}

impl Task for WriteTask {
    /// The objects that the task reads, with those of later steps that free the same handles.
    fn reads(&self) -> Vec<Key> {
        let mut keys = self.keys(|_| true);
        keys.extend(self.counted_blocks());
        for part in self.later.iter().map(|(step, part)| &step.parts[*part]) {
            keys.extend(block_edits(part).map(Edit::key));
            keys.extend(part.evidence.iter().map(|(key, _)| key.clone()));
        }
        keys.into_iter().collect()
    }

    /// The objects that have to be read before the write. The others are only compared by it.
    fn reads_first(&self) -> Vec<Key> {
        // Evidence that does not fit into the write, and the evidence of later steps, must be read and checked here.
        if self.step.block_part().is_some() || !self.later.is_empty() {
            return self.reads();
        }
        self.keys(|expect| !is_compared_as_it_is(expect))
            .into_iter()
            .collect()
    }

    fn reads_along(&self) -> Vec<Key> {
        self.counted_later.clone()
    }

    fn writes(&self) -> Vec<Key> {
        self.pieces
            .iter()
            .flat_map(|piece| piece.edits(&self.step))
            .map(Edit::key)
            .collect()
    }

    /// Decides on the write by the objects that were read: pieces that must not be written are left out.
    fn decide(&self, objects: &Objects, omitted: &Omitted) -> Decision {
        if let Some((key, why)) = broken(self.evidence_of_whole(), objects) {
            return Decision::Conflict(no_longer_holds(key, why));
        }
        let now = clock::now();
        let mut pieces: Vec<&Piece> = self.pieces.iter().collect();
        pieces.retain(|piece| !omitted.has(&self.part(piece).unit));

        let refused = self.failing(&pieces, |piece| self.why_not(piece, objects, omitted, now));
        if !refused.is_empty() {
            return self.omit(refused, omitted);
        }

        if self.is_created_for_none(&pieces) {
            return Decision::Conflict("nothing uses its addresses any more".to_owned());
        }
        let planned = pieces.iter().flat_map(|piece| piece.edits(&self.step));
        let edits: Vec<Cow<'_, Edit>> = planned.map(|edit| self.still_due(edit, objects)).collect();
        match apply_to(edits.iter().map(Cow::as_ref), objects, now) {
            Ok(changes) => self.write(&pieces, changes, objects),
            Err(error) => {
                let inapplicable = self.inapplicable(&pieces, objects, now);
                if inapplicable.is_empty() {
                    return Decision::Conflict(error.to_string());
                }
                self.omit(inapplicable, omitted)
            }
        }
    }
}

impl WriteTask {
    /// Creates the task that writes some pieces of a step.
    pub(super) fn new(step: Arc<Step>, pieces: Vec<Piece>, later: Vec<PartOf>, limits: Limits) -> Self {
        // A step that writes only handles creates or deletes them, with their blocks as evidence.
        let is_about_handle = step.edits().all(is_of_handle);
        let is_divided = limits.changes == 1 || step.block_part().is_some();

        let mut own_keys: BTreeSet<Key> = BTreeSet::new();
        let mut writes_block = false;
        let mut writes_only_handles = true;
        for edit in pieces.iter().flat_map(|piece| piece.edits(&step)) {
            own_keys.insert(edit.key());
            writes_block |= edit.block().is_some();
            writes_only_handles &= is_of_handle(edit);
        }
        let counts_only = is_divided && !is_about_handle && writes_only_handles;

        let mut counted_later = Vec::new();
        if is_divided && writes_block {
            for edit in step.edits() {
                let key = edit.key();
                if lowers(edit).is_some() && !own_keys.contains(&key) {
                    counted_later.push(key);
                }
            }
        }
        Self {
            step,
            pieces,
            later,
            counts_only,
            counted_later,
            conditions: limits.conditions,
        }
    }

    fn part(&self, piece: &Piece) -> &Part {
        &self.step.parts[piece.part]
    }

    /// Returns the objects that the task writes, and those of the evidence that `wanted` accepts.
    fn keys(&self, wanted: impl Fn(&Precondition) -> bool) -> BTreeSet<Key> {
        let mut keys: BTreeSet<Key> = self.writes().into_iter().collect();
        let of_pieces = self.pieces.iter().flat_map(|piece| self.evidence(piece));
        for (key, precondition) in of_pieces.chain(self.evidence_of_whole()) {
            if wanted(precondition) {
                keys.insert(key.clone());
            }
        }
        keys
    }

    /// The blocks whose counts are lowered after them.
    fn counted_blocks(&self) -> Vec<Key> {
        let mut blocks = Vec::new();
        if !self.counts_only {
            return blocks;
        }
        for edit in self.pieces.iter().flat_map(|piece| piece.edits(&self.step)) {
            if let Some((_, block, _)) = lowers(edit) {
                blocks.push(Key::Block(block));
            }
        }
        blocks
    }

    /// The evidence that the write of a piece compares.
    fn evidence(&self, piece: &Piece) -> &[(Key, Precondition)] {
        if self.counts_only {
            return &[];
        }
        // The evidence for an address is compared when its block is written.
        if self.step.block_part().is_some() && piece.edits(&self.step).all(is_of_handle) {
            return &[];
        }
        &self.part(piece).evidence
    }

    /// Limits a count that follows its block, if the block was read because others have written the handle since: they
    /// may have removed the count already, and counted addresses of their own. The handle keeps counting what the block
    /// records.
    fn still_due<'e>(&self, edit: &'e Edit, objects: &Objects) -> Cow<'e, Edit> {
        if !self.counts_only {
            return Cow::Borrowed(edit);
        }
        let Some((id, block, by)) = lowers(edit) else {
            return Cow::Borrowed(edit);
        };
        let Some(found) = objects.get(&Key::Block(block)) else {
            return Cow::Borrowed(edit);
        };
        let handle = objects.get(&edit.key()).and_then(Option::as_ref);
        let counted = match handle.and_then(|stored| stored.object.as_ref()) {
            Some(Object::Handle(handle)) => handle.count(block),
            _ => 0,
        };
        let recorded = match records(found.as_ref(), id) {
            Some(recorded) => recorded as i64,
            // All addresses of a block that cannot be decoded may be the handle's.
            None => counted,
        };
        let surplus = counted.saturating_sub(recorded).max(0);
        Cow::Owned(Edit::Handle(
            id.to_owned(),
            HandleEdit::Decrement(block, surplus.min(by)),
        ))
    }

    /// Returns true if a block would be created although all of its addresses are omitted.
    fn is_created_for_none(&self, pieces: &[&Piece]) -> bool {
        let is_address = |part: &Part| !matches!(part.unit, Unit::Block | Unit::WholeStep);
        let had_addresses = self.step.parts.iter().any(is_address);
        let has_addresses = pieces.iter().any(|piece| is_address(self.part(piece)));
        if !had_addresses || has_addresses {
            return false;
        }
        let mut edits = pieces.iter().flat_map(|piece| piece.edits(&self.step));
        edits.any(|edit| matches!(edit, Edit::Create(Key::Block(_), _)))
    }

    fn evidence_of_whole(&self) -> &[(Key, Precondition)] {
        if self.counts_only {
            &[]
        } else {
            self.step.evidence_of_whole()
        }
    }

    /// Returns an omission for each part that `why_not` rejects.
    fn failing(&self, pieces: &[&Piece], why_not: impl Fn(&Piece) -> Option<String>) -> Vec<Omission> {
        let mut omissions = Vec::new();
        for piece in pieces {
            if let Some(reason) = why_not(piece) {
                omissions.push(omission(self.part(piece), reason));
            }
        }
        omissions
    }

    /// Returns an omission for each part whose edits cannot be applied without those of other parts. Only the block's
    /// edits are applied before them, since an address needs the block in which it is recorded.
    fn inapplicable(&self, pieces: &[&Piece], objects: &Objects, now: Timestamp) -> Vec<Omission> {
        let block_piece = pieces.iter().find(|piece| self.part(piece).unit == Unit::Block);
        self.failing(pieces, |piece| {
            let other_block_piece = block_piece.filter(|block_piece| block_piece.part != piece.part);
            let block_edits = other_block_piece
                .into_iter()
                .flat_map(|block| block.edits(&self.step));
            let applied = apply_to(block_edits.chain(piece.edits(&self.step)), objects, now);
            applied.err().map(|error| error.to_string())
        })
    }

    /// Returns the reason not to write a part, if there is one. Does not check whether the part's own edits can be
    /// applied.
    fn why_not(&self, piece: &Piece, objects: &Objects, omitted: &Omitted, now: Timestamp) -> Option<String> {
        let part = self.part(piece);
        if let Some((key, why)) = broken(self.evidence(piece), objects) {
            return Some(about_addresses(part, &no_longer_holds(key, why)));
        }
        let Unit::Handle(id) = &part.unit else { return None };
        if !part.releases() {
            return None;
        }
        if let Some(reason) = omitted.kept_reason(id) {
            return Some(format!("its handle is kept: {reason}"));
        }

        for (step, index) in &self.later {
            let later_part = &step.parts[*index];
            if later_part.unit != part.unit {
                continue;
            }
            if let Some((key, why)) = broken(&later_part.evidence, objects) {
                return Some(about_addresses(later_part, &no_longer_holds(key, why)));
            }
            let edits_of_block = step.block_part().into_iter().flat_map(block_edits);
            if let Err(error) = apply_to(edits_of_block.chain(block_edits(later_part)), objects, now) {
                return Some(error.to_string());
            }
        }
        None
    }

    /// Omits parts. The part for the whole step needs all other parts, so it is omitted together with any of them.
    fn omit(&self, mut failing: Vec<Omission>, omitted: &Omitted) -> Decision {
        // Nothing is left of a step without its only part, or of an address without its block.
        if let [only_part] = &*self.step.parts
            && only_part.unit == Unit::WholeStep
            && let [only_omission] = &*failing
        {
            return Decision::Conflict(only_omission.reason.clone());
        }
        if let Some(block) = failing.iter().find(|omission| omission.unit == Unit::Block) {
            return Decision::Conflict(block.reason.clone());
        }

        if let Some(whole) = self.step.parts.last()
            && whole.unit == Unit::WholeStep
            && !omitted.has(&Unit::WholeStep)
            && failing.iter().all(|omission| omission.unit != Unit::WholeStep)
        {
            failing.push(omission(
                whole,
                "not all of its addresses are released".to_owned(),
            ));
        }

        Decision::Omit(failing)
    }

    /// Makes the batch that writes the changes, with as much evidence as it has room for.
    fn write(&self, pieces: &[&Piece], changed: Vec<(Key, Option<Object>)>, objects: &Objects) -> Decision {
        let mut changes: Vec<Change> = Vec::new();
        for (key, object) in changed {
            let read = objects.get(&key).and_then(Option::as_ref);
            let value = object.map(|object| object.encode().into());
            changes.extend(change(key, value, read));
        }
        if changes.is_empty() {
            return Decision::Already;
        }

        // The evidence for freed addresses comes first, in case not all evidence fits into the write.
        let mut pieces = pieces.to_vec();
        pieces.sort_by_key(|piece| !piece.frees(&self.step));
        let of_pieces = pieces.iter().flat_map(|piece| self.evidence(piece));
        let available = self.evidence_of_whole().iter().chain(of_pieces);
        // With a block part, all evidence was read and checked before, so the write can do without some of it.
        let room = match self.step.block_part() {
            Some(_) => self.conditions.saturating_sub(changes.len()),
            None => usize::MAX,
        };

        let mut compared_keys = BTreeSet::new();
        let mut evidence = Vec::new();
        for key_and_precondition in available {
            if evidence.len() == room {
                break;
            }
            let is_new = compared_keys.insert(&key_and_precondition.0);
            if is_new {
                evidence.push(compared(key_and_precondition, objects));
            }
        }
        Decision::Write(Batch { changes, evidence })
    }
}

/// The part of a step that is left out, with the reason.
fn omission(part: &Part, reason: String) -> Omission {
    Omission {
        unit: part.unit.clone(),
        addresses: part.addresses(),
        releases: part.releases(),
        reason,
    }
}

/// Puts the addresses of a part before a reason.
fn about_addresses(part: &Part, reason: &str) -> String {
    let addresses = joined(part.addresses(), ", ");
    if addresses.is_empty() {
        reason.to_owned()
    } else {
        format!("{addresses}: {reason}")
    }
}

/// Returns true for evidence that a write can compare without reading the object first.
fn is_compared_as_it_is(expect: &Precondition) -> bool {
    matches!(
        expect,
        Precondition::Absent | Precondition::At(_) | Precondition::NoBlockSince(_)
    )
}

/// Returns the first piece of evidence that does not hold, and the reason. Evidence that was not read is left to the
/// write to compare.
fn broken<'e>(evidence: &'e [(Key, Precondition)], objects: &Objects) -> Option<(&'e Key, &'static str)> {
    for (key, expect) in evidence {
        let why = match objects.get(key) {
            Some(stored) => why_broken(expect, stored.as_ref()),
            None if is_compared_as_it_is(expect) => None,
            None => Some("was not read"),
        };
        if let Some(why) = why {
            return Some((key, why));
        }
    }
    None
}

/// Returns the reason why the precondition does not hold for an object, which is `None` if there is no such object.
fn why_broken(expect: &Precondition, stored: Option<&Stored>) -> Option<&'static str> {
    match expect {
        // The object is read only after a conflict.
        Precondition::NoBlockSince(_) => Some("may have new blocks"),
        Precondition::Records(id, wanted) => match records(stored, id) {
            None => Some("cannot be decoded"),
            Some(count) if count > *wanted.end() => Some("records more addresses under the handle"),
            Some(count) if count < *wanted.start() => {
                Some("no longer records the addresses under the handle")
            }
            Some(_) => None,
        },
        Precondition::Matches(condition) => match stored {
            None if condition.holds(Found::Nothing) => None,
            None => Some("is gone"),
            Some(stored) if condition.holds(stored.found()) => None,
            Some(_) => Some("has changed"),
        },
        Precondition::Absent => stored.map(|_| "exists, or has changed"),
        Precondition::At(version) => match stored {
            None => Some("is gone"),
            Some(stored) if stored.revision.to_string() == version.to_string() => None,
            Some(_) => Some("exists, or has changed"),
        },
    }
}

/// Counts the addresses that a block records under a handle; `None` if it cannot be decoded.
fn records(block: Option<&Stored>, id: &str) -> Option<usize> {
    let Some(stored) = block else { return Some(0) };
    let Some(Object::Block(BlockContent::Sound(sound))) = &stored.object else {
        return None;
    };
    if sound.is_deleted() {
        return Some(0);
    }
    let has_id = |handle: TextRef<'_>| handle.cut_at_carriage_return() == *clean_id(id);
    Some(sound.handles().filter(|(_, handle)| has_id(*handle)).count())
}

/// Converts evidence for the write, which compares the versions that were read.
fn compared((key, expect): &(Key, Precondition), objects: &Objects) -> (Key, Precondition) {
    let expect = match (expect, objects.get(key).and_then(Option::as_ref)) {
        (Precondition::Records(..) | Precondition::Matches(_), Some(stored)) => {
            Precondition::At(stored.revision.clone())
        }
        (Precondition::Records(..) | Precondition::Matches(_), None) => Precondition::Absent,
        (other, _) => other.clone(),
    };
    (key.clone(), expect)
}

fn no_longer_holds(key: &Key, why: &str) -> String {
    format!("the evidence no longer holds: {} {why}", key.named())
}

fn block_edits(part: &Part) -> impl Iterator<Item = &Edit> {
    part.edits.iter().filter(|edit| edit.block().is_some())
}

/// The handle, the block and the number, if the edit lowers a count.
fn lowers(edit: &Edit) -> Option<(&str, IpNet, i64)> {
    match edit {
        Edit::Handle(id, HandleEdit::Decrement(block, by)) => Some((id, *block, *by)),
        _ => None,
    }
}

fn is_of_handle(edit: &Edit) -> bool {
    matches!(edit.key(), Key::Handle(_))
}

/// Applies edits to the objects that were read.
fn apply_to<'e>(
    edits: impl Iterator<Item = &'e Edit>,
    objects: &Objects,
    now: Timestamp,
) -> Result<Vec<(Key, Option<Object>)>, EditError> {
    apply(edits, now, |key| {
        objects.get(key).and_then(Option::as_ref).map(current)
    })
}

fn current(stored: &Stored) -> Current<'_> {
    Current {
        revision: &stored.revision,
        object: stored.object.as_ref().map(Cow::Borrowed),
    }
}
