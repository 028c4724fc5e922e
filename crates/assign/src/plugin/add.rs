//! ADD: assigns addresses to the container.

use std::collections::BTreeMap;
use std::net::IpAddr;

use calipam_model::IpNet;
use calipam_model::pool::PoolUse;
use calipam_model::words::joined;
use futures_util::future::join;

use super::{Container, Failure, Host, Lookup, OPERATION, Plugin, REUSE, UNDO};
use crate::error::Error;
use crate::request::{AssignIp, Assigned, AutoAssign};
use crate::store::Store;

/// A call of ADD for a container.
#[derive(Clone, Debug)]
pub struct Add {
    pub container: Container,
    /// The owner attributes to record with the addresses.
    pub attributes: BTreeMap<String, String>,
    pub wanted: Wanted,
}

/// The addresses that a container wants.
#[derive(Clone, Debug)]
pub enum Wanted {
    Address(IpAddr),
    /// Any address of each wanted family.
    Any {
        v4: bool,
        v6: bool,
        /// The node's block limit in each family; 0 for the configured limit.
        max_blocks_per_host: u32,
    },
}

/// The addresses that a container got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Added {
    /// The addresses, IPv4 first. A new address has the prefix length of its block. An address that was requested or is
    /// reused is /32 or /128.
    pub addresses: Vec<IpNet>,
    /// False for the target of a live migration, which does not receive traffic yet.
    pub is_routed: bool,
}

impl Added {
    fn routed(addresses: Vec<IpNet>) -> Self {
        Self {
            addresses,
            is_routed: true,
        }
    }
}

impl Add {
    /// The handle under which the addresses are recorded.
    fn handle(&self) -> &str {
        match &self.container.machine {
            Some(machine) => &machine.handle,
            None => &self.container.handle,
        }
    }

    /// The handle's address limit in each family; 0 for no limit. The limit is 1 for a machine, so that two concurrent
    /// calls do not assign two addresses to it.
    fn max_per_handle(&self) -> u32 {
        match self.container.machine {
            Some(_) => 1,
            None => 0,
        }
    }
}

