//! The keys of a family's blocks, without their contents.

use std::collections::{BTreeSet, HashMap, HashSet};

use calipam_model::IpNet;
use calipam_model::cidr;
use calipam_model::snapshot::Revision;
use foldhash::fast::FixedState;

use crate::affinity::block_of;
use crate::store::Entry;

/// The blocks of a family at one moment.
pub(crate) struct BlockKeys {
    revisions: HashMap<IpNet, Revision, FixedState>,
    prefixes: BTreeSet<u8>,
}

impl BlockKeys {
    pub(crate) fn new(found: Vec<Entry>) -> Self {
        let block = |entry: Entry| Some((block_of(&entry)?, entry.revision));
        let revisions: HashMap<IpNet, Revision, FixedState> = found.into_iter().filter_map(block).collect();
        let prefixes = revisions.keys().map(IpNet::prefix_len).collect();
        Self { revisions, prefixes }
    }

    pub(crate) fn contains(&self, cidr: IpNet) -> bool {
        self.revisions.contains_key(&cidr)
    }

    pub(crate) fn cidrs(&self) -> impl Iterator<Item = IpNet> {
        self.revisions.keys().copied()
    }

    pub(crate) fn revision(&self, cidr: IpNet) -> Option<&Revision> {
        self.revisions.get(&cidr)
    }

    /// The blocks whose prefix length is not `prefix`.
    pub(crate) fn of_other_size(&self, prefix: u8) -> OtherSizes<'_> {
        let smaller = self.prefixes.iter().any(|other| *other > prefix);
        let small = self.revisions.keys().filter(|cidr| smaller && cidr.prefix_len() > prefix);
        OtherSizes {
            keys: self,
            larger: self.prefixes.iter().copied().filter(|other| *other < prefix).collect(),
            with_smaller: small.filter_map(|cidr| cidr::block_around(cidr.addr(), prefix)).collect(),
        }
    }
}

/// The blocks whose size differs from a given one.
pub(crate) struct OtherSizes<'k> {
    keys: &'k BlockKeys,
    /// The prefix lengths of larger blocks.
    larger: Vec<u8>,
    /// CIDRs of the given size that contain smaller blocks.
    with_smaller: HashSet<IpNet, FixedState>,
}

impl OtherSizes<'_> {
    /// True if one of these blocks has addresses of `place`.
    pub(crate) fn overlap(&self, place: IpNet) -> bool {
        let around = |prefix: &u8| cidr::block_around(place.addr(), *prefix);
        self.with_smaller.contains(&place)
            || self.larger.iter().filter_map(around).any(|larger| self.keys.contains(larger))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Record;

    #[test]
    fn blocks_of_other_sizes_overlap_places() {
        let key = |cidr: &str| Entry {
            record: Record::BlockKey(cidr.parse().unwrap()),
            revision: Revision::Etcd(1),
        };
        for (existing, place, overlaps) in [
            ("10.0.0.0/24", "10.0.0.192/26", true),
            ("10.0.0.0/24", "10.0.1.0/26", false),
            ("10.0.0.65/32", "10.0.0.64/26", true),
            ("10.0.0.65/32", "10.0.0.0/26", false),
            ("10.0.0.64/26", "10.0.0.64/26", false),
            ("fd00::/116", "fd00::fc0/122", true),
            ("fd00::41/128", "fd00::40/122", true),
        ] {
            let keys = BlockKeys::new(vec![key(existing)]);
            let place: IpNet = place.parse().unwrap();
            let found = keys.of_other_size(place.prefix_len()).overlap(place);
            assert_eq!(found, overlaps, "{existing} over {place}");
        }
    }
}
