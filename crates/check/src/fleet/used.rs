//! The addresses that a cluster uses, with their users. They are packed, since the addresses of an entire fleet are in
//! memory at once.

use std::collections::HashSet;
use std::net::IpAddr;

use calipam_model::cidr_set::{around, inside};
use calipam_model::{IpNet, cidr};

use crate::Context;
use crate::names::{name_of_claim, names_of_owners, short};

/// The addresses in use, block by block.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Used {
    /// The blocks, ascending by CIDR, without duplicates.
    blocks: Vec<UsedBlock>,
    /// For each block, the number of addresses in all blocks before it, and at the end the number of all addresses.
    /// Empty by default.
    sums_before: Vec<u64>,
}

/// Addresses in use in one range, usually a block.
#[derive(Clone, Debug, PartialEq)]
pub struct UsedBlock {
    pub cidr: IpNet,
    /// The ordinals of the addresses, ascending.
    pub ordinals: Box<[u32]>,
    /// The user of each address, in the order of `ordinals`, one per line.
    users: Box<str>,
}

impl UsedBlock {
    /// Packs ordinals, which must ascend, and the short names of their users, which have no line breaks.
    pub fn new(cidr: IpNet, used: impl IntoIterator<Item = (u32, String)>) -> Self {
        let mut ordinals = Vec::new();
        let mut users = String::new();
        for (ordinal, user) in used {
            ordinals.push(ordinal);
            users.push_str(&short(&user));
            users.push('\n');
        }
        // Users are between line breaks, so none comes after the last user.
        users.pop();
        Self {
            cidr,
            ordinals: ordinals.into(),
            users: users.into(),
        }
    }

    /// Returns the addresses in use with their users.
    pub fn addresses(&self) -> impl Iterator<Item = (IpAddr, &str)> {
        let users = self.users.split('\n');
        self.ordinals
            .iter()
            .zip(users)
            .map(|(ordinal, user)| (cidr::address_at(self.cidr, *ordinal), user))
    }
}

impl Used {
    /// Sorts blocks by CIDR, and counts the addresses in use before each of them, for [`Self::count_within`]. Leaves
    /// out blocks without addresses. Of several blocks with one CIDR, keeps the first.
    pub fn new(mut blocks: Vec<UsedBlock>) -> Self {
        blocks.retain(|block| !block.ordinals.is_empty());
        blocks.sort_by_key(|block| block.cidr);
        blocks.dedup_by_key(|block| block.cidr);

        let mut number_in_use = 0;
        let mut sums_before = vec![number_in_use];
        for block in &blocks {
            number_in_use += block.ordinals.len() as u64;
            sums_before.push(number_in_use);
        }
        Self { blocks, sums_before }
    }

    /// Gathers the addresses that blocks record for an owner, and those that an owner uses without a record.
    pub(super) fn of(context: &Context<'_>) -> Self {
        let index = &context.index;
        let mut blocks = Vec::new();
        let mut recorded: HashSet<IpAddr> = HashSet::new();
        for stored in &index.blocks {
            let Some(block) = stored.current().or(stored.usable) else {
                continue;
            };
            let mut used = Vec::new();
            for allocation in block.allocations() {
                let record = &allocation.attribute;
                if record.is_cooling() || record.is_windows_reserved() {
                    continue;
                }
                // Overlapping blocks can record the same address.
                if recorded.insert(allocation.address) {
                    used.push((allocation.ordinal, name_of_claim(record)));
                }
            }
            blocks.push(UsedBlock::new(stored.key, used));
        }

        // The uses are sorted by address.
        for uses in index.uses.chunk_by(|a, b| a.address == b.address) {
            let address = uses[0].address;
            if !recorded.contains(&address) {
                let users = names_of_owners(&index.describe_users(address, uses));
                // A block of one address, in which it is the first.
                let ordinal = 0;
                blocks.push(UsedBlock::new(address.into(), [(ordinal, users)]));
            }
        }
        Self::new(blocks)
    }

    pub fn blocks(&self) -> &[UsedBlock] {
        &self.blocks
    }

    /// Counts the addresses in use within `region`. Looks at single addresses only in the few blocks that are larger
    /// than the region.
    pub fn count_within(&self, region: IpNet) -> u64 {
        let positions_inside = inside(&self.blocks, region, |block| block.cidr);
        let sum_before = |position: usize| self.sums_before.get(position).copied().unwrap_or(0);
        let mut count = sum_before(positions_inside.end) - sum_before(positions_inside.start);

        // Of the other blocks, only those that contain the region have addresses in it.
        for range in around(&self.blocks, region, |block| block.cidr) {
            for block in &self.blocks[range] {
                let in_region = block.addresses().filter(|(address, _)| region.contains(address));
                count += in_region.count() as u64;
            }
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use crate::test_cluster::Cluster;

    #[test]
    fn addresses_are_counted_where_blocks_are_smaller_and_larger() {
        let block = |cidr: &str, ordinals: &[u32]| {
            UsedBlock::new(
                cidr.parse().unwrap(),
                ordinals.iter().map(|ordinal| (*ordinal, "a".to_owned())),
            )
        };
        let used = Used::new(vec![
            block("10.0.0.64/26", &[0, 63]),
            block("10.0.0.0/26", &[1, 2, 3]),
            block("10.1.0.0/24", &[0, 1, 200]),
            block("fd00::/122", &[7]),
        ]);
        let count = |cidr: &str| used.count_within(cidr.parse().unwrap());
        assert_eq!(
            ["0.0.0.0/0", "10.0.0.0/25", "10.0.0.64/26", "10.0.0.127/32"].map(count),
            [8, 5, 2, 1]
        );
        let found = [
            "10.1.0.0/25",
            "10.1.0.200/32",
            "10.1.0.201/32",
            "10.2.0.0/16",
            "::/0",
        ]
        .map(count);
        assert_eq!(found, [2, 1, 0, 0, 1]);
    }

    #[test]
    fn addresses_used_without_a_record_count_too() {
        let mut cluster = Cluster::new();
        cluster
            .endpoint("node-1", "a", &["10.244.1.4/32"])
            .endpoint("node-1", "b", &["10.244.1.5/32"]);
        cluster.endpoint("node-1", "c", &["10.244.1.5/32"]);
        let used = Used::of(&Context::new(&cluster.0, &Options::default()));
        assert_eq!(used.count_within("10.244.1.4/31".parse().unwrap()), 2);
    }
}
