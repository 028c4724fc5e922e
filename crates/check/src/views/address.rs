//! The whole story of one address.

use std::net::IpAddr;

use calipam_model::IpNet;
use calipam_model::block::Allocation;
use calipam_model::key::Key;
use calipam_model::snapshot::{Coverage, Snapshot, Source};
use serde::Serialize;

use crate::finding::{Finding, OwnerEvidence, RecordEvidence, Subject};
use crate::index::{IndexedBlock, Owner};
use crate::record::{Claim, machine_of, names_service, names_workload};
use crate::rules::addresses::Record;
use crate::rules::evidence::{name_of_claim, of_owner, of_record};
use crate::{Context, Options, check};

/// An address.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AddressView {
    /// The address.
    pub address: IpAddr,
    /// What is recorded about it.
    pub state: State,
    /// Pools that contain it, disabled ones included; empty where it lies in none.
    pub pools: Vec<PoolOfAddress>,
    /// An IP reservation keeps it from being assigned automatically.
    pub reserved: bool,
    /// Blocks that it lies in, corrupt ones included; several where blocks overlap.
    pub blocks: Vec<BlockOfAddress>,
    /// Who is known to use it. Where `partial` is set, only the recorded owner was looked for.
    pub owners: Vec<OwnerEvidence>,
    /// What is wrong with it, as far as the objects that were read decide that.
    pub findings: Vec<Finding>,
    /// Only the objects around it were read, not the cluster.
    pub partial: bool,
}

/// What is recorded about an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// A block records an owner.
    Allocated,
    /// It was released, and is not free yet.
    Cooling,
    /// A Windows node reserves it.
    WindowsReserved,
    /// A block holds it as free.
    Free,
    /// There is no block around it.
    NoBlock,
    /// The block around it is corrupt or does not decode.
    Unknown,
}

/// A pool around an address.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolOfAddress {
    /// Its name.
    pub name: String,
    /// Its CIDR.
    pub cidr: String,
    /// Calico allocates from it.
    pub enabled: bool,
}

/// A block around an address.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BlockOfAddress {
    /// Its CIDR.
    pub cidr: String,
    /// Its owner.
    pub owner: Option<String>,
    /// The place of the address in it.
    pub ordinal: u32,
    /// What is broken in it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
    /// What it records about the address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<RecordEvidence>,
    /// Whose address the record says it is, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded_owner: Option<String>,
    /// Whether that owner lives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lives: Option<Life>,
    /// The handle of the record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handle: Option<HandleOfAddress>,
}

/// Whether a recorded owner lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Life {
    /// It exists and uses the address.
    UsesIt,
    /// It exists, but does not name the address.
    NamesOthers,
    /// It does not exist.
    Gone,
    /// The record names nobody, or what could tell was not read.
    Unknown,
}

/// The handle of a record.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HandleOfAddress {
    /// Its ID, cut at a carriage return.
    pub id: String,
    /// Whether there is a handle object.
    pub exists: bool,
    /// Addresses that it claims to hold in the block.
    pub count: i64,
}

/// The story of an address.
pub fn address(snapshot: &Snapshot, address: IpAddr) -> AddressView {
    let context = Context::new(snapshot, &Options::default());
    let index = &context.index;
    let around = || index.blocks.iter().filter(|b| b.key.contains(&address));
    let undecodable =
        snapshot.defects.iter().any(|d| matches!(&d.key, Some(Key::Block(cidr)) if cidr.contains(&address)));
    let mut owners: Vec<OwnerEvidence> = index.uses_of(address).iter().map(|u| of_owner(index, u)).collect();
    owners.sort();
    let reserved =
        snapshot.reservations.iter().flat_map(|r| &r.value.cidrs).any(|cidr| cidr.contains(&address));
    let pools = index.pools_around(IpNet::from(address));
    AddressView {
        address,
        state: state(around(), undecodable, address),
        pools: pools
            .map(|p| PoolOfAddress {
                name: p.name.clone(),
                cidr: p.cidr.to_string(),
                enabled: p.is_enabled(),
            })
            .collect(),
        reserved,
        blocks: around().map(|block| of_block(&context, block, address)).collect(),
        owners,
        findings: findings(snapshot, address),
        partial: snapshot.coverage.get(&Source::Endpoints) == Some(&Coverage::Partial),
    }
}

