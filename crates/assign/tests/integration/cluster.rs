//! An in-memory cluster, with shorthands for tests.

use std::net::IpAddr;

use calipam_assign::{
    Allocator, AssignIp, Assigned, AutoAssign, AutoAssigned, Error, Expected, InUse, NewOwner,
    OwnerConditions, OwnerUpdates, Partly, Record, Release, Released,
};
use calipam_model::IpNet;
use calipam_model::affinity::{Affinity, AffinityType};
use calipam_model::block::{Block, BlockOwner};
use calipam_model::key::Key;
use calipam_model::pool::PoolUse;
use calipam_testkit::memory::MemoryStore;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::run;

pub(crate) const RESOURCES: &str = "/calico/resources/v3/projectcalico.org";

pub(crate) struct Cluster {
    pub store: MemoryStore,
}

impl Cluster {
    /// A cluster with one node, `host-a`, and pools with these CIDRs and the default block size.
    pub(crate) fn new(pools: &[&str]) -> Self {
        let now = "2026-05-01T10:00:00Z".parse::<Timestamp>().unwrap();
        let cluster = Self {
            store: MemoryStore::new(now),
        };
        cluster.node("host-a", &[]);
        pools.iter().for_each(|cidr| cluster.pool(cidr, json!({})));
        cluster
    }

    /// A cluster with one node, `host-a`, and pools with these CIDRs and block sizes.
    pub(crate) fn with_blocks(pools: &[(&str, u8)]) -> Self {
        let cluster = Self::new(&[]);
        pools
            .iter()
            .for_each(|(cidr, size)| cluster.pool(cidr, json!({"blockSize": size})));
        cluster
    }

    pub(crate) fn node(&self, name: &str, labels: &[(&str, &str)]) {
        let labels: Value = labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), json!(value)))
            .collect();
        let node = json!({"metadata": {"name": name, "labels": labels}, "spec": {}});
        self.store
            .put(&format!("{RESOURCES}/nodes/{name}"), node.to_string());
    }

    /// Creates or changes a pool.
    pub(crate) fn pool(&self, cidr: &str, mut spec: Value) {
        spec["cidr"] = cidr.into();
        self.store
            .put(&pool_path(cidr), json!({"spec": spec}).to_string());
    }

    pub(crate) fn remove_pool(&self, cidr: &str) {
        assert!(self.store.remove(&pool_path(cidr)), "there is no pool {cidr}");
    }

    pub(crate) fn reserve(&self, name: &str, cidrs: &[&str]) {
        let reservation = json!({"spec": {"reservedCIDRs": cidrs}});
        self.store.put(
            &format!("{RESOURCES}/ipreservations/{name}"),
            reservation.to_string(),
        );
    }

    pub(crate) fn affinity_is_strict(&self, strict: bool) {
        self.configure(json!({"strict_affinity": strict}));
    }

    pub(crate) fn configure(&self, mut config: Value) {
        config["auto_allocate_blocks"] = true.into();
        self.store.put("/calico/ipam/v2/config", config.to_string());
    }

    pub(crate) fn advance(&self, seconds: i64) {
        self.store.advance(SignedDuration::from_secs(seconds));
    }

    pub(crate) fn allocator(&self) -> Allocator<&MemoryStore> {
        Allocator::new(&self.store)
    }

    pub(crate) fn auto(&self, request: &AutoAssign) -> Result<AutoAssigned, Box<Partly<AutoAssigned>>> {
        run(self.allocator().auto_assign(request))
    }

    /// The IPv4 result of a request, which must succeed.
    pub(crate) fn v4(&self, request: &AutoAssign) -> Assigned {
        self.auto(request).unwrap().v4.unwrap()
    }

    /// The IPv4 addresses of a request, which must succeed.
    pub(crate) fn addresses(&self, request: &AutoAssign) -> Vec<IpAddr> {
        self.v4(request).addresses.iter().map(IpNet::addr).collect()
    }

    /// The error of a request, which must fail.
    pub(crate) fn refusal(&self, request: &AutoAssign) -> String {
        self.auto(request).unwrap_err().error.to_string()
    }

    pub(crate) fn assign(&self, request: &AssignIp) -> Result<(), Error> {
        run(self.allocator().assign_ip(request))
    }

    pub(crate) fn release(&self, requests: &[Release]) -> Result<Released, Box<Partly<Released>>> {
        run(self.allocator().release_ips(requests))
    }

    /// Releases addresses, all of which must be allocated.
    pub(crate) fn release_all(&self, addresses: &[IpAddr]) {
        let requests: Vec<Release> = addresses.iter().copied().map(Release::any).collect();
        let released = self.release(&requests).unwrap();
        assert_eq!(
            (released.not_allocated.len(), released.without_error.len()),
            (0, addresses.len())
        );
    }

    pub(crate) fn release_handle(&self, handle: &str) -> Result<(), Error> {
        run(self.allocator().release_by_handle(handle))
    }

    /// Changes the owners of an address of a handle.
    pub(crate) fn set_owners(
        &self,
        address: IpAddr,
        handle: &str,
        [active, alternate]: [NewOwner; 2],
        [of_active, of_alternate]: [Expected; 2],
    ) -> Result<(), Error> {
        let updates = OwnerUpdates { active, alternate };
        let conditions = OwnerConditions {
            active: of_active,
            alternate: of_alternate,
        };
        run(self
            .allocator()
            .set_owner_attributes(address, handle, &updates, &conditions))
    }

    /// The addresses of a handle; `None` if the handle does not exist.
    pub(crate) fn of_handle(&self, handle: &str) -> Option<Vec<IpAddr>> {
        match run(self.allocator().ips_by_handle(handle)) {
            Ok(found) => Some(found),
            Err(Error::NoHandle(_)) => None,
            Err(error) => panic!("{handle}: {error}"),
        }
    }

    pub(crate) fn give_up(&self, cidr: IpNet, node: &str, in_use: InUse) -> Result<(), Error> {
        run(self.allocator().release_affinity(cidr, node, in_use))
    }

    pub(crate) fn give_up_all(&self, node: &str, in_use: InUse) -> Result<(), Error> {
        run(self
            .allocator()
            .release_host_affinities(AffinityType::Host, node, in_use))
    }

    pub(crate) fn blocks(&self) -> Vec<Block> {
        self.records("/calico/ipam/v2/assignment/")
            .into_iter()
            .filter_map(Into::into)
            .collect()
    }

    pub(crate) fn affinities(&self) -> Vec<Affinity> {
        self.records("/calico/ipam/v2/host/")
            .into_iter()
            .filter_map(Into::into)
            .collect()
    }

    /// The cluster's only block.
    pub(crate) fn block(&self) -> Block {
        let mut blocks = self.blocks();
        assert_eq!(blocks.len(), 1, "{blocks:?}");
        blocks.remove(0)
    }

    /// Requests an address, and returns the block that contains it.
    pub(crate) fn block_after(&self, request: &AutoAssign) -> IpNet {
        let address = self.addresses(request)[0];
        self.blocks()
            .iter()
            .map(Block::cidr)
            .find(|cidr| cidr.contains(&address))
            .unwrap()
    }

    /// The blocks for which a node has affinities.
    pub(crate) fn blocks_of(&self, node: &str) -> Vec<IpNet> {
        let affinities = self.affinities().into_iter().map(|affinity| affinity.key);
        affinities
            .filter(|key| key.node == node)
            .map(|key| key.cidr)
            .collect()
    }

    fn records(&self, prefix: &str) -> Vec<Record> {
        let values = self.store.values(prefix).into_iter();
        let record = |(path, value, _): (String, Vec<u8>, i64)| {
            Record::decode(&Key::parse(&path).unwrap().unwrap(), &value).unwrap()
        };
        values.map(record).collect()
    }
}

