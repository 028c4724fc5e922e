//! Stores a family's blocks by CIDR.

use std::collections::BTreeMap;
use std::sync::Arc;

use calipam_model::IpNet;
use calipam_model::block::Block;
use calipam_model::snapshot::{Revision, Versioned};

/// The size of a block in bytes, without its ordinals and owner records.
const EMPTY: u64 = 300;
/// The size of each ordinal in a block, in bytes.
const ORDINAL: u64 = 8;
/// The size of an owner record with its sequence number, in bytes.
const OWNER_RECORD: u64 = 290;

type Stored = Versioned<Arc<Block>>;

#[derive(Clone, Default)]
pub(super) struct Blocks {
    all: BTreeMap<IpNet, Stored>,
    /// The approximate size of all blocks as JSON, in bytes.
    pub bytes: u64,
}

impl Blocks {
    pub(super) fn get(&self, cidr: IpNet) -> Option<&Stored> {
        self.all.get(&cidr)
    }

    pub(super) fn by_cidr(&self) -> impl Iterator<Item = &Stored> {
        self.all.values()
    }

    /// The blocks of any size that overlap a CIDR.
    pub(super) fn overlapping(&self, cidr: IpNet) -> Vec<&Stored> {
        let mut overlapping: Vec<&Stored> = Vec::new();
        for larger in calipam_assign::blocks_holding(cidr) {
            overlapping.extend(self.get(larger));
        }
        // Smaller blocks come right after the CIDR. The block with this CIDR is already among those that hold it.
        for (smaller, block) in self.all.range(cidr..) {
            if *smaller == cidr {
                continue;
            }
            if !cidr.contains(smaller) {
                break;
            }
            overlapping.push(block);
        }
        overlapping
    }

    pub(super) fn count(&self) -> u64 {
        self.all.len() as u64
    }

    /// Adds a block, or replaces the one with the same CIDR.
    pub(super) fn insert(&mut self, block: Arc<Block>, revision: i64) {
        self.bytes += bytes(&block);
        let cidr = block.cidr();
        let stored = Versioned {
            value: block,
            revision: Revision::Etcd(revision),
        };
        if let Some(replaced) = self.all.insert(cidr, stored) {
            self.bytes -= bytes(&replaced.value);
        }
    }

    pub(super) fn remove(&mut self, cidr: IpNet) {
        if let Some(removed) = self.all.remove(&cidr) {
            self.bytes -= bytes(&removed.value);
        }
    }
}

/// The approximate size of a block as JSON, in bytes.
fn bytes(block: &Block) -> u64 {
    EMPTY + u64::from(block.size()) * ORDINAL + block.attributes().len() as u64 * OWNER_RECORD
}
