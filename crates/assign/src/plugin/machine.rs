//! The addresses of KubeVirt virtual machines. They belong to the machine; its pods own them only temporarily.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::{Host, Plugin};
use crate::error::{Error, Result};
use crate::owners::{Expected, NewOwner, OwnerConditions, OwnerUpdates, PodName};
use crate::store::Store;

/// A virtual machine that keeps its addresses, and the pod that runs it.
#[derive(Clone, Debug)]
pub struct Machine {
    pub handle: String,
    pub pod: PodName,
    /// True if the pod is the target of a live migration.
    pub is_migration_target: bool,
    /// True if the machine is being deleted or no longer exists. Its addresses are then released with its last pod.
    pub is_being_deleted: bool,
}

impl<S: Store, H: Host> Plugin<'_, S, H> {
    /// Makes a machine's pod the active owner of an address, or the alternate owner if the pod is a migration target.
    pub(super) async fn make_owner(
        &self,
        machine: &Machine,
        address: IpAddr,
        attributes: &BTreeMap<String, String>,
    ) -> Result<()> {
        let owner = NewOwner::Set(attributes.clone());
        let mut updates = OwnerUpdates::default();
        if machine.is_migration_target {
            updates.alternate = owner;
        } else {
            updates.active = owner;
        }
        let conditions = OwnerConditions::default();
        self.allocator
            .set_owner_attributes(address, &machine.handle, &updates, &conditions)
            .await
    }

    /// Removes a machine's pod from the owners of an address, if it is one of them.
    ///
    /// # Errors
    /// If the datastore fails, or the owners change meanwhile. A later DEL sees the new owners.
    pub(super) async fn disown(&self, machine: &Machine, address: IpAddr) -> Result<()> {
        let record = match self.allocator.assignment_attributes(address).await {
            Ok(record) => record,
            Err(error) if is_gone(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        let PodName { namespace, name } = &machine.pod;
        let is_pod = |owner: &Option<BTreeMap<String, String>>| {
            owner.as_ref().is_some_and(|owner| {
                owner.get("namespace") == Some(namespace) && owner.get("pod") == Some(name)
            })
        };
        let pod = Expected::Pod(machine.pod.clone());
        let mut updates = OwnerUpdates::default();
        let mut conditions = OwnerConditions::default();
        if is_pod(&record.owner) {
            updates.active = NewOwner::Clear;
            conditions.active = pod;
        } else if is_pod(&record.alternate) {
            updates.alternate = NewOwner::Clear;
            conditions.alternate = pod;
        } else {
            return Ok(());
        }

        let changed = self
            .allocator
            .set_owner_attributes(address, &machine.handle, &updates, &conditions)
            .await;
        match changed {
            Err(error) if is_gone(&error) => Ok(()),
            other => other,
        }
    }

    /// True if a pod still owns one of the addresses.
    pub(super) async fn has_owners(&self, addresses: &[IpAddr]) -> Result<bool> {
        for address in addresses {
            match self.allocator.assignment_attributes(*address).await {
                Ok(record) => {
                    let owners = [&record.owner, &record.alternate];
                    if owners.into_iter().flatten().any(|owner| !owner.is_empty()) {
                        return Ok(true);
                    }
                }
                Err(error) if is_gone(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }
}

/// True if the error shows that the address has been released meanwhile.
fn is_gone(error: &Error) -> bool {
    matches!(
        error,
        Error::NotAssigned(_) | Error::InCooldown(_) | Error::NoBlock(_)
    )
}
