//! Blocks that were claimed, released, or have another owner or size.

use std::collections::BTreeSet;

use calipam_check::Scope;
use calipam_model::IpNet;
use calipam_model::block::BlockOwner;
use serde::Serialize;

use super::regions::{Region, Stored};

/// What happened to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BlockChangeKind {
    Claimed,
    Released,
    /// It belongs to another, or to no one any more.
    Owner,
    /// Given up and claimed again by the same owner, by its claim time.
    ClaimedAgain,
    /// Blocks of another size are in its place.
    Size,
}

impl BlockChangeKind {
    /// What people read.
    pub fn words(self) -> &'static str {
        match self {
            Self::Claimed => "claimed",
            Self::Released => "released",
            Self::Owner => "changed owner",
            Self::ClaimedAgain => "released and claimed again",
            Self::Size => "changed size",
        }
    }
}

/// A block that differs.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BlockChange {
    pub cidr: IpNet,
    pub change: BlockChangeKind,
    /// What was there before; several blocks where the size differs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<BlockState>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<BlockState>,
}

/// A block on one side.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BlockState {
    pub cidr: IpNet,
    pub owner: Option<BlockOwner>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claimed_at: Option<String>,
    /// Addresses that are not free; `None` if the block cannot be decoded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocated: Option<u32>,
}

impl BlockState {
    fn of(stored: &Stored<'_>) -> Self {
        Self {
            cidr: stored.cidr,
            owner: stored.owner.cloned(),
            claimed_at: stored.block.and_then(|block| block.claim_time()).map(str::to_owned),
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
    if region.pair().is_some_and(|(old, new)| old == new) {
        return Vec::new();
    }
    let cidrs = |side: &[Stored<'_>]| -> BTreeSet<IpNet> { side.iter().map(|stored| stored.cidr).collect() };
    let (old, new) = (cidrs(&region.old), cidrs(&region.new));
    let states = |side: &[Stored<'_>], wanted: &dyn Fn(IpNet) -> bool| -> Vec<BlockState> {
        side.iter().filter(|stored| wanted(stored.cidr)).map(BlockState::of).collect()
    };

    let released = states(&region.old, &|cidr| !new.contains(&cidr));
    let claimed = states(&region.new, &|cidr| !old.contains(&cidr));
    let mut found: Vec<BlockChange> =
        old.intersection(&new).filter_map(|cidr| change_of(region, *cidr)).collect();
    let widest = released.iter().chain(&claimed).map(|state| state.cidr).min();
    match widest {
        Some(cidr) if !released.is_empty() && !claimed.is_empty() => {
            let change = BlockChangeKind::Size;
            found.push(BlockChange { cidr, change, before: released, after: claimed });
        }
        _ => {
            found.extend(released.into_iter().map(|state| BlockChange {
                cidr: state.cidr,
                change: BlockChangeKind::Released,
                before: vec![state],
                after: Vec::new(),
            }));
            found.extend(claimed.into_iter().map(|state| BlockChange {
                cidr: state.cidr,
                change: BlockChangeKind::Claimed,
                before: Vec::new(),
                after: vec![state],
            }));
        }
    }
    found.sort_by_key(|change| (change.cidr, change.change));
    found
}

/// A block that is there on both sides. Of one that cannot be decoded at all the owner is not known.
fn change_of(region: &Region<'_>, cidr: IpNet) -> Option<BlockChange> {
    let find = |side: &[Stored<'_>]| side.iter().find(|stored| stored.cidr == cidr).map(BlockState::of);
    let (before, after) = (find(&region.old)?, find(&region.new)?);
    if before.allocated.is_none() || after.allocated.is_none() {
        return None;
    }
    let change = if before.owner != after.owner {
        BlockChangeKind::Owner
    } else if before.claimed_at.is_some()
        && after.claimed_at.is_some()
        && before.claimed_at != after.claimed_at
    {
        BlockChangeKind::ClaimedAgain
    } else {
        return None;
    };
    Some(BlockChange { cidr, change, before: vec![before], after: vec![after] })
}
