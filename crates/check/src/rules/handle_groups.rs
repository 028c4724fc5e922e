//! Bringing handles together with the allocations that name them. A large cluster has a million of
//! either, so that both are sorted by a hash of the ID and merged, and what agrees is not looked at
//! any closer.

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hasher};

use calipam_model::IpNet;
use calipam_model::block::Block;
use calipam_model::handle::Handle;
use calipam_model::snapshot::Versioned;
use calipam_model::text::TextRef;

use super::addresses::Record;
use crate::Context;

/// A handle as it is stored.
pub(crate) type StoredHandle = Versioned<Handle>;

/// What is stored and recorded under one ID, compared as Calico does: up to the first carriage return.
#[derive(Debug)]
pub(crate) struct Group<'c, 's> {
    /// The ID, cut at the carriage return.
    pub id: TextRef<'s>,
    /// The handle with exactly this ID.
    pub object: Option<&'s StoredHandle>,
    /// Handles whose ID goes on behind a carriage return.
    pub strays: Vec<&'s StoredHandle>,
    /// Allocations under this ID.
    pub records: Vec<Record<'c, 's>>,
}

impl<'s> Group<'_, 's> {
    /// All handles of the group.
    pub(crate) fn objects(&self) -> impl Iterator<Item = &'s StoredHandle> + '_ {
        self.object.into_iter().chain(self.strays.iter().copied())
    }

    /// The forms other than the ID itself in which it is recorded or stored.
    pub(crate) fn recorded_as(&self) -> Vec<String> {
        let stored = self.strays.iter().map(|object| object.value.id());
        let recorded = self.records.iter().filter_map(|r| r.allocation.attribute.handle());
        let forms: BTreeSet<String> =
            stored.chain(recorded).filter(|form| *form != self.id).map(|form| form.to_string()).collect();
        forms.into_iter().collect()
    }
}

/// Marks a reference that goes on behind a carriage return.
const DIRTY: u32 = 1 << 31;
/// Stands where a handle claims anything but one address of one sound block.
const NO_BLOCK: u32 = u32::MAX;

/// An allocation that names a handle.
#[derive(Clone, Copy)]
struct Reference {
    hash: u64,
    /// Place of the block, with [`DIRTY`].
    block: u32,
    ordinal: u32,
}

/// A stored handle.
#[derive(Clone, Copy)]
struct Object {
    hash: u64,
    place: u32,
    /// Place of the one block of which it claims one address, or [`NO_BLOCK`].
    block: u32,
}

/// Visits every ID under which something is stored or recorded, but for the typical ones that are in
/// order: a handle that claims one address in one block, which records one.
pub(crate) fn groups<'c, 's>(context: &'c Context<'s>, mut visit: impl FnMut(Group<'c, 's>)) {
    let objects = objects(context);
    let references = references(context);
    let (mut objects, mut references) = (objects.as_slice(), references.as_slice());
    loop {
        let next = [objects.first().map(|o| o.hash), references.first().map(|r| r.hash)];
        let Some(hash) = next.into_iter().flatten().min() else { return };
        let stored = objects.iter().take_while(|o| o.hash == hash).count();
        let named = references.iter().take_while(|r| r.hash == hash).count();
        let (same, other_objects) = objects.split_at(stored);
        let (refer, other_references) = references.split_at(named);
        objects = other_objects;
        references = other_references;
        // Equal hashes of 64 bits stand for equal IDs here: a coincidence could only hide that one
        // handle is an orphan while another one, with the same hash and block, is missing.
        if let ([object], [reference]) = (same, refer)
            && object.block == reference.block
        {
            continue;
        }
        split(context, same, refer, &mut visit);
    }
}

/// Handles that are not marked deleted, by hash.
fn objects(context: &Context<'_>) -> Vec<Object> {
    let sound = (0..).zip(&context.index.blocks).filter(|(_, b)| b.sound.is_some());
    let blocks: HashMap<IpNet, u32> = sound.map(|(place, b)| (b.key, place)).collect();
    let stored = (0..).zip(&context.snapshot.handles).filter(|(_, h)| !h.value.is_deleted());
    let mut objects = Vec::with_capacity(context.snapshot.handles.len());
    objects.extend(stored.map(|(place, handle)| {
        let id = handle.value.id();
        let clean = id.cut_at_carriage_return();
        let block = if clean == id { only_block(&handle.value, &blocks) } else { NO_BLOCK };
        Object { hash: hash(clean), place, block }
    }));
    objects.sort_unstable_by_key(|object| object.hash);
    objects
}

/// The block, where the handle claims just one address.
fn only_block(handle: &Handle, places: &HashMap<IpNet, u32>) -> u32 {
    let mut blocks = handle.blocks();
    match (blocks.next(), blocks.next()) {
        (Some((cidr, 1)), None) => places.get(&cidr).copied().unwrap_or(NO_BLOCK),
        _ => NO_BLOCK,
    }
}

/// Allocations of sound blocks that name a handle, by hash. For what Windows reserves there is no
/// handle (facts 3.1).
fn references(context: &Context<'_>) -> Vec<Reference> {
    let blocks = &context.index.blocks;
    let number = blocks.iter().filter_map(|b| b.sound).map(|b| b.allocated() as usize).sum();
    let mut references = Vec::with_capacity(number);
    for (block, sound) in (0..).zip(blocks).filter_map(|(place, b)| Some((place, b.sound?))) {
        for allocation in sound.allocations() {
            let Some(handle) = allocation.attribute.handle() else { continue };
            let clean = handle.cut_at_carriage_return();
            if clean.is_empty() || allocation.attribute.is_windows_reserved() {
                continue;
            }
            let dirty = if clean == handle { 0 } else { DIRTY };
            references.push(Reference {
                hash: hash(clean),
                block: block | dirty,
                ordinal: allocation.ordinal,
            });
        }
    }
    references.sort_unstable_by_key(|reference| reference.hash);
    references
}

fn hash(id: TextRef<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(id.packed());
    hasher.finish()
}

/// One of several things with the same hash.
enum Member<'c, 's> {
    Object(&'s StoredHandle),
    Record(Record<'c, 's>),
}

/// Splits what has one hash by ID, and visits each.
fn split<'c, 's>(
    context: &'c Context<'s>,
    objects: &[Object],
    references: &[Reference],
    visit: &mut impl FnMut(Group<'c, 's>),
) {
    let mut members: Vec<(TextRef<'s>, Member<'c, 's>)> =
        Vec::with_capacity(objects.len() + references.len());
    for object in objects {
        let handle = &context.snapshot.handles[object.place as usize];
        members.push((handle.value.id().cut_at_carriage_return(), Member::Object(handle)));
    }
    for reference in references {
        let block = &context.index.blocks[(reference.block & !DIRTY) as usize];
        let sound: Option<&'s Block> = block.sound;
        let Some(allocation) = sound.and_then(|b| b.allocation(reference.ordinal)) else { continue };
        if let Some(id) = allocation.attribute.clean_handle() {
            members.push((id, Member::Record(Record { block, allocation })));
        }
    }
    members.sort_by_key(|(id, _)| id.packed());
    while let Some((id, _)) = members.last() {
        let id = *id;
        let from = members.partition_point(|(other, _)| other.packed() < id.packed());
        visit(group(id, members.drain(from..).map(|(_, member)| member)));
    }
}

fn group<'c, 's>(id: TextRef<'s>, members: impl Iterator<Item = Member<'c, 's>>) -> Group<'c, 's> {
    let mut group = Group { id, object: None, strays: Vec::new(), records: Vec::new() };
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
