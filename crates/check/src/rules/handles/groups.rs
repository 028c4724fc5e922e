//! Groups handles with the allocations that name them. A large cluster has a million of each, so both are sorted by a
//! hash of the ID and merged on all cores. Typical groups without faults are skipped.

use std::collections::{BTreeSet, HashSet};
use std::hash::{BuildHasher, Hasher};
use std::ops::Range;

use calipam_model::IpNet;
use calipam_model::attributes::is_windows_reserved;
use calipam_model::block::{Block, BlockContent};
use calipam_model::cidr::is_v4;
use calipam_model::handle::Handle;
use calipam_model::key::Key;
use calipam_model::parallel::{BLOCKS, OBJECTS, in_parts};
use calipam_model::snapshot::{DefectKind, Snapshot, Versioned};
use calipam_model::text::{Text, TextRef};
use foldhash::fast::FixedState;
use serde_json::Value;

use crate::index::Record;
use crate::{Context, FastMap};

pub(crate) type StoredHandle = Versioned<Handle>;

/// The handles and allocations under one ID. As in Calico, IDs are compared up to the first carriage return.
#[derive(Debug)]
pub(crate) struct Group<'c, 's> {
    /// The ID, cut at the carriage return.
    pub id: TextRef<'s>,
    /// The handle whose ID is exactly this one.
    pub object: Option<&'s StoredHandle>,
    /// Handles whose ID continues after a carriage return.
    pub strays: Vec<&'s StoredHandle>,
    /// Allocations under this ID.
    pub records: Vec<Record<'c, 's>>,
}

impl<'s> Group<'_, 's> {
    pub(crate) fn objects(&self) -> impl Iterator<Item = &'s StoredHandle> + '_ {
        self.object.into_iter().chain(self.strays.iter().copied())
    }

    /// Returns the forms in which the ID is recorded or stored, other than the clean ID.
    pub(crate) fn recorded_as(&self) -> Vec<String> {
        let mut forms = BTreeSet::new();
        for stray in &self.strays {
            forms.insert(stray.value.id().to_string());
        }
        for record in &self.records {
            let handle = record.allocation.attribute.handle();
            forms.extend(handle.map(|id| id.to_string()));
        }
        forms.remove(&self.id.to_string());
        forms.into_iter().collect()
    }
}

/// The bit that marks a reference whose ID continues after a carriage return.
const DIRTY: u32 = 1 << 31;
/// The position that means no block.
const NO_BLOCK: u32 = u32::MAX;

/// An allocation that names a handle.
#[derive(Clone, Copy)]
struct Reference {
    hash: u64,
    /// The block's position, possibly marked with [`DIRTY`].
    block: u32,
    ordinal: u32,
}

/// A stored handle.
#[derive(Clone, Copy)]
struct Object {
    hash: u64,
    position: u32,
    /// The positions of the blocks in which the handle claims one address each: one block, or one IPv4 and one IPv6
    /// block. [`NO_BLOCK`] twice for any other handle.
    blocks: [u32; 2],
}

/// Returns the groups for all IDs that handles or allocations have, except typical groups without faults. In a typical
/// group, one handle claims one address in one block, or one address of each family, and the blocks record exactly
/// that.
pub(crate) fn groups<'c, 's>(context: &'c Context<'s>) -> Vec<Group<'c, 's>> {
    let objects = objects(context);
    let references = references(context);
    let groups = in_parts(BLOCKS, SHARDS, |shards| {
        let mut groups = Vec::new();
        for shard in shards {
            let objects = sorted(&objects, shard, |object| object.hash);
            let references = sorted(&references, shard, |reference| reference.hash);
            merge(context, &objects, &references, &mut groups);
        }
        groups
    });
    groups.into_iter().flatten().collect()
}

/// The number of parts into which handles and references are divided by hash. Even with a million handles, one part
/// fits into a core's cache while it is sorted.
const SHARDS: usize = 64;

/// Handles or references, divided by the first bits of their hashes.
struct Shards<T>([Vec<T>; SHARDS]);

impl<T: Copy> Shards<T> {
    fn with_capacity(number: usize) -> Self {
        // Hashes are not spread quite evenly.
        let room = number / SHARDS + number / SHARDS / 16;
        Self(std::array::from_fn(|_| Vec::with_capacity(room)))
    }

    fn push(&mut self, hash: u64, thing: T) {
        self.0[(hash >> (u64::BITS - SHARDS.ilog2())) as usize].push(thing);
    }
}

/// Joins the same shard of all parts, sorted by hash.
fn sorted<T: Copy>(parts: &[Shards<T>], shard: usize, hash: impl Fn(&T) -> u64) -> Vec<T> {
    let mut all: Vec<T> = Vec::with_capacity(parts.iter().map(|part| part.0[shard].len()).sum());
    for part in parts.iter() {
        all.extend_from_slice(&part.0[shard]);
    }
    all.sort_unstable_by_key(hash);
    all
}

