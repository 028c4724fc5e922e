//! Adds pools and reservations.

use ipnet::IpNet;

use crate::cluster::Cluster;
use crate::cluster::wire::{self, Pool, key};

impl Cluster {
    /// Stores a reservation, and the pools that all nodes use, one for each family.
    pub(super) fn add_default_pools(&mut self) {
        let (v4, v6) = (self.spec.pool_v4(), self.spec.pool_v6());
        self.put_pool("default-ipv4-ippool", Pool::new(v4, 26));
        let mut reserved = vec![format!("{}/32", v4.addr())];
        if self.spec.dual_stack {
            let pool = Pool { vxlan_mode: "Always", ..Pool::new(v6, 122) };
            self.put_pool("default-ipv6-ippool", pool);
            reserved.push(format!("{}/120", v6.addr()));
        }
        let metadata = self.spec.metadata("infra", &mut self.spec.rng(3));
        self.put_raw(key::resource("ipreservations", "infra"), wire::reservation(metadata, &reserved));
    }

    /// Stores a pool.
    pub(in crate::cluster) fn put_pool(&mut self, name: &str, pool: Pool) {
        let thing = name.bytes().fold(4, |hash: u64, byte| hash.wrapping_mul(31) + u64::from(byte));
        let metadata = self.spec.metadata(name, &mut self.spec.rng(thing));
        self.put_raw(key::pool(name), pool.value(metadata));
    }

    /// Returns a name and a CIDR for an extra pool.
    pub(in crate::cluster) fn extra_pool(&mut self) -> (String, IpNet) {
        let number = self.next_pool;
        self.next_pool += 1;
        (format!("extra-{number}"), self.spec.extra_pool(number))
    }
}
