//! The keys of blocks, without their contents.

use std::collections::HashMap;

use calipam_model::IpNet;
use calipam_model::cidr_set::CidrSet;
use calipam_model::snapshot::Revision;
use foldhash::fast::FixedState;

use crate::affinity::block_of;
use crate::store::Entry;

/// The CIDRs and revisions of blocks at one moment.
pub(crate) struct BlockKeys {
    revisions: HashMap<IpNet, Revision, FixedState>,
}

impl BlockKeys {
    /// Collects the revisions of the blocks in a query's answer, by CIDR.
    pub(crate) fn new(found: Vec<Entry>) -> Self {
        let mut revisions = HashMap::default();
        for entry in found {
            if let Some(cidr) = block_of(&entry) {
                revisions.insert(cidr, entry.revision);
            }
        }
        Self { revisions }
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

    /// The addresses in blocks whose prefix length is not `prefix`.
    pub(crate) fn of_other_size(&self, prefix: u8) -> CidrSet {
        CidrSet::new(self.cidrs().filter(|cidr| cidr.prefix_len() != prefix))
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
            let found = keys.of_other_size(place.prefix_len()).touches(place);
            assert_eq!(found, overlaps, "{existing} over {place}");
        }
    }
}
