//! Creates blocks that do not exist although their addresses are in use.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;

use calipam_check::index::Owner;
use calipam_check::{Code, Subject};
use calipam_model::IpNet;
use calipam_model::affinity::{Affinity, AffinityKey, AffinityState, AffinityType, LOAD_BALANCER};
use calipam_model::attributes::Attribute;
use calipam_model::block::{Block, BlockOwner};
use calipam_model::cidr::{block_around, ordinal_of};
use calipam_model::edit::Edit;
use calipam_model::key::Key;
use calipam_model::node::Node;
use calipam_model::pool::PoolUse;
use calipam_model::snapshot::Versioned;

use super::affinities::{create_affinity, is_unreadable};
use super::block_plan::{AddressPlan, RecordEdit};
use super::planner::Planner;
use super::stored::{blocks_around, hidden_blocks, overlapping};
use crate::basis::Basis;
use crate::plan::{Change, Verb};
use crate::skipped::{Refusal, Result, SkipReason, Skipped};

/// Addresses in use without a block, by the block that should contain them.
#[derive(Default)]
pub(super) struct MissingBlocks {
    blocks: BTreeMap<IpNet, BTreeMap<u32, AddressPlan>>,
    /// Addresses in use for which no correct record can be made. They must not be free in a new block.
    held: BTreeMap<IpNet, BTreeMap<u32, IpAddr>>,
}

impl MissingBlocks {
    /// Adds an address to the block that should contain it, given the block size of its pool.
    pub(super) fn add(&mut self, planner: &Planner<'_, '_>, planned: AddressPlan) -> Result<()> {
        let (cidr, ordinal) = expected_block(planner, planned.address)?;
        self.blocks.entry(cidr).or_default().insert(ordinal, planned);
        Ok(())
    }

    /// Remembers an address in use that is skipped. If its block is created, an empty record holds the address there,
    /// since a free address could be assigned to a pod.
    pub(super) fn hold(&mut self, planner: &Planner<'_, '_>, address: IpAddr) {
        if !blocks_around(planner.index(), address).is_empty() {
            return;
        }
        if let Ok((cidr, ordinal)) = expected_block(planner, address) {
            self.held.entry(cidr).or_default().insert(ordinal, address);
        }
    }

    /// Plans the blocks that can be created, and skips the others.
    pub(super) fn plan(self, planner: &mut Planner<'_, '_>) {
        if self.blocks.is_empty() {
            return;
        }

        let hidden = hidden_blocks(planner.basis.snapshot, |block| planner.finishes(block));
        for (cidr, mut addresses) in self.blocks {
            let number_in_use = addresses.len();
            for (ordinal, address) in self.held.get(&cidr).into_iter().flatten() {
                addresses.insert(*ordinal, held_without_owner(*address));
            }

            match create(planner, &hidden, cidr, &addresses) {
                Ok(created) => {
                    let detail = format!(
                        "for {}; {number_in_use} of its addresses are in use",
                        created.owner
                    );
                    let planned = planner.blocks.entry(cidr).or_default();
                    planned.created = Some(Box::new(created.block));
                    planned.addresses = addresses;
                    planned.affinities = created.affinities;
                    planned
                        .changes
                        .push(Change::new(Verb::CreateBlock, Subject::Block(cidr), detail, &[]));
                }
                Err(refusal) => {
                    for planned in addresses.values() {
                        skip_in_missing_block(planner, planned, cidr, &refusal);
                    }
                }
            }
        }
    }
}

/// Skips an address in use whose block cannot be created.
fn skip_in_missing_block(
    planner: &mut Planner<'_, '_>,
    planned: &AddressPlan,
    block: IpNet,
    refusal: &Refusal,
) {
    // The addresses that are held without an owner are already skipped.
    if planned.change.repairs.is_empty() {
        return;
    }
    let address = planned.address;
    let detail = format!(
        "{address}: its block {block} does not exist, and {}",
        refusal.detail
    );
    let skipped = Skipped::new(Subject::Address(address), refusal.reason, detail);
    planner.skipped.push(skipped.with_code(Code::UnallocatedInUse));
}

