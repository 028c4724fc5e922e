//! Selects the keys to read for one address or handle, in any datastore.

use std::collections::BTreeSet;
use std::net::IpAddr;

use calipam_assign::blocks_around;
use calipam_model::affinity::{AffinityKey, AffinityType};
use calipam_model::attributes::{AttributeRef, OwnerMap};
use calipam_model::block::{Allocation, Block};
use calipam_model::key::Key;
use calipam_model::snapshot::{Snapshot, Source};

/// The subject of a lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// An address: the blocks of every legal size that can contain it, and their records of it.
    Address(IpAddr),
    /// A handle by its ID, and its records in the blocks that it names.
    Handle(String),
}

/// The sources that are read from etcd only in part.
pub(crate) const PARTLY_READ_SOURCES: [Source; 5] = [
    Source::Blocks,
    Source::Affinities,
    Source::Handles,
    Source::Nodes,
    Source::Endpoints,
];

/// The objects that blocks and their records name.
#[derive(Debug, Default)]
pub(crate) struct NamedKeys {
    /// Handles, nodes, pods, services, and the affinities of the blocks.
    pub keys: BTreeSet<Key>,
    /// The namespaces in all records of an address's blocks. The named nodes may have endpoints in any of these
    /// namespaces.
    pub namespaces: BTreeSet<String>,
    /// The pods whose workload endpoints are read. The keys of these endpoints are known except for the interface.
    pub endpoints: BTreeSet<PodOnNode>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PodOnNode {
    pub namespace: String,
    pub pod: String,
    pub node: String,
}

impl Lookup {
    /// The keys to read first: the blocks of every legal size that can contain the address, or the handle.
    pub(crate) fn first_keys(&self) -> Vec<Key> {
        match self {
            Self::Address(address) => blocks_around(*address).map(Key::Block).collect(),
            Self::Handle(id) => vec![Key::Handle(id.clone())],
        }
    }

    /// The keys to read next: the blocks that the handle names.
    pub(crate) fn blocks(&self, snapshot: &Snapshot) -> Vec<Key> {
        if let Self::Address(_) = self {
            return Vec::new();
        }
        let blocks = snapshot.handles.iter().flat_map(|handle| handle.value.blocks());
        blocks.map(|(cidr, _)| Key::Block(cidr)).collect()
    }

    /// The keys to read last: the objects that the blocks and their records name.
    pub(crate) fn named(&self, snapshot: &Snapshot) -> NamedKeys {
        let mut named = NamedKeys::default();
        for stored in &snapshot.blocks {
            let Some(block) = stored.value.content.sound() else {
                continue;
            };
            named.add_owner(block);
            if let Self::Address(_) = self {
                named.add_namespaces(block);
            }
            for record in self.records(block) {
                named.add_record(block, record.attribute);
            }
        }
        named
    }

    /// The records of a block that match the lookup.
    fn records<'b>(&self, block: &'b Block) -> Vec<Allocation<'b>> {
        match self {
            Self::Address(address) => block.allocation_of(*address).into_iter().collect(),
            Self::Handle(id) => block
                .allocations()
                .filter(|record| has_handle(record.attribute, id))
                .collect(),
        }
    }
}

/// True if the record has this handle ID, regardless of a carriage return in the record's ID.
fn has_handle(record: AttributeRef<'_>, id: &str) -> bool {
    record.clean_handle().is_some_and(|handle| handle == *id)
}

/// True for keys of objects that are in Kubernetes even if the datastore is etcd.
pub(crate) fn is_in_kubernetes(key: &Key) -> bool {
    matches!(key, Key::Pod { .. } | Key::Service { .. })
}

/// True if a record of the block names the pod, given by namespace and name.
pub(crate) fn names_pod(block: &Block, (namespace, name): &(String, String)) -> bool {
    let names_it = |owner: OwnerMap<'_>| {
        owner.get("namespace").is_some_and(|own| own == **namespace)
            && owner.get("pod").is_some_and(|own| own == **name)
    };
    // Calico 2 records a pod without attributes, with this handle ID.
    let legacy = format!("{namespace}.{name}");
    block.allocations().any(|allocation| {
        let record = allocation.attribute;
        names_it(record.owner())
            || record.alternate().is_some_and(names_it)
            || record.owner().is_empty() && has_handle(record, &legacy)
    })
}

impl NamedKeys {
    /// Adds the node of a block, and the affinity that should exist for it.
    fn add_owner(&mut self, block: &Block) {
        let Some(owner) = block.owner() else { return };
        let Some(affinity) = AffinityKey::of_owner(owner, block.cidr()) else {
            return;
        };
        if affinity.kind == AffinityType::Host {
            self.keys.insert(Key::Node(affinity.node.clone()));
        }
        self.keys.insert(Key::Affinity(affinity));
    }

