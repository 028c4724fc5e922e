//! The address families that new pods ask for. The CNI plugin's setting is not in the datastore, but can be seen from
//! the addresses of running pods.

use std::cell::OnceCell;

use calipam_assign::Family;
use calipam_model::IpNet;
use calipam_model::pool::{Pool, PoolUse};
use calipam_model::snapshot::Snapshot;

use crate::Context;
use crate::index::Owner;

/// The evidence that new pods need an address of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Pods have addresses of the family that are in pools.
    OfPods,
    /// No pod has any address, so a new one could ask for an address of the family.
    Unknown,
    /// Pods have addresses only of the other family.
    NotOfPods,
    /// Pods have addresses of the family, but not from Calico.
    Elsewhere,
}

/// A cluster's needs, computed lazily.
pub(crate) struct Needs<'c, 's> {
    context: &'c Context<'s>,
    found: [OnceCell<Need>; 2],
}

impl<'c, 's> Needs<'c, 's> {
    pub(crate) fn new(context: &'c Context<'s>) -> Self {
        Self { context, found: Default::default() }
    }

    /// Returns true if pods could get addresses of the family from a pool.
    pub(crate) fn matters(&self, family: Family) -> bool {
        let mut pools = pools_of(self.context.snapshot, family).peekable();
        pools.peek().is_some()
            && (pools.any(|pool| pool.allows(PoolUse::Workload)) || self.of(family) == Need::OfPods)
    }

    /// Returns true if the next pod could ask for an address of the family.
    pub(crate) fn is_needed(&self, family: Family) -> bool {
        self.matters(family) && matches!(self.of(family), Need::OfPods | Need::Unknown)
    }

    pub(crate) fn of(&self, family: Family) -> Need {
        *self.found[family as usize].get_or_init(|| {
            let uses = self.context.index.uses.iter();
            let mut of_pods =
                uses.filter(|used| matches!(used.owner, Owner::Endpoint(_) | Owner::Pod(_))).peekable();
            if of_pods.peek().is_none() {
                return Need::Unknown;
            }
            let mut of_family = of_pods.filter(|used| Family::of_address(used.address) == family).peekable();
            if of_family.peek().is_none() {
                return Need::NotOfPods;
            }
            let is_in_pool = |address| self.context.index.pools_around(IpNet::from(address)).next().is_some();
            if of_family.any(|used| is_in_pool(used.address)) { Need::OfPods } else { Need::Elsewhere }
        })
    }
}

pub(crate) fn pools_of(snapshot: &Snapshot, family: Family) -> impl Iterator<Item = &Pool> {
    snapshot.pools.iter().map(|stored| &stored.value).filter(move |pool| Family::of(pool.cidr) == family)
}