/// A record that holds the address counts before one that cools.
fn state<'c, 's: 'c>(
    blocks: impl Iterator<Item = &'c IndexedBlock<'s>> + Clone,
    undecodable: bool,
    address: IpAddr,
) -> State {
    let records = blocks.clone().filter_map(|b| b.sound?.allocation_of(address));
    let state = |a: Allocation<'_>| match a.attribute {
        attribute if attribute.is_cooling() => State::Cooling,
        attribute if attribute.is_windows_reserved() => State::WindowsReserved,
        _ => State::Allocated,
    };
    let states: Vec<State> = records.map(state).collect();
    let order = [State::Allocated, State::WindowsReserved, State::Cooling];
    if let Some(found) = order.into_iter().find(|s| states.contains(s)) {
        return found;
    }
    if undecodable || blocks.clone().any(|b| b.sound.is_none()) {
        return State::Unknown;
    }
    if blocks.count() == 0 { State::NoBlock } else { State::Free }
}

fn of_block(context: &Context<'_>, block: &IndexedBlock<'_>, address: IpAddr) -> BlockOfAddress {
    let allocation = block.sound.and_then(|b| b.allocation_of(address));
    let record = allocation.map(|allocation| Record { block, allocation });
    let handle = |a: Allocation<'_>| a.attribute.clean_handle().map(|h| h.to_string());
    BlockOfAddress {
        cidr: block.key.to_string(),
        owner: block.owner.map(ToString::to_string),
        ordinal: calipam_model::cidr::ordinal_of(block.key, address).unwrap_or_default(),
        problems: block.problems.iter().map(ToString::to_string).collect(),
        record: record.as_ref().map(of_record),
        recorded_owner: record.as_ref().map(name_of_claim),
        lives: allocation.map(|a| life(context, &a)),
        handle: allocation
            .and_then(handle)
            .filter(|id| !id.is_empty())
            .map(|id| handle_of(context, id, block.key)),
    }
}

fn handle_of(context: &Context<'_>, id: String, block: IpNet) -> HandleOfAddress {
    let stored = context.snapshot.handles.iter().filter(|h| !h.value.is_deleted());
    let found = stored.map(|h| &h.value).find(|h| h.id().cut_at_carriage_return() == *id.as_str());
    HandleOfAddress { exists: found.is_some(), count: found.map_or(0, |h| h.count(block)), id }
}

/// Whether the recorded owner lives, by what was read of it.
fn life(context: &Context<'_>, allocation: &Allocation<'_>) -> Life {
    let index = &context.index;
    let snapshot = context.snapshot;
    let claim = Claim::of(&allocation.attribute);
    let uses = index.uses_of(allocation.address);
    if uses.iter().any(|used| is_claimed(&claim, used.owner, context)) {
        return Life::UsesIt;
    }
    let exists = match &claim {
        Claim::Cooling | Claim::WindowsReserved | Claim::Anonymous | Claim::Unknown => return Life::Unknown,
        claim if claim.needs_unread_source(snapshot) => return Life::Unknown,
        Claim::Tunnel { node, .. } => index.node_exists(node),
        Claim::Service => snapshot.services.iter().any(|s| names_service(&allocation.attribute, &s.value)),
        Claim::Machine => machine_of(&allocation.attribute).is_none_or(|(namespace, name)| {
            snapshot.machines.iter().any(|m| m.value.namespace == namespace && m.value.name == name)
        }),
        claim => {
            let endpoints = (0..snapshot.endpoints.len() as u32).map(Owner::Endpoint);
            let pods = (0..snapshot.pods.len() as u32).map(Owner::Pod);
            endpoints.chain(pods).any(|owner| is_claimed(claim, owner, context))
        }
    };
    if exists { Life::NamesOthers } else { Life::Gone }
}

fn is_claimed(claim: &Claim<'_>, owner: Owner, context: &Context<'_>) -> bool {
    match (claim, owner) {
        (Claim::Tunnel { node, .. }, Owner::Tunnel(place, _)) => {
            context.snapshot.nodes[place as usize].value.name == *node
        }
        (claim, owner) => {
            context.index.workload(owner).is_some_and(|w| names_workload(claim, &w, &context.index))
        }
    }
}

fn findings(snapshot: &Snapshot, address: IpAddr) -> Vec<Finding> {
    let report = check(snapshot, &Options::default());
    let about = |f: &Finding| match &f.subject {
        Subject::Address(subject) => *subject == address,
        Subject::Block(cidr) | Subject::Pool(cidr) | Subject::Affinity { cidr, .. } => {
            cidr.contains(&address)
        }
        Subject::Handle(_) | Subject::Endpoint(_) => f.addresses().contains(&address),
        _ => false,
    };
    report.findings.into_iter().filter(about).collect()
}
