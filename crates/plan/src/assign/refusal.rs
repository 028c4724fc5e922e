//! Explains why an address cannot be assigned, and who already has it.

use std::net::IpAddr;

use calipam_assign::{Error, PoolPassedOver};
use calipam_check::Subject;
use calipam_check::claim::Claim;
use calipam_check::names_of_owners;
use calipam_model::IpNet;
use calipam_model::block::{Allocation, BlockOwner};
use calipam_model::pool::PoolUse;

use crate::basis::{Basis, sound_records};
use crate::skipped::{Refusal, SkipReason, Skipped, SuggestedAction};

/// Explains the allocator's refusal of a named address.
pub(super) fn explain(basis: &Basis<'_>, node: &str, address: IpAddr, error: &Error) -> Skipped {
    let Refusal { reason, detail } = match error {
        Error::AddressOutsidePools(_) => {
            Refusal::new(SkipReason::OutsidePools, outside_pools(basis, address))
        }
        Error::AlreadyAssigned(_) => taken(basis, address),
        Error::Undecodable { key, reason } => Refusal::new(
            SkipReason::Unchecked,
            format!("{} cannot be decoded: {reason}", key.named()),
        ),
        Error::Overlap { .. } => Refusal::new(SkipReason::Overlap, error.to_string()),
        Error::ForeignBlock(cidr) => {
            Refusal::new(SkipReason::NotAvailable, in_foreign_block(basis, address, *cidr))
        }
        other => Refusal::new(
            SkipReason::NotAvailable,
            format!("{address}: {}", other.to_string().trim()),
        ),
    };

    let skipped = Skipped::new(Subject::Address(address), reason, detail);
    if reason == SkipReason::NotAvailable {
        return skipped.suggesting(SuggestedAction::ExplainNode(node.to_owned()));
    }
    skipped
}

/// Describes the block of another node that has the address.
fn in_foreign_block(basis: &Basis<'_>, address: IpAddr, cidr: IpNet) -> String {
    let block = basis.context.index.block(cidr);
    let owner = match block.and_then(|block| block.owner) {
        Some(owner) => owner.to_string(),
        None => "another node".to_owned(),
    };
    format!("{address} is in block {cidr}, which belongs to {owner}, and strict affinity is on")
}

/// Explains the allocator's failure to choose an address.
pub(super) fn explain_choice(basis: &Basis<'_>, error: &Error) -> String {
    let Error::PoolNotEnabled(cidr) = error else {
        return error.to_string().trim().to_owned();
    };
    let mut pools = basis.snapshot.pools.iter().map(|pool| &pool.value);
    let Some(pool) = pools.find(|pool| pool.cidr == *cidr) else {
        return format!("pool {cidr} not found");
    };
    // The allocator also passes over a pool whose state allows it, if its blocks have the wrong size.
    let why = PoolPassedOver::of_state(pool).unwrap_or_else(|| PoolPassedOver::of_block_size(pool));
    format!("pool {} ({cidr}): {why}", pool.name)
}

/// Refuses an address that the allocator would never assign to a pod; `None` for any other address.
pub(super) fn refuse_unassignable(basis: &Basis<'_>, address: IpAddr) -> Option<Skipped> {
    let index = &basis.context.index;
    let service_block = index
        .blocks_around(address)
        .find(|block| matches!(block.owner, Some(BlockOwner::Virtual(_))));
    let detail = if let Some(block) = service_block {
        format!(
            "{address} is in block {}, which is for LoadBalancer services",
            block.key
        )
    } else if let Some(pool) = index.enabled_pool_around(address)
        && !pool.allows(PoolUse::Workload)
    {
        format!(
            "{address} is in pool {}: {}",
            pool.name,
            PoolPassedOver::Use(PoolUse::Workload)
        )
    } else {
        return None;
    };
    Some(Skipped::new(
        Subject::Address(address),
        SkipReason::NeedsDecision,
        detail,
    ))
}

/// Explains that an address is in no enabled pool, and names the pools around it with the reasons why they are closed.
fn outside_pools(basis: &Basis<'_>, address: IpAddr) -> String {
    let mut closed: Vec<String> = Vec::new();
    for pool in basis.context.index.pools_around(address.into()) {
        if let Some(why) = PoolPassedOver::of_state(pool) {
            closed.push(format!("{} ({}) contains it, but {why}", pool.name, pool.cidr));
        }
    }
    if closed.is_empty() {
        return format!("{address} is in no pool");
    }
    format!("{address} is in no enabled pool: {}", closed.join("; "))
}

/// Explains who already has the address, or why an address without an owner is not free.
fn taken(basis: &Basis<'_>, address: IpAddr) -> Refusal {
    let mut records = sound_records(&basis.context.index, address);
    let Some(record) = records.next() else {
        return Refusal::new(
            SkipReason::AlreadyAssigned,
            format!("this plan already assigns {address}"),
        );
    };

    match Claim::of(&record.attribute) {
        Claim::Cooling => {
            let detail = format!("{address} was released recently and is cooling down");
            return Refusal::new(SkipReason::Cooling, detail);
        }
        Claim::WindowsReserved => {
            let detail = format!("{address} is reserved by a Windows node and never assigned");
            return Refusal::new(SkipReason::WindowsReserved, detail);
        }
        _ => {}
    }

    let owners = basis.context.owners_of(address);
    let used = if owners.is_empty() {
        "nothing is known to use it".to_owned()
    } else {
        format!("{} uses it", names_of_owners(&owners))
    };
    Refusal::new(
        SkipReason::AlreadyAssigned,
        format!("{address} is already assigned, {}; {used}", recorded_for(&record)),
    )
}

/// Describes the owner in a record.
fn recorded_for(record: &Allocation<'_>) -> String {
    let attribute = record.attribute.to_attribute();
    let handle = match &attribute.handle {
        Some(handle) => format!("under the handle {handle}"),
        None => "without a handle".to_owned(),
    };
    let owner = attribute.owner.unwrap_or_default();
    let pod = owner.get("namespace").zip(owner.get("pod"));
    match (pod, owner.get("node")) {
        (Some((namespace, pod)), Some(node)) => format!("{handle}, for {namespace}/{pod} on {node}"),
        (Some((namespace, pod)), None) => format!("{handle}, for {namespace}/{pod}"),
        (None, Some(node)) => format!("{handle}, on {node}"),
        (None, None) => handle,
    }
}
