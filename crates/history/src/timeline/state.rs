//! The subject of a history, and the states of the related objects.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use calipam_check::claim::Claim;
use calipam_model::IpNet;
use calipam_model::affinity::AffinityKey;
use calipam_model::attributes::AttributeRef;
use calipam_model::block::{Block, BlockContent};
use calipam_model::handle::clean_id;
use calipam_model::key::Key;
use calipam_model::names::EndpointName;
use calipam_model::snapshot::{DefectKind, Snapshot};
use calipam_model::words::joined;
use serde::Serialize;

/// The subject of a history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "about", content = "name", rename_all = "lowercase")]
pub enum HistorySubject {
    #[serde(rename = "ip")]
    Address(IpAddr),
    /// A handle, by its ID.
    Handle(String),
    Block(IpNet),
    Node(String),
    /// A pod, as `namespace/name`.
    Pod(String),
}

/// True if the record is for `pod`, a name of the form `namespace/name`.
fn names_pod(record: &AttributeRef<'_>, pod: &str) -> bool {
    let named = Claim::of(record).pod();
    named.is_some_and(|(namespace, name)| pod.split_once('/') == Some((namespace.as_str(), name.as_str())))
}

/// True if the record is for a handle, whatever follows a carriage return in the IDs.
fn names_handle(record: &AttributeRef<'_>, id: &str) -> bool {
    match record.clean_handle() {
        Some(handle) => handle == *clean_id(id),
        None => false,
    }
}

/// True if the record is for an address of the node.
fn names_node(record: &AttributeRef<'_>, node: &str) -> bool {
    match record.get("node") {
        Some(name) => name == *node,
        None => false,
    }
}

/// A state of an object.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// Not stored, or marked deleted.
    Absent,
    /// Stored, but cannot be decoded; contains the reason.
    Hidden(String),
    Block(Box<Block>),
    /// The content of any other object, as text.
    Other(String),
}

impl State {
    pub(crate) fn block(&self) -> Option<&Block> {
        if let Self::Block(block) = self {
            Some(block)
        } else {
            None
        }
    }
}

impl fmt::Display for HistorySubject {
    /// Writes the subject as a command names it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write!(f, "ip {address}"),
            Self::Handle(id) => write!(f, "handle {id}"),
            Self::Block(cidr) => write!(f, "block {cidr}"),
            Self::Node(node) => write!(f, "node {node}"),
            Self::Pod(pod) => write!(f, "pod {pod}"),
        }
    }
}

impl HistorySubject {
    /// True if the snapshot contains an object that may be relevant to the subject.
    pub fn is_in(&self, snapshot: Snapshot) -> bool {
        states(snapshot, self).values().any(|state| match state {
            State::Block(block) => self.has_block(block),
            _ => true,
        })
    }

    /// Returns true if the object with this key may be relevant to the subject, judged by the key alone. All blocks are
    /// relevant to a handle, a node or a pod, which can have addresses in any of them.
    pub(crate) fn has_key(&self, key: &Key) -> bool {
        match key {
            Key::Block(cidr) => self.has_block_key(*cidr),
            Key::Affinity(affinity) => self.has_affinity(affinity),
            Key::Handle(id) => matches!(self, Self::Handle(subject) if clean_id(subject) == clean_id(id)),
            Key::Endpoint { namespace, name } => {
                let endpoint = EndpointName::parse(name);
                let pod = endpoint.as_ref().map(|endpoint| endpoint.workload.as_str());
                self.has_workload(namespace, pod)
            }
            Key::Pod { namespace, name } => self.has_workload(namespace, Some(name)),
            _ => false,
        }
    }

    /// Returns true if the block with this CIDR can concern the subject.
    fn has_block_key(&self, cidr: IpNet) -> bool {
        match self {
            Self::Address(address) => cidr.contains(address),
            Self::Block(block) => cidr == *block,
            Self::Handle(_) | Self::Node(_) | Self::Pod(_) => true,
        }
    }

