//! From blocks to steps.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use calipam_check::{Code, Subject};
use calipam_model::IpNet;
use calipam_model::attributes::Attribute;
use calipam_model::block::BlockContent;
use calipam_model::cidr::ordinal_of;
use calipam_model::edit::{BlockEdit, Current, Edit, Part, Step, Unit, apply};
use calipam_model::object::Object;
use jiff::Timestamp;

use super::block_plan::{AddressPlan, BlockPlan, What};
use super::corrupt::{CorruptBlocks, Mended};
use super::handles::{Counting, Countings};
use super::planner::{Planner, change};
use crate::gone_node::{disown, give_up};
use crate::plan::{Action, Verb};

/// Most pieces of evidence for a block that is written as a whole.
const MOST_EVIDENCE: usize = 64;

/// All steps, in their order.
pub(super) fn actions(planner: Planner<'_, '_>, mut countings: Countings) -> Vec<Action> {
    let Planner { blocks, before_blocks, after_blocks, corrupt, basis, cooldown, .. } = planner;
    let mut actions = before_blocks;
    let now = basis.snapshot.taken_at;
    let mut untouched: BTreeSet<IpNet> = corrupt.blocks.keys().copied().collect();
    for (cidr, planned) in blocks {
        untouched.remove(&cidr);
        let counting = countings.remove(&cidr).unwrap_or_default();
        actions.push(block(corrupt, cidr, planned, counting, cooldown, now));
    }
    for cidr in untouched {
        actions.push(block(corrupt, cidr, BlockPlan::default(), Counting::default(), cooldown, now));
    }
    actions.extend(after_blocks);
    actions.retain(|action| action.step.edits().next().is_some());
    actions
}

fn block(
    corrupt: &CorruptBlocks,
    cidr: IpNet,
    planned: BlockPlan<'_>,
    counting: Counting,
    cooldown: i64,
    now: Timestamp,
) -> Action {
    if let Some(mended) = corrupt.blocks.get(&cidr) {
        return replace(cidr, mended, planned, counting, cooldown, now);
    }
    if let Some(created) = &planned.created {
        let write = Edit::Block(cidr, BlockEdit::Create(created.clone()));
        return whole(cidr, write, planned, counting);
    }
    edit(cidr, planned, counting, cooldown)
}

/// A block that is written as a whole. That the users of addresses that it records are still there is no evidence: one
/// that has just gone would cost all others their records. The address that it leaves is found leaked, while one that is
/// left out would be given out again.
fn whole(cidr: IpNet, write: Edit, mut planned: BlockPlan<'_>, counting: Counting) -> Action {
    let mut action = Action { step: Step::new(format!("block {cidr}")), changes: Vec::new() };
    let part = action.step.whole();
    let frees = |address: &&AddressPlan| !matches!(address.what, What::Assign(_));
    for ground in planned.addresses.values().filter(frees).flat_map(|address| &address.evidence) {
        if part.evidence.len() < MOST_EVIDENCE {
            part.expect(ground.clone());
        }
    }
    part.edits.extend(counting.up.into_values());
    part.edits.push(write);
    part.edits.extend(counting.down.into_values());

    action.changes = std::mem::take(&mut planned.changes);
    let addresses = std::mem::take(&mut planned.addresses);
    action.changes.extend(addresses.into_values().map(|address| address.change));
    action.changes.extend(counting.changes);
    with_affinities(&mut action, planned);
    action
}

fn with_affinities(action: &mut Action, planned: BlockPlan<'_>) {
    for (edit, change) in planned.affinities {
        action.step.whole().edits.push(edit);
        action.changes.push(change);
    }
    planned.given_up.into_iter().for_each(|affinity| give_up(action, affinity));
}

/// A corrupt block is replaced at once by what it is in the end: between two writes an address in use would be
/// free.
fn replace(
    cidr: IpNet,
    mended: &Mended,
    mut planned: BlockPlan<'_>,
    counting: Counting,
    cooldown: i64,
    now: Timestamp,
) -> Action {
    let deleted = planned.deleted;
    let mut made = Action { step: Step::new(""), changes: Vec::new() };
    let addresses: Vec<&AddressPlan> = planned.addresses.values().collect();
    made.step.whole().edits = address_edits(cidr, &addresses, cooldown);
    if let Some(node) = planned.disowned.take() {
        disown(&mut made, cidr, &node);
    }
    made.step.whole().edits.extend(hold_unrecorded(cidr, mended, &planned));
    let object = Object::from(mended.block.clone());
    let current = || Current { revision: &mended.revision, object: Some(Cow::Borrowed(&object)) };
    let next = apply(made.step.edits(), now, |_| Some(current())).ok();
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
    planned.changes.insert(0, rebuilt);
    planned.changes.append(&mut made.changes);
    let mut action = whole(cidr, Edit::Block(cidr, write), planned, counting);
    made.step.evidence().for_each(|ground| action.step.whole().expect(ground.clone()));
    action
}

