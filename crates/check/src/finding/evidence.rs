//! Evidence of findings. Values that other code reads are typed, and become text only when a report is written.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use calipam_model::IpNet;
use calipam_model::affinity::{AffinityState, AffinityType};
use calipam_model::attributes::PackedAttribute;
use calipam_model::block::{BlockOwner, BlockProblem};
use calipam_model::display::text;
use calipam_model::snapshot::FieldDefect;
use jiff::Timestamp;
use serde::{Serialize, Serializer};

use super::fleet::{ElsewhereEvidence, UnreadableEvidence};
use super::no_address::NoAddressEvidence;
use super::owner::{OwnerEvidence, shared};
use super::pool::{NodeEvidence, PoolEvidence};
use crate::names::{name_of_claim, names_of_owners};

/// The reason why an allocated address counts as leaked.
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
    /// The recorded node has a different tunnel address of this kind, or none.
    TunnelMoved,
    /// The recorded pod has finished.
    PodFinished,
    /// The recorded pod's sandbox was torn down, and the pod waits for another one.
    SandboxGone,
    /// The recorded service does not exist.
    ServiceGone,
    /// The recorded virtual machine does not exist.
    VmGone,
    /// The record names no pod, tunnel, service or virtual machine.
    UnknownOwner,
}

calipam_model::display_serialized!(LeakReason);

/// True if these are the reasons for a leaked address whose records name no owner. Such an address is released only if
/// an operator names it, or uses `--force` with a report about it.
pub fn is_unnamed(reasons: &[LeakReason]) -> bool {
    reasons == [LeakReason::UnknownOwner]
}

/// The evidence of a finding.
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
    /// About nodes or pods that get no address.
    NoAddress(Box<NoAddressEvidence>),
    /// About an endpoint, a pod, a service, or a node without a tunnel address.
    Endpoint(Box<OwnerEvidence>),
    /// About configuration: for each setting, its values by the place where they were found.
    Configuration(BTreeMap<String, BTreeMap<String, String>>),
    /// About pods whose addresses another IPAM assigned.
    OtherIpam(OtherIpamEvidence),
    /// About an object that cannot be decoded.
    Undecodable(Box<UndecodableEvidence>),
    /// About objects in other clusters of a fleet.
    Elsewhere(Box<ElsewhereEvidence>),
    /// About a cluster that cannot be read.
    Unreadable(Box<UnreadableEvidence>),
}

fn as_one_text<S: Serializer>(texts: &[String], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&texts.join("; "))
}

/// Evidence about an address.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AddressEvidence {
    /// The reasons why the address counts as leaked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<LeakReason>,
    /// The name of the pool that contains the address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// The users of the address. Findings about several addresses of one owner share its evidence.
    #[serde(serialize_with = "shared")]
    pub owners: Vec<Arc<OwnerEvidence>>,
    /// The blocks' records of the address.
    pub records: Vec<RecordEvidence>,
    /// The last use of a leaked address, if an archive shows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_in_use: Option<Box<LastInUse>>,
}

/// The last use of an address.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LastInUse {
    /// The time of the last export in which the address was in use.
    pub at: Timestamp,
    /// The user at that time.
    pub by: String,
    /// The time of the next export that shows users of addresses, or else of the check. By then, the address was no
    /// longer in use.
    pub not_at: Timestamp,
}

impl AddressEvidence {
    /// True if the address counts as leaked and no record names an owner.
    pub fn is_owner_unknown(&self) -> bool {
        is_unnamed(&self.reasons)
    }

    /// The nodes of the address's users, the nodes that its records name, and the nodes that own its blocks.
    pub(crate) fn nodes(&self) -> Vec<String> {
        let mut nodes: Vec<String> = Vec::new();
        for user in &self.owners {
            nodes.push(user.node.clone());
        }
        nodes.extend(self.recorded_nodes());
        for record in &self.records {
            let host = record.block_owner.as_ref().and_then(|owner| owner.host());
            nodes.extend(host.map(str::to_owned));
        }
        nodes.retain(|node| !node.is_empty());
        nodes
    }

    /// The names of the users, as messages show them.
    pub(crate) fn users(&self) -> String {
        names_of_owners(&self.owners)
    }

    /// The records of the address, except those in which it is cooling down.
    pub(crate) fn holding(&self) -> impl Iterator<Item = &RecordEvidence> {
        self.records
            .iter()
            .filter(|record| !record.record.as_ref().is_cooling())
    }

