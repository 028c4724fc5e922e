//! Looks up the addresses and objects of some handles.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;

use calipam_check::FastMap;
use calipam_check::index::IndexedBlock;
use calipam_model::IpNet;
use calipam_model::block::Allocation;
use calipam_model::edit::{AllocationGuard, Edit, HandleEdit, Precondition, Unit};
use calipam_model::handle::Handle;
pub(crate) use calipam_model::handle::clean_id as clean;
use calipam_model::key::Key;
use calipam_model::parallel::{BLOCKS, OBJECTS, in_parts};
use calipam_model::snapshot::Versioned;
use calipam_model::text::{Text, TextRef};

use crate::basis::Basis;

/// The largest number of blocks that one write of a handle compares. A transaction has room for 128 comparisons.
pub(crate) const MOST_NAMED: usize = 64;

#[derive(Clone, Debug)]
pub(crate) struct Allocated {
    /// The block that records the address.
    pub block: IpNet,
    pub address: IpAddr,
    /// The guard for a release of the address.
    pub guard: AllocationGuard,
}

impl Allocated {
    pub(crate) fn new(block: IpNet, allocation: &Allocation<'_>) -> Self {
        Self {
            block,
            address: allocation.address,
            guard: AllocationGuard::new(allocation),
        }
    }

    /// Returns the ID of the allocation's handle, as Calico compares it.
    pub(crate) fn handle(&self) -> Option<String> {
        handle_of(&self.guard)
    }

    /// Returns the unit of the allocation's release: all addresses of its handle in the block, or the address alone.
    pub(crate) fn unit(&self) -> Unit {
        self.handle().map_or(Unit::Address(self.address), Unit::Handle)
    }
}

/// Returns the ID of an allocation's handle, as Calico compares it.
pub(crate) fn handle_of(guard: &AllocationGuard) -> Option<String> {
    let id = guard.record.as_ref().handle().filter(|id| !id.is_empty())?;
    Some(id.cut_at_carriage_return().to_string())
}

/// The allocations and objects of some handles, by clean ID.
pub(crate) struct HandleAllocations<'s>(FastMap<Text, Holding<'s>>);

/// The allocations and objects of one handle.
#[derive(Default)]
struct Holding<'s> {
    /// All allocations in sound blocks.
    allocated: Vec<Allocated>,
    /// The objects of the handle, including those whose IDs have a carriage return.
    objects: Vec<&'s Versioned<Handle>>,
}

impl<'s> HandleAllocations<'s> {
    /// Looks up `handles`, which are clean IDs, in one pass over the blocks and one over the stored handles.
    pub(crate) fn new(basis: &Basis<'s>, handles: &HashSet<String>) -> Self {
        let mut holdings: FastMap<Text, Holding<'s>> = handles
            .iter()
            .map(|id| (Text::new(id), Holding::default()))
            .collect();
        if holdings.is_empty() {
            return Self(holdings);
        }

        // A large cluster has a million records and a million handles, of which few are looked up here.
        let is_wanted = |id: TextRef<'_>| holdings.contains_key(id.packed());
        let blocks = &basis.context.index.blocks;
        let allocated = in_parts(BLOCKS, blocks.len(), |range| {
            allocations_of(&blocks[range], is_wanted)
        });
        let stored = &basis.snapshot.handles;
        let objects = in_parts(OBJECTS, stored.len(), |range| {
            objects_of(&stored[range], is_wanted)
        });

        for (id, allocation) in allocated.into_iter().flatten() {
            if let Some(holding) = holdings.get_mut(id.packed()) {
                push(&mut holding.allocated, allocation);
            }
        }
        for object in objects.into_iter().flatten() {
            let id = object.value.id().cut_at_carriage_return();
            if let Some(holding) = holdings.get_mut(id.packed()) {
                push(&mut holding.objects, object);
            }
        }

        Self(holdings)
    }