    /// Adds the namespaces that the records of a block name.
    fn add_namespaces(&mut self, block: &Block) {
        for allocation in block.allocations() {
            if let Some(namespace) = allocation.attribute.get("namespace")
                && !namespace.is_empty()
            {
                self.namespaces.insert(namespace.to_string());
            }
        }
    }

    /// The nodes that the blocks or their records name.
    pub(crate) fn nodes(&self) -> Vec<&str> {
        let mut nodes = Vec::new();
        for key in &self.keys {
            if let Key::Node(node) = key {
                nodes.push(node.as_str());
            }
        }
        nodes
    }

    /// Adds the handle, node, pods and services that a record names.
    fn add_record(&mut self, block: &Block, record: AttributeRef<'_>) {
        // A handle whose ID has a carriage return is stored under the full ID, or under the part before the carriage
        // return.
        for handle in [record.handle(), record.clean_handle()].into_iter().flatten() {
            if !handle.is_empty() {
                self.keys.insert(Key::Handle(handle.to_string()));
            }
        }

        self.add_user(record.owner());
        if let Some(other) = record.alternate() {
            self.add_user(other);
        }

        // `<namespace>.<pod>`, the form of Calico 2, does not name a node. The block's owner is the best guess.
        if record.owner().is_empty()
            && let Some(handle) = record.clean_handle().map(|handle| handle.to_string())
            && let Some((namespace, pod)) = handle.split_once('.')
        {
            self.add_pod(namespace, pod, block.host());
        }
    }

    /// Adds the node, pod and service that a record's owner names.
    fn add_user(&mut self, owner: OwnerMap<'_>) {
        let text = |key| {
            owner
                .get(key)
                .map(|text| text.to_string())
                .filter(|text| !text.is_empty())
        };
        let node = text("node");
        if let Some(namespace) = text("namespace") {
            if let Some(pod) = text("pod") {
                self.add_pod(&namespace, &pod, node.as_deref());
            }
            if let Some(name) = text("service") {
                self.keys.insert(Key::Service { namespace, name });
            }
        }
        if let Some(node) = node {
            self.keys.insert(Key::Node(node));
        }
    }

    /// Adds a pod, and its endpoint if the node of the pod is known.
    fn add_pod(&mut self, namespace: &str, pod: &str, node: Option<&str>) {
        self.keys.insert(Key::Pod {
            namespace: namespace.to_owned(),
            name: pod.to_owned(),
        });
        if let Some(node) = node {
            self.endpoints.insert(PodOnNode {
                namespace: namespace.to_owned(),
                pod: pod.to_owned(),
                node: node.to_owned(),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_every_legal_size() {
        let keys = Lookup::Address("10.244.1.7".parse().unwrap()).first_keys();
        assert_eq!(keys.len(), 13);
        assert_eq!(
            keys[6].to_string(),
            "/calico/ipam/v2/assignment/ipv4/block/10.244.1.0-26"
        );
        let keys = Lookup::Address("fd00::1:7".parse().unwrap()).first_keys();
        assert_eq!(keys.len(), 13);
        assert_eq!(
            keys[12].to_string(),
            "/calico/ipam/v2/assignment/ipv6/block/fd00::1:7-128"
        );
    }

    #[test]
    fn records_name_what_else_to_read() {
        let mut snapshot = Snapshot::default();
        let value = br#"{"cidr":"10.0.0.0/30","affinity":"host:node-1","allocations":[0,1,null,null],"unallocated":[2,3],
            "attributes":[{"handle_id":"a.b\r\neth0","secondary":{"node":"node-2","namespace":"ns","pod":"p-1"}},
            {"handle_id":"default.web-0"}]}"#;
        snapshot.add_entry(b"/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-30", value, 1);
        let pod = |namespace: &str, pod: &str, node: &str| PodOnNode {
            namespace: namespace.into(),
            pod: pod.into(),
            node: node.into(),
        };

        let found = Lookup::Address("10.0.0.0".parse().unwrap()).named(&snapshot);
        let keys: Vec<String> = found.keys.iter().map(ToString::to_string).collect();
        assert!(
            keys.iter()
                .any(|key| key == "/calico/ipam/v2/host/node-1/ipv4/block/10.0.0.0-30"),
            "{keys:?}"
        );
        for key in ["handle/a.b\r\neth0", "handle/a.b", "nodes/node-1", "nodes/node-2"] {
            assert!(keys.iter().any(|found| found.ends_with(key)), "{key}");
        }
        assert!(found.keys.contains(&Key::Pod {
            namespace: "ns".into(),
            name: "p-1".into()
        }));
        assert_eq!(found.endpoints, [pod("ns", "p-1", "node-2")].into());

        let found = Lookup::Handle("default.web-0".into()).named(&snapshot);
        assert!(found.keys.contains(&Key::Pod {
            namespace: "default".into(),
            name: "web-0".into()
        }));
        assert_eq!(found.endpoints, [pod("default", "web-0", "node-1")].into());
        assert!(!found.keys.contains(&Key::Node("node-2".into())));
    }
}
