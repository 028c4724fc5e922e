//! Plans of `release`, which frees addresses and deletes handles.

mod build;
pub(crate) mod gone_node;
pub(crate) mod may_release;
mod observation;
mod reports;
mod scope;
mod select;
pub(crate) mod unselected;

use std::net::IpAddr;

use calipam_check::Scope;

pub use self::observation::{Observation, Observations};
pub use self::reports::{ReadReport, ReportError, ReportFile, objections, read_report};
use crate::basis::Basis;
use crate::plan::Plan;

/// A request to release leaked addresses, handles without allocations, or both. If neither is requested, the named
/// addresses, handles or nodes are released. Names of one kind add up, and each kind narrows the others: a named
/// address is released only if its node is one of the nodes, it is in one of the pools, and so on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    pub addresses: Vec<IpAddr>,
    /// The IDs of the named handles.
    pub handles: Vec<String>,
    /// The part of the cluster. Without `leaked`, `orphan_handles`, addresses and handles, everything that its nodes
    /// hold is released; these nodes must not exist any more.
    pub scope: Scope,
    /// Releases every leaked address whose record names its owner.
    pub leaked: bool,
    /// Deletes every handle that no allocation refers to.
    pub orphan_handles: bool,
    pub force: Force,
}

impl Request {
    /// Returns true if the request is to release everything that nodes hold.
    pub fn is_of_nodes(&self) -> bool {
        !self.leaked && !self.orphan_handles && self.addresses.is_empty() && self.handles.is_empty()
    }
}

/// The releases on which the operator insists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Force {
    #[default]
    Nothing,
    /// The one named address or handle, even if it may be in use.
    Named,
    /// Reports that could otherwise not be used, and the leaked addresses in them whose records name no owner.
    Reported,
}

/// Plans a release. Requested addresses and objects that cannot be released are skipped, with the reason. Observations
/// and the cooldown come from the basis.
pub fn plan(basis: &Basis<'_>, request: &Request) -> Plan {
    let mut selection = select::select(basis, request);
    let actions = selection.actions();

    let mut plan = selection.plan;
    plan.actions = actions;
    plan.skipped.sort();
    plan.skipped.dedup();
    plan
}
