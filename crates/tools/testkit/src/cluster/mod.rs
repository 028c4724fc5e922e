//! Generates clusters: the data that Calico stores in etcd, with a known number of each fault, and the expected
//! findings. The same specification gives the same bytes on every machine.
//!
//! The generator writes JSON as `docs/calico-ipam.md` describes it. It has its own structs and its own block
//! arithmetic, so that tests do not compare calipam with itself.

mod build;
mod bulk;
mod example;
mod faults;
mod fleet;
mod kubernetes_only;
mod layout;
mod output;
pub mod rng;
mod truth;
pub mod wire;

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::Value;

pub(crate) use self::build::{Holder, endpoint_of};
pub use self::bulk::SizedCluster;
pub use self::faults::Fault;
pub use self::fleet::{Fleet, FleetFault};
use self::kubernetes_only::KubernetesOnly;
pub(crate) use self::layout::pod_name;
pub use self::layout::{ClusterSpec, PodName, go_time, whole_seconds};
pub use self::output::{KubeCluster, KubeObject, LeftOut};
pub use self::truth::{Expected, Form, Found, GroundTruth};
use self::wire::{Attribute, Block, Endpoint, Handle, IpamSettings, Node, key};

/// A stored value.
#[derive(Clone, Debug)]
pub enum Object {
    Block(Block),
    Handle(Handle),
    Node(Box<Node>),
    /// A workload endpoint.
    Endpoint(Box<Endpoint>),
    /// Any other value, and broken values.
    Raw(Vec<u8>),
}

impl Object {
    /// The bytes that etcd stores.
    pub fn value(&self) -> Vec<u8> {
        match self {
            Self::Block(block) => block.value(),
            Self::Handle(handle) => wire::go_json(handle),
            Self::Node(node) => wire::go_json(node),
            Self::Endpoint(endpoint) => wire::go_json(endpoint),
            Self::Raw(bytes) => bytes.clone(),
        }
    }
}

/// A pod in the cluster: its endpoint, its handle and its addresses.
#[derive(Clone, Debug)]
pub struct Pod {
    pub name: PodName,
    /// The Calico node.
    pub node: String,
    /// The ID of the pod's handle.
    pub handle: String,
    /// The pod's addresses, each with the block that records it.
    pub addresses: Vec<(IpAddr, IpNet)>,
    /// The key of the pod's endpoint.
    pub endpoint: String,
}

impl Pod {
    /// The pod's first address, which is the IPv4 one.
    pub fn address(&self) -> IpAddr {
        self.addresses[0].0
    }

    /// The block of the first address.
    pub fn block(&self) -> IpNet {
        self.addresses[0].1
    }
}

/// A node, as the generator remembers it.
#[derive(Clone, Debug)]
pub struct NodeInfo {
    /// Its name in Calico.
    pub name: String,
    /// The number that determines its blocks.
    pub number: u32,
    /// The node's first blocks, one of each family.
    pub blocks: Vec<IpNet>,
}

/// A generated cluster.
#[derive(Clone, Debug)]
pub struct Cluster {
    spec: ClusterSpec,
    entries: BTreeMap<Vec<u8>, Object>,
    /// The expected findings, in the order of [`Form::ALL`]. Subjects are written as in etcd.
    truths: [GroundTruth; Form::ALL.len()],
    kubernetes_only: KubernetesOnly,
    settings: IpamSettings,
    /// The settings in the resource IPAMConfiguration.
    mirrored: IpamSettings,
    nodes: Vec<NodeInfo>,
    /// See [`Self::young`].
    young: Vec<IpAddr>,
    /// The node on which the next pod of a fault is placed, and the number of pods on the node.
    host: Option<(usize, usize)>,
    /// Number of spare blocks assigned since the node in `host` was added. Most of them belong to this node.
    host_blocks: usize,
    next_node: u32,
    next_pod: u64,
    next_spare: u32,
    next_pool: u32,
}

impl Cluster {
    /// The specification that the cluster was generated from.
    pub fn spec(&self) -> &ClusterSpec {
        &self.spec
    }

    /// The findings that a check that reads only etcd must report. [`KubeCluster::truth`] returns those for the other
    /// forms.
    pub fn truth(&self) -> &GroundTruth {
        self.truth_of(Form::Etcd)
    }

    fn truth_of(&self, form: Form) -> &GroundTruth {
        &self.truths[form as usize]
    }

    /// Addresses of pods that have no endpoint yet. They are leaks only for a check with a grace period of 0.
    pub fn young(&self) -> &[IpAddr] {
        &self.young
    }

