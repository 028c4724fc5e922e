//! Plans that free addresses and delete handles: what `release` does.

mod build;
pub(crate) mod gone_node;
mod handle_owners;
pub(crate) mod may_release;
mod observation;
mod reports;
mod scope;
mod select;
pub(crate) mod unselected;

use std::collections::BTreeSet;
use std::net::IpAddr;

use calipam_check::Scope;

pub use self::observation::{Observation, Observations};
pub use self::reports::{ReadReport, ReportError, ReportFile, objections, read_report};
use crate::basis::Basis;
use crate::plan::{Plan, PlanKind};

/// What to release: leaked addresses, handles without allocations, or both; without either what is named. Names of one
/// kind add up, and each kind that is named narrows the rest: an address that is named is released only if its node
/// is one of the nodes, it is in one of the pools, and so on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    pub addresses: Vec<IpAddr>,
    /// IDs of handles.
    pub handles: Vec<String>,
    /// Where nothing else says what to release, everything of its nodes, which must be gone.
    pub scope: Scope,
    /// Every leaked address whose record says whose it was.
    pub leaked: bool,
    /// Every handle that no allocation refers to.
    pub orphan_handles: bool,
    pub force: Force,
}

impl Request {
    /// True if nothing but nodes says what to release: everything of these.
    pub fn is_of_nodes(&self) -> bool {
        !self.leaked && !self.orphan_handles && self.addresses.is_empty() && self.handles.is_empty()
    }
}

/// What the operator insists on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Force {
    #[default]
    Nothing,
    /// The one address or handle that is named, although it may be in use.
    Named,
    /// What reports list: reports that could not be used otherwise, and leaked addresses whose records name no owner.
    Reported,
}

/// Plans a release. What is asked for and cannot be released is skipped, with the reason.
///
/// `observations` are earlier reads of the cluster: of the report of an earlier read, or of files that
/// `--from-report` names. `cooldown` is how many seconds a released address cools down: what the cluster
/// configures, or 0 if its schema has no field for it.
pub fn plan(basis: &Basis<'_>, request: &Request, observations: &[Observations], cooldown: i64) -> Plan {
    let mut selection = select::select(basis, request, observations);
    let actions = build::actions(basis, &mut selection, cooldown);
    Plan {
        skipped: selection.skipped.into_iter().collect::<BTreeSet<_>>().into_iter().collect(),
        warnings: selection.warnings,
        forced: selection.forced,
        ..Plan::new(PlanKind::Release, basis.snapshot, actions)
    }
}
