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
    let deleted = snapshot
        .blocks
        .iter()
        .filter(|block| block.value.content.is_deleted());
    let deleted = deleted.filter(|block| !goes(&block.value));
    deleted
        .map(|block| block.value.key)
        .chain(snapshot.hidden_blocks())
        .collect()
}

/// Returns a stored block that overlaps `cidr`: a different block in the index, or a hidden block, even one with the
/// same CIDR.
pub(super) fn overlapping(index: &Index<'_>, hidden: &HashSet<IpNet>, cidr: IpNet) -> Option<IpNet> {
    let mut around = index.blocks_around(cidr.network()).map(|block| block.key);
    let around = around.find(|key| key.prefix_len() < cidr.prefix_len());
    let from = index
        .blocks
        .partition_point(|block| block.key.network() < cidr.network());
    let mut within = index.blocks[from..]
        .iter()
        .map(|block| block.key)
        .take_while(|key| cidr.contains(key));
    let hidden = || {
        hidden
            .iter()
            .copied()
            .find(|other| calipam_model::cidr::overlap(*other, cidr))
    };
    around.or_else(|| within.find(|key| *key != cidr)).or_else(hidden)
}
