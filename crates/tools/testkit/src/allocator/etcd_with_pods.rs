//! An etcd datastore whose cluster's pods are on an API server.

use std::net::IpAddr;

use super::etcd::EtcdKeys;
use super::pods::Pods;
use super::store::{Datastore, Ending, List, Place, Read, Result, Version};
use crate::cluster::{ClusterSpec, Holder};
use crate::servers::KubeApiserver;

/// Connections to both. With etcd the CNI plugin writes endpoints, and nothing to the pods.
pub(super) struct EtcdWithPods {
    etcd: EtcdKeys,
    pods: Pods,
}

impl EtcdWithPods {
    /// Connects to both. Must not be called from within an async runtime.
    pub(super) fn connect(endpoint: &str, server: &KubeApiserver, spec: ClusterSpec) -> Result<Self> {
        Ok(Self { etcd: EtcdKeys::connect(endpoint, spec)?, pods: Pods::connect(server)? })
    }
}

impl Datastore for EtcdWithPods {
    fn get(&mut self, place: Place<'_>) -> Result<Option<Read>> {
        self.etcd.get(place)
    }

    fn create(&mut self, place: Place<'_>, value: Vec<u8>) -> Result<Option<Version>> {
        self.etcd.create(place, value)
    }

    fn update(&mut self, place: Place<'_>, value: Vec<u8>, version: &Version) -> Result<Option<Version>> {
        self.etcd.update(place, value, version)
    }

    fn delete(&mut self, place: Place<'_>, version: &Version) -> Result<bool> {
        self.etcd.delete(place, version)
    }

    fn list(&mut self, list: List<'_>) -> Result<Vec<(String, Read)>> {
        self.etcd.list(list)
    }

    fn announce(&mut self, holder: &Holder) -> Result<()> {
        self.pods.announce(holder)
    }

    fn publish(&mut self, holder: &Holder, address: IpAddr) -> Result<()> {
        self.etcd.publish(holder, address)?;
        self.pods.set_address(holder, address)
    }

    fn withdraw(&mut self, holder: &Holder, ending: Ending) -> Result<()> {
        self.pods.begin_end(holder, ending)?;
        self.etcd.withdraw(holder, ending)
    }

    fn bury(&mut self, holder: &Holder, ending: Ending) -> Result<()> {
        self.pods.end(holder, ending)
    }
}
