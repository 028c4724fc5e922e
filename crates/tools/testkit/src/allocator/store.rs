//! What the allocator needs of a datastore: its objects by place, compare-and-swap, and what uses the addresses.

use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use ipnet::IpNet;

use super::etcd::EtcdKeys;
use super::etcd_with_pods::EtcdWithPods;
use super::kubernetes::KubeObjects;
use crate::cluster::rng::Rng;
use crate::cluster::{ClusterSpec, Holder};
use crate::kube::Flavour;
use crate::servers::{KubeApiserver, ServerError};

/// What an operation gives where the datastore works.
pub(super) type Result<T> = std::result::Result<T, ServerError>;

/// Where an allocator finds its datastore.
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    /// An etcd without authentication, by its endpoint.
    Etcd(&'a str),
    /// An API server with Calico's kinds of one API group.
    Kubernetes(&'a KubeApiserver, Flavour),
    /// Such an etcd, and the API server of the cluster that uses it, which has the pods.
    EtcdAndKubernetes(&'a str, &'a KubeApiserver),
}

impl Target<'_> {
    /// Connects. Every worker has a connection of its own.
    pub(super) fn connect(self, spec: ClusterSpec) -> Result<Box<dyn Datastore>> {
        Ok(match self {
            Self::Etcd(endpoint) => Box::new(EtcdKeys::connect(endpoint, spec)?),
            Self::Kubernetes(server, flavour) => Box::new(KubeObjects::connect(server, flavour)?),
            Self::EtcdAndKubernetes(endpoint, server) => {
                Box::new(EtcdWithPods::connect(endpoint, server, spec)?)
            }
        })
    }
}

/// One of the allocator's objects.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place<'a> {
    Block(IpNet),
    /// The affinity of a node for a block.
    Affinity(&'a str, IpNet),
    /// The handle with an ID.
    Handle(&'a str),
}

/// Objects that are read together, or only read.
#[derive(Clone, Copy, Debug)]
pub(super) enum List<'a> {
    /// The configuration of the allocator.
    Config,
    /// The node with a name.
    Node(&'a str),
    Pools,
    Reservations,
    Blocks,
    /// The affinities of a node, or of all nodes.
    Affinities(Option<&'a str>),
}

/// The version of an object that was read or written.
#[derive(Clone, Debug)]
pub(super) enum Version {
    /// The revision of the last write to the key.
    Etcd(i64),
    /// `resourceVersion` and `uid`.
    Kubernetes(String, String),
}

/// A value in the form of etcd, and its version.
pub(super) type Read = (Vec<u8>, Version);

/// How a pod ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// It is deleted; its sandbox is taken away in time.
    Deleted,
    /// Its containers have ended; its object stays for a while.
    Finished,
    /// Its node runs short of something.
    Evicted,
    /// Only its sandbox ends: the pod gets another one, with another handle.
    Restarted,
    /// Its object is gone without its sandbox having been taken away, as after a crash of the node: it leaks.
    Lost,
}

/// A datastore as one worker sees it. Values have the form of etcd everywhere. Only errors of the connection and
/// refusals are errors; one that comes too late gets `None` or false.
pub(super) trait Datastore: Send {
    fn get(&mut self, place: Place<'_>) -> Result<Option<Read>>;
    /// Stores a value if there is none.
    fn create(&mut self, place: Place<'_>, value: Vec<u8>) -> Result<Option<Version>>;
    /// Changes what was read at a version.
    fn update(&mut self, place: Place<'_>, value: Vec<u8>, version: &Version) -> Result<Option<Version>>;
    /// Deletes what was read at a version.
    fn delete(&mut self, place: Place<'_>, version: &Version) -> Result<bool>;
    /// Several objects, or one that only is read, each with its path in etcd.
    fn list(&mut self, list: List<'_>) -> Result<Vec<(String, Read)>>;

    /// The pod is there and has been given a node.
    fn announce(&mut self, holder: &Holder) -> Result<()>;
    /// CNI ADD after the allocation: the pod has its address.
    fn publish(&mut self, holder: &Holder, address: IpAddr) -> Result<()>;
    /// The pod does not use its address any more: what comes before the release.
    fn withdraw(&mut self, holder: &Holder, ending: Ending) -> Result<()>;
    /// What comes after the release.
    fn bury(&mut self, holder: &Holder, ending: Ending) -> Result<()>;
}

/// One worker's datastore, with pauses after the writes.
pub(super) struct Store {
    datastore: Box<dyn Datastore>,
    /// How long the pauses are.
    rng: Rng,
    /// Longest pause after a write.
    pause: Duration,
    /// Writes that another worker was faster with.
    pub conflicts: u64,
    /// Writes that took effect.
    pub writes: u64,
}

impl Store {
    /// A worker's datastore.
    pub(super) fn new(datastore: Box<dyn Datastore>, rng: Rng, pause: Duration) -> Self {
        Self { datastore, rng, pause, conflicts: 0, writes: 0 }
    }

    pub(super) fn get(&mut self, place: Place<'_>) -> Result<Option<Read>> {
        self.datastore.get(place)
    }

    /// Stores a value if there is none; `None` if there is one.
    pub(super) fn create(&mut self, place: Place<'_>, value: Vec<u8>) -> Result<Option<Version>> {
        let version = self.datastore.create(place, value)?;
        self.written(version.is_some());
        Ok(version)
    }

    /// Changes what was read at a version; `None` if it has changed since.
    pub(super) fn update(
        &mut self,
        place: Place<'_>,
        value: Vec<u8>,
        version: &Version,
    ) -> Result<Option<Version>> {
        let version = self.datastore.update(place, value, version)?;
        self.written(version.is_some());
        Ok(version)
    }

    /// Deletes what was read at a version; false if it has changed since.
    pub(super) fn delete(&mut self, place: Place<'_>, version: &Version) -> Result<bool> {
        let done = self.datastore.delete(place, version)?;
        self.written(done);
        Ok(done)
    }

    /// What uses addresses, and who has which blocks.
    pub(super) fn others(&mut self) -> &mut dyn Datastore {
        &mut *self.datastore
    }

    /// Counts a write and waits for a random time, so that readers see the state between two writes.
    fn written(&mut self, done: bool) {
        *(if done { &mut self.writes } else { &mut self.conflicts }) += 1;
        let longest = self.pause.as_micros() as u64;
        if longest > 0 {
            thread::sleep(Duration::from_micros(self.rng.below(longest)));
        }
    }
}
