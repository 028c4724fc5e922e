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

pub(crate) fn changes(regions: &[Region<'_>], scope: &Scope) -> Vec<BlockChange> {
    let mut found: Vec<BlockChange> = regions.iter().flat_map(changes_in).collect();
    found.retain(|change| {
        let states = || change.before.iter().chain(&change.after);
        scope.has_network(change.cidr) && states().any(|state| scope.has_owner(state.owner.as_ref()))
    });
    found
}

fn changes_in(region: &Region<'_>) -> Vec<BlockChange> {
    let cidrs = |side: &[Stored<'_>]| -> BTreeSet<IpNet> { side.iter().map(|stored| stored.cidr).collect() };
    let old = cidrs(&region.old);
    let new = cidrs(&region.new);
    let only = |side: &[Stored<'_>], other: &BTreeSet<IpNet>| -> Vec<BlockState> {
        side.iter()
            .filter(|stored| !other.contains(&stored.cidr))
            .map(BlockState::of)
            .collect()
    };
    let released = only(&region.old, &new);
    let claimed = only(&region.new, &old);
    let mut found: Vec<BlockChange> = region
        .old
        .iter()
        .flat_map(|old| region.new.iter().filter_map(|new| of_owner(old, new)))
        .collect();
    match released.iter().chain(&claimed).map(|state| state.cidr).min() {
        Some(cidr) if !released.is_empty() && !claimed.is_empty() => {
            found.push(BlockChange::new(cidr, Change::Size, [released, claimed]));
        }
        _ => {
            let gone =
                |state: BlockState| BlockChange::new(state.cidr, Change::Released, [vec![state], vec![]]);
            let new =
                |state: BlockState| BlockChange::new(state.cidr, Change::Claimed, [vec![], vec![state]]);
            found.extend(released.into_iter().map(gone));
            found.extend(claimed.into_iter().map(new));
        }
    }
    found.sort_by_key(|change| (change.cidr, change.change));
    found
}

/// Compares the owners and claim times of a block that is sound in both snapshots.
fn of_owner(old: &Stored<'_>, new: &Stored<'_>) -> Option<BlockChange> {
    if old.cidr != new.cidr {
        return None;
    }
    let change = block_change::owner_change(old.block?, new.block?)?;
    Some(BlockChange::new(
        old.cidr,
        change,
        [old, new].map(|stored| vec![BlockState::of(stored)]),
    ))
}