/// Merges handles and references, both sorted by hash, and adds to `out` the groups that are not typical or could have
/// faults.
fn merge<'c, 's>(
    context: &'c Context<'s>,
    mut objects: &[Object],
    mut references: &[Reference],
    out: &mut Vec<Group<'c, 's>>,
) {
    loop {
        let hash = match (objects.first(), references.first()) {
            (Some(object), Some(reference)) => object.hash.min(reference.hash),
            (Some(object), None) => object.hash,
            (None, Some(reference)) => reference.hash,
            (None, None) => return,
        };
        let number_of_objects = objects.iter().take_while(|object| object.hash == hash).count();
        let (same_objects, other_objects) = objects.split_at(number_of_objects);
        let number_of_references = references
            .iter()
            .take_while(|reference| reference.hash == hash)
            .count();
        let (same_references, other_references) = references.split_at(number_of_references);
        objects = other_objects;
        references = other_references;

        if !is_in_order(same_objects, same_references) {
            split(context, same_objects, same_references, out);
        }
    }
}

/// Returns true for a typical handle that agrees with the records. Equal 64-bit hashes count as equal IDs: a collision
/// could only hide an orphan handle while another handle with the same hash and blocks is missing.
fn is_in_order(objects: &[Object], references: &[Reference]) -> bool {
    let [Object { blocks, .. }] = objects else {
        return false;
    };
    match references {
        [only] => *blocks == [only.block, NO_BLOCK],
        [a, b] => *blocks == [a.block, b.block] || *blocks == [b.block, a.block],
        _ => false,
    }
}

/// Returns the handles that are not marked deleted.
fn objects(context: &Context<'_>) -> Vec<Shards<Object>> {
    let sound = (0..)
        .zip(&context.index.blocks)
        .filter(|(_, b)| b.sound.is_some());
    let positions: FastMap<u64, u32> = sound
        .filter_map(|(position, b)| Some((number_of(b.key)?, position)))
        .collect();
    let place = |block: IpNet| match number_of(block) {
        Some(number) => positions.get(&number).copied(),
        None => {
            let sound = context
                .index
                .blocks
                .binary_search_by_key(&block, |b| b.key)
                .ok()?;
            context.index.blocks[sound].sound.map(|_| sound as u32)
        }
    };
    in_parts(OBJECTS, context.snapshot.handles.len(), |range| {
        let mut objects = Shards::with_capacity(range.len());
        for (position, handle) in (range.start as u32..).zip(&context.snapshot.handles[range]) {
            if handle.value.is_deleted() {
                continue;
            }
            let id = handle.value.id();
            let clean = id.cut_at_carriage_return();
            let is_clean = clean.packed().len() == id.packed().len();
            let blocks = if is_clean {
                typical_blocks(&handle.value, place)
            } else {
                None
            };
            let hash = hash_of_handle(clean);
            let blocks = blocks.unwrap_or([NO_BLOCK; 2]);
            objects.push(
                hash,
                Object {
                    hash,
                    position,
                    blocks,
                },
            );
        }
        objects
    })
}

/// Encodes an IPv4 block as a number, for quick lookups. Nearly all handles hold addresses in an IPv4 block.
fn number_of(block: IpNet) -> Option<u64> {
    let IpNet::V4(block) = block else { return None };
    Some(u64::from(block.addr().to_bits()) << 8 | u64::from(block.prefix_len()))
}

/// Returns the blocks of a handle that claims only one address in one block, or one address of each family; `None` for
/// any other handle.
fn typical_blocks(handle: &Handle, place: impl Fn(IpNet) -> Option<u32>) -> Option<[u32; 2]> {
    let mut blocks = handle.blocks();
    let (first, count) = blocks.next()?;
    if count != 1 {
        return None;
    }
    let place_of_second = match blocks.next() {
        None => NO_BLOCK,
        Some((second, 1)) if is_v4(first) != is_v4(second) => place(second)?,
        Some(_) => return None,
    };
    if blocks.next().is_some() {
        return None;
    }
    Some([place(first)?, place_of_second])
}

/// Returns the allocations in sound blocks that name a handle. Windows-reserved ones are left out (facts 3.1).
fn references(context: &Context<'_>) -> Vec<Shards<Reference>> {
    let of_blocks = |range: Range<usize>| {
        let blocks = &context.index.blocks[range.clone()];
        let number = blocks
            .iter()
            .filter_map(|b| b.sound)
            .map(|b| b.allocated() as usize)
            .sum();
        let mut references = Shards::with_capacity(number);
        let sound = (range.start as u32..)
            .zip(blocks)
            .filter_map(|(position, b)| Some((position, b.sound?)));
        for (block, sound) in sound {
            for (ordinal, handle) in sound.handles() {
                let clean = handle.cut_at_carriage_return();
                if clean.is_empty() || is_windows_reserved(handle) {
                    continue;
                }
                let dirty = if clean.packed().len() == handle.packed().len() {
                    0
                } else {
                    DIRTY
                };
                let hash = hash_of_handle(clean);
                references.push(
                    hash,
                    Reference {
                        hash,
                        block: block | dirty,
                        ordinal,
                    },
                );
            }
        }
        references
    };
    in_parts(BLOCKS, context.index.blocks.len(), of_blocks)
}

