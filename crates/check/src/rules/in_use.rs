//! Addresses that are in use but not allocated, or have several owners or records.

use calipam_model::snapshot::{Coverage, Source};

use super::address::{Address, new_finding};
use crate::Context;
use crate::code::Code;
use crate::finding::{AddressEvidence, Finding};
use crate::index::{Index, Owner, Use};
use crate::record::is_on_machine;

/// Returns true if a source was read in full or in part. A partial read is about one address, and includes all objects
/// that concern it.
fn is_known(context: &Context<'_>, source: Source) -> bool {
    matches!(
        context.snapshot.coverage.get(&source),
        Some(Coverage::Read | Coverage::Partial)
    )
}

/// Checks an address that has users: that it has one user, is in a pool, and is allocated.
pub(crate) fn check(context: &Context<'_>, address: &Address<'_, '_, '_>, out: &mut Vec<Finding>) {
    if has_several_owners(&context.index, address) {
        out.push(new_finding(
            context,
            Code::DuplicateAddress,
            address,
            |evidence| {
                let mut problem = format!("is used by {}", evidence.users());
                for record in evidence.holding() {
                    problem.push_str(&format!(", and recorded for {}", record.holder()));
                }
                problem
            },
        ));
    }

    let mut pools = context.index.pools_around(address.address.into());
    let is_in_pool = pools.next().is_some();
    if !is_in_pool {
        if is_known(context, Source::Pools) && !context.index.pools_incomplete {
            let problem =
                |evidence: &AddressEvidence| format!("is used by {}, but in no pool", evidence.users());
            out.push(new_finding(context, Code::InUseOutsidePools, address, problem));
        }
        return;
    }

    if address.holding().next().is_none() && is_known(context, Source::Blocks) {
        // The address is free in a block unless no block contains it, or a block records it as cooling down.
        out.push(new_finding(
            context,
            Code::UnallocatedInUse,
            address,
            |evidence| {
                let place = if let Some(record) = evidence.records.first() {
                    format!("cooling down in {}", record.block)
                } else if let Some(block) = address.containing_blocks().next() {
                    format!("free in {}", block.key)
                } else {
                    "in no block".to_owned()
                };
                format!("is used by {}, but {place}", evidence.users())
            },
        ));
    }
}

/// Reports an address that is allocated in several blocks, whether or not it is in use.
pub(crate) fn check_records(context: &Context<'_>, address: &Address<'_, '_, '_>, out: &mut Vec<Finding>) {
    // Nearly all addresses have one record, which need not be looked at.
    if address.records.len() < 2 {
        return;
    }
    let holding_blocks = address.holding().count();
    if holding_blocks < 2 {
        return;
    }
    let problem = |evidence: &AddressEvidence| {
        let mut blocks = Vec::new();
        for record in evidence.holding() {
            blocks.push(format!("{} for {}", record.block, record.holder()));
        }
        format!("is allocated in {}", blocks.join(" and in "))
    };
    out.push(new_finding(
        context,
        Code::AddressInSeveralBlocks,
        address,
        problem,
    ));
}

/// Returns true unless all users are the same owner, or pods of one virtual machine. A node is a user of its own
/// address.
fn has_several_owners(index: &Index<'_>, address: &Address<'_, '_, '_>) -> bool {
    let Some((first, others)) = address.uses.split_first() else {
        return false;
    };
    let is_same_owner = |other: &Use| {
        index.identity(first.owner) == index.identity(other.owner)
            || share_machine(index, address, [*first, *other])
    };
    // A tunnel can have its node's address.
    let is_of_node = |used: &Use| {
        !matches!(used.owner, Owner::Tunnel(..)) && index.node_of_own_address(address.address).is_some()
    };
    !others.iter().all(is_same_owner) || address.uses.iter().any(is_of_node)
}

/// Returns true if both users are pods of the same virtual machine. The source and the target of a live migration share
/// the address that is recorded for the machine (facts 2.14), even if pods were not read. An address that is recorded
/// for a container belongs only to that container.
fn share_machine(index: &Index<'_>, address: &Address<'_, '_, '_>, uses: [Use; 2]) -> bool {
    let [Some(workload), Some(other)] = uses.map(|used| index.workload(used.owner)) else {
        return false;
    };
    // The machine of an endpoint is not known if pods were not read.
    if let (Some(machine), Some(other_machine)) = (workload.machine, other.machine) {
        let is_same_machine = machine == other_machine && workload.namespace == other.namespace;
        if machine.is_empty() || !is_same_machine {
            return false;
        }
    }

    let mut has_record = false;
    for record in address.holding() {
        has_record = true;
        let attribute = record.allocation.attribute;
        if is_on_machine(&attribute, &workload) && is_on_machine(&attribute, &other) {
            return true;
        }
    }
    // The record is lost, perhaps during a migration.
    !has_record && workload.machine.is_some_and(|machine| !machine.is_empty())
}
