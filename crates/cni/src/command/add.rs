//! ADD: gives the container addresses (facts of the plugin, section 7).

use std::collections::BTreeMap;
use std::net::IpAddr;

use calipam_assign::{AssignIp, Assigned, AutoAssign, Error};
use calipam_model::IpNet;
use calipam_model::pool::PoolUse;
use jiff::Timestamp;

use super::release;
use crate::call::{Call, CallAllocator, OPERATION, REUSE, UNDO, within};
use crate::failure;
use crate::machine::{self, Machine, Owner};
use crate::pools;
use crate::protocol::result::Address;
use crate::protocol::{Arguments, CniError, IpamResult};

/// Gives the container addresses.
///
/// # Errors
/// Where not all that were asked for can be had; nothing stays allocated then, unless the datastore does not answer any more.
pub(crate) async fn add(call: &Call) -> Result<IpamResult, CniError> {
    let allocator = call.connect().await?;
    let found = machine::find(call, &allocator).await?;
    if let Some(refusal) = found.refusal {
        return Err(refusal);
    }
    let machine = match found.owner {
        Owner::Machine(machine) => Some(machine),
        Owner::Container | Owner::PodIsGone => None,
    };
    Arguments::check_for_add(&call.environment.args)?;

    let mut attributes: BTreeMap<String, String> =
        call.identity.attributes(Timestamp::now()).into_iter().collect();
    let mut handle = call.identity.handle.clone();
    if let Some(machine) = &machine {
        machine.describe(&mut attributes);
        handle = machine.handle(&call.configuration.name);
    }
    let request = Request { call, allocator: &allocator, handle, attributes, machine };
    if let Some(result) = request.reuse().await? {
        return Ok(result);
    }
    match call.arguments.ip {
        Some(address) => request.assign(address).await,
        None => request.auto_assign().await,
    }
}

struct Request<'r> {
    call: &'r Call,
    allocator: &'r CallAllocator,
    handle: String,
    attributes: BTreeMap<String, String>,
    machine: Option<Machine>,
}

