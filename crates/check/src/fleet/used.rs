//! The addresses that a cluster uses, with their users, packed: of a fleet they are all in memory at once.

use std::collections::HashSet;
use std::net::IpAddr;

use calipam_model::{IpNet, cidr};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Context;
use crate::message::{name_of_claim, names_of_owners, short};

/// The addresses in use, block by block.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Used {
    /// Ascending by CIDR, and no CIDR twice.
    blocks: Vec<UsedBlock>,
    /// By position, the end included: how many addresses the blocks before it hold.
    before: Vec<u64>,
}

/// Addresses in use in one range, of a block as a rule.
#[derive(Clone, Debug, PartialEq)]
pub struct UsedBlock {
    pub cidr: IpNet,
    /// Which addresses of it, ascending.
    pub ordinals: Box<[u32]>,
    /// Who uses each of them, in the same order, a line for each.
    users: Box<str>,
}

impl UsedBlock {
    /// Ordinals, ascending, and who uses each.
    pub fn new(cidr: IpNet, used: impl IntoIterator<Item = (u32, String)>) -> Self {
        let (mut ordinals, mut users) = (Vec::new(), String::new());
        for (ordinal, user) in used {
            ordinals.push(ordinal);
            users.push_str(&short(&user));
            users.push('\n');
        }
        users.pop();
        Self { cidr, ordinals: ordinals.into(), users: users.into() }
    }

    /// Addresses in use, with who uses each.
    pub fn addresses(&self) -> impl Iterator<Item = (IpAddr, &str)> {
        let users = self.users.split('\n');
        self.ordinals.iter().zip(users).map(|(ordinal, user)| (cidr::address_at(self.cidr, *ordinal), user))
    }
}

impl Used {
    pub fn new(mut blocks: Vec<UsedBlock>) -> Self {
        blocks.retain(|block| !block.ordinals.is_empty());
        blocks.sort_by_key(|block| block.cidr);
        blocks.dedup_by_key(|block| block.cidr);
        let mut sum = 0;
        let mut before = vec![sum];
        for block in &blocks {
            sum += block.ordinals.len() as u64;
            before.push(sum);
        }
        Self { blocks, before }
    }

    /// What blocks record for an owner, and what a live owner uses without any record.
    pub(super) fn of(context: &Context<'_>) -> Self {
        let index = &context.index;
        let mut blocks = Vec::new();
        let mut recorded: HashSet<IpAddr> = HashSet::new();
        for stored in &index.blocks {
            let Some(block) = stored.current().or(stored.usable) else { continue };
            let held = block.allocations().filter(|held| {
                let record = &held.attribute;
                !record.is_cooling() && !record.is_windows_reserved() && recorded.insert(held.address)
            });
            let held = held.map(|held| (held.ordinal, name_of_claim(&held.attribute)));
            blocks.push(UsedBlock::new(stored.key, held));
        }
        let unrecorded = index.uses.chunk_by(|a, b| a.address == b.address).filter_map(|uses| {
            let address = uses.first()?.address;
            let owners = || index.describe_users(address, uses);
            (!recorded.contains(&address))
                .then(|| UsedBlock::new(address.into(), [(0, names_of_owners(&owners()))]))
        });
        blocks.extend(unrecorded);
        Self::new(blocks)
    }

    pub fn blocks(&self) -> &[UsedBlock] {
        &self.blocks
    }

    /// Who uses an address.
    pub fn user_of(&self, address: IpAddr) -> Option<&str> {
        let around = std::iter::successors(Some(IpNet::from(address)), IpNet::supernet);
        let of_block = |cidr| {
            let position = self.blocks.binary_search_by_key(&cidr, |block| block.cidr).ok()?;
            self.blocks[position].addresses().find(|(own, _)| *own == address).map(|(_, user)| user)
        };
        around.filter_map(of_block).next()
    }

    /// How many addresses of `region` are in use.
    pub fn count_within(&self, region: IpNet) -> u64 {
        let from = self.blocks.partition_point(|block| block.cidr < region);
        let len = self.blocks[from..].partition_point(|block| region.contains(&block.cidr));
        let inside = self.before.get(from + len).zip(self.before.get(from));
        let inside = inside.map_or(0, |(end, begin)| end - begin);

        // Blocks nest or are disjoint: of those that are larger, only one around the region holds any of it.
        let outer = std::iter::successors(region.supernet(), IpNet::supernet);
        let around = outer.filter_map(|cidr| {
            let position = self.blocks.binary_search_by_key(&cidr, |block| block.cidr).ok()?;
            let within = |address: &IpAddr| region.contains(address);
            Some(self.blocks[position].addresses().filter(|(address, _)| within(address)).count() as u64)
        });
        inside + around.sum::<u64>()
    }
}

/// A block as it is written: ordinals as ranges, `0-5,7`.
#[derive(Serialize, Deserialize)]
struct Written {
    cidr: IpNet,
    ordinals: String,
    users: Vec<String>,
}

