//! Walks over the blocks of a pool, in Calico's order. The start depends on the host, so that hosts seldom want the same
//! block.

use std::net::IpAddr;

use calipam_model::IpNet;
use calipam_model::cidr;
use calipam_model::pool::Pool;

use crate::go_random::GoRandom;

/// A walk over the CIDRs of all blocks of a pool, each once.
#[derive(Clone, Debug)]
pub(crate) struct Walk {
    pool: IpNet,
    prefix: u8,
    /// The number of blocks in the pool.
    count: u128,
    /// The index of the first block.
    start: u128,
    /// The number of blocks already passed.
    passed: u128,
}

impl Walk {
    /// Begins a walk over `pool`. The start depends on `host`. If the pool's blocks are single addresses, it depends on
    /// `moment` instead, in nanoseconds, so that walks differ from one request to the next.
    pub(crate) fn new(pool: &Pool, host: &str, moment: i64) -> Self {
        let is_single = pool.block_size == pool.cidr.max_prefix_len();
        let seed = if is_single { moment } else { i64::from(fnv(host)) };
        let mut walk = Self {
            pool: pool.cidr.trunc(),
            prefix: pool.block_size,
            count: 0,
            start: 0,
            passed: 0,
        };
        if let Some(bits) = pool.block_size.checked_sub(pool.cidr.prefix_len()) {
            let bits = u32::from(bits);
            walk.count = 1u128.checked_shl(bits).unwrap_or(u128::MAX);
            walk.start = GoRandom::new(seed).below_power(bits) % walk.count;
        }
        walk
    }

    /// Returns the next place of the walk; `None` after all of them. After the last place of the pool, the walk goes on
    /// at the first one.
    pub(crate) fn next(&mut self) -> Option<IpNet> {
        if self.passed >= self.count {
            return None;
        }
        let index = (self.start + self.passed) % self.count;
        self.passed += 1;
        cidr::subnet_at(self.pool, self.prefix, index)
    }

    /// Skips the rest of `net`, a CIDR that contains the current block. The walk continues after the last block in
    /// `net`.
    pub(crate) fn skip(&mut self, net: IpNet) {
        let index = (self.start + self.passed).wrapping_sub(1) % self.count.max(1);
        let end = cidr::subnet_place(self.pool, self.prefix, net.broadcast())
            .unwrap_or(self.count.saturating_sub(1))
            .max(index);
        self.passed += end - index;
    }

    /// The distance of a block from the start of the walk; `None` if the walk does not include the block.
    pub(crate) fn distance(&self, block: IpNet) -> Option<u128> {
        if block.prefix_len() != self.prefix || !self.pool.contains(&block) {
            return None;
        }
        let index = cidr::subnet_place(self.pool, self.prefix, block.addr())?;
        Some((index + (self.count - self.start)) % self.count)
    }
}

/// The CIDRs of all blocks that could contain an address, the largest first.
pub fn around(address: IpAddr) -> impl Iterator<Item = IpNet> {
    let prefixes = crate::family::Family::of_address(address).block_prefixes();
    prefixes.filter_map(move |prefix| cidr::block_around(address, prefix))
}

/// The CIDRs of blocks of any size that contain `net`, ending with `net` itself.
pub fn holding(net: IpNet) -> impl Iterator<Item = IpNet> {
    around(net.addr()).take_while(move |around| around.prefix_len() <= net.prefix_len())
}

/// The CIDRs of larger blocks that contain `net`, but whose keys do not sort next to the key of `net`, because their
/// first addresses differ (for IPv4, in the first three octets). A search for overlaps must read each of these blocks
/// separately.
pub fn holding_elsewhere(net: IpNet) -> impl Iterator<Item = IpNet> {
    let is_beside = move |larger: &IpNet| match (larger.addr(), net.addr()) {
        (IpAddr::V4(a), IpAddr::V4(b)) => a.octets()[..3] == b.octets()[..3],
        (a, b) => a == b,
    };
    holding(net).filter(move |larger| *larger != net && !is_beside(larger))
}

/// Hashes a string with FNV-1, as Calico does a host's name.
fn fnv(text: &str) -> u32 {
    let step = |hash: u32, byte: u8| hash.wrapping_mul(0x0100_0193) ^ u32::from(byte);
    text.bytes().fold(0x811c_9dc5, step)
}

/// Hashes a string with FNV-1a, followed by [`scatter`].
pub(crate) fn hash(text: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    scatter(text.bytes().fold(0xcbf2_9ce4_8422_2325, step))
}