    /// Returns true if the affinity is of the subject, or of the block that contains it.
    fn has_affinity(&self, affinity: &AffinityKey) -> bool {
        match self {
            Self::Address(address) => affinity.cidr.contains(address),
            Self::Block(block) => affinity.cidr == *block,
            Self::Node(node) => affinity.node == *node,
            Self::Handle(_) | Self::Pod(_) => false,
        }
    }

    /// Returns true if a pod, or the pod of an endpoint, is the subject. Always true if the subject is not a pod, since
    /// any pod can use an address. `name` is `None` if the name of the endpoint names no pod.
    fn has_workload(&self, namespace: &str, name: Option<&str>) -> bool {
        let Self::Pod(pod) = self else { return true };
        match name {
            Some(name) => pod.split_once('/') == Some((namespace, name)),
            None => false,
        }
    }

    /// Returns true if the subject is a node that owns the block, or a node, handle or pod that a record in the block
    /// names. Always true if the subject is an address or a block.
    pub(crate) fn has_block(&self, block: &Block) -> bool {
        let mut records = block.attributes();
        match self {
            Self::Address(_) | Self::Block(_) => true,
            Self::Handle(id) => records.any(|record| names_handle(&record, id)),
            Self::Pod(pod) => records.any(|record| names_pod(&record, pod)),
            Self::Node(node) => block.host() == Some(node) || records.any(|record| names_node(&record, node)),
        }
    }
}

/// Returns the states of the objects in a snapshot that may be relevant to the subject.
pub(crate) fn states(snapshot: Snapshot, about: &HistorySubject) -> BTreeMap<Key, State> {
    let mut states = BTreeMap::new();
    add_records(&snapshot, &mut states);
    add_users(&snapshot, &mut states);
    for stored in snapshot.blocks.into_iter().map(|block| block.value) {
        if stored.content.is_deleted() {
            continue;
        }
        let state = match stored.content {
            BlockContent::Sound(block) => State::Block(block),
            BlockContent::Corrupt(block) => State::Hidden(joined(&block.problems, "; ")),
        };
        states.insert(Key::Block(stored.key), state);
    }
    for defect in snapshot.defects {
        if let (Some(key), DefectKind::Key(reason) | DefectKind::Value(reason)) = (defect.key, defect.kind) {
            // An object that could be decoded in part keeps that state.
            states.entry(key).or_insert(State::Hidden(reason));
        }
    }
    states.retain(|key, _| about.has_key(key));
    states
}

/// Adds the states of affinities and handles, without those that are marked deleted.
fn add_records(snapshot: &Snapshot, states: &mut BTreeMap<Key, State>) {
    for affinity in snapshot.affinities.iter().map(|affinity| &affinity.value) {
        if !affinity.deleted {
            let text = affinity.state.to_string();
            states.insert(Key::Affinity(affinity.key.clone()), State::Other(text));
        }
    }
    for handle in snapshot.handles.iter().map(|handle| &handle.value) {
        if !handle.is_deleted() {
            let counts = handle.blocks().map(|(cidr, count)| format!("{count} in {cidr}"));
            let text = joined(counts, ", ");
            states.insert(Key::Handle(handle.id().to_string()), State::Other(text));
        }
    }
}

/// Adds the states of endpoints and pods.
fn add_users(snapshot: &Snapshot, states: &mut BTreeMap<Key, State>) {
    for endpoint in snapshot.endpoints.iter().map(|endpoint| &endpoint.value) {
        let text = on_node(endpoint.addresses(), &endpoint.node().to_string());
        states.insert(endpoint.key(), State::Other(text));
    }
    for pod in snapshot.pods.iter().map(|pod| &pod.value) {
        let mut text = on_node(pod.addresses(), &pod.node().to_string());
        if pod.finished {
            text.push_str(", finished");
        }
        states.insert(pod.key(), State::Other(text));
    }
}

/// Formats addresses and their node: `10.0.0.3 on node-1`.
fn on_node(addresses: impl Iterator<Item = IpAddr>, node: &str) -> String {
    let mut text = joined(addresses, ", ");
    if text.is_empty() {
        text.push_str("no address");
    }
    if !node.is_empty() {
        text.push_str(&format!(" on {node}"));
    }
    text
}
