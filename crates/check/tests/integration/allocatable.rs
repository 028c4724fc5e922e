//! Compares ALLOCATABLE with what the allocator does: on random clusters, nodes take addresses from a pool until no
//! node gets another one.

use std::collections::BTreeSet;

use calipam_assign::{Allocator, AutoAssign, SnapshotStore, without_waiting};
use calipam_check::views::{self, PoolView};
use calipam_model::IpNet;
use calipam_model::cidr::address_at;
use calipam_model::key::{Key, RESOURCE_PREFIX};
use calipam_model::pool::{Pool, PoolUse};
use calipam_model::snapshot::{ALLOCATION_SOURCES, Snapshot};
use calipam_testkit::cluster::rng::Rng;
use calipam_testkit::{rounds, values};
use serde_json::{Value, json};

const NODES: [&str; 3] = ["a", "b", "c"];
const POOLS: [(&str, &str); 2] = [("one", "10.0.0.0/27"), ("two", "10.1.0.0/28")];

struct World {
    snapshot: Snapshot,
    rng: Rng,
    /// The choices of objects that date from other CIDRs and block sizes.
    odd: Rng,
    is_old: bool,
    is_limited: bool,
}

impl World {
    /// A random cluster with pools of four-address blocks. Some of the blocks exist.
    fn new(seed: u64) -> Self {
        let taken_at = "2026-05-01T12:00:00Z".parse().unwrap();
        let snapshot = Snapshot {
            taken_at,
            ..Snapshot::default()
        };
        let mut world = Self {
            snapshot,
            rng: Rng::new(seed),
            odd: Rng::new(seed),
            is_old: false,
            is_limited: false,
        };
        world.snapshot.mark_read(ALLOCATION_SOURCES);
        world.is_limited = world.rng.one_in(2);
        let mut config =
            json!({"strict_affinity": world.rng.one_in(2), "auto_allocate_blocks": !world.rng.one_in(6)});
        if world.is_limited {
            config["maxBlocksPerHost"] = (1 + world.rng.below(4)).into();
        }
        world.put("/calico/ipam/v2/config", &config);
        world.is_old = world.rng.one_in(3);
        let version = if world.is_old { "v3.31.7" } else { "v3.32.1" };
        world.resource("clusterinformations/default", json!({"calicoVersion": version}));
        for node in NODES {
            let labels = json!({"metadata": {"labels": {"name": node}}});
            world.put(&format!("{RESOURCE_PREFIX}nodes/{node}"), &labels);
        }
        for (name, cidr) in POOLS {
            world.pool(name, cidr);
        }
        world
    }

    fn put(&mut self, path: &str, value: &Value) {
        self.snapshot
            .add_entry(path.as_bytes(), value.to_string().as_bytes(), 7);
    }

    fn resource(&mut self, name: &str, spec: Value) {
        self.put(&format!("{RESOURCE_PREFIX}{name}"), &json!({"spec": spec}));
    }

    fn reserve(&mut self, name: &str, cidrs: Value) {
        self.resource(&format!("ipreservations/{name}"), json!({"reservedCIDRs": cidrs}));
    }

    fn pool(&mut self, name: &str, cidr: &str) {
        let mut spec = json!({"cidr": cidr, "blockSize": 30});
        match self.rng.below(10) {
            0 => spec["assignmentMode"] = "Manual".into(),
            1 => spec["nodeSelector"] = "name == 'b'".into(),
            2 => spec["nodeSelector"] = "name == 'd'".into(),
            3 => spec["allowedUses"] = json!(["Tunnel"]),
            4 => spec["allowedUses"] = json!(["LoadBalancer"]),
            _ => {}
        }
        let cidr: IpNet = cidr.parse().unwrap();
        // The pool can be smaller than its blocks, because it had another CIDR when they were created.
        if self.odd.one_in(8) {
            spec["cidr"] = IpNet::new(cidr.addr(), 31).unwrap().to_string().into();
        }
        self.resource(&format!("ippools/{name}"), spec);
        let places: Vec<IpNet> = cidr.subnets(30).unwrap().collect();
        for place in &places {
            match self.rng.below(16) {
                0..5 if self.odd.one_in(6) && !self.is_limited => self.affinity_of_other_size(*place),
                0..5 => {}
                5 => self.affinity(*place),
                6 => self.reserve(&format!("{name}-whole"), json!([place])),
                7 => self.block(place.subnets(31).unwrap().next().unwrap(), true),
                8 => self.block(*place, false),
                _ => self.block(*place, true),
            }
        }
        // With a block limit, reserving single addresses would make the result depend on which blocks are claimed.
        if !self.is_limited && self.rng.one_in(2) {
            let reserved: Vec<String> = (0..3)
                .map(|_| address_at(cidr, self.rng.below(16) as u32).to_string())
                .collect();
            self.reserve(&format!("{name}-some"), json!(reserved));
        }
    }

    fn affinity(&mut self, cidr: IpNet) {
        let node = *self.rng.pick(&NODES);
        let state = *self.rng.pick(&["confirmed", "pending"]);
        let path = values::affinity_key(&format!("host/{node}"), &cidr.to_string());
        self.put(&path, &json!({"state": state}));
    }

