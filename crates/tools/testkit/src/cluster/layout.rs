//! The addresses and names in a generated cluster. All are derived from a seed and a number.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use jiff::{SignedDuration, Timestamp, Unit};

use serde_json::{Value, json};

use super::rng::Rng;

/// The parameters of a cluster.
#[derive(Clone, Copy, Debug)]
pub struct ClusterSpec {
    /// The seed. Equal seeds make equal clusters.
    pub seed: u64,
    /// The current time of the cluster. For a check by the machine's clock, use the present time.
    pub now: Timestamp,
    /// True if nodes and pods also have IPv6 addresses.
    pub dual_stack: bool,
    /// Allows tens of thousands of nodes instead of 199.
    pub wide: bool,
    pub cooldown_seconds: u32,
    /// The number that determines the cluster's pools and distinguishes it from other clusters. For 7, the pools are
    /// 10.7.0.0/16 and fd00:10:7::/64.
    pub place: u8,
}

/// The place of a cluster that is not in a fleet.
pub(super) const ALONE: u8 = 244;

impl Default for ClusterSpec {
    fn default() -> Self {
        Self::new(0)
    }
}

impl ClusterSpec {
    /// Creates the specification of a dual-stack cluster at a fixed time in 2026.
    pub fn new(seed: u64) -> Self {
        let now = "2026-06-01T08:00:00Z".parse().expect("a valid time");
        Self {
            seed,
            now,
            dual_stack: true,
            wide: false,
            cooldown_seconds: 30,
            place: ALONE,
        }
    }

    /// Sets the time. Also extends the cooldown, since checks may run minutes later.
    pub fn at(self, now: Timestamp) -> Self {
        Self {
            now,
            cooldown_seconds: 1200,
            ..self
        }
    }

    /// Removes IPv6.
    pub fn v4_only(self) -> Self {
        Self {
            dual_stack: false,
            ..self
        }
    }

    /// Sets other pools and another GUID. A wide cluster keeps its pool.
    pub fn in_place(self, place: u8) -> Self {
        Self { place, ..self }
    }

    /// Allows more nodes.
    pub fn wide(self) -> Self {
        Self { wide: true, ..self }
    }

    /// Maximum number of nodes.
    pub fn max_nodes(&self) -> u32 {
        if self.wide { 30_000 } else { 199 }
    }

    fn base_v4(&self) -> u32 {
        u32::from(if self.wide {
            Ipv4Addr::new(10, 128, 0, 0)
        } else {
            Ipv4Addr::new(10, self.place, 0, 0)
        })
    }

    /// The IPv4 pool of all nodes.
    pub fn pool_v4(&self) -> IpNet {
        let prefix = if self.wide { 9 } else { 16 };
        Ipv4Net::new_assert(self.base_v4().into(), prefix).into()
    }

    fn base_v6(&self) -> u128 {
        // The decimal digits of the place are used as hexadecimal digits: 244 becomes 0x244.
        let place = u16::from(self.place);
        let digits = place / 100 * 256 + place / 10 % 10 * 16 + place % 10;
        u128::from(Ipv6Addr::new(0xfd00, 0x10, digits, 0, 0, 0, 0, 0))
    }

    /// The IPv6 pool of all nodes.
    pub fn pool_v6(&self) -> IpNet {
        Ipv6Net::new_assert(self.base_v6().into(), 64).into()
    }

    /// The IPv4 block of a node: node 7 has `10.244.7.0/26`. `part` selects one of its four blocks.
    pub fn block_v4(&self, node: u32, part: u32) -> IpNet {
        Ipv4Net::new_assert((self.base_v4() + node * 256 + part * 64).into(), 26).into()
    }

    /// The IPv6 block of a node: node 7 has `fd00:10:244::7:0/122`.
    pub fn block_v6(&self, node: u32, part: u32) -> IpNet {
        let network = self.base_v6() + (u128::from(node) << 16) + u128::from(part) * 64;
        Ipv6Net::new_assert(network.into(), 122).into()
    }

    /// A block of the pool that belongs to no node.
    pub fn spare_block_v4(&self, number: u32) -> IpNet {
        let room = if self.wide { 2700 * 4 } else { 56 * 4 };
        assert!(
            number < room,
            "the pool has no more spare blocks; ask for a wide cluster"
        );
        self.block_v4(self.max_nodes() + 1, number)
    }

    /// The CIDR of an extra pool, which is a /24 in 172.16.0.0/12.
    pub fn extra_pool(&self, number: u32) -> IpNet {
        assert!(number < 4096, "there is no more room for extra pools");
        Ipv4Net::new_assert(
            (u32::from(Ipv4Addr::new(172, 16, 0, 0)) + number * 256).into(),
            24,
        )
        .into()
    }