impl Request<'_> {
    /// Most addresses of a family that the handle may have: one for a machine, so that two calls at the same time do not
    /// give it two.
    fn most(&self) -> u32 {
        u32::from(self.machine.is_some())
    }

    /// The addresses that a machine has already. The target of a migration needs some.
    async fn reuse(&self) -> Result<Option<IpamResult>, CniError> {
        let Some(machine) = &self.machine else { return Ok(None) };
        within(REUSE, async {
            let found = match self.allocator.ips_by_handle(&self.handle).await {
                Ok(found) => found,
                Err(Error::NoHandle(_)) => Vec::new(),
                Err(error) => {
                    let failure = failure::from_allocator(&error);
                    let text =
                        format!("failed to get existing IPs for VM handle {}: {}", self.handle, failure.msg);
                    return Err(CniError::new(failure.code, text));
                }
            };
            if found.is_empty() && machine.migration.is_some() {
                let text = format!("migration target pod but no IP allocated to VM handle {}", self.handle);
                return Err(CniError::internal(text));
            }
            for address in &found {
                machine::own(self.allocator, machine, &self.handle, *address, &self.attributes).await?;
            }
            // Traffic goes to the target of a migration only when that has ended.
            let routed = machine.migration.is_none();
            let addresses: Vec<Address> = found.into_iter().map(Address::single).collect();
            Ok((!addresses.is_empty()).then_some(IpamResult { addresses, routed }))
        })
        .await?
    }

    /// Assigns the address that was asked for.
    async fn assign(&self, address: IpAddr) -> Result<IpamResult, CniError> {
        let request = AssignIp {
            handle: Some(self.handle.clone()),
            attributes: Some(self.attributes.clone()),
            intended_use: Some(PoolUse::Workload),
            max_per_handle: self.most(),
            ..AssignIp::new(&self.call.identity.node, address)
        };
        let _lock = self.call.lock();
        within(OPERATION, async {
            self.call.label_affinities(self.allocator).await;
            self.allocator.assign_ip(&request).await.map_err(|error| failure::from_allocator(&error))
        })
        .await??;
        tracing::info!(handle = self.handle, "assigned {address}");
        Ok(IpamResult::routed(vec![Address::single(address)]))
    }

    /// Assigns any addresses of the wanted families.
    async fn auto_assign(&self) -> Result<IpamResult, CniError> {
        let ipam = &self.call.configuration.ipam;
        let mut request = AutoAssign {
            host: self.call.identity.node.clone(),
            v4: ipam.ipv4.into(),
            v6: ipam.ipv6.into(),
            handle: Some(self.handle.clone()),
            attributes: Some(self.attributes.clone()),
            intended_use: Some(PoolUse::Workload),
            max_blocks_per_host: self.call.configuration.single_block.into(),
            max_per_handle: self.most(),
            ..AutoAssign::default()
        };
        // Calls that wait for the lock have looked at most things by the time they get it.
        let (pools, labels, look) = tokio::join!(
            pools::resolve(ipam, self.allocator),
            self.namespace_labels(),
            within(OPERATION, self.allocator.look(&request)),
        );
        (request.pools_v4, request.pools_v6) = pools?;
        request.namespace_labels = labels?;
        let look = look?.map_err(|error| failure::from_allocator(&error))?;
        let assigned = {
            let _lock = self.call.lock();
            within(OPERATION, async {
                self.call.label_affinities(self.allocator).await;
                self.allocator.auto_assign_after(look, &request).await
            })
            .await?
        };
        match assigned {
            Ok(assigned) => match shortage(&assigned.v4).or_else(|| shortage(&assigned.v6)) {
                None => self.result(assigned.v4.iter().chain(&assigned.v6)),
                Some(error) => {
                    self.undo(assigned.addresses()).await;
                    Err(error)
                }
            },
            Err(partly) => {
                self.undo(partly.done.addresses()).await;
                Err(failure::from_allocator(&partly.error))
            }
        }
    }

    fn result<'a>(&self, assigned: impl Iterator<Item = &'a Assigned>) -> Result<IpamResult, CniError> {
        let address = |net: &IpNet| Address { ip: net.addr(), prefix: net.prefix_len() };
        let addresses: Vec<Address> =
            assigned.filter_map(|assigned| assigned.addresses.first()).map(address).collect();
        let texts: Vec<String> = addresses.iter().map(|address| address.ip.to_string()).collect();
        tracing::info!(handle = self.handle, "assigned {}", texts.join(", "));
        Ok(IpamResult::routed(addresses))
    }

    /// Takes back what was assigned before the other family failed. A machine keeps what it has: the next ADD finds it.
    async fn undo(&self, addresses: impl Iterator<Item = IpAddr>) {
        let addresses: Vec<IpAddr> = addresses.collect();
        if addresses.is_empty() || self.machine.is_some() {
            return;
        }
        tracing::info!("takes back {addresses:?}");
        let undone = within(UNDO, release(self.allocator, &self.handle, addresses)).await;
        if let Err(error) = undone.and_then(|released| released) {
            tracing::error!("what was assigned stays until DEL: {error}");
        }
    }

    /// The labels of the namespace, where the configuration says how Kubernetes is reached; pools may select by them.
    async fn namespace_labels(&self) -> Result<Option<BTreeMap<String, String>>, CniError> {
        let namespace = &self.call.identity.namespace;
        if !self.call.configuration.reads_namespaces || namespace.is_empty() {
            return Ok(None);
        }
        let failed = |error: CniError| {
            CniError::new(error.code, format!("failed to get namespace {namespace}: {}", error.msg))
        };
        let lookup = self.call.lookup(self.allocator).await;
        let lookup = lookup.map_err(|error| failed(failure::from_datastore(&error)))?;
        let labels = lookup.namespace_labels(namespace).await;
        match labels.map_err(|error| failed(failure::from_datastore(&error)))? {
            Some(labels) => Ok(Some(labels)),
            None => Err(failed(CniError::internal(format!("namespaces {namespace:?} not found")))),
        }
    }
}

/// Why a family came back short.
fn shortage(assigned: &Option<Assigned>) -> Option<CniError> {
    let assigned = assigned.as_ref()?;
    let family = assigned.family.number();
    let text = assigned.shortage()?;
    Some(CniError::internal(format!("failed to request IPv{family} addresses: {text}")))
}
