//! Everything about one address.

use std::net::IpAddr;
use std::sync::Arc;

use calipam_model::IpNet;
use calipam_model::attributes::AttributeRef;
use calipam_model::block::BlockOwner;
use calipam_model::handle::clean_id;
use calipam_model::key::Key;
use calipam_model::names::EndpointName;
use calipam_model::snapshot::{Snapshot, Source};
use serde::Serialize;

use super::handle::path_of_undecodable;
use super::partly_read;
use crate::claim::Claim;
use crate::code::Code;
use crate::finding::{Finding, LeakReason, OwnerEvidence, RecordEvidence, Subject, shared};
use crate::index::{IndexedBlock, Mention, Record};
use crate::names::name_of_claim;
use crate::owner::{self, Owners, RecordedOwner};
use crate::record::AddressState;
use crate::{Context, Options};

/// The view of an address. The CLI writes the findings, with their remedies in words.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AddressView {
    pub address: IpAddr,
    pub state: AddressState,
    /// Pools that contain the address, including disabled ones; empty if it is in none.
    pub pools: Vec<PoolOfAddress>,
    /// True if an IP reservation excludes the address from automatic assignment.
    pub reserved: bool,
    /// Blocks that contain the address, including corrupt ones; several if blocks overlap.
    pub blocks: Vec<BlockOfAddress>,
    /// The address's known users. If `partly_read` names sources, there can be further users.
    #[serde(serialize_with = "shared")]
    pub owners: Vec<Arc<OwnerEvidence>>,
    /// Objects that name the address, but might not own it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub named_by: Vec<Mention>,
    /// The findings about the address and about the objects around it.
    #[serde(skip)]
    pub findings: Vec<Finding>,
    /// Sources of which only the objects around the address were read. Findings that need all objects of such a source
    /// are missing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub partly_read: Vec<Source>,
}

/// The status of the owner that a record names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OwnerStatus {
    UsesIt,
    /// The owner exists, but does not name the address.
    NamesOthers,
    Gone,
    /// The record names no owner, or objects that could show the owner were not read or cannot be decoded.
    Unknown,
}

impl From<RecordedOwner> for OwnerStatus {
    /// The status of a record's owner, in terms of the address.
    fn from(owner: RecordedOwner) -> Self {
        match owner {
            RecordedOwner::UsesAddress => Self::UsesIt,
            // The view is about the node in the record, since a partial read covers only that node.
            RecordedOwner::Elsewhere(reasons) if reasons.contains(&LeakReason::PodMoved) => Self::Gone,
            RecordedOwner::Elsewhere(_) | RecordedOwner::Idle => Self::NamesOthers,
            RecordedOwner::Gone(_) => Self::Gone,
            RecordedOwner::Unnamed | RecordedOwner::Unowned | RecordedOwner::Unknown(_) => Self::Unknown,
        }
    }
}

/// A pool that contains an address.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolOfAddress {
    pub name: String,
    pub cidr: IpNet,
    /// True if Calico allocates from the pool.
    pub enabled: bool,
    /// The state of a pool from which Calico does not allocate, as `disabled` or `terminating`.
    #[serde(skip)]
    pub closed: Option<String>,
}

/// A block that contains an address.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BlockOfAddress {
    pub cidr: IpNet,
    pub owner: Option<BlockOwner>,
    /// The position of the address in the block.
    pub ordinal: u32,
    /// The block's defects.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
    /// The block's record of the address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<RecordEvidence>,
    /// The owner in the record, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded_owner: Option<String>,
    /// The status of the recorded owner.
    #[serde(rename = "lives", skip_serializing_if = "Option::is_none")]
    pub owner_status: Option<OwnerStatus>,
    /// True if the node in the record exists; `None` if the record names no node, or nodes were not read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_exists: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handle: Option<HandleOfAddress>,
}