/// Addresses in use that the corrupt block held without a record, and for which none can be made: they stay held.
fn hold_unrecorded(cidr: IpNet, mended: &Mended, planned: &BlockPlan<'_>) -> Option<Edit> {
    let held = mended.unrecorded.iter().filter(|ordinal| !planned.addresses.contains_key(ordinal));
    let records: Vec<(u32, Attribute)> = held.map(|ordinal| (*ordinal, Attribute::default())).collect();
    (!records.is_empty()).then_some(Edit::Block(cidr, BlockEdit::Assign { records }))
}

fn address_edits(cidr: IpNet, addresses: &[&AddressPlan], cooldown: i64) -> Vec<Edit> {
    let (mut held, mut records, mut rewritten) = (Vec::new(), Vec::new(), Vec::new());
    for address in addresses {
        match &address.what {
            What::Release(found) => held.push(found.clone()),
            What::Assign(record) => {
                records.extend(ordinal_of(cidr, address.address).map(|ordinal| (ordinal, record.clone())));
            }
            What::Record(found, record) => rewritten
                .push(BlockEdit::Record { held: Box::new(found.clone()), record: Box::new(record.clone()) }),
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

/// A sound block, which is edited address by address. What an address rests on is evidence for its part alone: where
/// it does not hold, the others are written all the same.
fn edit(cidr: IpNet, mut planned: BlockPlan<'_>, mut counting: Counting, cooldown: i64) -> Action {
    let mut action = Action { step: Step::new(""), changes: Vec::new() };
    for addresses in together(std::mem::take(&mut planned.addresses)) {
        action.step.parts.push(part(cidr, &addresses, &mut counting, cooldown));
        action.changes.extend(addresses.into_iter().map(|address| address.change));
    }
    action.changes.append(&mut counting.changes);
    action.step.reason = match action.changes.as_slice() {
        [only] => format!("{} {}", only.action, only.subject),
        _ => format!("block {cidr}"),
    };

    if let Some(node) = planned.disowned.take() {
        disown(&mut action, cidr, &node);
    }
    action.changes.append(&mut planned.changes);
    with_affinities(&mut action, planned);
    action
}

/// The part of addresses that change together, with what their handles count.
fn part(cidr: IpNet, addresses: &[AddressPlan], counting: &mut Counting, cooldown: i64) -> Part {
    let handles = addresses.iter().map(|address| address.what.handles());
    let first = handles.clone().find_map(|[loses, gains]| gains.or(loses));
    let unit = match (first, addresses) {
        (None, [address, ..]) => Unit::Address(address.address),
        (id, _) => Unit::Handle(id.unwrap_or_default()),
    };
    let mut part = Part { unit, edits: Vec::new(), evidence: Vec::new() };

    let ids: BTreeSet<String> = handles.flatten().flatten().collect();
    part.edits.extend(ids.iter().filter_map(|id| counting.up.remove(id)));
    part.edits.append(&mut address_edits(cidr, &addresses.iter().collect::<Vec<_>>(), cooldown));
    part.edits.extend(ids.iter().filter_map(|id| counting.down.remove(id)));

    let evidence = addresses.iter().flat_map(|address| &address.evidence);
    evidence.for_each(|ground| part.expect(ground.clone()));
    part
}

/// The addresses of a block that change together: those of one handle, and those of handles between which an address
/// moves. An address without handle changes alone.
fn together(addresses: BTreeMap<u32, AddressPlan>) -> Vec<Vec<AddressPlan>> {
    let mut addresses: Vec<AddressPlan> = addresses.into_values().collect();
    addresses.sort_by_cached_key(|address| {
        let [loses, gains] = address.what.handles();
        gains.or(loses)
    });

    let mut groups: Vec<Vec<AddressPlan>> = Vec::new();
    let mut group_of: HashMap<String, usize> = HashMap::new();
    for address in addresses {
        let ids: Vec<String> = address.what.handles().into_iter().flatten().collect();
        let mut known =
            ids.iter().filter_map(|id| group_of.get(id).copied()).collect::<BTreeSet<_>>().into_iter();
        let group = known.next().unwrap_or_else(|| {
            groups.push(Vec::new());
            groups.len() - 1
        });
        // It moves from a handle of one group to a handle of another: they are one.
        for other in known {
            let joined = std::mem::take(&mut groups[other]);
            groups[group].extend(joined);
            group_of.values_mut().filter(|of| **of == other).for_each(|of| *of = group);
        }
        group_of.extend(ids.into_iter().map(|id| (id, group)));
        groups[group].push(address);
    }
    groups.retain(|group| !group.is_empty());
    groups
}
