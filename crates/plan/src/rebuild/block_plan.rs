//! The plan for one block, from which its steps are made.

use std::collections::BTreeMap;
use std::net::IpAddr;

use calipam_model::IpNet;
use calipam_model::affinity::Affinity;
use calipam_model::attributes::Attribute;
use calipam_model::block::Block;
use calipam_model::edit::{AllocationGuard, Edit, Precondition};
use calipam_model::key::Key;
use calipam_model::snapshot::Versioned;

use crate::basis::handles::{clean, handle_of};
use crate::plan::Change;

#[derive(Default)]
pub(super) struct BlockPlan<'s> {
    /// The planned addresses, by ordinal.
    pub addresses: BTreeMap<u32, AddressPlan>,
    /// The deleted node that loses the block.
    pub loses_owner: Option<String>,
    /// The deleted node's affinities for the block, which are deleted in the block's step.
    pub released: Vec<&'s Versioned<Affinity>>,
    /// Affinities that are confirmed or created after the block was written.
    pub affinities: Vec<(Edit, Change)>,
    /// The new block, still without addresses, if the block does not exist yet.
    pub created: Option<Box<Block>>,
    /// Changes to the block itself, not to its addresses.
    pub changes: Vec<Change>,
    /// True if the block is empty and will be deleted.
    pub deleted: bool,
}

pub(super) struct AddressPlan {
    pub address: IpAddr,
    pub edit: RecordEdit,
    pub evidence: Vec<(Key, Precondition)>,
    pub change: Change,
}

pub(super) enum RecordEdit {
    Release(AllocationGuard),
    Assign(Attribute),
    Rewrite(AllocationGuard, Attribute),
}

impl RecordEdit {
    /// Returns the clean IDs of the handle that loses the address and of the handle that gains it.
    pub(super) fn handles(&self) -> [Option<String>; 2] {
        let handle = |record: &Attribute| {
            let id = record.handle.as_deref().filter(|id| !id.is_empty())?;
            Some(clean(id).to_owned())
        };
        match self {
            Self::Release(held) => [handle_of(held), None],
            Self::Assign(record) => [None, handle(record)],
            Self::Rewrite(held, record) => [handle_of(held), handle(record)],
        }
    }
}

pub(super) type BlockPlans<'s> = BTreeMap<IpNet, BlockPlan<'s>>;

/// Returns how many addresses each handle gains or loses, by clean ID and block.
pub(super) fn moved(blocks: &BlockPlans<'_>) -> BTreeMap<String, BTreeMap<IpNet, i64>> {
    let mut moved: BTreeMap<String, BTreeMap<IpNet, i64>> = BTreeMap::new();
    for (block, planned) in blocks {
        for address in planned.addresses.values() {
            let [losing, gaining] = address.edit.handles();
            if let Some(id) = losing {
                *moved.entry(id).or_default().entry(*block).or_default() -= 1;
            }
            if let Some(id) = gaining {
                *moved.entry(id).or_default().entry(*block).or_default() += 1;
            }
        }
    }

    // An address that stays under its handle changes no count.
    for differences in moved.values_mut() {
        differences.retain(|_, difference| *difference != 0);
    }
    moved.retain(|_, differences| !differences.is_empty());
    moved
}

/// Edits of handles in the step that writes a block.
#[derive(Default)]
pub(super) struct Counting {
    /// Edits that raise counts, by clean ID. They are written before the block.
    pub up: BTreeMap<String, Edit>,
    /// Edits that lower counts, with their preconditions. They are written after the block.
    pub down: BTreeMap<String, (Edit, Vec<(Key, Precondition)>)>,
    pub changes: Vec<Change>,
}

pub(super) type Countings = BTreeMap<IpNet, Counting>;