    /// The nodes that exist, or existed before a fault removed them.
    pub fn nodes(&self) -> &[NodeInfo] {
        &self.nodes
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there is no key.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The value under a key.
    pub fn get(&self, key: &str) -> Option<&Object> {
        self.entries.get(key.as_bytes())
    }

    /// Stores a value. Replaces any earlier one.
    pub fn put(&mut self, key: impl Into<Vec<u8>>, value: Object) {
        self.entries.insert(key.into(), value);
    }

    /// Stores bytes. Replaces any earlier value.
    pub fn put_raw(&mut self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) {
        self.put(key, Object::Raw(value.into()));
    }

    /// The JSON under a key, which must exist.
    pub fn json(&self, key: &str) -> Value {
        let object = self.get(key).unwrap_or_else(|| panic!("there is no {key}"));
        serde_json::from_slice(&object.value()).expect("the value is JSON")
    }

    /// Changes the JSON under a key, which must exist.
    pub fn edit(&mut self, key: &str, change: impl FnOnce(&mut Value)) {
        let mut value = self.json(key);
        change(&mut value);
        self.put_raw(key, value.to_string());
    }

    /// Removes a key, which must exist.
    pub fn remove(&mut self, key: &str) -> Object {
        self.entries.remove(key.as_bytes()).unwrap_or_else(|| panic!("there is no {key}"))
    }

    /// Removes all keys below a prefix.
    pub fn remove_prefix(&mut self, prefix: &str) {
        self.entries.retain(|key, _| !key.starts_with(prefix.as_bytes()));
    }

    /// Every key and value, ascending by key.
    pub fn for_each_entry(&self, mut visit: impl FnMut(&[u8], &[u8])) {
        for (key, object) in &self.entries {
            visit(key, &object.value());
        }
    }

    /// The keys, ascending.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.entries.keys().map(Vec::as_slice)
    }

    /// The intact blocks. The CIDR of each is that in its key.
    pub fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.entries.values().filter_map(|object| match object {
            Object::Block(block) => Some(block),
            _ => None,
        })
    }

    /// A block, which must exist and be intact.
    pub fn block_mut(&mut self, net: IpNet) -> &mut Block {
        match self.entries.get_mut(key::block(net).as_bytes()) {
            Some(Object::Block(block)) => block,
            _ => panic!("there is no block {net}"),
        }
    }

    /// A handle, which must exist.
    pub fn handle_mut(&mut self, id: &str) -> &mut Handle {
        match self.entries.get_mut(key::handle(id).as_bytes()) {
            Some(Object::Handle(handle)) => handle,
            _ => panic!("there is no handle {id:?}"),
        }
    }

    /// A node, which must exist.
    pub fn node_mut(&mut self, name: &str) -> &mut Node {
        match self.entries.get_mut(key::node(name).as_bytes()) {
            Some(Object::Node(node)) => node,
            _ => panic!("there is no node {name}"),
        }
    }

    /// An endpoint, which must exist.
    pub fn endpoint_mut(&mut self, key: &str) -> &mut Endpoint {
        match self.entries.get_mut(key.as_bytes()) {
            Some(Object::Endpoint(endpoint)) => endpoint,
            _ => panic!("there is no endpoint {key}"),
        }
    }

    /// The owner record of an address.
    pub fn record_mut(&mut self, address: IpAddr, block: IpNet) -> &mut Attribute {
        self.block_mut(block).record_mut(address)
    }

    /// Changes the count of a handle for a block. A handle without addresses is removed.
    pub fn count(&mut self, id: &str, block: IpNet, by: i64) {
        let key = key::handle(id).into_bytes();
        let object = self.entries.entry(key.clone()).or_insert_with(|| Object::Handle(Handle::default()));
        let Object::Handle(handle) = object else { panic!("the handle {id:?} is broken") };
        handle.add(block, by);
        if handle.block.is_empty() {
            self.entries.remove(&key);
        }
    }

    /// Frees all addresses of a pod.
    pub fn free_pod(&mut self, pod: &Pod) {
        pod.addresses.iter().for_each(|(address, block)| self.free(*address, *block));
    }

    /// Frees an address as Calico does: the block first, then the handle.
    pub fn free(&mut self, address: IpAddr, block: IpNet) {
        let handle = self.record_mut(address, block).handle.clone();
        self.block_mut(block).free(address);
        if let Some(handle) = handle {
            self.count(&handle, block, -1);
        }
    }
}