    /// An affinity for a half of the place. The other half is reserved: other nodes may claim the place first.
    fn affinity_of_other_size(&mut self, place: IpNet) {
        let [half, rest] = [0, 2].map(|first| IpNet::new(address_at(place, first), 31).unwrap());
        self.reserve(&format!("rest-{}", rest.addr()), json!([rest]));
        let path = values::affinity_key("host/b", &half.to_string());
        self.put(&path, &json!({"state": "confirmed"}));
    }

    fn block(&mut self, cidr: IpNet, has_affinity: bool) {
        let owner = *self.rng.pick(&[
            "host:a",
            "host:b",
            "host:c",
            "host:gone",
            "virtual:load-balancer",
            "",
        ]);
        let size = 1 << (32 - cidr.prefix_len());
        let taken = size.min(*self.rng.pick(&[0, 0, 1, 3, size]));
        let affinity = Some(owner).filter(|owner| !owner.is_empty());
        let value = values::block(
            &cidr.to_string(),
            affinity,
            vec![json!({"handle_id": "others"}); taken],
        );
        self.put(&Key::Block(cidr).to_string(), &value);
        match owner.split_once(':') {
            Some((kind, name)) if has_affinity => {
                let path = values::affinity_key(&format!("{kind}/{name}"), &cidr.to_string());
                self.put(&path, &json!({"state": "confirmed"}));
            }
            // An affinity whose block may belong to another node or to no node.
            _ if self.rng.one_in(3) && !self.is_limited => self.affinity(cidr),
            _ => {}
        }
    }

    /// The largest number of addresses that all nodes together get from a pool. If `by_name` is true, their requests
    /// name the pool.
    fn taken(&self, pool: &Pool, by_name: bool) -> u128 {
        let uses = [PoolUse::Workload, PoolUse::LoadBalancer, PoolUse::Tunnel];
        let wanted = uses.into_iter().find(|wanted| pool.allows(*wanted)).unwrap();
        let is_served = |node: &&&str| by_name || pool.node_selector.contains(&format!("'{node}'"));
        let served: Vec<&str> = match (wanted, pool.node_selector.as_str()) {
            (PoolUse::LoadBalancer, _) => vec!["load-balancer"],
            (_, "all()") => NODES.to_vec(),
            _ => NODES.iter().filter(is_served).copied().collect(),
        };
        // With a block limit, the order of the nodes can matter.
        let orders = (0..served.len()).map(|first| {
            let (end, begin) = served.split_at(first);
            self.taken_by(&[begin, end].concat(), pool, wanted, by_name)
        });
        orders.max().unwrap_or_default()
    }

    /// The number of addresses that these nodes get, one node after the other.
    fn taken_by(&self, hosts: &[&str], pool: &Pool, wanted: PoolUse, by_name: bool) -> u128 {
        let mut world = Self {
            snapshot: self.snapshot.clone(),
            rng: self.rng.clone(),
            odd: self.odd.clone(),
            ..*self
        };
        let others = POOLS
            .iter()
            .filter(|(name, _)| *name != pool.name)
            .map(|(_, cidr)| *cidr);
        world.reserve("others", json!(others.collect::<Vec<_>>()));
        let store = SnapshotStore::new(&world.snapshot);
        let allocator = Allocator::new(&store);
        let allocator = if self.is_old {
            allocator.without_reclaiming()
        } else {
            allocator
        };
        let mut taken = BTreeSet::new();
        let mut take = |host: &str| {
            let request = AutoAssign {
                host: host.to_owned(),
                v4: 1,
                pools_v4: if by_name { vec![pool.cidr] } else { Vec::new() },
                intended_use: Some(wanted),
                ..AutoAssign::default()
            };
            // Calico fails once when it removes a wrong affinity.
            (0..2).any(|_| {
                let done =
                    without_waiting(allocator.auto_assign(&request)).unwrap_or_else(|partly| partly.done);
                let before = taken.len();
                taken.extend(done.addresses());
                taken.len() > before
            })
        };
        for host in hosts {
            while take(host) {}
        }
        // A block that begins in the pool can be larger.
        taken.retain(|address| pool.cidr.contains(address));
        taken.len() as u128
    }
}

#[test]
fn the_allocator_gives_as_many_addresses_as_are_shown() {
    let mut shown = BTreeSet::new();
    for seed in 0..rounds(120) {
        let world = World::new(seed);
        let of_name = |name: &str| {
            world
                .snapshot
                .pools
                .iter()
                .find(|pool| pool.value.name == name)
                .unwrap()
        };
        for view in views::pools(&world.snapshot).pools {
            let PoolView {
                name,
                allocatable,
                by_name,
                limited_by,
                free,
                ..
            } = view;
            let pool = &of_name(&name).value;
            let about = format!("seed {seed}: {name}, {limited_by:?}");
            if allocatable.is_some_and(|allocatable| allocatable.0 < free.0) {
                assert!(!limited_by.is_empty(), "{about}: {allocatable:?} of {free:?}");
            }
            assert_eq!(
                allocatable.map(|count| count.0),
                Some(world.taken(pool, false)),
                "{about}"
            );
            if let Some(by_name) = by_name {
                assert_eq!(by_name.0, world.taken(pool, true), "by name, {about}");
            }
            shown.extend(limited_by);
        }
    }
    assert!(shown.len() > 5, "{shown:?}");
}
