//! CHECK: verifies that the container still has the addresses from ADD. In Calico's plugin, it always succeeds.

use std::net::IpAddr;

use calipam_assign::Error;
use calipam_assign::plugin::OPERATION;

use crate::call::{Call, CallAllocator, within};
use crate::failure;
use crate::machine::Owner;
use crate::ownership;
use crate::protocol::CniError;

/// Checks that the addresses in `prevResult` are allocated to the container, or to its virtual machine. If `prevResult`
/// lists none, checks that at least one address is.
///
/// # Errors
/// If an address is missing or has another owner, the machine's addresses are not for this pod, or the datastore fails.
pub(crate) async fn check(call: &Call) -> Result<(), CniError> {
    let allocator = call.connect().await?;
    let found = ownership::find_owner(call, allocator).await?;
    // A pod that may not use the addresses is refused, as by ADD. The container of a pod that is gone can still have
    // its own.
    let is_pod_gone = found.owner == Owner::PodIsGone;
    if let Some(refusal) = found.refusal
        && !is_pod_gone
    {
        return Err(refusal);
    }
    // A virtual machine keeps its addresses on other nodes, so they belong to its own handle.
    let handle = match &found.owner {
        Owner::Machine(machine) => machine.handle(&call.configuration.name),
        Owner::Container | Owner::PodIsGone => call.identity.handle.clone(),
    };
    within(OPERATION, compare(call, allocator, &handle)).await?
}

/// Compares the addresses of the handle with those in `prevResult`. If `prevResult` lists none, any address of the
/// handle is enough.
///
/// # Errors
/// If an address is not allocated to the handle, or if both lists are empty although a family was requested.
async fn compare(call: &Call, allocator: &CallAllocator, handle: &str) -> Result<(), CniError> {
    let allocated = match allocator.ips_by_handle(handle).await {
        Ok(addresses) => addresses,
        Err(Error::NoHandle(_)) => Vec::new(),
        Err(error) => return Err(failure::from_allocator(&error)),
    };
    let previous = &call.configuration.previous;
    let ipam = &call.configuration.ipam;
    if previous.is_empty() && allocated.is_empty() && (ipam.ipv4 || ipam.ipv6) {
        return Err(CniError::internal(format!("no address is allocated to {handle}")));
    }
    for address in previous {
        // The handle object lists the blocks to search, but can be incomplete.
        if !allocated.contains(address) {
            check_address(allocator, handle, *address).await?;
        }
    }
    Ok(())
}

/// Checks in its block that an address is allocated to the handle.
async fn check_address(allocator: &CallAllocator, handle: &str, address: IpAddr) -> Result<(), CniError> {
    match allocator.assignment_attributes(address).await {
        Ok(record) if record.handle.as_deref() == Some(handle) => Ok(()),
        Ok(record) => {
            let other = record.handle.unwrap_or_else(|| "no handle".into());
            Err(CniError::internal(format!(
                "{address} is allocated to {other} instead of {handle}"
            )))
        }
        Err(error) if error.is_unavailable() => Err(failure::from_allocator(&error)),
        Err(error) => Err(CniError::internal(format!(
            "{address} is not allocated to {handle}: {error}"
        ))),
    }
}
