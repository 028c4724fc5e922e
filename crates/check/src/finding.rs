//! Findings: what is wrong, with what, and how it is known.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use calipam_model::IpNet;
use calipam_model::affinity::AffinityKey;
use calipam_model::block::BlockProblem;
use calipam_model::key::Key;
use calipam_model::snapshot::FieldDefect;
use jiff::Timestamp;
use serde::Serialize;

use crate::code::{Code, Severity};

/// What a finding is about, in canonical form.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// An address.
    Address(IpAddr),
    /// A block.
    Block(IpNet),
    /// A pool, by its CIDR.
    Pool(IpNet),
    /// A handle, by its ID.
    Handle(String),
    /// An affinity: `node/CIDR`.
    Affinity {
        /// The holder.
        node: String,
        /// The block.
        cidr: IpNet,
    },
    /// A workload endpoint or pod: `namespace/name`.
    Endpoint(String),
    /// A LoadBalancer service: `namespace/name`.
    Service(String),
    /// A node.
    Node(String),
    /// A configuration object.
    Configuration(String),
    /// Something that does not decode, by its key.
    Object(String),
}

impl Subject {
    /// The word for the kind of thing.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Address(_) => "address",
            Self::Block(_) => "block",
            Self::Pool(_) => "pool",
            Self::Handle(_) => "handle",
            Self::Affinity { .. } => "affinity",
            Self::Endpoint(_) => "endpoint",
            Self::Service(_) => "service",
            Self::Node(_) => "node",
            Self::Configuration(_) => "configuration",
            Self::Object(_) => "object",
        }
    }

    /// The subject of an affinity.
    pub fn affinity(key: &AffinityKey) -> Self {
        Self::Affinity { node: key.node.clone(), cidr: key.cidr }
    }

    /// The address or CIDR that the subject lies at, where it has one.
    pub fn network(&self) -> Option<IpNet> {
        match self {
            Self::Address(address) => Some((*address).into()),
            Self::Block(cidr) | Self::Pool(cidr) | Self::Affinity { cidr, .. } => Some(*cidr),
            _ => None,
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write!(f, "{address}"),
            Self::Block(cidr) | Self::Pool(cidr) => write!(f, "{cidr}"),
            Self::Affinity { node, cidr } => write!(f, "{node}/{cidr}"),
            Self::Handle(text)
            | Self::Endpoint(text)
            | Self::Service(text)
            | Self::Node(text)
            | Self::Configuration(text)
            | Self::Object(text) => f.write_str(text),
        }
    }
}

/// One finding.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Its kind.
    pub code: Code,
    /// How bad it is.
    pub severity: Severity,
    /// What it is about.
    pub subject: Subject,
    /// What it says, in one line.
    pub message: String,
    /// How it is known.
    pub evidence: Evidence,
    /// The nodes that it concerns, for `--node`.
    pub nodes: Vec<String>,
    /// The objects that a half-done Calico operation could be about to change. Empty where no such
    /// operation explains the finding, so that it stands at once.
    pub behind: Vec<Key>,
}

impl Finding {
    /// A finding with its usual severity that concerns no node in particular and stands at once.
    pub fn new(code: Code, subject: Subject, message: String, evidence: Evidence) -> Self {
        let severity = code.severity();
        Self { code, severity, subject, message, evidence, nodes: Vec::new(), behind: Vec::new() }
    }

    /// Sets the nodes that it concerns.
    pub fn on_nodes<T: Into<String>>(mut self, nodes: impl IntoIterator<Item = T>) -> Self {
        self.nodes.extend(nodes.into_iter().map(Into::into));
        self.nodes.sort();
        self.nodes.dedup();
        self
    }

    /// Sets the objects that have to be unchanged when read again.
    pub fn resting_on(mut self, behind: impl IntoIterator<Item = Key>) -> Self {
        self.behind.extend(behind);
        self
    }

    /// Sets another severity than the usual one.
    pub fn with_severity(mut self, severity: Severity) -> Self {
        self.severity = severity;
        self
    }
}

/// Why an allocated address counts as leaked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeakReason {
    /// The recorded owner does not exist.
    NoOwner,
    /// The recorded node does not exist.
    NodeGone,
    /// The recorded pod runs on another node.
    PodMoved,
    /// The recorded pod has other addresses.
    PodHasOtherAddress,
    /// The recorded node has another tunnel address of this kind, or none.
    TunnelMoved,
    /// The recorded pod has finished.
    PodFinished,
    /// The recorded service does not exist.
    ServiceGone,
    /// The recorded virtual machine does not exist.
    VmGone,
    /// The record names neither pod nor tunnel nor service.
    UnknownOwner,
}

