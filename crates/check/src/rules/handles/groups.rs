//! Groups handles with the allocations that name them. A large cluster has a million of each, so both are sorted by a
//! hash of the ID and merged on all cores. Typical groups without faults are skipped.

use std::collections::{BTreeSet, HashSet};
use std::hash::{BuildHasher, Hasher};

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

/// The bit that marks a reference whose ID continues after a carriage return. A position with this bit equals none of a
/// handle's, so that the reference never counts as consistent.
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
pub(crate) fn group_by_id<'c, 's>(context: &'c Context<'s>) -> Vec<Group<'c, 's>> {
    let all_objects = hash_objects(context);
    let all_references = hash_references(context);
    let groups_of_parts = in_parts(BLOCKS, SHARDS, |shards| {
        let mut groups = Vec::new();
        for shard in shards {
            let objects = sorted_shard(&all_objects, shard, |object| object.hash);
            let references = sorted_shard(&all_references, shard, |reference| reference.hash);
            merge_shard(context, &objects, &references, &mut groups);
        }
        groups
    });
    groups_of_parts.into_iter().flatten().collect()
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

    fn push(&mut self, hash: u64, element: T) {
        let shard = hash >> (u64::BITS - SHARDS.ilog2());
        self.0[shard as usize].push(element);
    }
}

/// Joins the same shard of all parts, sorted by hash.
fn sorted_shard<T: Copy>(parts: &[Shards<T>], shard: usize, hash: impl Fn(&T) -> u64) -> Vec<T> {
    let mut all: Vec<T> = Vec::with_capacity(parts.iter().map(|part| part.0[shard].len()).sum());
    for part in parts.iter() {
        all.extend_from_slice(&part.0[shard]);
    }
    all.sort_unstable_by_key(hash);
    all
}

/// Merges handles and references, both sorted by hash, and adds to `out` the groups that are not typical or could have
/// faults.
fn merge_shard<'c, 's>(
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
        let (equal_objects, other_objects) = objects.split_at(number_of_objects);
        let number_of_references = references
            .iter()
            .take_while(|reference| reference.hash == hash)
            .count();
        let (equal_references, other_references) = references.split_at(number_of_references);
        objects = other_objects;
        references = other_references;

        if !is_consistent(equal_objects, equal_references) {
            split_by_id(context, equal_objects, equal_references, out);
        }
    }
}

/// Returns true for a typical handle that agrees with the records. Equal 64-bit hashes count as equal IDs: a collision
/// could only hide an orphan handle while another handle with the same hash and blocks is missing.
fn is_consistent(objects: &[Object], references: &[Reference]) -> bool {
    let [Object { blocks, .. }] = objects else {
        return false;
    };
    match references {
        [only] => *blocks == [only.block, NO_BLOCK],
        [first, second] => *blocks == [first.block, second.block] || *blocks == [second.block, first.block],
        _ => false,
    }
}

/// Returns the handles that are not marked deleted, in shards by the hash of their clean IDs.
fn hash_objects(context: &Context<'_>) -> Vec<Shards<Object>> {
    // With a million handles, a binary search for the block of each takes long.
    let blocks = &context.index.blocks;
    let mut positions: FastMap<u64, u32> = FastMap::default();
    for (position, block) in (0..).zip(blocks) {
        if block.sound.is_some()
            && let Some(number) = number_of(block.key)
        {
            positions.insert(number, position);
        }
    }
    let position_of = |cidr: IpNet| {
        if let Some(number) = number_of(cidr) {
            return positions.get(&number).copied();
        }
        let position = blocks.binary_search_by_key(&cidr, |block| block.key).ok()?;
        blocks[position].sound?;
        Some(position as u32)
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
            let mut blocks = [NO_BLOCK; 2];
            if is_clean && let Some(typical) = typical_blocks(&handle.value, position_of) {
                blocks = typical;
            }
            let hash = hash_of_handle(clean);
            let object = Object {
                hash,
                position,
                blocks,
            };
            objects.push(hash, object);
        }
        objects
    })
}

/// Encodes an IPv4 block as a number, for quick lookups. Nearly all handles hold addresses in an IPv4 block.
fn number_of(block: IpNet) -> Option<u64> {
    let IpNet::V4(block) = block else { return None };
    Some(u64::from(block.addr().to_bits()) << 8 | u64::from(block.prefix_len()))
}

/// Returns the positions of the blocks of a typical handle: it claims one address in one block, with [`NO_BLOCK`] as
/// the second position, or one address of each family. `None` for any other handle, or if `position_of` finds no such
/// block.
fn typical_blocks(handle: &Handle, position_of: impl Fn(IpNet) -> Option<u32>) -> Option<[u32; 2]> {
    let mut blocks = handle.blocks();
    let (first, first_count) = blocks.next()?;
    let other_claim = blocks.next();
    let has_third = blocks.next().is_some();
    if first_count != 1 || has_third {
        return None;
    }
    let first_position = position_of(first)?;

    let Some((second, second_count)) = other_claim else {
        return Some([first_position, NO_BLOCK]);
    };
    if second_count != 1 || is_v4(first) == is_v4(second) {
        return None;
    }
    Some([first_position, position_of(second)?])
}