/// Hashes a clean ID.
fn hash_of_handle(id: TextRef<'_>) -> u64 {
    let mut hasher = FixedState::default().build_hasher();
    hasher.write(id.packed());
    hasher.finish()
}

enum Member<'c, 's> {
    Object(&'s StoredHandle),
    Record(Record<'c, 's>),
}

/// Splits handles and references that have the same hash into groups by ID.
fn split<'c, 's>(
    context: &'c Context<'s>,
    objects: &[Object],
    references: &[Reference],
    out: &mut Vec<Group<'c, 's>>,
) {
    let mut members: Vec<(TextRef<'s>, Member<'c, 's>)> =
        Vec::with_capacity(objects.len() + references.len());
    for object in objects {
        let handle = &context.snapshot.handles[object.position as usize];
        members.push((handle.value.id().cut_at_carriage_return(), Member::Object(handle)));
    }
    for reference in references {
        let block = &context.index.blocks[(reference.block & !DIRTY) as usize];
        let sound: Option<&'s Block> = block.sound;
        let Some(allocation) = sound.and_then(|b| b.allocation(reference.ordinal)) else {
            continue;
        };
        if let Some(id) = allocation.attribute.clean_handle() {
            members.push((id, Member::Record(Record { block, allocation })));
        }
    }
    members.sort_by_key(|(id, _)| id.packed());
    while let Some((id, _)) = members.last() {
        let id = *id;
        let from = members.partition_point(|(other, _)| other.packed() < id.packed());
        out.push(group(id, members.drain(from..).map(|(_, member)| member)));
    }
}

/// Puts the handles and records of one ID together, with the records sorted by address.
fn group<'c, 's>(id: TextRef<'s>, members: impl Iterator<Item = Member<'c, 's>>) -> Group<'c, 's> {
    let mut group = Group {
        id,
        object: None,
        strays: Vec::new(),
        records: Vec::new(),
    };
    for member in members {
        match member {
            Member::Record(record) => group.records.push(record),
            Member::Object(object) if object.value.id() == id => group.object = Some(object),
            Member::Object(object) => group.strays.push(object),
        }
    }
    group.records.sort_by_key(|r| r.allocation.address);
    group
}

/// Returns the clean handle IDs, packed, that occur in blocks whose content is not checked.
pub(super) fn named_by_unchecked(context: &Context<'_>) -> HashSet<Box<[u8]>> {
    let unchecked = &context.index.unchecked;
    let mut named = HashSet::new();
    if unchecked.is_empty() {
        return named;
    }
    let stored = context.snapshot.blocks.iter().map(|b| &b.value);
    for block in stored.filter(|b| !b.content.is_deleted() && unchecked.contains(&b.key)) {
        match &block.content {
            BlockContent::Sound(block) => {
                named.extend(block.attributes().filter_map(|a| a.handle()).map(clean));
            }
            BlockContent::Corrupt(block) => named_in(&block.raw, &mut named),
        }
    }
    named
}

/// Returns the IDs of handles whose value cannot be decoded.
pub(super) fn undecodable(snapshot: &Snapshot) -> HashSet<Box<[u8]>> {
    let broken = snapshot
        .defects
        .iter()
        .filter_map(|defect| match (&defect.key, &defect.kind) {
            (Some(Key::Handle(id)), DefectKind::Value(_)) => Some(Text::new(id)),
            _ => None,
        });
    broken.map(|id| clean(id.as_ref())).collect()
}

fn clean(id: TextRef<'_>) -> Box<[u8]> {
    id.cut_at_carriage_return().packed().into()
}

/// Reads the handles from a corrupt block's JSON. Like Calico's decoder, it ignores the case of field names.
fn named_in(raw: &str, named: &mut HashSet<Box<[u8]>>) {
    let Ok(block) = serde_json::from_str::<Value>(raw) else {
        return;
    };
    for attributes in fields(&block, "attributes").filter_map(Value::as_array) {
        for attribute in attributes {
            for id in fields(attribute, "handle_id").filter_map(Value::as_str) {
                named.insert(clean(Text::new(id).as_ref()));
            }
        }
    }
}

fn fields<'v>(object: &'v Value, name: &str) -> impl Iterator<Item = &'v Value> {
    let entries = object.as_object().into_iter().flatten();
    entries
        .filter(move |(key, _)| key.eq_ignore_ascii_case(name))
        .map(|(_, value)| value)
}