    /// The time this many seconds ago, as Calico writes it: in whole seconds.
    pub fn seconds_ago(&self, seconds: i64) -> String {
        whole_seconds(
            self.now
                .checked_sub(SignedDuration::from_secs(seconds))
                .expect("a time in this era"),
        )
    }

    /// Random numbers for one object of the cluster.
    pub fn rng(&self, thing: u64) -> Rng {
        Rng::of(self.seed, thing)
    }

    /// Creates the metadata of a resource that was created weeks ago.
    pub fn metadata(&self, name: &str, rng: &mut Rng) -> Value {
        let uid = rng.uuid();
        let created = self.seconds_ago(40 * 86_400 + rng.below(86_400) as i64);
        json!({"name": name, "uid": uid, "creationTimestamp": created})
    }
}

/// The part of a CIDR with this prefix length and number, which must exist.
pub(super) fn part(cidr: IpNet, prefix: u8, number: usize) -> IpNet {
    let part = cidr.subnets(prefix).ok().and_then(|mut parts| parts.nth(number));
    part.unwrap_or_else(|| panic!("{cidr} has no part {number} of /{prefix}"))
}

/// A number for the random numbers of a named thing.
pub(super) fn hash(seed: u64, name: &str) -> u64 {
    name.bytes().fold(seed, |hash, byte| {
        hash.wrapping_mul(31).wrapping_add(u64::from(byte))
    })
}

/// Formats a time as RFC 3339 in UTC, in whole seconds.
pub fn whole_seconds(time: Timestamp) -> String {
    let time = time.round(Unit::Second).expect("rounding to seconds works");
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Formats a time as in the attribute `timestamp`, which has Go's default format.
pub fn go_time(time: Timestamp) -> String {
    let text = time.strftime("%Y-%m-%d %H:%M:%S%.f").to_string();
    format!("{text} +0000 UTC")
}

/// The name of a pod and its application.
#[derive(Clone, Debug)]
pub struct PodName {
    pub namespace: &'static str,
    pub pod: String,
    /// The common prefix of the names of the application's pods; empty for stateful pods.
    pub generate: String,
    /// The label `app`.
    pub app: &'static str,
}

/// The namespace, the application, and true if its pods keep their names.
const APPS: [(&str, &str, bool); 10] = [
    ("default", "web", false),
    ("shop", "cart", false),
    ("shop", "checkout", false),
    ("batch", "report", false),
    ("default", "db", true),
    ("kube-system", "coredns", false),
    ("monitoring", "prometheus", true),
    ("monitoring", "node-exporter", false),
    ("shop", "search", false),
    ("default", "queue", true),
];

/// Letters that Kubernetes uses in generated names.
const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// The unique name of the pod with a serial number.
pub(crate) fn pod_name(serial: u64) -> PodName {
    let (namespace, app, stateful) = APPS[(serial % APPS.len() as u64) as usize];
    if stateful {
        let pod = format!("{app}-{serial}");
        return PodName {
            namespace,
            pod,
            generate: String::new(),
            app,
        };
    }
    let words = LETTERS.len().pow(5) as u64;
    assert!(serial < words, "there are no more names for pods");
    // The factor and the number of words have no common divisor, so each serial number has its own name.
    let mut rest = serial * 7_368_787 % words;
    let mut suffix = String::with_capacity(5);
    for _ in 0..5 {
        suffix.push(char::from(LETTERS[(rest % 27) as usize]));
        rest /= 27;
    }
    let generate = format!("{app}-6799fc88d8-");
    PodName {
        namespace,
        pod: format!("{generate}{suffix}"),
        generate,
        app,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn places_are_where_a_reader_expects_them() {
        let spec = ClusterSpec::new(1);
        assert_eq!(spec.block_v4(7, 0).to_string(), "10.244.7.0/26");
        assert_eq!(spec.block_v6(7, 0).to_string(), "fd00:10:244::7:0/122");
        assert!(spec.pool_v4().contains(&spec.spare_block_v4(223)));
        assert!(
            spec.wide()
                .pool_v4()
                .contains(&spec.wide().spare_block_v4(10_799))
        );
        assert_eq!(spec.seconds_ago(60), "2026-06-01T07:59:00Z");
    }

    #[test]
    fn pods_have_names_of_their_own() {
        let names: BTreeSet<(&str, String)> =
            (0..50_000).map(pod_name).map(|n| (n.namespace, n.pod)).collect();
        assert_eq!(names.len(), 50_000);
    }

    #[test]
    fn times_read_like_those_of_go() {
        let time: Timestamp = "2026-05-01T10:12:00.12345Z".parse().unwrap();
        assert_eq!(go_time(time), "2026-05-01 10:12:00.12345 +0000 UTC");
        assert_eq!(
            go_time("2026-05-01T10:12:00Z".parse().unwrap()),
            "2026-05-01 10:12:00 +0000 UTC"
        );
        assert_eq!(whole_seconds(time), "2026-05-01T10:12:00Z");
    }
}
