//! The blocks and affinities in a range.

use std::collections::BTreeSet;

use calipam_model::IpNet;
use calipam_model::cidr::overlap;
use calipam_model::key::Key;
use calipam_model::snapshot::Snapshot;

/// Returns the blocks and affinities that overlap `cidr`, including half-deleted ones and undecodable blocks.
pub(super) fn objects_in(snapshot: &Snapshot, cidr: IpNet) -> BTreeSet<Key> {
    let mut keys = BTreeSet::new();
    for block in snapshot.block_cidrs() {
        if overlap(block, cidr) {
            keys.insert(Key::Block(block));
        }
    }
    for affinity in &snapshot.affinities {
        let key = &affinity.value.key;
        if overlap(key.cidr, cidr) {
            keys.insert(Key::Affinity(key.clone()));
        }
    }
    keys
}
