//! What is to become of one block, before it is put into steps.

use std::collections::BTreeMap;
use std::net::IpAddr;

use calipam_model::IpNet;
use calipam_model::affinity::Affinity;
use calipam_model::attributes::Attribute;
use calipam_model::block::Block;
use calipam_model::edit::{Edit, Held, Precondition};
use calipam_model::key::Key;
use calipam_model::snapshot::Versioned;

use crate::basis::handles::{clean, handle_of};
use crate::plan::Change;

/// What is to become of one block.
#[derive(Default)]
pub(super) struct BlockPlan<'s> {
    /// By ordinal.
    pub addresses: BTreeMap<u32, AddressPlan>,
    /// The node that is gone and loses the block.
    pub loses_owner: Option<String>,
    /// Affinities of that node, which are deleted with the block.
    pub released: Vec<&'s Versioned<Affinity>>,
    /// Affinities that are confirmed or created once the block is written.
    pub affinities: Vec<(Edit, Change)>,
    /// The block without its addresses, if there is none yet.
    pub created: Option<Box<Block>>,
    /// What else is done.
    pub changes: Vec<Change>,
    /// The block is deleted: it is empty.
    pub deleted: bool,
}

/// What is to become of one address.
pub(super) struct AddressPlan {
    pub address: IpAddr,
    pub what: What,
    /// What else has to be true.
    pub evidence: Vec<(Key, Precondition)>,
    pub change: Change,
}

/// How its record changes.
pub(super) enum What {
    Release(Held),
    Assign(Attribute),
    Record(Held, Attribute),
}

impl What {
    /// Clean IDs of the handles that lose and that gain the address.
    pub(super) fn handles(&self) -> [Option<String>; 2] {
        let of = |record: &Attribute| {
            let id = record.handle.as_deref().filter(|id| !id.is_empty())?;
            Some(clean(id).to_owned())
        };
        match self {
            Self::Release(held) => [handle_of(held), None],
            Self::Assign(record) => [None, of(record)],
            Self::Record(held, record) => [handle_of(held), of(record)],
        }
    }
}

pub(super) type BlockPlans<'s> = BTreeMap<IpNet, BlockPlan<'s>>;

/// By clean ID and block: how many addresses more, or fewer, are recorded under a handle.
pub(super) fn moved(blocks: &BlockPlans<'_>) -> BTreeMap<String, BTreeMap<IpNet, i64>> {
    let mut moved: BTreeMap<String, BTreeMap<IpNet, i64>> = BTreeMap::new();
    for (block, planned) in blocks {
        for address in planned.addresses.values() {
            let [loses, gains] = address.what.handles();
            for (id, by) in [(loses, -1), (gains, 1)] {
                if let Some(id) = id {
                    *moved.entry(id).or_default().entry(*block).or_default() += by;
                }
            }
        }
    }

    for blocks in moved.values_mut() {
        blocks.retain(|_, by| *by != 0);
    }
    moved.retain(|_, blocks| !blocks.is_empty());
    moved
}
