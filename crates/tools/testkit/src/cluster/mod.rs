//! Generates clusters: the data that Calico stores in etcd, with a known number of each fault, and the expected
//! findings. The same specification gives the same bytes on every machine.
//!
//! The generator writes JSON as `docs/calico-ipam.md` describes it. It has its own block arithmetic, and
//! makes values without calipam's model, so that tests do not compare calipam with itself.

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
use serde_json::{Value, json};

use self::build::networks;
pub(crate) use self::build::{Holder, endpoint_of};
pub use self::faults::Fault;
pub use self::fleet::{Fleet, FleetFault};
use self::kubernetes_only::KubernetesOnly;
pub(crate) use self::layout::pod_name;
pub use self::layout::{ClusterSpec, PodName, go_time, whole_seconds};
pub use self::output::{KubeCluster, KubeObject};
pub use self::truth::{Expected, Form, Found, GroundTruth};
use self::wire::{Attribute, Block, Tunnel, key, merge};

/// A stored value.
#[derive(Clone, Debug)]
pub enum Object {
    Block(Block),
    /// Any other JSON. Its fields are written in Calico's order.
    Json(Value),
    /// Broken values, and values of other programs.
    Raw(Vec<u8>),
}

impl Object {
    /// The bytes that etcd stores.
    pub fn value(&self) -> Vec<u8> {
        match self {
            Self::Block(block) => block.value(),
            Self::Json(value) => wire::go_json(value),
            Self::Raw(bytes) => bytes.clone(),
        }
    }

    /// The value as JSON, which it must be.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.value()).expect("the value is JSON")
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

    /// The key of the affinity of the pod's node for the block.
    fn affinity(&self) -> String {
        key::affinity("host", &self.node, self.block())
    }

    /// `<namespace>/<pod>`.
    fn path(&self) -> String {
        format!("{}/{}", self.name.namespace, self.name.pod)
    }

    /// All addresses, without their blocks.
    pub fn all_addresses(&self) -> Vec<IpAddr> {
        self.addresses.iter().map(|(address, _)| *address).collect()
    }

    /// The subject of findings about the endpoint: `<namespace>/<name>`.
    pub fn subject(&self) -> &str {
        self.endpoint
            .strip_prefix(key::ENDPOINTS)
            .expect("the key of an endpoint")
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

impl NodeInfo {
    /// The node's block of the family of a tunnel, if it has one.
    fn block_for(&self, tunnel: Tunnel) -> Option<IpNet> {
        self.blocks
            .iter()
            .copied()
            .find(|block| block.addr().is_ipv6() == tunnel.is_v6())
    }
}

/// A generated cluster.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    spec: ClusterSpec,
    entries: BTreeMap<Vec<u8>, Object>,
    /// The expected findings, in the order of [`Form::ALL`]. Subjects are written as in etcd.
    truths: [GroundTruth; Form::ALL.len()],
    kubernetes_only: KubernetesOnly,
    nodes: Vec<NodeInfo>,
    /// The number of allocations up to which healthy nodes [fill](Self::filled) the cluster, or 0.
    size: u64,
    /// Addresses of pods that have no endpoint yet. They are leaks only for a check with a grace period of 0.
    pub young: Vec<IpAddr>,
    /// Pods that wait for an address, as `namespace/name`. They get one unless the datastore is locked.
    waiting: Vec<String>,
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

    /// The nodes that exist, or existed before a fault removed them.
    pub fn nodes(&self) -> &[NodeInfo] {
        &self.nodes
    }

    /// The first blocks of a node, one of each family. The node must be among [`nodes`](Self::nodes).
    fn blocks_of(&self, node: &str) -> Vec<IpNet> {
        self.nodes
            .iter()
            .find(|known| known.name == node)
            .expect("the node is known")
            .blocks
            .clone()
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
        self.get(key)
            .unwrap_or_else(|| panic!("there is no {key}"))
            .json()
    }

    /// The JSON under a key, to be changed. A block is no longer an intact one.
    pub fn json_mut(&mut self, key: &str) -> &mut Value {
        let object = self
            .entries
            .get_mut(key.as_bytes())
            .unwrap_or_else(|| panic!("there is no {key}"));
        if !matches!(object, Object::Json(_)) {
            *object = Object::Json(object.json());
        }
        let Object::Json(value) = object else {
            unreachable!("it is JSON now")
        };
        value
    }

    /// Stores JSON. Replaces any earlier value.
    pub fn put_json(&mut self, key: impl Into<Vec<u8>>, value: Value) {
        self.put(key, Object::Json(value));
    }

    /// Removes a key, which must exist.
    pub fn remove(&mut self, key: &str) -> Object {
        self.entries
            .remove(key.as_bytes())
            .unwrap_or_else(|| panic!("there is no {key}"))
    }

    /// Removes all keys below a prefix.
    pub fn remove_prefix(&mut self, prefix: &str) {
        self.entries.retain(|key, _| !key.starts_with(prefix.as_bytes()));
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

    /// The address of a tunnel on a node; `None` if the node lacks the tunnel. The node must exist.
    pub fn tunnel(&self, node: &str, tunnel: Tunnel) -> Option<IpAddr> {
        let stored = self.json(&key::node(node));
        stored
            .pointer(&tunnel.field())?
            .as_str()?
            .split('/')
            .next()?
            .parse()
            .ok()
    }

    /// Writes a tunnel's address to a node; an empty text removes it.
    pub fn set_tunnel(&mut self, node: &str, tunnel: Tunnel, address: &str) {
        let value = if address.is_empty() {
            Value::Null
        } else {
            address.into()
        };
        let field = tunnel.field();
        let names = field.rsplit('/').filter(|name| !name.is_empty());
        let patch = names.fold(value, |inner, name| json!({name: inner}));
        let stored = self.json_mut(&key::node(node));
        merge(stored, &patch);
        if stored["spec"]["wireguard"] == json!({}) {
            merge(stored, &json!({"spec": {"wireguard": null}}));
        }
    }

    /// Sets the addresses of an endpoint, given by its key.
    pub fn set_addresses(&mut self, endpoint: &str, addresses: &[IpAddr]) {
        self.json_mut(endpoint)["spec"]["ipNetworks"] = networks(addresses);
    }

    /// Adds an address to an endpoint, given by its key.
    pub fn add_address(&mut self, endpoint: &str, address: IpAddr) {
        let list = self.json_mut(endpoint)["spec"]["ipNetworks"]
            .as_array_mut()
            .expect("a list");
        list.push(networks(&[address])[0].take());
    }

    /// The owner record of an address.
    pub fn record_mut(&mut self, address: IpAddr, block: IpNet) -> &mut Attribute {
        self.block_mut(block).record_mut(address)
    }

    /// Changes the count of a handle for a block. A handle without addresses is removed.
    pub fn count(&mut self, id: &str, block: IpNet, by: i64) {
        let key = key::handle(id);
        let block = block.to_string();
        let new = || Object::Json(json!({"block": {}, "deleted": false}));
        self.entries.entry(key.clone().into_bytes()).or_insert_with(new);
        let counts = self.json_mut(&key)["block"]
            .as_object_mut()
            .expect("counts by block");
        let count = counts.get(&block).and_then(Value::as_i64).unwrap_or_default() + by;
        counts.insert(block, count.into());
        counts.retain(|_, count| *count != 0);
        if counts.is_empty() {
            self.remove(&key);
        }
    }

    /// Frees all addresses of a pod.
    pub fn free_pod(&mut self, pod: &Pod) {
        pod.addresses
            .iter()
            .for_each(|(address, block)| self.free(*address, *block));
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
