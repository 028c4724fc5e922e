//! DEL: gives back what the container has (facts of the plugin, section 13).

use calipam_assign::{Query, Store};
use calipam_model::key::Key;

use super::{is_lost_handle, release_handle};
use crate::call::{Call, CallAllocator, OPERATION, within};
use crate::failure;
use crate::machine::{self, Machine, Owner};
use crate::protocol::CniError;

/// Gives back the addresses of the container. What is gone already is no error.
pub(crate) async fn del(call: &Call) -> Result<(), CniError> {
    let allocator = call.connect().await?;
    let machine = match machine::find(call, &allocator).await?.owner {
        Owner::PodIsGone => {
            // Which machine it belonged to is not known any more; an ordinary handle can be released all the same.
            tracing::info!("the pod is gone from the API server");
            None
        }
        Owner::Container => None,
        Owner::Machine(machine) => Some(machine),
    };
    let _lock = call.lock();
    within(OPERATION, async {
        match machine {
            Some(machine) => {
                let disowned = machine_pod(call, &allocator, &machine).await;
                // What it got of its own, before machines were to keep their addresses.
                disowned.and(container(call, &allocator).await)
            }
            None => container(call, &allocator).await,
        }
    })
    .await?
}

/// Both handles that a container can have. Whether there is one of the old form is asked while the other is released.
async fn container(call: &Call, allocator: &CallAllocator) -> Result<(), CniError> {
    let identity = &call.identity;
    let old = identity.old_handle();
    let (released, has_old) = tokio::join!(
        release_handle(allocator, &identity.handle, &identity.node, &call.configuration.previous),
        exists(allocator, &old),
    );
    let old = match has_old {
        Ok(true) => release_old(allocator, &old).await,
        Ok(false) => Ok(()),
        Err(error) => Err(error),
    };
    released.map(drop).and(old)
}

async fn exists(allocator: &CallAllocator, handle: &str) -> Result<bool, CniError> {
    let answers = allocator.store().read(&[Query::Get(Key::Handle(handle.to_owned()))]).await;
    let answers = answers.map_err(|error| failure::from_allocator(&error.into()))?;
    Ok(answers.iter().any(|entries| !entries.is_empty()))
}

async fn release_old(allocator: &CallAllocator, handle: &str) -> Result<(), CniError> {
    match allocator.release_by_handle(handle).await {
        Ok(()) => {
            tracing::info!(handle, "released the handle of an old plugin");
            Ok(())
        }
        Err(error) if is_lost_handle(&error) => {
            tracing::info!(handle, "the handle of an old plugin is not released: {error}");
            Ok(())
        }
        Err(error) => Err(failure::from_allocator(&error)),
    }
}

/// The pod of a machine: it is no owner of the addresses any more; they go only with the machine.
async fn machine_pod(call: &Call, allocator: &CallAllocator, machine: &Machine) -> Result<(), CniError> {
    let handle = machine.handle(&call.configuration.name);
    let addresses = match allocator.readable_ips_by_handle(&handle).await {
        Ok(addresses) => addresses,
        // Released by another DEL, or beyond repair by this one. Calico's plugin fails here, again and again.
        Err(error) if is_lost_handle(&error) => {
            tracing::info!(handle, "the machine has no address: {error}");
            return Ok(());
        }
        Err(error) => return Err(failure::from_allocator(&error)),
    };
    for address in &addresses {
        machine::disown(call, allocator, &handle, *address).await?;
    }
    if !machine.is_being_deleted || machine::has_owners(allocator, &addresses).await? {
        tracing::info!(handle, "the machine keeps its addresses {addresses:?}");
        return Ok(());
    }
    release_handle(allocator, &handle, &call.identity.node, &[]).await.map(drop)
}
