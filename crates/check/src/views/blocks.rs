//! Blocks, pool by pool.

use calipam_model::block::{Block, BlockOwner};
use calipam_model::key::Key;
use calipam_model::snapshot::{DefectKind, Snapshot};
use calipam_model::{IpNet, cidr};
use serde::{Serialize, Serializer};

use super::Count;
use crate::index::Stored;
use crate::occupancy::Occupancy;
use crate::{Context, Options};

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BlockList {
    /// The blocks, ascending by CIDR.
    pub blocks: Vec<BlockView>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BlockView {
    /// The CIDR in the block's key.
    pub cidr: IpNet,
    /// The pool that contains the block; `None` if none does.
    pub pool: Option<String>,
    pub owner: Option<BlockOwner>,
    /// The time when the block was claimed (Calico 3.32 and later).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claimed_at: Option<String>,
    /// All addresses of the block.
    pub total: Count,
    /// Allocated to an owner.
    pub in_use: u32,
    /// Allocated to a node other than the owner.
    pub borrowed: u32,
    /// Released, but not free yet.
    pub cooling: u32,
    pub windows_reserved: u32,
    /// Free, but excluded by IP reservations.
    pub reserved: u32,
    pub free: u32,
    /// The sequence number; `None` if the block is corrupt or cannot be decoded. `None` is written as an empty string.
    #[serde(serialize_with = "digits_or_nothing")]
    pub sequence_number: Option<u64>,
    /// The block's defects. If there are any, its addresses are not counted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

fn digits_or_nothing<S: Serializer>(number: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&number.map(|number| number.to_string()).unwrap_or_default())
}

/// Describes all blocks of a snapshot, in ascending order.
pub fn blocks(snapshot: &Snapshot) -> BlockList {
    let context = Context::new(snapshot, &Options::default());
    let occupancy = Occupancy::new(&context);
    let mut views = Vec::new();
    for block in &occupancy.stored {
        views.push(view_block(&context, &occupancy, block));
    }
    BlockList { blocks: views }
}

/// Returns the reason why a block cannot be decoded; `None` if it has no defect.
fn reason_of_defect(snapshot: &Snapshot, block: IpNet) -> Option<String> {
    for defect in &snapshot.defects {
        if defect.key != Some(Key::Block(block)) {
            continue;
        }
        if let DefectKind::Key(reason) | DefectKind::Value(reason) = &defect.kind {
            return Some(reason.clone());
        }
    }
    None
}

/// Describes a block, with the number of its addresses in each state. The numbers of one that cannot be decoded stay
/// zero.
fn view_block(context: &Context<'_>, occupancy: &Occupancy<'_, '_>, stored: &Stored<'_, '_>) -> BlockView {
    let mut view = BlockView {
        cidr: stored.key,
        pool: pool_of(context, stored.key),
        total: Count(cidr::size(stored.key)),
        ..BlockView::default()
    };
    let Some(block) = stored.block else {
        let reason = reason_of_defect(context.snapshot, stored.key).unwrap_or_default();
        view.problems
            .push(format!("the value cannot be decoded: {reason}"));
        return view;
    };
    view.owner = block.owner.cloned();
    view.problems = block.problems.iter().map(ToString::to_string).collect();
    let Some(sound) = block.sound else { return view };

    let tally = occupancy.block(stored);
    view.claimed_at = sound.claim_time().map(str::to_owned);
    view.in_use = tally.in_use as u32;
    if let Some(host) = block.host() {
        view.borrowed = count_borrowed(sound, host);
    }
    view.cooling = tally.cooling as u32;
    view.windows_reserved = tally.windows_reserved as u32;
    view.reserved = tally.reserved as u32;
    view.free = tally.free as u32;
    view.sequence_number = Some(sound.sequence());
    view
}

/// Returns the number of addresses in a block of the node `host` that are allocated to other nodes.
fn count_borrowed(block: &Block, host: &str) -> u32 {
    let mut number = 0;
    for allocation in block.allocations() {
        if allocation.attribute.get("node").is_some_and(|node| node != *host) {
            number += 1;
        }
    }
    number
}

/// Returns the smallest pool that contains a block or address.
pub(super) fn pool_of(context: &Context<'_>, cidr: IpNet) -> Option<String> {
    let pools = context.index.pools_around(cidr);
    let smallest = pools.max_by_key(|pool| pool.cidr.prefix_len())?;
    Some(smallest.name.clone())
}
