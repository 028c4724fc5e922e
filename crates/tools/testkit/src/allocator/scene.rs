//! A cluster without pods, on which allocators work.

use super::churn::{Churn, ChurnLog};
use super::ledger::{Ledger, Violation};
use crate::World;
use crate::cluster::{Cluster, ClusterSpec};
use crate::kube::{Flavour, seed, seed_nodes};
use crate::servers::Etcd;

/// A cluster, and what its allocators need to know about it.
#[derive(Debug)]
pub struct Scene {
    pub world: World,
    spec: ClusterSpec,
    nodes: Vec<String>,
}

/// # Panics
/// The functions panic if a server does not start, does not answer, or refuses an object.
impl Scene {
    /// A cluster in etcd.
    pub fn on_etcd(cluster: &Cluster) -> Self {
        Self::of(World::etcd_of(cluster), cluster)
    }

    /// A cluster in etcd, with an API server for its pods.
    pub fn on_etcd_with_kubernetes(cluster: &Cluster) -> Self {
        let world = World::beside_kubernetes(Etcd::of(cluster).expect("etcd starts"));
        let scene = Self::of(world, cluster);
        seed_nodes(scene.world.server(), &scene.nodes).expect("an answer");
        scene
    }

    /// Four nodes on an API server.
    pub fn on_kubernetes(flavour: Flavour, spec: ClusterSpec) -> Self {
        let world = World::kubernetes(flavour);
        let nodes = seed(world.server(), flavour, &spec, 4).expect("an answer");
        Self { world, spec, nodes }
    }

    fn of(world: World, cluster: &Cluster) -> Self {
        let nodes = cluster.nodes().iter().map(|node| node.name.clone()).collect();
        Self {
            world,
            spec: *cluster.spec(),
            nodes,
        }
    }

    /// Lets allocators work. Returns when they have ended.
    pub fn churn(&self, churn: &Churn) -> ChurnLog {
        churn
            .run(self.world.target(), &self.spec, &self.nodes)
            .expect("the servers answer")
    }

    /// The live pods that have lost their addresses.
    pub fn violations(&self, ledger: &Ledger) -> Vec<Violation> {
        ledger.verify(self.world.target()).expect("the servers answer")
    }
}