    /// The nodes that records name.
    pub fn recorded_nodes(&self) -> impl Iterator<Item = String> {
        self.records
            .iter()
            .filter_map(|record| record.record.as_ref().get("node"))
            .map(|node| node.to_string())
    }
}

/// A block's record of an address.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordEvidence {
    pub block: IpNet,
    pub block_owner: Option<BlockOwner>,
    /// The position of the address in the block.
    pub ordinal: u32,
    /// The owner record.
    pub record: PackedAttribute,
    /// The per-ordinal sequence number.
    pub sequence_number: u64,
}

impl RecordEvidence {
    /// The name of the claimed owner, as messages show it.
    pub(crate) fn holder(&self) -> String {
        name_of_claim(&self.record.as_ref())
    }
}

impl Serialize for RecordEvidence {
    /// Unpacks the record, and writes its parts as fields of their own.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct RecordJson<'a> {
            block: IpNet,
            block_owner: &'a Option<BlockOwner>,
            ordinal: u32,
            /// The recorded handle ID, including the part after a carriage return.
            handle: Option<String>,
            /// Attributes of the active owner.
            attributes: BTreeMap<String, String>,
            /// Attributes of the alternate owner.
            #[serde(skip_serializing_if = "BTreeMap::is_empty")]
            alternate_attributes: BTreeMap<String, String>,
            /// The start of the cooldown, verbatim from the block, since it is not always a valid time.
            #[serde(skip_serializing_if = "Option::is_none")]
            released_at: Option<String>,
            #[serde(serialize_with = "text")]
            sequence_number: u64,
        }
        let record = self.record.as_ref();
        let json = RecordJson {
            block: self.block,
            block_owner: &self.block_owner,
            ordinal: self.ordinal,
            handle: record.handle().map(|handle| handle.to_string()),
            attributes: record.owner().to_map(),
            alternate_attributes: record.alternate().unwrap_or_default().to_map(),
            released_at: record.released_at().map(|time| time.to_string()),
            sequence_number: self.sequence_number,
        };
        json.serialize(serializer)
    }
}

/// Evidence about a block.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BlockEvidence {
    pub owner: Option<BlockOwner>,
    /// The number of addresses that are not free; `None` if the block is missing, corrupt or marked deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocated: Option<u32>,
    /// Problems in the block.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<BlockProblem>,
    /// The CIDRs of overlapping blocks, or the affinities for the block, as `node/CIDR`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<String>,
    /// Pools that contain the block, with their block sizes: `name /26`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<String>,
}

/// Evidence about an affinity.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AffinityEvidence {
    #[serde(rename = "type", serialize_with = "text")]
    pub kind: AffinityType,
    #[serde(serialize_with = "text")]
    pub state: AffinityState,
    /// True if the block exists.
    pub block_exists: bool,
    /// The owner that the block names.
    pub block_owner: Option<BlockOwner>,
    /// The revision of the affinity.
    pub revision: String,
}

/// Evidence about a handle.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HandleEvidence {
    /// The revision of the object; `None` if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// The numbers of the handle's addresses in each block.
    pub blocks: Vec<HandleBlockEvidence>,
    /// The addresses that are recorded under the handle.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpAddr>,
    /// The forms in which blocks and handle objects contain the handle ID, if any of them differs from the subject.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub recorded_as: Vec<String>,
    /// The user of an orphan handle, which must not be deleted then.
    #[serde(skip)]
    pub needed_by: Option<NeededBy>,
}

/// A user of a handle that no allocation refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NeededBy {
    /// This owner exists, and has no recorded address.
    Owner(String),
    /// Nobody knows: the handle counts addresses of this block, which is missing, and no pods were read.
    Unknown(IpNet),
}

/// The numbers of a handle's addresses in a block, according to the handle and to the block.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HandleBlockEvidence {
    pub block: IpNet,
    /// The number of addresses that the handle counts in the block. Bugs in Calico can make it negative.
    pub in_handle: i64,
    /// The number of addresses that the block records under the handle.
    pub in_block: i64,
}

/// Evidence about pods whose addresses another IPAM assigned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OtherIpamEvidence {
    /// The number of pods with addresses from another IPAM.
    pub pods: usize,
    /// The number of addresses that Calico blocks record for pods.
    pub left_over: usize,
}

/// Evidence about an object that cannot be decoded.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UndecodableEvidence {
    /// The errors in the key or the value.
    #[serde(
        rename = "reason",
        skip_serializing_if = "Vec::is_empty",
        serialize_with = "as_one_text"
    )]
    pub reasons: Vec<String>,
    /// Fields that cannot be decoded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<FieldDefect>,
}
