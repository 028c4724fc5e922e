//! From drafts to steps.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use calipam_check::{Code, Subject};
use calipam_model::IpNet;
use calipam_model::attributes::Attribute;
use calipam_model::block::BlockContent;
use calipam_model::edit::{BlockEdit, Current, Edit, Expect, Held, Step, apply};
use calipam_model::key::Key;
use calipam_model::object::Object;
use jiff::Timestamp;

use super::desk::{Desk, change};
use super::draft::{AddressDraft, Draft, What};
use super::handles::{Counting, Countings};
use super::salvage::{Mended, Salvage};
use crate::gone_node::{disown, give_up};
use crate::plan::{Action, Verb};

/// Objects that one step is about: what changes, and what must not have. A datastore takes 128 at once.
const STEP_SIZE: usize = 96;
/// Pieces of evidence for a block that is written as a whole. That is the safe side: an address that is recorded
/// although its user has just gone is found leaked later, and one that is left out is given out again.
const MOST_EVIDENCE: usize = 64;

/// All steps, in their order.
pub(super) fn actions(desk: Desk<'_, '_>, mut countings: Countings) -> Vec<Action> {
    let Desk { drafts, early, late, salvage, basis, cooldown, .. } = desk;
    let mut actions = early;
    let now = basis.snapshot.taken_at;
    let mut untouched: BTreeSet<IpNet> = salvage.blocks.keys().copied().collect();
    for (cidr, draft) in drafts {
        untouched.remove(&cidr);
        let counting = countings.remove(&cidr).unwrap_or_default();
        let mut of_block = block(salvage, cidr, draft, counting, cooldown, now);
        actions.append(&mut of_block);
    }
    for cidr in untouched {
        let mut mended = block(salvage, cidr, Draft::default(), Counting::default(), cooldown, now);
        actions.append(&mut mended);
    }
    actions.extend(late);
    actions.retain(|action| !action.step.edits.is_empty());
    actions
}

fn block(
    salvage: &Salvage,
    cidr: IpNet,
    draft: Draft<'_>,
    counting: Counting,
    cooldown: i64,
    now: Timestamp,
) -> Vec<Action> {
    if let Some(mended) = salvage.blocks.get(&cidr) {
        return vec![replace(cidr, mended, draft, counting, cooldown, now)];
    }
    if let Some(created) = &draft.created {
        let write = Edit::Block(cidr, BlockEdit::Create(created.clone()));
        return vec![whole(cidr, write, draft, counting)];
    }
    edit(cidr, draft, counting, cooldown)
}

/// A block that is written as a whole.
fn whole(cidr: IpNet, write: Edit, mut draft: Draft<'_>, counting: Counting) -> Action {
    let mut evidence: Vec<(Key, Expect)> = Vec::new();
    for ground in draft.addresses.values().flat_map(|address| &address.evidence) {
        if evidence.len() < MOST_EVIDENCE && !evidence.contains(ground) {
            evidence.push(ground.clone());
        }
    }
    let mut changes = std::mem::take(&mut draft.changes);
    changes.extend(std::mem::take(&mut draft.addresses).into_values().map(|address| address.change));
    changes.extend(counting.changes);
    let mut edits: Vec<Edit> = counting.up.into_values().collect();
    edits.push(write);
    edits.extend(counting.down.into_values());
    let mut action = Action { step: Step { reason: format!("block {cidr}"), edits, evidence }, changes };
    with_affinities(&mut action, draft);
    action
}

fn with_affinities(action: &mut Action, draft: Draft<'_>) {
    for (edit, change) in draft.affinities {
        action.step.edits.push(edit);
        action.changes.push(change);
    }
    draft.given_up.into_iter().for_each(|affinity| give_up(action, affinity));
}

/// A corrupt block is replaced at once by what it is in the end: between two writes an address in use would be
/// free.
fn replace(
    cidr: IpNet,
    mended: &Mended,
    mut draft: Draft<'_>,
    counting: Counting,
    cooldown: i64,
    now: Timestamp,
) -> Action {
    let deleted = draft.deleted;
    let mut made = Action {
        step: Step { reason: String::new(), edits: Vec::new(), evidence: Vec::new() },
        changes: Vec::new(),
    };
    made.step.edits.extend(address_edits(cidr, draft.addresses.values(), cooldown));
    if let Some(node) = draft.disowned.take() {
        disown(&mut made, cidr, &node);
    }
    made.step.edits.extend(lost_edit(cidr, mended, &draft));
    let object = Object::from(mended.block.clone());
    let current = || Current { revision: &mended.revision, object: Some(Cow::Borrowed(&object)) };
    let next = apply(&made.step.edits, now, |_| Some(current())).ok();
    let next = next.and_then(|changes| changes.into_iter().next()).map(|(_, next)| next);
    let revision = mended.revision.clone();
    let write = match next {
        _ if deleted => BlockEdit::Delete(revision),
        Some(None) => BlockEdit::Delete(revision),
        Some(Some(Object::Block(BlockContent::Sound(block)))) => BlockEdit::Replace(revision, block),
        _ => BlockEdit::Replace(revision, Box::new(mended.block.clone())),
    };
    let rebuilt =
        change(Verb::RebuildBlock, Subject::Block(cidr), mended.broken.clone(), &[Code::CorruptBlock]);
    draft.changes.insert(0, rebuilt);
    draft.changes.append(&mut made.changes);
    let mut action = whole(cidr, Edit::Block(cidr, write), draft, counting);
    for ground in made.step.evidence {
        if !action.step.evidence.contains(&ground) {
            action.step.evidence.push(ground);
        }
    }
    action
}