/// Maps numbers that are close to each other to numbers that are far apart (SplitMix64's finalizer).
pub fn scatter(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn pool(cidr: &str, block_size: u8) -> Pool {
        let json = format!(r#"{{"spec":{{"cidr":"{cidr}","blockSize":{block_size}}}}}"#);
        Pool::parse("p", json.as_bytes()).unwrap().value
    }

    #[test]
    fn a_walk_meets_every_block_once() {
        for (cidr, size, count) in [
            ("10.0.0.0/24", 28, 16),
            ("fd00::/120", 122, 4),
            ("10.0.0.0/30", 30, 1),
        ] {
            let mut walk = Walk::new(&pool(cidr, size), "node-1", 7);
            let probe = walk.clone();
            let met: Vec<IpNet> = std::iter::from_fn(|| walk.next()).collect();
            assert_eq!(met.len(), count);
            assert_eq!(met.iter().collect::<BTreeSet<_>>().len(), count);
            let distances: Vec<u128> = met.iter().map(|block| probe.distance(*block).unwrap()).collect();
            assert!(distances.iter().copied().eq(0..count as u128));
        }
        assert!(Walk::new(&pool("10.0.0.0/30", 28), "a", 0).next().is_none());
        assert!(Walk::new(&pool("::/0", 128), "a", 5).next().is_some());
    }

    /// The first blocks of Calico's own generator.
    #[test]
    fn a_walk_begins_where_calico_does() {
        for (cidr, size, host, first) in [
            ("10.244.0.0/16", 26, "node-1", "10.244.84.128/26"),
            ("10.244.0.0/16", 26, "n1", "10.244.40.128/26"),
            (
                "10.244.0.0/16",
                26,
                "ip-10-0-3-7.eu-west-1.compute.internal",
                "10.244.99.128/26",
            ),
            ("10.244.0.0/16", 26, "load-balancer", "10.244.146.128/26"),
            ("10.244.0.0/16", 26, "köln", "10.244.116.64/26"),
            ("10.244.0.0/16", 26, "", "10.244.67.192/26"),
            ("10.0.0.0/8", 26, "node-1", "10.39.119.128/26"),
            ("192.168.0.0/20", 29, "n1", "192.168.5.16/29"),
            ("10.9.0.0/26", 26, "n1", "10.9.0.0/26"),
            (
                "fd00:10:244::/64",
                122,
                "node-1",
                "fd00:10:244:0:94fa:7820:5b81:7500/122",
            ),
            ("fd00:1::/59", 122, "n1", "fd00:1:0:13:e83c:c9a6:7f8b:bb80/122"),
            (
                "fd00:1::/58",
                122,
                "load-balancer",
                "fd00:1:0:30:d0ba:d720:cd1d:da40/122",
            ),
            ("fd00:1::/57", 122, "köln", "fd00:1:0:64:50be:614c:f60c:a780/122"),
            (
                "fd00::/8",
                122,
                "n1",
                "fddd:cf7a:b6b7:61e7:f788:a1b7:890e:f200/122",
            ),
            (
                "::/0",
                116,
                "node-1",
                "3544:5b2b:7e95:218b:641a:11cb:b955:4000/116",
            ),
            ("::/0", 127, "n1", "9ac8:9e89:b471:abac:6d86:1cfc:fc38:f52a/127"),
        ] {
            let mut walk = Walk::new(&pool(cidr, size), host, 7);
            assert_eq!(walk.next(), Some(first.parse().unwrap()), "{cidr} {host}");
        }
    }

    #[test]
    fn larger_blocks_with_keys_elsewhere_are_found() {
        let elsewhere = |cidr: &str| -> Vec<String> {
            holding_elsewhere(cidr.parse().unwrap())
                .map(|larger| larger.to_string())
                .collect()
        };
        let of_v4 = elsewhere("10.0.7.64/26");
        assert_eq!(of_v4.first().map(String::as_str), Some("10.0.0.0/20"));
        assert_eq!(of_v4.last().map(String::as_str), Some("10.0.6.0/23"), "{of_v4:?}");
        assert_eq!(elsewhere("10.0.0.64/26"), [""; 0], "all begin with 10.0.0");
        let of_v6 = elsewhere("fd00::80/122");
        assert!(of_v6.contains(&"fd00::/120".to_owned()) && !of_v6.contains(&"fd00::80/121".to_owned()));
    }

    #[test]
    fn a_walk_can_pass_over_a_large_part_at_once() {
        let mut walk = Walk::new(&pool("fd00::/48", 122), "node-1", 0);
        let first = walk.next().unwrap();
        let large = cidr::block_around(first.addr(), 64).unwrap();
        walk.skip(large);
        assert!(!large.contains(&walk.next().unwrap()));
    }
}
