//! DEL: releases the addresses of a container.

use std::net::IpAddr;

use calipam_model::key::Key;
use futures_util::future::join;

use super::{Container, Failure, Host, Machine, OPERATION, Plugin};
use crate::error::Error;
use crate::store::{Query, Store};

/// A call of DEL for a container.
#[derive(Clone, Debug)]
pub struct Del {
    pub container: Container,
    /// The handle that the oldest plugins (Calico 2) gave the container.
    pub old_handle: String,
    /// The addresses from ADD, if the runtime passes them.
    pub previous: Vec<IpAddr>,
}

impl<S: Store, H: Host> Plugin<'_, S, H> {
    /// Releases the addresses of a container. Succeeds even if they have been released already.
    pub async fn del(&self, del: &Del) -> Result<(), Failure<H::Error>> {
        let _held = self.host.lock().await;
        self.within(OPERATION, async {
            match &del.container.machine {
                Some(machine) => {
                    let disowned = self.del_of_machine(machine, &del.container.node).await;
                    // The container can still have addresses of its own, if they were assigned before machines kept
                    // their addresses.
                    disowned.and(self.release_both_handles(del).await)
                }
                None => self.release_both_handles(del).await,
            }
        })
        .await??;
        Ok(())
    }

    /// Releases the addresses of both handles that a container can have: the one of today, and the one that earlier
    /// versions of Calico wrote.
    async fn release_both_handles(&self, del: &Del) -> Result<(), Error> {
        let Container { handle, node, .. } = &del.container;
        let (released, old_exists) = join(
            self.release_handle(handle, node, &del.previous),
            self.has_handle(&del.old_handle),
        )
        .await;
        let old = match old_exists {
            Ok(true) => self.release_old(&del.old_handle).await,
            Ok(false) => Ok(()),
            Err(error) => Err(error),
        };
        released.and(old)
    }

    /// True if a handle object exists, even one that cannot be decoded.
    async fn has_handle(&self, handle: &str) -> Result<bool, Error> {
        let [found] = self
            .allocator
            .read([Query::Get(Key::Handle(handle.to_owned()))])
            .await?;
        Ok(!found.is_empty())
    }

    /// Releases the handle that an older plugin wrote. It is no error if the handle has been lost.
    async fn release_old(&self, handle: &str) -> Result<(), Error> {
        match self.allocator.release_by_handle(handle).await {
            Ok(()) => {
                tracing::info!(handle, "released an old plugin's handle");
                Ok(())
            }
            Err(error) if error.is_lost_handle() => {
                tracing::info!(handle, "cannot release an old plugin's handle: {error}");
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Removes the pod of a machine from the owners of the machine's addresses. The addresses are released only if the
    /// machine is being deleted, and they have no owner left.
    async fn del_of_machine(&self, machine: &Machine, node: &str) -> Result<(), Error> {
        let handle = &machine.handle;
        let addresses = match self.allocator.readable_ips_by_handle(handle).await {
            Ok(addresses) => addresses,
            // The handle was released by another DEL, or cannot be decoded. Calico's plugin would fail on every retry.
            Err(error) if error.is_lost_handle() => {
                tracing::info!(handle, "the machine has no address: {error}");
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        for address in &addresses {
            self.disown(machine, *address).await?;
        }
        if !machine.is_being_deleted || self.has_owners(&addresses).await? {
            tracing::info!(handle, "the machine keeps its addresses {addresses:?}");
            return Ok(());
        }
        self.release_handle(handle, node, &[]).await
    }
}
