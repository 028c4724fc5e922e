//! The blocks of a family, of which a list is taken in little time.

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::sync::Arc;

use calipam_model::IpNet;
use calipam_model::block::Block;
use calipam_model::snapshot::{Revision, Versioned};

/// Parts among which blocks are spread.
const PARTS: usize = 256;
/// Bytes of a block without its ordinals and owner records.
const EMPTY: u64 = 300;
/// Bytes of an ordinal of a block.
const ORDINAL: u64 = 8;
/// Bytes of an owner record, and its sequence number.
const OWNER_RECORD: u64 = 290;

type Stored = Versioned<Arc<Block>>;

/// The blocks of a family. A copy shares all parts that are not changed later: in a cluster of 5,000 nodes thousands of
/// claims list as many blocks, and read a few.
#[derive(Clone)]
pub(super) struct Blocks {
    parts: Vec<Arc<BTreeMap<IpNet, Stored>>>,
    /// Number of blocks with each prefix length.
    sizes: BTreeMap<u8, u64>,
    bytes: u64,
}

impl Default for Blocks {
    fn default() -> Self {
        Self { parts: vec![Arc::default(); PARTS], sizes: BTreeMap::new(), bytes: 0 }
    }
}

impl Blocks {
    pub(super) fn get(&self, cidr: IpNet) -> Option<&Stored> {
        self.parts.get(part(cidr))?.get(&cidr)
    }

    /// All in the order of their CIDRs.
    pub(super) fn by_cidr(&self) -> impl Iterator<Item = &Stored> {
        let mut all: Vec<(&IpNet, &Stored)> = self.parts.iter().flat_map(|part| part.iter()).collect();
        all.sort_unstable_by_key(|(cidr, _)| **cidr);
        all.into_iter().map(|(_, block)| block)
    }

    /// The blocks of any size that have addresses of a CIDR.
    pub(super) fn overlapping(&self, cidr: IpNet) -> Vec<&Stored> {
        let larger = calipam_assign::blocks_holding(cidr).filter_map(|holding| self.get(holding));
        let has_smaller = self.sizes.iter().any(|(size, count)| *size > cidr.prefix_len() && *count > 0);
        let all = self.parts.iter().filter(|_| has_smaller).flat_map(|part| part.iter());
        let smaller =
            all.filter(|(found, _)| found.prefix_len() > cidr.prefix_len() && cidr.contains(*found));
        larger.chain(smaller.map(|(_, block)| block)).collect()
    }

    pub(super) fn count(&self) -> u64 {
        self.sizes.values().sum()
    }

    /// About how long all of them are as JSON.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn insert(&mut self, block: Arc<Block>, revision: i64) {
        let cidr = block.cidr();
        self.bytes += bytes(&block);
        *self.sizes.entry(cidr.prefix_len()).or_default() += 1;
        let stored = Versioned { value: block, revision: Revision::Etcd(revision) };
        let before = self.part_mut(cidr).and_then(|part| part.insert(cidr, stored));
        self.forget(before);
    }

    pub(super) fn remove(&mut self, cidr: IpNet) {
        let before = self.part_mut(cidr).and_then(|part| part.remove(&cidr));
        self.forget(before);
    }

    fn part_mut(&mut self, cidr: IpNet) -> Option<&mut BTreeMap<IpNet, Stored>> {
        self.parts.get_mut(part(cidr)).map(Arc::make_mut)
    }

    /// Counts a block no more.
    fn forget(&mut self, before: Option<Stored>) {
        let Some(before) = before else { return };
        self.bytes -= bytes(&before.value);
        let prefix = before.value.cidr().prefix_len();
        if let Some(count) = self.sizes.get_mut(&prefix) {
            *count -= 1;
        }
    }
}

/// The part in which a block lies.
fn part(cidr: IpNet) -> usize {
    foldhash::fast::FixedState::default().hash_one(cidr) as usize % PARTS
}

/// About how long a block is as JSON.
fn bytes(block: &Block) -> u64 {
    EMPTY + u64::from(block.size()) * ORDINAL + block.attributes().len() as u64 * OWNER_RECORD
}
