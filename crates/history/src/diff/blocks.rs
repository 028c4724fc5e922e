//! Blocks that were claimed or released, or whose owner or size has changed.

use std::collections::BTreeSet;

use calipam_check::Scope;
use calipam_model::IpNet;
use calipam_model::block::BlockOwner;
use serde::Serialize;

use super::regions::{Region, Stored};
use crate::block_change::{self, Change};

/// A changed block.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BlockChange {
    pub cidr: IpNet,
    pub change: Change,
    /// The old states; several if the size changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<BlockState>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<BlockState>,
}

impl BlockChange {
    /// Creates the change of a block.
    fn new(cidr: IpNet, change: Change, [before, after]: [Vec<BlockState>; 2]) -> Self {
        Self {
            cidr,
            change,
            before,
            after,
        }
    }
}

/// The state of a block in the old or the new snapshot.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BlockState {
    pub cidr: IpNet,
    pub owner: Option<BlockOwner>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claimed_at: Option<String>,
    /// The number of addresses that are not free; `None` if the block is corrupt or cannot be decoded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocated: Option<u32>,
}

impl BlockState {
    /// Describes the state of a block.
    fn of(stored: &Stored<'_>) -> Self {
        Self {
            cidr: stored.cidr,
            owner: stored.owner.cloned(),
            claimed_at: stored
                .block
                .and_then(|block| block.claim_time())
                .map(str::to_owned),
            allocated: stored.block.map(|block| block.allocated()),
        }
    }
}

/// Compares the blocks in scope.
pub(crate) fn changes(regions: &[Region<'_>], scope: &Scope) -> Vec<BlockChange> {
    let mut changes = Vec::new();
    for change in regions.iter().flat_map(changes_in) {
        let mut states = change.before.iter().chain(&change.after);
        let has_owner_in_scope = states.any(|state| scope.has_owner(state.owner.as_ref()));
        if has_owner_in_scope && scope.has_network(change.cidr) {
            changes.push(change);
        }
    }
    changes
}

/// Returns the changes of the blocks in a region, by CIDR.
fn changes_in(region: &Region<'_>) -> Vec<BlockChange> {
    let mut changes = claims_and_releases(region);
    for old in &region.old {
        for new in &region.new {
            changes.extend(owner_change(old, new));
        }
    }
    changes.sort_by_key(|change| (change.cidr, change.change));
    changes
}

/// Returns the changes of the blocks that only one of the snapshots has. If both have such blocks, they are one change
/// of size.
fn claims_and_releases(region: &Region<'_>) -> Vec<BlockChange> {
    let released = only_in(&region.old, &region.new);
    let claimed = only_in(&region.new, &region.old);
    let first_cidr = released.iter().chain(&claimed).map(|state| state.cidr).min();
    if let Some(cidr) = first_cidr
        && !released.is_empty()
        && !claimed.is_empty()
    {
        // The blocks of a region overlap, so the released ones were replaced by the claimed ones.
        return vec![BlockChange::new(cidr, Change::Size, [released, claimed])];
    }

    let mut changes = Vec::new();
    for state in released {
        let cidr = state.cidr;
        changes.push(BlockChange::new(cidr, Change::Released, [vec![state], vec![]]));
    }
    for state in claimed {
        let cidr = state.cidr;
        changes.push(BlockChange::new(cidr, Change::Claimed, [vec![], vec![state]]));
    }
    changes
}

/// Returns the blocks that only one of two snapshots has.
fn only_in(one: &[Stored<'_>], other: &[Stored<'_>]) -> Vec<BlockState> {
    let cidrs_of_other: BTreeSet<IpNet> = other.iter().map(|stored| stored.cidr).collect();
    let mut states = Vec::new();
    for stored in one {
        if !cidrs_of_other.contains(&stored.cidr) {
            states.push(BlockState::of(stored));
        }
    }
    states
}

/// Compares the owners and claim times of a block that is sound in both snapshots; `None` if it is not in both, or if
/// they have not changed.
fn owner_change(old: &Stored<'_>, new: &Stored<'_>) -> Option<BlockChange> {
    if old.cidr != new.cidr {
        return None;
    }
    let change = block_change::owner_change(old.block?, new.block?)?;
    let states = [vec![BlockState::of(old)], vec![BlockState::of(new)]];
    Some(BlockChange::new(old.cidr, change, states))
}
