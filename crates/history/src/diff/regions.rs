//! The blocks of two snapshots, grouped into regions. A region is a network that usually has one CIDR, with one block
//! in each snapshot. If blocks overlap, their region has several CIDRs.

use std::collections::BTreeMap;

use calipam_model::IpNet;
use calipam_model::block::{Block, BlockContent, BlockOwner};
use calipam_model::snapshot::Snapshot;

/// A stored block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stored<'s> {
    pub cidr: IpNet,
    /// The block, if its structure is sound and its CIDR matches its key.
    pub block: Option<&'s Block>,
    /// The stored value of a corrupt block.
    raw: Option<&'s str>,
    /// The owner, if it can be decoded.
    pub owner: Option<&'s BlockOwner>,
}

/// A network, with its blocks in the old and in the new snapshot.
#[derive(Debug, Default)]
pub(crate) struct Region<'s> {
    pub old: Vec<Stored<'s>>,
    pub new: Vec<Stored<'s>>,
}

/// The snapshot that a block is from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    Old,
    New,
}

impl<'s> Region<'s> {
    fn push(&mut self, stored: Stored<'s>, side: Side) {
        match side {
            Side::Old => self.old.push(stored),
            Side::New => self.new.push(stored),
        }
    }

    /// Returns the old and the new state of the region's block, if each snapshot has only this block and it is sound in
    /// both.
    pub(super) fn pair(&self) -> Option<(&'s Block, &'s Block)> {
        match (self.old.as_slice(), self.new.as_slice()) {
            ([old], [new]) if old.cidr == new.cidr => Some((old.block?, new.block?)),
            _ => None,
        }
    }

    /// Returns the blocks that cannot be compared, and whether the old and the new snapshot contain such a block.
    /// Corrupt blocks that did not change are left out.
    pub(super) fn unreadable(&self) -> Vec<(IpNet, [bool; 2])> {
        // The values of each unreadable block in both snapshots: `None` without such a block, and `Some(None)` if the
        // value is not known.
        let mut raws: BTreeMap<IpNet, [Option<Option<&str>>; 2]> = BTreeMap::new();
        for (side, blocks) in [&self.old, &self.new].into_iter().enumerate() {
            for stored in blocks.iter().filter(|stored| stored.block.is_none()) {
                raws.entry(stored.cidr).or_default()[side] = Some(stored.raw);
            }
        }

        let mut unreadable = Vec::new();
        for (cidr, [old, new]) in raws {
            // The value of a corrupt block is known, that of an undecodable one is not.
            let is_unchanged = old == new && matches!(old, Some(Some(_)));
            if !is_unchanged {
                unreadable.push((cidr, [old.is_some(), new.is_some()]));
            }
        }
        unreadable
    }

    /// True if `cidr` is inside a block, of either snapshot, whose allocations are unknown.
    pub(super) fn hides(&self, cidr: IpNet) -> bool {
        let mut blocks = self.old.iter().chain(&self.new);
        blocks.any(|stored| stored.block.is_none() && stored.cidr.contains(&cidr))
    }
}

/// Groups the blocks of both snapshots into regions, ascending. Blocks marked deleted are left out.
pub(crate) fn group<'s>(old: &'s Snapshot, new: &'s Snapshot) -> Vec<Region<'s>> {
    let old_blocks = stored_blocks(old).into_iter().map(|stored| (stored, Side::Old));
    let new_blocks = stored_blocks(new).into_iter().map(|stored| (stored, Side::New));
    let mut blocks: Vec<(Stored<'s>, Side)> = old_blocks.chain(new_blocks).collect();
    // The widest of several overlapping blocks comes first, and contains the others.
    blocks.sort_by_key(|(stored, side)| (stored.cidr, *side));

    // Most regions have one block in each snapshot.
    let mut regions: Vec<Region<'s>> = Vec::with_capacity(blocks.len() / 2);
    let mut widest: Option<IpNet> = None;
    for (stored, side) in blocks {
        if let Some(region) = regions.last_mut()
            && widest.is_some_and(|widest| widest.contains(&stored.cidr))
        {
            region.push(stored, side);
        } else {
            widest = Some(stored.cidr);
            let mut region = Region::default();
            region.push(stored, side);
            regions.push(region);
        }
    }
    regions
}

/// Returns the blocks of a snapshot, with those that cannot be decoded. A block whose key is not its CIDR counts as one
/// of them.
fn stored_blocks(snapshot: &Snapshot) -> Vec<Stored<'_>> {
    let mut blocks = Vec::new();
    for block in snapshot.blocks.iter().map(|stored| &stored.value) {
        if block.content.is_deleted() {
            continue;
        }
        let raw = match &block.content {
            BlockContent::Corrupt(corrupt) => Some(&*corrupt.raw),
            BlockContent::Sound(_) => None,
        };
        blocks.push(Stored {
            cidr: block.key,
            block: block.content.sound().filter(|sound| sound.cidr() == block.key),
            raw,
            owner: block.content.owner(),
        });
    }
    for cidr in snapshot.hidden_blocks() {
        blocks.push(Stored {
            cidr,
            block: None,
            raw: None,
            owner: None,
        });
    }
    blocks
}