/// The handle of a record.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HandleOfAddress {
    /// The handle ID, cut at a carriage return.
    pub id: String,
    /// True if there is a handle object, even one that cannot be decoded.
    pub exists: bool,
    /// The number of addresses that the handle claims in the block.
    pub count: i64,
}

/// Describes an address: its state, the pools and blocks around it, its record and users, and the findings about it.
pub fn address(snapshot: &Snapshot, address: IpAddr) -> AddressView {
    let context = Context::new(snapshot, &Options::default());
    let index = &context.index;
    let is_in_undecodable = snapshot
        .defects
        .iter()
        .any(|defect| matches!(&defect.key, Some(Key::Block(cidr)) if cidr.contains(&address)));
    let mut pools = Vec::new();
    for pool in index.pools_around(IpNet::from(address)) {
        pools.push(PoolOfAddress {
            name: pool.name.clone(),
            cidr: pool.cidr,
            enabled: pool.is_enabled(),
            closed: super::pools::closed(pool),
        });
    }
    let mut blocks = Vec::new();
    for block in index.blocks_around(address) {
        blocks.push(view_of_block(&context, block, address));
    }
    AddressView {
        address,
        state: state_of(index.blocks_around(address), is_in_undecodable, address),
        pools,
        reserved: snapshot.reserved_cidrs().any(|cidr| cidr.contains(&address)),
        blocks,
        owners: context.owners_of(address),
        named_by: index.mentions(address),
        findings: findings(&context, address),
        partly_read: partly_read(snapshot),
    }
}

/// Returns the state of an address. A record of an allocated address takes precedence over one of a cooling address.
fn state_of<'c, 's: 'c>(
    blocks: impl Iterator<Item = &'c IndexedBlock<'s>> + Clone,
    is_in_undecodable: bool,
    address: IpAddr,
) -> AddressState {
    let records = blocks
        .clone()
        .filter_map(|block| block.current().or(block.usable)?.allocation_of(address));
    let recorded_states = records.map(|record| AddressState::of(&record.attribute));
    if let Some(state) = recorded_states.min() {
        return state;
    }
    if is_in_undecodable || blocks.clone().any(|block| block.usable.is_none()) {
        return AddressState::Unknown;
    }
    if blocks.count() == 0 {
        AddressState::NoBlock
    } else {
        AddressState::Free
    }
}

/// Describes a block around an address, with the record of the address, its owner and its handle.
fn view_of_block(context: &Context<'_>, block: &IndexedBlock<'_>, address: IpAddr) -> BlockOfAddress {
    let mut view = BlockOfAddress {
        cidr: block.key,
        owner: block.owner.cloned(),
        ordinal: calipam_model::cidr::ordinal_of(block.key, address).unwrap_or_default(),
        problems: block.problems.iter().map(ToString::to_string).collect(),
        record: None,
        recorded_owner: None,
        owner_status: None,
        node_exists: None,
        handle: None,
    };
    let Some(allocation) = block.usable.and_then(|usable| usable.allocation_of(address)) else {
        return view;
    };

    let attribute = allocation.attribute;
    let handle = attribute.clean_handle().filter(|id| !id.is_empty());
    view.handle = handle.map(|id| handle_of(context, id.to_string(), block.key));
    view.recorded_owner = Some(name_of_claim(&attribute));

    let record = Record { block, allocation };
    let claim = Claim::of(&attribute);
    let owner = Owners::new(context, [&claim]).state_of(&record, &claim);
    view.owner_status = Some(owner.into());
    if let Some(node) = attribute.get("node") {
        view.node_exists = owner::node_exists(context, &record, &node.to_string());
    }
    view.record = Some(record.evidence());
    view
}

/// Describes the handle that a record in `block` names.
fn handle_of(context: &Context<'_>, id: String, block: IpNet) -> HandleOfAddress {
    let handles = context.snapshot.handles.iter().map(|stored| &stored.value);
    let mut existing = handles.filter(|handle| !handle.is_deleted());
    let object = existing.find(|handle| handle.id().cut_at_carriage_return() == *id.as_str());
    HandleOfAddress {
        exists: object.is_some() || path_of_undecodable(context.snapshot, &id).is_some(),
        count: object.map_or(0, |handle| handle.count(block)),
        id,
    }
}