impl fmt::Display for LeakReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// How a finding is known. Each shape serves the codes of one family.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Evidence {
    /// About an address.
    Address(Box<AddressEvidence>),
    /// About a block.
    Block(Box<BlockEvidence>),
    /// About an affinity.
    Affinity(Box<AffinityEvidence>),
    /// About a handle.
    Handle(Box<HandleEvidence>),
    /// About a pool.
    Pool(Box<PoolEvidence>),
    /// About a node's blocks.
    Node(Box<NodeEvidence>),
    /// About an endpoint, pod or service.
    Endpoint(Box<OwnerEvidence>),
    /// About configuration: setting, and the values found, by where they were found.
    Configuration(BTreeMap<String, BTreeMap<String, String>>),
    /// About an object that does not decode.
    Undecodable(Box<UndecodableEvidence>),
}

/// Evidence about an address.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AddressEvidence {
    /// Why it counts as leaked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<LeakReason>,
    /// The pool that it lies in, by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Who uses it.
    pub owners: Vec<OwnerEvidence>,
    /// What blocks record about it.
    pub records: Vec<RecordEvidence>,
}

/// Who uses an address, and how that is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnerEvidence {
    /// `endpoint`, `pod`, `tunnel` or `service`.
    pub kind: String,
    /// `namespace/name`, or the node of a tunnel.
    pub name: String,
    /// The node.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// `namespace/pod`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub pod: String,
    /// The ID of the pod's sandbox.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub container_id: String,
    /// When a pod finished, where it has and that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// The field that names the address, or the addresses of the endpoint.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
}

/// What a block records about an address.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordEvidence {
    /// The block.
    pub block: String,
    /// The owner of the block.
    pub block_owner: Option<String>,
    /// The place of the address in the block.
    pub ordinal: u32,
    /// The handle as it is recorded.
    pub handle: Option<String>,
    /// Attributes of the active owner.
    pub attributes: BTreeMap<String, String>,
    /// Attributes of the other side of a live migration.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub alternate_attributes: BTreeMap<String, String>,
    /// Since when the address cools down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub released_at: Option<String>,
    /// The per-ordinal sequence number, in decimal digits.
    pub sequence_number: String,
}

/// Evidence about a block.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BlockEvidence {
    /// Its owner.
    pub owner: Option<String>,
    /// Number of addresses that are not free; `None` where the block is corrupt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocated: Option<u32>,
    /// What is broken.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<BlockProblem>,
    /// Blocks that overlap it, or affinities for it (`node/CIDR`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<String>,
    /// Pools that contain it, with their block sizes (`name /26`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<String>,
}

/// Evidence about an affinity.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AffinityEvidence {
    /// `host`, `virtual` or another text.
    #[serde(rename = "type")]
    pub kind: String,
    /// The state as it is recorded.
    pub state: String,
    /// Whether there is such a block.
    pub block_exists: bool,
    /// The owner that the block states.
    pub block_owner: Option<String>,
    /// The revision of the affinity.
    pub revision: String,
}

/// Evidence about a handle.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HandleEvidence {
    /// The revision of the object; `None` where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// By block: what the handle says and what the block says.
    pub blocks: Vec<HandleBlockEvidence>,
    /// Addresses that are recorded under the handle.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpAddr>,
    /// The handle as it is recorded, where that differs from the subject.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub recorded_as: Vec<String>,
}

/// What a handle and a block say about each other.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HandleBlockEvidence {
    /// The block.
    pub block: String,
    /// Addresses that the handle claims to hold there.
    pub in_handle: i64,
    /// Addresses that the block records under the handle.
    pub in_block: i64,
}

/// Evidence about a pool. Numbers of addresses are decimal texts: they can exceed 64 bits.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolEvidence {
    /// The pool's name.
    pub name: String,
    /// Pools that overlap it: name and CIDR.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<String>,
    /// Addresses that are allocated, cooling or reserved by Windows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_use: Option<String>,
    /// Addresses that could be in use: the size without IP reservations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usable: Option<String>,
}

/// Evidence about a node's blocks.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeEvidence {
    /// By pool: what the node holds of it.
    pub pools: Vec<NodePoolEvidence>,
}

/// What a node holds of a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodePoolEvidence {
    /// The pool's name.
    pub pool: String,
    /// Blocks of the node in it.
    pub blocks: u32,
    /// The block limit.
    pub limit: u32,
    /// Free addresses in the pool that the node cannot get, in decimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free: Option<String>,
    /// Why the node gets no further address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Evidence about an object that does not decode.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UndecodableEvidence {
    /// What is wrong with key or value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Fields that make no sense.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<FieldDefect>,
}
