//! Generates fleets: clusters with their own pools, and faults between clusters.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::json;

use super::layout::part;
use super::wire::key;
use super::{Cluster, ClusterSpec};

/// A fault between the clusters of a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FleetFault {
    /// The second cluster has a pool inside a pool of the first one.
    OverlappingPools,
    /// The second cluster has a pool inside a pool of the first one, and a block there from which pods of both clusters
    /// have addresses.
    SharedAddresses,
    /// A pool of the second cluster covers the nodes of all clusters.
    PoolOverNodes,
    /// The first cluster has a disabled pool for only half of the second cluster's pool.
    HalfDisabledPool,
    /// Only the first cluster has strict affinity.
    StrictAffinity,
}

/// Clusters named `a`, `b` and so on, which route to each other.
#[derive(Clone, Debug)]
pub struct Fleet {
    pub clusters: Vec<(String, Cluster)>,
    /// The findings between the clusters: cluster, code and subject.
    pub expected: BTreeSet<[String; 3]>,
}

impl FleetFault {
    pub const ALL: [Self; 5] = [
        Self::OverlappingPools,
        Self::SharedAddresses,
        Self::PoolOverNodes,
        Self::HalfDisabledPool,
        Self::StrictAffinity,
    ];
}

impl Fleet {
    /// Creates healthy clusters. Each has its own pools, and disabled pools for the IPv4 pools of all other clusters.
    pub fn healthy(number: u8) -> Self {
        let specs: Vec<ClusterSpec> = (1..=number)
            .map(|place| ClusterSpec::new(place.into()).in_place(place))
            .collect();
        let cluster = |spec: &ClusterSpec| {
            let mut cluster = Cluster::plain(*spec, 3, 4);
            for other in specs.iter().filter(|other| other.place != spec.place) {
                let name = format!("to-{}", other.place);
                cluster.put_pool(&name, other.pool_v4(), 26, &json!({"disabled": true}));
            }
            let letter = char::from(b'a' + (spec.place - 1) % 26);
            let number = if spec.place > 26 {
                spec.place.to_string()
            } else {
                String::new()
            };
            (format!("{letter}{number}"), cluster)
        };
        Self {
            clusters: specs.iter().map(cluster).collect(),
            expected: BTreeSet::new(),
        }
    }

    /// Adds a fault to a healthy fleet of three clusters or more.
    pub fn inject(&mut self, fault: FleetFault) {
        let second = self.clusters[1].1.spec;
        match fault {
            FleetFault::OverlappingPools => {
                self.overlap();
            }
            FleetFault::SharedAddresses => {
                let block = self.overlap();
                let cluster = &mut self.clusters[1].1;
                let node = cluster.nodes[0].name.clone();
                cluster.claim(block, &node);
                let theirs: Vec<IpAddr> = (0..3)
                    .map(|_| cluster.add_pod(&node, &[block]).address())
                    .collect();
                let ours = self.clusters[0].1.block_mut(block).clone();
                let held = |address: &&IpAddr| ours.allocations[ours.ordinal(**address)].is_some();
                for address in theirs.iter().filter(held) {
                    self.expect(0, "address-in-several-clusters", address);
                }
            }
            FleetFault::PoolOverNodes => {
                let nodes: IpNet = "192.168.0.0/20".parse().expect("a CIDR");
                self.clusters[1].1.put_pool("over-nodes", nodes, 26, &json!({}));
                self.expect(1, "pool-covers-other-cluster", nodes);
            }
            FleetFault::HalfDisabledPool => {
                let half = part(second.pool_v4(), 17, 0);
                let cluster = &mut self.clusters[0].1;
                cluster.remove(&key::pool(&format!("to-{}", second.place)));
                cluster.put_pool("to-half", half, 26, &json!({"disabled": true}));
                self.expect(0, "disabled-pool-mismatch", half);
            }
            FleetFault::StrictAffinity => {
                self.clusters[0]
                    .1
                    .change_settings(&json!({"strictAffinity": true}));
                self.expect(0, "cluster-settings-differ", "a");
            }
        }
    }

    /// Adds a pool to the second cluster that equals a block of the first one.
    fn overlap(&mut self) -> IpNet {
        let first = self.clusters[0].1.spec;
        let block = self.clusters[0].1.nodes()[0].blocks[0];
        self.clusters[1].1.put_pool("overlapping", block, 26, &json!({}));
        self.expect(0, "overlapping-cluster-pools", first.pool_v4());
        // The disabled pool for the first cluster's pool already exists.
        block
    }

    fn expect(&mut self, cluster: usize, code: &str, subject: impl ToString) {
        let name = self.clusters[cluster].0.clone();
        self.expected.insert([name, code.to_owned(), subject.to_string()]);
    }
}