/// Returns findings about the address, and about the objects around it.
fn findings(context: &Context<'_>, address: IpAddr) -> Vec<Finding> {
    // A block can have a wrong key, which only a read of all blocks shows.
    let may_be_allocated =
        !context.snapshot.has_read(Source::Blocks) && context.index.blocks_around(address).next().is_none();
    // The recorded owner might use the address, too, but a partial read does not find that owner.
    let may_be_of_owner =
        !context.snapshot.has_read(Source::Endpoints) && has_unfound_owner(context, address);
    let is_certain = |code: Code| match code {
        Code::UnallocatedInUse => !may_be_allocated,
        Code::OwnerMismatch => !may_be_of_owner,
        _ => true,
    };

    let mut findings = context.check().findings;
    findings.retain(|finding| match &finding.subject {
        Subject::Address(subject) => *subject == address && is_certain(finding.code),
        Subject::Block(cidr) | Subject::Pool(cidr) | Subject::Affinity { cidr, .. } => {
            cidr.contains(&address)
        }
        Subject::Handle(_) | Subject::Endpoint(_) => finding.addresses().contains(&address),
        Subject::Object(path) => is_around(context, path, address),
        _ => false,
    });
    findings
}

/// Returns true if a record names a pod or container, but the key of its endpoint does not follow from the record.
fn has_unfound_owner(context: &Context<'_>, address: IpAddr) -> bool {
    context.index.records_of(address).any(|record| {
        let claim = Claim::of(&record.allocation.attribute);
        matches!(
            claim,
            Claim::Container(_)
                | Claim::Foreign { .. }
                | Claim::LegacyPod { .. }
                | Claim::Pod { node: None, .. }
        )
    })
}

/// Returns true if an undecodable object belongs to an address: as its block or affinity, or as the handle, node, pod
/// or endpoint that its record names.
fn is_around(context: &Context<'_>, path: &str, address: IpAddr) -> bool {
    let defects = &context.snapshot.defects;
    let Some(defect) = defects.iter().find(|defect| defect.path == path) else {
        return false;
    };
    let Some(key) = &defect.key else {
        return false;
    };

    let records = context.index.records_of(address);
    let mut attributes = records.map(|record| record.allocation.attribute);
    match key {
        Key::Block(cidr) => cidr.contains(&address),
        Key::Affinity(key) => key.cidr.contains(&address),
        Key::Handle(id) => attributes.any(|attribute| names_handle(&attribute, id)),
        Key::Node(name) => attributes.any(|attribute| names_node(&attribute, name)),
        Key::Pod { namespace, name } => is_pod_of(context, address, namespace, name),
        Key::Endpoint { namespace, name } => EndpointName::parse(name)
            .is_some_and(|parts| is_pod_of(context, address, namespace, &parts.workload)),
        _ => false,
    }
}

/// Returns true if a record names this handle, whatever follows a carriage return in the IDs.
fn names_handle(record: &AttributeRef<'_>, id: &str) -> bool {
    match record.clean_handle() {
        Some(recorded) => !recorded.is_empty() && clean_id(id) == recorded.to_string(),
        None => false,
    }
}

/// Returns true if a record names this node.
fn names_node(record: &AttributeRef<'_>, node: &str) -> bool {
    match record.get("node") {
        Some(recorded) => recorded == *node,
        None => false,
    }
}

fn is_pod_of(context: &Context<'_>, address: IpAddr, namespace: &str, name: &str) -> bool {
    context.index.records_of(address).any(|record| {
        let pod = Claim::of(&record.allocation.attribute).pod();
        pod.is_some_and(|(recorded, pod)| recorded == namespace && pod == name)
    })
}
