//! Blocks that do not exist although their addresses are in use.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;

use calipam_check::index::Owner;
use calipam_check::{Code, Subject};
use calipam_model::IpNet;
use calipam_model::affinity::{Affinity, AffinityKey, AffinityState, AffinityType, LOAD_BALANCER};
use calipam_model::attributes::Attribute;
use calipam_model::block::{Block, BlockOwner};
use calipam_model::cidr::{block_around, ordinal_of};
use calipam_model::edit::{AffinityEdit, Edit};
use calipam_model::pool::PoolUse;
use calipam_model::snapshot::Versioned;

use super::affinities::is_unreadable;
use super::desk::{Desk, blocks_around, change, hidden_blocks, overlapping};
use super::draft::{AddressDraft, What};
use super::record::calico_node;
use crate::plan::{Change, Verb};
use crate::skipped::{SkipReason, Skipped};

/// The label of a node's operating system.
const SYSTEM: &str = "kubernetes.io/os";

type Refusal = (SkipReason, String);

/// Addresses in use by the block that should be around them.
#[derive(Default)]
pub(super) struct LostBlocks {
    blocks: BTreeMap<IpNet, BTreeMap<u32, AddressDraft>>,
    /// Addresses in use for which no right record can be made. In a new block they must not be free.
    held: BTreeMap<IpNet, BTreeMap<u32, IpAddr>>,
}

impl LostBlocks {
    /// Puts an address into the block in which it should lie by the block size of its pool.
    ///
    /// # Errors
    /// Where that is not known.
    pub fn add(&mut self, desk: &Desk<'_, '_>, draft: AddressDraft) -> Result<(), Refusal> {
        let (cidr, ordinal) = place(desk, draft.address)?;
        self.blocks.entry(cidr).or_default().insert(ordinal, draft);
        Ok(())
    }

    /// Remembers an address in use that is skipped. Should its block be created, it is held there by an empty
    /// record: free it would be given out a second time.
    pub fn hold(&mut self, desk: &Desk<'_, '_>, address: IpAddr) {
        if let ([], Ok((cidr, ordinal))) = (&*blocks_around(desk.index(), address), place(desk, address)) {
            self.held.entry(cidr).or_default().insert(ordinal, address);
        }
    }

    /// Drafts the blocks that can be created, and says of the others why not.
    pub fn draft(self, desk: &mut Desk<'_, '_>) {
        if self.blocks.is_empty() {
            return;
        }
        let hidden = hidden_blocks(desk);
        for (cidr, mut addresses) in self.blocks {
            let of_users = addresses.len();
            let held = self.held.get(&cidr).into_iter().flatten();
            addresses.extend(held.map(|(ordinal, address)| (*ordinal, held_for_nobody(*address))));
            let created = create(desk, &hidden, cidr, &addresses);
            match created {
                Ok((block, owner, affinities)) => {
                    let detail = format!("for {owner}; {of_users} of its addresses are in use");
                    let draft = desk.drafts.entry(cidr).or_default();
                    draft.created = Some(Box::new(block));
                    draft.addresses = addresses;
                    draft.affinities = affinities;
                    draft.changes.push(change(Verb::CreateBlock, Subject::Block(cidr), detail, &[]));
                }
                Err((reason, why)) => {
                    for draft in addresses.into_values().filter(|draft| !draft.change.repairs.is_empty()) {
                        let detail = format!("{}: its block {cidr} is lost, and {why}", draft.address);
                        let skipped = Skipped::new(Subject::Address(draft.address), reason, detail);
                        desk.skipped.push(skipped.of(Code::UnallocatedInUse));
                    }
                }
            }
        }
    }
}

/// The block in which an address should lie, and its place there.
fn place(desk: &Desk<'_, '_>, address: IpAddr) -> Result<(IpNet, u32), Refusal> {
    let pools: Vec<_> = desk.index().pools_around(address.into()).collect();
    let pool = match pools.as_slice() {
        [] => return Err((SkipReason::OutsidePools, "it lies in no pool".into())),
        [pool] => *pool,
        [first, second, ..] => {
            let detail = format!("it lies in the pools {} and {}, which overlap", first.name, second.name);
            return Err((SkipReason::Overlap, detail));
        }
    };
    let cidr = block_around(address, pool.block_size).filter(|cidr| pool.cidr.contains(cidr));
    let Some((cidr, ordinal)) = cidr.and_then(|cidr| Some((cidr, ordinal_of(cidr, address)?))) else {
        let detail = format!("pool {} is smaller than its block size", pool.name);
        return Err((SkipReason::NeedsDecision, detail));
    };
    Ok((cidr, ordinal))
}

/// The empty record of an address in use. A person frees it by `release --ip`.
fn held_for_nobody(address: IpAddr) -> AddressDraft {
    let detail = "in use, and held by an empty record: the deletion of its user cannot free it";
    let change = change(Verb::AssignAddress, Subject::Address(address), detail, &[]);
    AddressDraft { address, what: What::Assign(Attribute::default()), evidence: Vec::new(), change }
}

type Created = (Block, BlockOwner, Vec<(Edit, Change)>);