/// Returns the block that should contain an address, and its ordinal there.
fn expected_block(planner: &Planner<'_, '_>, address: IpAddr) -> Result<(IpNet, u32)> {
    let pools: Vec<_> = planner.index().pools_around(address.into()).collect();
    let pool = match pools.as_slice() {
        [] => return Err(Refusal::new(SkipReason::OutsidePools, "it is in no pool")),
        [pool] => *pool,
        [first, second, ..] => {
            let detail = format!(
                "it is in the pools {} and {}, which overlap",
                first.name, second.name
            );
            return Err(Refusal::new(SkipReason::Overlap, detail));
        }
    };

    if let Some(cidr) = block_around(address, pool.block_size)
        && pool.cidr.contains(&cidr)
        && let Some(ordinal) = ordinal_of(cidr, address)
    {
        return Ok((cidr, ordinal));
    }
    let detail = format!("pool {} is smaller than its block size", pool.name);
    Err(Refusal::new(SkipReason::NeedsDecision, detail))
}

/// Plans an empty record for an address in use. Only a release that names the address frees it.
fn held_without_owner(address: IpAddr) -> AddressPlan {
    let detail = "in use, but recorded without an owner: deleting its user would not free it";
    let change = Change::new(Verb::AssignAddress, Subject::Address(address), detail, &[]);
    AddressPlan {
        address,
        edit: RecordEdit::Assign(Attribute::default()),
        evidence: Vec::new(),
        change,
    }
}

/// A block that can be created, still without addresses.
struct Created {
    block: Block,
    owner: BlockOwner,
    /// Its affinity, if it has to be confirmed or created.
    affinities: Vec<(Edit, Change)>,
}

/// Makes the block, or refuses if it would overlap another one, or could not hold the addresses.
fn create(
    planner: &Planner<'_, '_>,
    hidden: &HashSet<IpNet>,
    cidr: IpNet,
    addresses: &BTreeMap<u32, AddressPlan>,
) -> Result<Created> {
    if let Some(other) = overlapping(planner.index(), hidden, cidr) {
        return Err(Refusal::new(
            SkipReason::Overlap,
            format!("{other} already exists, with a different size or unreadable"),
        ));
    }

    let held: Vec<&Versioned<Affinity>> = holders(planner, cidr);
    let owner = owner(planner, cidr, addresses, &held)?;
    if !planner.request.has_block(cidr, Some(&owner)) {
        return Err(Refusal::new(
            SkipReason::NeedsDecision,
            format!("it would belong to {owner}, which is not in scope"),
        ));
    }

    let now = planner.basis.snapshot.taken_at;
    let node = owner.host().and_then(|node| planner.index().node(node));
    let windows = node.is_some_and(Node::is_windows);
    let make = if windows { Block::new_windows } else { Block::new };
    let Some(mut block) = make(cidr, Some(owner.clone()), now) else {
        return Err(Refusal::new(
            SkipReason::NeedsDecision,
            "Calico allows no block of that size",
        ));
    };

    block.set_own_strict_affinity(own_strict_affinity(planner.basis));
    let assigned = block.clone().update(|edit| {
        addresses
            .iter()
            .try_for_each(|(ordinal, planned)| match &planned.edit {
                RecordEdit::Assign(record) => edit.assign(*ordinal, record),
                RecordEdit::Release(_) | RecordEdit::Rewrite(..) => Ok(()),
            })
    });

    if let Err(error) = assigned {
        return Err(Refusal::new(
            SkipReason::WindowsReserved,
            format!("{error} in a Windows node's block"),
        ));
    }

    let affinities = affinity(cidr, &owner, &held);
    for (edit, change) in &affinities {
        if let Edit::Create(Key::Affinity(key), _) = edit
            && is_unreadable(planner.basis, key)
        {
            let detail = format!(
                "its affinity {} cannot be decoded; delete that first",
                change.subject
            );
            return Err(Refusal::new(SkipReason::Unchecked, detail));
        }
    }
    Ok(Created {
        block,
        owner,
        affinities,
    })
}

/// Returns the strict affinity setting to store in a new block: the cluster's setting, if any other block has a setting
/// of its own, as blocks of Calico 3.13 and older can.
fn own_strict_affinity(basis: &Basis<'_>) -> Option<bool> {
    let is_old = basis.snapshot.is_calico_since((3, 14)) == Some(false);
    let mut other_blocks = basis.context.index.blocks.iter().filter_map(|block| block.sound);
    if !is_old || !other_blocks.any(|block| block.own_strict_affinity().is_some()) {
        return None;
    }
    let config = basis.snapshot.effective_ipam_config();
    Some(config.is_some_and(|config| config.strict_affinity))
}

