//! The datastore interface of the allocator: objects by place, compare-and-swap, and the users of addresses.

use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use ipnet::IpNet;

use super::etcd::EtcdKeys;
use super::kubernetes::KubeObjects;
use crate::cluster::rng::Rng;
use crate::cluster::{ClusterSpec, Holder};
use crate::kube::Flavour;
use crate::servers::{KubeApiserver, ServerError};

/// The result of an operation on a datastore.
pub(super) type Result<T> = std::result::Result<T, ServerError>;

/// The datastore of an allocator.
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    /// An etcd without authentication, by its endpoint.
    Etcd(&'a str),
    /// An API server with Calico's kinds of one API group.
    Kubernetes(&'a KubeApiserver, Flavour),
    /// An etcd without authentication, and the API server with the pods of its cluster.
    EtcdAndKubernetes(&'a str, &'a KubeApiserver),
}

impl Target<'_> {
    /// Connects; every worker has a connection of its own.
    pub(super) fn connect(self, spec: ClusterSpec) -> Result<Box<dyn Datastore>> {
        Ok(match self {
            Self::Etcd(endpoint) => Box::new(EtcdKeys::connect(endpoint, None, spec)?),
            Self::Kubernetes(server, flavour) => Box::new(KubeObjects::connect(server, flavour)?),
            Self::EtcdAndKubernetes(endpoint, server) => {
                Box::new(EtcdKeys::connect(endpoint, Some(server), spec)?)
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

/// Objects that are read together, or are only read.
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

/// A value in etcd's form, and its version.
pub(super) type Read = (Vec<u8>, Version);

/// The way in which a pod ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// The pod is deleted, and its sandbox is removed in time.
    Deleted,
    /// The containers have ended; the pod object stays for a while.
    Finished,
    /// The node is short of a resource.
    Evicted,
    /// Only the sandbox ends: the pod gets another one, with another handle.
    Restarted,
    /// The pod object disappears but the sandbox was not removed, as after a node crash: the address leaks.
    Lost,
}

/// A datastore as one worker sees it. All values are in etcd's form. Lost connections and refusals are errors; a write
/// that comes too late returns `None` or false.
pub(super) trait Datastore: Send {
    fn get(&mut self, place: Place<'_>) -> Result<Option<Read>>;
    /// Stores a value if there is none.
    fn create(&mut self, place: Place<'_>, value: Vec<u8>) -> Result<Option<Version>>;
    /// Changes what was read at a version.
    fn update(&mut self, place: Place<'_>, value: Vec<u8>, version: &Version) -> Result<Option<Version>>;
    /// Deletes what was read at a version.
    fn delete(&mut self, place: Place<'_>, version: &Version) -> Result<bool>;
    /// Reads several objects, or one that is only read, each with its path in etcd.
    fn list(&mut self, list: List<'_>) -> Result<Vec<(String, Read)>>;

    /// Creates the pod, already bound to a node.
    fn announce(&mut self, holder: &Holder) -> Result<()>;
    /// Gives the pod its address, as CNI ADD does after the allocation.
    fn publish(&mut self, holder: &Holder, address: IpAddr) -> Result<()>;
    /// Takes the address away from the pod, before it is released.
    fn withdraw(&mut self, holder: &Holder, ending: Ending) -> Result<()>;
    /// Ends the pod, after its address was released.
    fn clean_up(&mut self, holder: &Holder, ending: Ending) -> Result<()>;
}

/// One worker's datastore, with pauses after the writes.
pub(super) struct Store {
    datastore: Box<dyn Datastore>,
    /// Source of the lengths of the pauses.
    rng: Rng,
    /// Longest pause after a write.
    pause: Duration,
    /// Writes that failed because another worker wrote first.
    pub conflicts: u64,
    /// Writes that took effect.
    pub writes: u64,
}

impl Store {
    pub(super) fn new(datastore: Box<dyn Datastore>, rng: Rng, pause: Duration) -> Self {
        Self { datastore, rng, pause, conflicts: 0, writes: 0 }
    }

    pub(super) fn get(&mut self, place: Place<'_>) -> Result<Option<Read>> {
        self.datastore.get(place)
    }

    /// Stores a value; `None` if another one is already stored.
    pub(super) fn create(&mut self, place: Place<'_>, value: Vec<u8>) -> Result<Option<Version>> {
        let version = self.datastore.create(place, value)?;
        self.written(version.is_some());
        Ok(version)
    }

    /// Changes a value that was read at a version; `None` if it has changed since.
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

    /// Deletes a value that was read at a version; false if it has changed since.
    pub(super) fn delete(&mut self, place: Place<'_>, version: &Version) -> Result<bool> {
        let done = self.datastore.delete(place, version)?;
        self.written(done);
        Ok(done)
    }

    /// The datastore itself, for lists and pods.
    pub(super) fn others(&mut self) -> &mut dyn Datastore {
        &mut *self.datastore
    }

    /// Counts a write and sleeps for a random time, so that readers see the state between two writes.
    fn written(&mut self, done: bool) {
        *(if done { &mut self.writes } else { &mut self.conflicts }) += 1;
        let longest = self.pause.as_micros() as u64;
        if longest > 0 {
            thread::sleep(Duration::from_micros(self.rng.below(longest)));
        }
    }
}