/// The key of a pool.
pub(crate) fn pool_path(cidr: &str) -> String {
    format!("{RESOURCES}/ippools/{}", cidr.replace(['.', ':', '/'], "-"))
}

/// A request by `host` for IPv4 addresses of workloads.
pub(crate) fn wants(host: &str, v4: u32) -> AutoAssign {
    AutoAssign {
        host: host.into(),
        v4,
        intended_use: Some(PoolUse::Workload),
        ..AutoAssign::default()
    }
}

/// A request by `host` for IPv4 addresses of workloads, under a handle.
pub(crate) fn wants_as(host: &str, v4: u32, handle: &str) -> AutoAssign {
    AutoAssign {
        handle: Some(handle.into()),
        ..wants(host, v4)
    }
}

pub(crate) fn nets(cidrs: &[&str]) -> Vec<IpNet> {
    cidrs.iter().map(|cidr| net(cidr)).collect()
}

/// CIDRs as they are stored.
pub(crate) fn spellings(cidrs: &[&str]) -> Vec<String> {
    cidrs.iter().map(ToString::to_string).collect()
}

pub(crate) fn net(cidr: &str) -> IpNet {
    cidr.parse().unwrap()
}

pub(crate) fn ip(address: &str) -> IpAddr {
    address.parse().unwrap()
}

/// A request by `host-a` for one given address.
pub(crate) fn given(address: &str) -> AssignIp {
    AssignIp::new("host-a", ip(address))
}

pub(crate) fn owned_by(node: &str) -> Option<BlockOwner> {
    Some(BlockOwner::Host(node.into()))
}

/// True if all addresses are in a CIDR.
pub(crate) fn all_in(addresses: &[IpAddr], cidr: &str) -> bool {
    let cidr = net(cidr);
    addresses.iter().all(|address| cidr.contains(address))
}