impl<S: Store, H: Host> Plugin<'_, S, H> {
    /// Assigns addresses to a container.
    ///
    /// # Errors
    /// For example, if too few addresses are available. Addresses that were already assigned are released, unless they
    /// belong to a machine, or the datastore fails or takes too long.
    pub async fn add(&self, add: &Add) -> Result<Added, Failure<H::Error>> {
        if let Some(added) = self.reuse(add).await? {
            return Ok(added);
        }
        match add.wanted {
            Wanted::Address(address) => self.assign(add, address).await,
            Wanted::Any {
                v4,
                v6,
                max_blocks_per_host,
            } => {
                let request = AutoAssign {
                    host: add.container.node.clone(),
                    v4: v4.into(),
                    v6: v6.into(),
                    handle: Some(add.handle().to_owned()),
                    attributes: Some(add.attributes.clone()),
                    intended_use: Some(PoolUse::Workload),
                    max_blocks_per_host,
                    max_per_handle: add.max_per_handle(),
                    ..AutoAssign::default()
                };
                self.auto_assign(add, request).await
            }
        }
    }

    /// Makes a machine's pod an owner of the machine's addresses, and returns these addresses. `None` if the pod runs
    /// no machine, or the machine has no addresses yet.
    async fn reuse(&self, add: &Add) -> Result<Option<Added>, Failure<H::Error>> {
        let Some(machine) = &add.container.machine else {
            return Ok(None);
        };
        self.within(REUSE, async {
            let handle = &machine.handle;
            let addresses = match self.allocator.ips_by_handle(handle).await {
                Ok(addresses) => addresses,
                Err(Error::NoHandle(_)) => Vec::new(),
                Err(error) => {
                    return Err(Failure::Existing {
                        handle: handle.clone(),
                        error: error.into(),
                    });
                }
            };
            if addresses.is_empty() {
                if machine.is_migration_target {
                    return Err(Failure::NothingToMigrate(handle.clone()));
                }
                return Ok(None);
            }
            for address in &addresses {
                let owned = self.make_owner(machine, *address, &add.attributes).await;
                owned.map_err(|error| Failure::Owner {
                    address: *address,
                    error: error.into(),
                })?;
            }
            Ok(Some(Added {
                addresses: addresses.into_iter().map(IpNet::from).collect(),
                // The target of a migration receives traffic only after the migration.
                is_routed: !machine.is_migration_target,
            }))
        })
        .await?
    }

    /// Assigns the requested address, with the node's lock held.
    async fn assign(&self, add: &Add, address: IpAddr) -> Result<Added, Failure<H::Error>> {
        let request = AssignIp {
            handle: Some(add.handle().to_owned()),
            attributes: Some(add.attributes.clone()),
            intended_use: Some(PoolUse::Workload),
            max_per_handle: add.max_per_handle(),
            ..AssignIp::new(&add.container.node, address)
        };
        let _node_lock = self.host.lock().await;
        let assigning = async {
            // On Kubernetes, the allocator may find affinities only by their labels.
            self.host.label_affinities().await;
            self.allocator.assign_ip(&request).await
        };
        self.within(OPERATION, assigning).await??;
        tracing::info!(handle = add.handle(), "assigned {address}");
        Ok(Added::routed(vec![address.into()]))
    }

    /// Assigns any addresses of the wanted families.
    async fn auto_assign(&self, add: &Add, mut request: AutoAssign) -> Result<Added, Failure<H::Error>> {
        // Most data is read before the call waits for the lock, so that it then holds the lock for less time.
        let (lookup, inputs) = join(
            self.host.look_up(),
            self.within(OPERATION, self.allocator.read_inputs(&request)),
        )
        .await;
        let Lookup {
            pools_v4,
            pools_v6,
            namespace_labels,
        } = lookup.map_err(Failure::LookUp)?;
        request.pools_v4 = pools_v4;
        request.pools_v6 = pools_v6;
        request.namespace_labels = namespace_labels;
        let inputs = inputs??;
        let assigned = {
            let _node_lock = self.host.lock().await;
            self.within(OPERATION, async {
                self.host.label_affinities().await;
                self.allocator.auto_assign_after(inputs, &request).await
            })
            .await?
        };

        let (assigned, failure) = match assigned {
            Ok(assigned) => {
                let failure = assigned.v4.iter().chain(&assigned.v6).find_map(shortage);
                (assigned, failure)
            }
            Err(partly) => (partly.done, Some(Failure::Allocator(partly.error))),
        };
        if let Some(failure) = failure {
            self.undo(add, assigned.addresses().collect()).await;
            return Err(failure);
        }
        let families = assigned.v4.iter().chain(&assigned.v6);
        let addresses: Vec<IpNet> = families
            .filter_map(|family| family.addresses.first().copied())
            .collect();
        let texts = joined(addresses.iter().map(IpNet::addr), ", ");
        tracing::info!(handle = add.handle(), "assigned {texts}");
        Ok(Added::routed(addresses))
    }

    /// Releases the addresses that were assigned before the other family failed. A machine keeps them for its next ADD.
    async fn undo(&self, add: &Add, addresses: Vec<IpAddr>) {
        if addresses.is_empty() || add.container.machine.is_some() {
            return;
        }
        tracing::info!("taking back {addresses:?}");
        let released = self.within(UNDO, self.release(add.handle(), addresses)).await;
        // The time can run out, or the release itself can fail.
        let undone = released.and_then(|result| Ok(result?));
        if let Err(error) = undone {
            tracing::error!("the assigned addresses stay until DEL: {error}");
        }
    }
}

/// Returns the failure for a family in which fewer addresses than requested were assigned; `None` if none is missing.
fn shortage<E>(assigned: &Assigned) -> Option<Failure<E>> {
    let shortage = assigned.shortage()?;
    Some(Failure::Short {
        family: assigned.family,
        shortage,
    })
}
