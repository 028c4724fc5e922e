//! The stored blocks around an address or a CIDR, including those that the index leaves out.

use std::collections::HashSet;
use std::net::IpAddr;

use calipam_check::index::{Index, IndexedBlock};
use calipam_model::IpNet;
use calipam_model::snapshot::{Snapshot, StoredBlock};

/// Returns the sound blocks that contain an address.
pub(super) fn blocks_around<'i, 's>(index: &'i Index<'s>, address: IpAddr) -> Vec<&'i IndexedBlock<'s>> {
    index
        .blocks_around(address)
        .filter(|block| block.sound.is_some())
        .collect()
}

/// Returns the CIDRs of stored blocks that are not in the index: undecodable blocks, and blocks that are marked
/// deleted, unless this plan finishes their deletion.
pub(super) fn hidden_blocks(snapshot: &Snapshot, goes: impl Fn(&StoredBlock) -> bool) -> HashSet<IpNet> {
    let mut hidden: HashSet<IpNet> = snapshot.hidden_blocks().collect();
    for block in snapshot.blocks.iter().map(|stored| &stored.value) {
        if block.content.is_deleted() && !goes(block) {
            hidden.insert(block.key);
        }
    }
    hidden
}

/// Returns a stored block that overlaps `cidr`: a different block in the index, or a hidden block, even one with the
/// same CIDR.
pub(super) fn overlapping(index: &Index<'_>, hidden: &HashSet<IpNet>, cidr: IpNet) -> Option<IpNet> {
    let stored = larger_block(index, cidr).or_else(|| smaller_block(index, cidr));
    if stored.is_some() {
        return stored;
    }
    let mut hidden = hidden.iter().copied();
    hidden.find(|other| calipam_model::cidr::overlap(*other, cidr))
}

/// Returns a block that contains `cidr` and more.
fn larger_block(index: &Index<'_>, cidr: IpNet) -> Option<IpNet> {
    let mut around = index.blocks_around(cidr.network()).map(|block| block.key);
    around.find(|key| key.prefix_len() < cidr.prefix_len())
}

/// Returns a block that is a part of `cidr`.
fn smaller_block(index: &Index<'_>, cidr: IpNet) -> Option<IpNet> {
    // The index is in the order of addresses.
    let begin = index
        .blocks
        .partition_point(|block| block.key.network() < cidr.network());
    let following = index.blocks[begin..].iter().map(|block| block.key);
    let mut within = following.take_while(|key| cidr.contains(key));
    within.find(|key| *key != cidr)
}
