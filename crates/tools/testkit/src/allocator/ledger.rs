//! Records the addresses that the allocator assigned to each live pod, and every violation.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use anyhow::Result;
use calipam_assign::{Store, StoreError};
use calipam_model::block::Block;
use calipam_model::handle::Handle;
use calipam_model::key::Key;
use ipnet::IpNet;

use super::store::{Target, find};
use crate::runtime::block_on;

/// A pod that uses its address, or has leaked it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// `namespace/name`.
    pub pod: String,
    /// The ID of its handle.
    pub handle: String,
    pub address: IpAddr,
    /// The block that contains the address.
    pub block: IpNet,
}

/// A state that must never occur, whatever other programs are running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// An address was assigned to a pod while another live pod has it.
    GivenTwice {
        /// The pod that has the address.
        first: Tenant,
        /// The pod to which the address was also assigned.
        second: Tenant,
    },
    /// The block no longer records the address of a live pod under the pod's handle.
    Freed(Tenant),
    /// The handle of a live pod no longer counts the block of its address, so CNI DEL would not free the address.
    Uncounted(Tenant),
}

/// The pods that an allocator started, their addresses, and every violation that was seen.
///
/// It follows the allocator's own results: an address counts as assigned once the compare-and-swap of its block has
/// succeeded. Pods gain or lose addresses in no other way.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Ledger {
    live: BTreeMap<String, Tenant>,
    leaked: BTreeMap<IpAddr, Tenant>,
    violations: Vec<Violation>,
}

/// Shows the number of pods and all violations.
impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let live = self.live.len();
        let leaked = self.leaked.len();
        let mut shown = f.debug_struct("Ledger");
        shown
            .field("live", &live)
            .field("leaked", &leaked)
            .field("violations", &self.violations)
            .finish()
    }
}

impl Ledger {
    /// The pods that use their addresses, ascending by handle.
    pub fn live(&self) -> impl ExactSizeIterator<Item = &Tenant> {
        self.live.values()
    }

    /// Addresses that were leaked on purpose and have not been assigned again, with the pods that had them. A repair
    /// may have freed them.
    pub fn leaked(&self) -> &BTreeMap<IpAddr, Tenant> {
        &self.leaked
    }

    /// The violations that were seen so far. [`verify`](Self::verify) looks for more.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// Reads the address and the handle of every live pod and returns all violations, earlier ones first. Call it after
    /// allocators and repairs have ended. Can be called from inside or outside an async runtime.
    pub fn verify(&self, target: Target<'_>) -> Result<Vec<Violation>> {
        block_on(async || {
            let store = target.connect().await?;
            let mut found = self.violations.clone();
            for tenant in self.live.values() {
                found.extend(inspect(&store, tenant).await?);
            }
            Ok(found)
        })
    }

    /// Records that a pod was assigned an address.
    pub(super) fn give(&mut self, tenant: Tenant) {
        self.leaked.remove(&tenant.address);
        if let Some(first) = self.live.values().find(|other| other.address == tenant.address) {
            let first = first.clone();
            let second = tenant.clone();
            self.violations.push(Violation::GivenTwice { first, second });
        }
        self.live.insert(tenant.handle.clone(), tenant);
    }

    /// Records that a pod is about to end. From now on, anyone may free its address.
    pub(super) fn end(&mut self, handle: &str) -> Option<Tenant> {
        self.live.remove(handle)
    }

    /// Records that a pod is about to disappear and leak its address.
    pub(super) fn leak(&mut self, handle: &str) {
        if let Some(tenant) = self.end(handle) {
            self.leaked.insert(tenant.address, tenant);
        }
    }

    /// The live pod with a handle.
    pub(super) fn tenant(&self, handle: &str) -> Option<Tenant> {
        self.live.get(handle).cloned()
    }

    /// Adds violations that were found.
    pub(super) fn add_violations(&mut self, violations: Vec<Violation>) {
        self.violations.extend(violations);
    }
}

/// Checks the address of a pod, which must stay alive during the check.
pub(super) async fn inspect(store: &impl Store, tenant: &Tenant) -> Result<Vec<Violation>, StoreError> {
    let mut found = Vec::new();
    let block: Option<Block> = find(store, Key::Block(tenant.block)).await?;
    let allocation = block
        .as_ref()
        .and_then(|block| block.allocation_of(tenant.address));
    if allocation
        .and_then(|allocation| allocation.attribute.handle())
        .is_none_or(|id| id != *tenant.handle)
    {
        found.push(Violation::Freed(tenant.clone()));
    }
    let handle: Option<Handle> = find(store, Key::Handle(tenant.handle.clone())).await?;
    if handle.is_none_or(|handle| handle.count(tenant.block) < 1) {
        found.push(Violation::Uncounted(tenant.clone()));
    }
    Ok(found)
}