fn create(
    desk: &Desk<'_, '_>,
    hidden: &HashSet<IpNet>,
    cidr: IpNet,
    addresses: &BTreeMap<u32, AddressDraft>,
) -> Result<Created, Refusal> {
    if let Some(other) = overlapping(desk.index(), hidden, cidr) {
        return Err((
            SkipReason::Overlap,
            format!("{other} lies there already, of another size or unreadable"),
        ));
    }
    let held: Vec<&Versioned<Affinity>> = holders(desk, cidr);
    let owner = owner(desk, cidr, addresses, &held)?;
    if !desk.scope.has_block(cidr, Some(&owner)) {
        return Err((
            SkipReason::NeedsDecision,
            format!("it would be a block of {owner}, which is not in scope"),
        ));
    }
    let now = desk.basis.snapshot.taken_at;
    let node = owner.host().and_then(|node| desk.index().node(node));
    let windows = node.and_then(|node| node.labels.get(SYSTEM)).is_some_and(|system| system == "windows");
    let make = if windows { Block::new_windows } else { Block::new };
    let Some(mut block) = make(cidr, Some(owner.clone()), now) else {
        return Err((SkipReason::NeedsDecision, "Calico allows no block of that size".into()));
    };
    let assigned = block.update(|edit| {
        addresses.iter().try_for_each(|(ordinal, draft)| match &draft.what {
            What::Assign(record) => edit.assign(*ordinal, record),
            What::Release(_) | What::Record(..) => Ok(()),
        })
    });
    if let Err(error) = assigned {
        return Err((SkipReason::WindowsReserved, format!("{error} in a block of a Windows node")));
    }
    let affinities = affinity(cidr, &owner, &held);
    let unreadable = affinities.iter().find(|(edit, _)| {
        matches!(edit, Edit::Affinity(key, AffinityEdit::Create(_)) if is_unreadable(desk.basis, key))
    });
    match unreadable {
        Some((_, change)) => {
            let detail = format!("its affinity {} does not decode; delete that first", change.subject);
            Err((SkipReason::Unjudged, detail))
        }
        None => Ok((block, owner, affinities)),
    }
}

/// Affinities for the block, those left out that Calico never writes. A confirmed one outweighs those that are not,
/// which go.
fn holders<'s>(desk: &Desk<'_, 's>, cidr: IpNet) -> Vec<&'s Versioned<Affinity>> {
    let of_block = desk.basis.snapshot.affinities.iter().filter(|affinity| {
        let key = &affinity.value.key;
        key.cidr == cidr && !affinity.value.deleted && !matches!(key.kind, AffinityType::Other(_))
    });
    let all: Vec<&Versioned<Affinity>> = of_block.collect();
    let confirmed = all.iter().filter(|affinity| affinity.value.state == AffinityState::Confirmed);
    let confirmed: Vec<&Versioned<Affinity>> = confirmed.copied().collect();
    if confirmed.is_empty() { all } else { confirmed }
}

/// Who should own the block: who has an affinity for it; else the node whose tunnel address lies in it, or that
/// uses most of it.
fn owner(
    desk: &Desk<'_, '_>,
    cidr: IpNet,
    addresses: &BTreeMap<u32, AddressDraft>,
    held: &[&Versioned<Affinity>],
) -> Result<BlockOwner, Refusal> {
    let index = desk.index();
    let known = |owner: BlockOwner| match owner.host() {
        Some(node) if !index.node_exists(node) => {
            Err((SkipReason::NodeUnknown, format!("its node {node} does not exist")))
        }
        _ => Ok(owner),
    };
    match held {
        [affinity] => return known(affinity.value.key.owner()),
        [first, second, ..] => {
            let (first, second) = (&first.value.key.node, &second.value.key.node);
            let detail = format!("both {first} and {second} hold an affinity for it; delete one of these");
            return Err((SkipReason::NeedsDecision, detail));
        }
        [] => {}
    }
    let mut users: BTreeMap<String, (bool, usize)> = BTreeMap::new();
    let uses = addresses.values().flat_map(|draft| index.uses_of(draft.address));
    for used in uses {
        let (node, is_tunnel) = match used.owner {
            Owner::Tunnel(place, _) => (desk.basis.snapshot.nodes[place as usize].value.name.clone(), true),
            owner => match index.workload(owner) {
                Some(workload) => (calico_node(desk.basis, workload.node.to_string()), false),
                None => continue,
            },
        };
        if index.node_exists(&node) {
            let of_node = users.entry(node).or_default();
            *of_node = (of_node.0 || is_tunnel, of_node.1 + 1);
        }
    }
    // Of equals the first by name.
    let best = users.into_iter().rev().max_by_key(|(_, weight)| *weight);
    let for_services = || index.pools_around(cidr).any(|pool| pool.allows(PoolUse::LoadBalancer));
    match best {
        Some((node, _)) => Ok(BlockOwner::Host(node)),
        None if for_services() => Ok(BlockOwner::Virtual(LOAD_BALANCER.to_owned())),
        None => Err((SkipReason::NodeUnknown, "no node that exists uses it".into())),
    }
}

/// The affinity that goes with the block.
fn affinity(cidr: IpNet, owner: &BlockOwner, held: &[&Versioned<Affinity>]) -> Vec<(Edit, Change)> {
    if let [affinity] = held {
        let key = &affinity.value.key;
        if affinity.value.state == AffinityState::Confirmed {
            return Vec::new();
        }
        let edit = AffinityEdit::State(affinity.revision.clone(), AffinityState::Confirmed);
        let repaired = [Code::UnsettledAffinity];
        let change =
            change(Verb::ConfirmAffinity, Subject::affinity(key), "its block is there again", &repaired);
        return vec![(Edit::Affinity(key.clone(), edit), change)];
    }
    let (kind, node) = match owner {
        BlockOwner::Host(node) => (AffinityType::Host, node),
        BlockOwner::Virtual(name) => (AffinityType::Virtual, name),
        BlockOwner::Other(_) => return Vec::new(),
    };
    let key = AffinityKey { kind, node: node.clone(), cidr };
    let change = change(Verb::CreateAffinity, Subject::affinity(&key), "for the new block", &[]);
    let created = AffinityEdit::Create(Affinity::new(key.clone(), AffinityState::Confirmed));
    vec![(Edit::Affinity(key, created), change)]
}
