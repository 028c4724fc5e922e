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
    let mut around = index.blocks_around(cidr.network()).map(|block| block.key);
    if let Some(larger) = around.find(|key| key.prefix_len() < cidr.prefix_len()) {
        return Some(larger);
    }

    let begin = index
        .blocks
        .partition_point(|block| block.key.network() < cidr.network());
    let following = index.blocks[begin..].iter().map(|block| block.key);
    let mut within = following.take_while(|key| cidr.contains(key));
    if let Some(smaller) = within.find(|key| *key != cidr) {
        return Some(smaller);
    }

    let mut hidden = hidden.iter().copied();
    hidden.find(|other| calipam_model::cidr::overlap(*other, cidr))
}