/// Addresses in use that the corrupt block held without a record, and for which none can be made: they stay held.
fn lost_edit(cidr: IpNet, mended: &Mended, draft: &Draft<'_>) -> Option<Edit> {
    let lost = mended.lost.iter().filter(|ordinal| !draft.addresses.contains_key(ordinal));
    let records: Vec<(u32, Attribute)> = lost.map(|ordinal| (*ordinal, Attribute::default())).collect();
    (!records.is_empty()).then_some(Edit::Block(cidr, BlockEdit::Assign { records }))
}

/// The edits of some addresses of a block.
fn address_edits<'d>(
    cidr: IpNet,
    addresses: impl Iterator<Item = &'d AddressDraft> + Clone,
    cooldown: i64,
) -> Vec<Edit> {
    let ordinal = |address: &AddressDraft| calipam_model::cidr::ordinal_of(cidr, address.address);
    let held: Vec<Held> = addresses
        .clone()
        .filter_map(|address| match &address.what {
            What::Release(held) => Some(Held { evidence: address.evidence.clone(), ..held.clone() }),
            _ => None,
        })
        .collect();
    let records: Vec<(u32, Attribute)> = addresses
        .clone()
        .filter_map(|address| match &address.what {
            What::Assign(record) => Some((ordinal(address)?, record.clone())),
            _ => None,
        })
        .collect();
    let rewritten = addresses.filter_map(|address| match &address.what {
        What::Record(held, record) => {
            Some(BlockEdit::Record { held: Box::new(held.clone()), record: Box::new(record.clone()) })
        }
        _ => None,
    });
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

/// A sound block, which is edited address by address, in as many steps as it takes.
fn edit(cidr: IpNet, mut draft: Draft<'_>, counting: Counting, cooldown: i64) -> Vec<Action> {
    let mut actions = Vec::new();
    let mut counting = counting;
    let mut repaired = std::mem::take(&mut counting.changes);
    for part in parts(std::mem::take(&mut draft.addresses)) {
        let ids: BTreeSet<String> =
            part.iter().flat_map(|address| address.what.handles()).flatten().collect();
        let take = |edits: &mut BTreeMap<String, Edit>| -> Vec<Edit> {
            ids.iter().filter_map(|id| edits.remove(id)).collect()
        };
        let mut edits = take(&mut counting.up);
        edits.extend(address_edits(cidr, part.iter(), cooldown));
        edits.append(&mut take(&mut counting.down));
        // What an address that goes rests on goes with it: where that does not hold, the others still go.
        let mut evidence: Vec<(Key, Expect)> = Vec::new();
        let staying = part.iter().filter(|address| !matches!(address.what, What::Release(_)));
        for ground in staying.flat_map(|address| &address.evidence) {
            if !evidence.contains(ground) {
                evidence.push(ground.clone());
            }
        }
        let mut changes: Vec<_> = part.into_iter().map(|address| address.change).collect();
        changes.append(&mut repaired);
        let reason = match changes.as_slice() {
            [only] => format!("{} {}", only.action, only.subject),
            _ => format!("block {cidr}"),
        };
        actions.push(Action { step: Step { reason, edits, evidence }, changes });
    }
    if actions.is_empty() {
        let step = Step { reason: format!("block {cidr}"), edits: Vec::new(), evidence: Vec::new() };
        actions.push(Action { step, changes: Vec::new() });
    }
    if let Some(action) = actions.last_mut() {
        if let Some(node) = draft.disowned.take() {
            parting(action, cidr, &node);
        }
        action.changes.append(&mut draft.changes);
        with_affinities(action, draft);
    }
    actions
}

/// The block loses its owner in the same write as its addresses, before handles are counted down.
fn parting(action: &mut Action, cidr: IpNet, node: &str) {
    let last = action.step.edits.iter().rposition(|edit| edit.key() == Key::Block(cidr));
    let behind = action.step.edits.split_off(last.map_or(0, |place| place + 1));
    let before = std::mem::take(&mut action.step.edits);
    disown(action, cidr, node);
    let owner = std::mem::take(&mut action.step.edits);
    action.step.edits = [before, owner, behind].concat();
}

/// Divides the addresses of a block so that no step is about too many objects. Those of one handle stay
/// together.
fn parts(addresses: BTreeMap<u32, AddressDraft>) -> Vec<Vec<AddressDraft>> {
    let mut of_handle: BTreeMap<Option<String>, Vec<AddressDraft>> = BTreeMap::new();
    for address in addresses.into_values() {
        let [loses, gains] = address.what.handles();
        of_handle.entry(gains.or(loses)).or_default().push(address);
    }
    let mut parts: Vec<(usize, Vec<AddressDraft>)> = Vec::new();
    for group in of_handle.into_values() {
        let size: usize = group.iter().map(|address| 2 + address.evidence.len()).sum();
        match parts.last_mut() {
            Some((used, part)) if *used + size <= STEP_SIZE => {
                *used += size;
                part.extend(group);
            }
            _ => parts.push((size, group)),
        }
    }
    parts.into_iter().map(|(_, part)| part).collect()
}