/// Returns the allocations in sound blocks that name a handle, in shards by the hash of its clean ID. Leaves out those
/// that Windows reserves: there is no handle object for them.
fn hash_references(context: &Context<'_>) -> Vec<Shards<Reference>> {
    in_parts(BLOCKS, context.index.blocks.len(), |range| {
        let blocks = &context.index.blocks[range.clone()];
        let sound_blocks = blocks.iter().filter_map(|block| block.sound);
        let number_of_references = sound_blocks.map(|block| block.allocated() as usize).sum();
        let mut references = Shards::with_capacity(number_of_references);
        for (position, block) in (range.start as u32..).zip(blocks) {
            let Some(sound) = block.sound else { continue };
            for (ordinal, handle) in sound.handles() {
                let clean = handle.cut_at_carriage_return();
                if clean.is_empty() || is_windows_reserved(handle) {
                    continue;
                }
                let hash = hash_of_handle(clean);
                let is_clean = clean.packed().len() == handle.packed().len();
                let reference = Reference {
                    hash,
                    block: if is_clean { position } else { position | DIRTY },
                    ordinal,
                };
                references.push(hash, reference);
            }
        }
        references
    })
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
fn split_by_id<'c, 's>(
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
        let Some(allocation) = sound.and_then(|sound| sound.allocation(reference.ordinal)) else {
            continue;
        };
        if let Some(id) = allocation.attribute.clean_handle() {
            members.push((id, Member::Record(Record { block, allocation })));
        }
    }

    // The members of each ID are at the end of the list when they are taken out.
    members.sort_by_key(|(id, _)| id.packed());
    while let Some((last_id, _)) = members.last() {
        let id = *last_id;
        let start = members.partition_point(|(other, _)| other.packed() < id.packed());
        let members_of_id = members.drain(start..).map(|(_, member)| member);
        out.push(collect_group(id, members_of_id));
    }
}

/// Puts the handles and records of one ID together, with the records sorted by address.
fn collect_group<'c, 's>(id: TextRef<'s>, members: impl Iterator<Item = Member<'c, 's>>) -> Group<'c, 's> {
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
    group.records.sort_by_key(|record| record.allocation.address);
    group
}

/// Returns the clean handle IDs, packed, that occur in blocks whose content is not checked.
pub(super) fn handles_of_unchecked(context: &Context<'_>) -> HashSet<Box<[u8]>> {
    let unchecked = &context.index.unchecked;
    let mut ids = HashSet::new();
    if unchecked.is_empty() {
        return ids;
    }
    for block in context.snapshot.blocks.iter().map(|stored| &stored.value) {
        if block.content.is_deleted() || !unchecked.contains(&block.key) {
            continue;
        }
        match &block.content {
            BlockContent::Sound(sound) => {
                let handles = sound.attributes().filter_map(|record| record.handle());
                ids.extend(handles.map(clean_id));
            }
            BlockContent::Corrupt(corrupt) => add_handles(&corrupt.raw, &mut ids),
        }
    }
    ids
}

/// Returns the clean IDs, packed, of handles whose value cannot be decoded.
pub(super) fn undecodable_handles(snapshot: &Snapshot) -> HashSet<Box<[u8]>> {
    let mut ids = HashSet::new();
    for defect in &snapshot.defects {
        if let Some(Key::Handle(id)) = &defect.key
            && matches!(defect.kind, DefectKind::Value(_))
        {
            ids.insert(clean_id(Text::new(id).as_ref()));
        }
    }
    ids
}

fn clean_id(id: TextRef<'_>) -> Box<[u8]> {
    id.cut_at_carriage_return().packed().into()
}

/// Adds the handles in a corrupt block's JSON. Like Calico's decoder, it ignores the case of field names.
fn add_handles(json: &str, ids: &mut HashSet<Box<[u8]>>) {
    let Ok(block) = serde_json::from_str::<Value>(json) else {
        return;
    };
    for attributes in fields_named(&block, "attributes").filter_map(Value::as_array) {
        for attribute in attributes {
            for id in fields_named(attribute, "handle_id").filter_map(Value::as_str) {
                ids.insert(clean_id(Text::new(id).as_ref()));
            }
        }
    }
}

fn fields_named<'v>(object: &'v Value, name: &str) -> impl Iterator<Item = &'v Value> {
    let entries = object.as_object().into_iter().flatten();
    entries
        .filter(move |(key, _)| key.eq_ignore_ascii_case(name))
        .map(|(_, value)| value)
}