impl Serialize for Used {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.blocks.iter().map(|block| Written {
            cidr: block.cidr,
            ordinals: in_ranges(&block.ordinals),
            users: block.users.split('\n').map(str::to_owned).collect(),
        }))
    }
}

impl<'de> Deserialize<'de> for Used {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = Vec::<Written>::deserialize(deserializer)?;
        let block = |written: Written| {
            let Written { cidr, ordinals, users } = written;
            let bad = |what| D::Error::custom(format!("used addresses of {cidr}: {what}"));
            let most = users.len();
            let ordinals =
                of_ranges(&ordinals, most).ok_or_else(|| bad("ordinals and users do not match"))?;
            let fits = |ordinal: &u32| u128::from(*ordinal) < cidr::size(cidr);
            match ordinals.is_sorted_by(|a, b| a < b) && ordinals.iter().all(fits) {
                true => Ok(UsedBlock::new(cidr, ordinals.into_iter().zip(users))),
                false => Err(bad("an ordinal is out of range or occurs twice")),
            }
        };
        Ok(Self::new(written.into_iter().map(block).collect::<Result<_, _>>()?))
    }
}

/// `0-5,7`.
fn in_ranges(ordinals: &[u32]) -> String {
    let runs = ordinals.chunk_by(|a, b| a + 1 == *b).filter_map(|run| Some((run.first()?, run.last()?)));
    let written = runs.map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    written.collect::<Vec<_>>().join(",")
}

/// The same back; `None` if it is not so many ordinals.
fn of_ranges(text: &str, number: usize) -> Option<Vec<u32>> {
    let mut ordinals = Vec::with_capacity(number.min(1 << 16));
    for range in text.split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        let room = number.checked_sub(ordinals.len())?;
        if first > last || (last - first) as usize >= room {
            return None;
        }
        ordinals.extend(first..=last);
    }
    (ordinals.len() == number).then_some(ordinals)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use crate::test_cluster::Cluster;

    #[test]
    fn ordinals_are_written_as_ranges() {
        assert_eq!(in_ranges(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
        assert_eq!(of_ranges("0-2,5,7-8", 6), Some(vec![0, 1, 2, 5, 7, 8]));
        assert_eq!((in_ranges(&[]), of_ranges("", 0)), (String::new(), Some(Vec::new())));
        for (bad, number) in [("0-4294967295", 3), ("2-1", 2), ("x", 1), ("1,2", 3), ("1-3", 2), ("-1", 1)] {
            assert_eq!(of_ranges(bad, number), None, "{bad}");
        }
    }

    #[test]
    fn addresses_are_counted_where_blocks_are_smaller_and_larger() {
        let block = |cidr: &str, ordinals: &[u32]| {
            UsedBlock::new(cidr.parse().unwrap(), ordinals.iter().map(|ordinal| (*ordinal, "a".to_owned())))
        };
        let used = Used::new(vec![
            block("10.0.0.64/26", &[0, 63]),
            block("10.0.0.0/26", &[1, 2, 3]),
            block("10.1.0.0/24", &[0, 1, 200]),
            block("fd00::/122", &[7]),
        ]);
        let count = |cidr: &str| used.count_within(cidr.parse().unwrap());
        assert_eq!(["0.0.0.0/0", "10.0.0.0/25", "10.0.0.64/26", "10.0.0.127/32"].map(count), [8, 5, 2, 1]);
        assert_eq!(
            ["10.1.0.0/25", "10.1.0.200/32", "10.1.0.201/32", "10.2.0.0/16", "::/0"].map(count),
            [2, 1, 0, 0, 1]
        );
        let user = |address: &str| used.user_of(address.parse().unwrap());
        assert_eq!(["10.1.0.200", "10.0.0.1", "fd00::7"].map(user), [Some("a"); 3]);
        assert_eq!(["10.1.0.2", "10.9.0.0", "fd00::8"].map(user), [None; 3]);
        let written = serde_json::to_string(&used).unwrap();
        assert_eq!(serde_json::from_str::<Used>(&written).unwrap(), used);
        let outside = r#"[{"cidr":"10.0.0.0/30","ordinals":"3-4","users":["a","b"]}]"#;
        assert!(serde_json::from_str::<Used>(outside).unwrap_err().to_string().contains("out of range"));
        let twice = outside.replace("3-4", "3,3");
        assert!(serde_json::from_str::<Used>(&twice).unwrap_err().to_string().contains("occurs twice"));
    }

    #[test]
    fn what_is_used_without_a_record_counts_too() {
        let mut cluster = Cluster::new();
        cluster.endpoint("node-1", "a", &["10.244.1.4/32"]).endpoint("node-1", "b", &["10.244.1.5/32"]);
        cluster.endpoint("node-1", "c", &["10.244.1.5/32"]);
        let used = Used::of(&Context::new(&cluster.0, &Options::default()));
        assert_eq!(used.count_within("10.244.1.4/31".parse().unwrap()), 2);
    }
}
