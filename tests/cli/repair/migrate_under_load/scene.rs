//! A cluster in etcd or behind an API server, for a migration under load.

use calipam_model::key::Key;

use super::super::kubernetes::{self, KubeSite};
use super::super::site::*;

/// The migrated cluster, in its datastore.
pub(super) trait Scene: Runs {
    /// Starts a proxy in front of the datastore.
    fn tearing(&self) -> Tearing;

    /// Prepares a run of the program that connects through the proxy.
    fn command_by_proxy(&self, torn: &Tearing, arguments: &[&str]) -> Command;

    /// Returns all pools.
    fn all_pools(&self) -> Vec<Value>;

    /// Returns the CIDRs of all blocks and of all affinities.
    fn cidrs(&self) -> [Vec<IpNet>; 2];

    /// Returns the number of assigned addresses.
    fn assigned(&self) -> usize;
}

impl Scene for Site {
    fn tearing(&self) -> Tearing {
        Tearing::etcd(&self.etcd).unwrap()
    }

    fn command_by_proxy(&self, torn: &Tearing, arguments: &[&str]) -> Command {
        self.command_through(torn, arguments)
    }

    fn all_pools(&self) -> Vec<Value> {
        self.pools().into_values().collect()
    }

    fn cidrs(&self) -> [Vec<IpNet>; 2] {
        let [mut blocks, mut affinities] = [Vec::new(), Vec::new()];
        for key in self.dump().keys() {
            match Key::parse(key) {
                Ok(Some(Key::Block(cidr))) => blocks.push(cidr),
                Ok(Some(Key::Affinity(affinity))) => affinities.push(affinity.cidr),
                _ => {}
            }
        }
        [blocks, affinities]
    }

    fn assigned(&self) -> usize {
        recorded(&self.dump()).len()
    }
}

impl Scene for KubeSite {
    fn tearing(&self) -> Tearing {
        Tearing::kubernetes(&self.server).unwrap()
    }

    fn command_by_proxy(&self, torn: &Tearing, arguments: &[&str]) -> Command {
        self.command_by(torn.kubeconfig(), arguments)
    }

    fn all_pools(&self) -> Vec<Value> {
        self.list("ippools").into_values().collect()
    }

    fn cidrs(&self) -> [Vec<IpNet>; 2] {
        ["ipamblocks", "blockaffinities"].map(|plural| {
            let cidr = |object: Value| object["spec"]["cidr"].as_str().unwrap().parse().unwrap();
            self.list(plural).into_values().map(cidr).collect()
        })
    }

    fn assigned(&self) -> usize {
        kubernetes::recorded(&self.objects(), false).len()
    }
}