    fn holding(&self, id: &str) -> Option<&Holding<'s>> {
        self.0.get(&Text::new(id))
    }

    pub(crate) fn allocated(&self, id: &str) -> &[Allocated] {
        self.holding(id)
            .map_or(&[], |holding| holding.allocated.as_slice())
    }

    pub(crate) fn objects(&self, id: &str) -> &[&'s Versioned<Handle>] {
        self.holding(id).map_or(&[], |holding| holding.objects.as_slice())
    }

    /// Counts the addresses that each block records under the handle.
    pub(crate) fn counts(&self, id: &str) -> BTreeMap<IpNet, i64> {
        let mut counts = BTreeMap::new();
        for allocation in self.allocated(id) {
            *counts.entry(allocation.block).or_default() += 1;
        }
        counts
    }

    /// Returns edits of the objects whose counts differ from the blocks' records, with their preconditions.
    pub(crate) fn corrections(&self, id: &str) -> Vec<(Edit, Vec<(Key, Precondition)>)> {
        let recorded_counts = self.counts(id);
        let mut corrections = Vec::new();
        for object in self.objects(id) {
            let stored_counts: BTreeMap<IpNet, i64> = object.value.blocks().collect();
            if stored_counts == recorded_counts {
                continue;
            }

            // A block that records no address of the handle is counted as 0.
            let mut counts: BTreeMap<IpNet, i64> =
                stored_counts.into_keys().map(|block| (block, 0)).collect();
            counts.extend(&recorded_counts);
            let evidence = recorded(id, &object.value, &counts);
            let edit = HandleEdit::Counts(object.revision.clone(), counts.into_iter().collect());
            corrections.push((Edit::Handle(object.value.id().to_string(), edit), evidence));
        }
        corrections
    }
}

/// Returns the allocations in sound blocks whose handles are wanted, each with the clean ID of its handle.
fn allocations_of<'s>(
    blocks: &[IndexedBlock<'s>],
    is_wanted: impl Fn(TextRef<'s>) -> bool,
) -> Vec<(TextRef<'s>, Allocated)> {
    let mut found = Vec::new();
    for block in blocks {
        let Some(sound) = block.sound else { continue };
        for (ordinal, handle) in sound.handles() {
            let id = handle.cut_at_carriage_return();
            if !is_wanted(id) {
                continue;
            }
            if let Some(allocation) = sound.allocation(ordinal) {
                found.push((id, Allocated::new(block.key, &allocation)));
            }
        }
    }
    found
}

/// Returns the stored handles that are wanted, except deleted ones.
fn objects_of<'s>(
    stored: &'s [Versioned<Handle>],
    is_wanted: impl Fn(TextRef<'s>) -> bool,
) -> Vec<&'s Versioned<Handle>> {
    let mut found = Vec::new();
    for object in stored {
        let id = object.value.id().cut_at_carriage_return();
        if !object.value.is_deleted() && is_wanted(id) {
            found.push(object);
        }
    }
    found
}

/// Returns preconditions of new counts, for at most `MOST_NAMED` blocks. A CNI ADD counts an address before recording
/// it. So a block must record at most as many addresses as a lowered count, and at least as many as a raised one.
pub(crate) fn recorded(id: &str, handle: &Handle, counts: &BTreeMap<IpNet, i64>) -> Vec<(Key, Precondition)> {
    let mut lowered = Vec::new();
    let mut raised = Vec::new();
    for (block, count) in counts {
        let before = handle.count(*block);
        if before > *count {
            lowered.push((*block, 0..=number(*count)));
        } else if before < *count {
            raised.push((*block, number(*count)..=usize::MAX));
        }
    }

    let mut preconditions = Vec::new();
    for (block, allowed) in lowered.into_iter().chain(raised).take(MOST_NAMED) {
        let records = Precondition::Records(id.to_owned(), allowed);
        preconditions.push((Key::Block(block), records));
    }
    preconditions
}

fn number(count: i64) -> usize {
    usize::try_from(count).unwrap_or_default()
}

/// Adds an element to a list that nearly always has only one.
fn push<T>(list: &mut Vec<T>, one: T) {
    if list.is_empty() {
        list.reserve_exact(1);
    }
    list.push(one);
}