/// Returns the affinities for the block, except deleted ones and types that Calico never writes. Unconfirmed affinities
/// are ignored if there is a confirmed one.
fn holders<'s>(planner: &Planner<'_, 's>, cidr: IpNet) -> Vec<&'s Versioned<Affinity>> {
    let mut confirmed = Vec::new();
    let mut unconfirmed = Vec::new();
    for affinity in &planner.basis.snapshot.affinities {
        let Affinity {
            key, state, deleted, ..
        } = &affinity.value;
        if key.cidr != cidr || *deleted || matches!(key.kind, AffinityType::Other(_)) {
            continue;
        }
        if *state == AffinityState::Confirmed {
            confirmed.push(affinity);
        } else {
            unconfirmed.push(affinity);
        }
    }
    if confirmed.is_empty() {
        unconfirmed
    } else {
        confirmed
    }
}

/// Returns the right owner of the block: the holder of its affinity, or else the node whose tunnel address is in the
/// block, the node that uses most of it, or the load balancer if no node uses it.
fn owner(
    planner: &Planner<'_, '_>,
    cidr: IpNet,
    addresses: &BTreeMap<u32, AddressPlan>,
    held: &[&Versioned<Affinity>],
) -> Result<BlockOwner> {
    let index = planner.index();
    let known = |owner: BlockOwner| match owner.host() {
        Some(node) if !index.node_exists(node) => Err(Refusal::new(
            SkipReason::NodeUnknown,
            format!("its node {node} does not exist"),
        )),
        _ => Ok(owner),
    };

    match held {
        [affinity] => return known(affinity.value.key.owner()),
        [first, second, ..] => {
            let first = &first.value.key.node;
            let second = &second.value.key.node;
            let detail = format!("both {first} and {second} hold an affinity for it; delete one of them");
            return Err(Refusal::new(SkipReason::NeedsDecision, detail));
        }
        [] => {}
    }

    let mut users: BTreeMap<String, (bool, usize)> = BTreeMap::new();
    let uses = addresses
        .values()
        .flat_map(|planned| index.uses_of(planned.address));
    for used in uses {
        let (node, is_tunnel) = match used.owner {
            Owner::Tunnel(index, _) => (
                planner.basis.snapshot.nodes[index as usize].value.name.clone(),
                true,
            ),
            owner => match index.workload(owner) {
                Some(workload) => (index.calico_node(workload.node), false),
                None => continue,
            },
        };
        if index.node_exists(&node) {
            let of_node = users.entry(node).or_default();
            *of_node = (of_node.0 || is_tunnel, of_node.1 + 1);
        }
    }

    // The first by name wins a tie.
    let best = users.into_iter().rev().max_by_key(|(_, weight)| *weight);
    let for_services = || {
        index
            .pools_around(cidr)
            .any(|pool| pool.allows(PoolUse::LoadBalancer))
    };

    match best {
        Some((node, _)) => Ok(BlockOwner::Host(node)),
        None if for_services() => Ok(BlockOwner::Virtual(LOAD_BALANCER.to_owned())),
        None => Err(Refusal::new(SkipReason::NodeUnknown, "no existing node uses it")),
    }
}

/// Plans to confirm the owner's affinity for the block, or to create it.
fn affinity(cidr: IpNet, owner: &BlockOwner, held: &[&Versioned<Affinity>]) -> Vec<(Edit, Change)> {
    if let [affinity] = held {
        let key = &affinity.value.key;
        if affinity.value.state == AffinityState::Confirmed {
            return Vec::new();
        }
        let state = AffinityState::Confirmed;
        let edit = Edit::Affinity(key.clone().into(), affinity.revision.clone(), state);
        let repaired = [Code::UnsettledAffinity];
        let change = Change::new(
            Verb::ConfirmAffinity,
            Subject::affinity(key),
            "its block exists again",
            &repaired,
        );
        return vec![(edit, change)];
    }

    let Some(key) = AffinityKey::of_owner(owner, cidr) else {
        return Vec::new();
    };
    let change = Change::new(
        Verb::CreateAffinity,
        Subject::affinity(&key),
        "for the new block",
        &[],
    );
    vec![(create_affinity(&key), change)]
}
