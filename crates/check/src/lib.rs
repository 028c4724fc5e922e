//! The rules of calipam: from a [`Snapshot`] to a [`Report`], and the views that `show` prints. Pure
//! functions: no I/O, no clock but the snapshot's.
//!
//! "Facts" in the documentation of this crate means `docs/calico-ipam.md` of the project.

mod code;
mod earlier;
mod finding;
pub mod index;
pub mod occupancy;
pub mod owner;
mod parallel;
pub mod record;
mod remedy;
mod report;
mod rules;
mod settle;
#[cfg(test)]
mod test_cluster;
pub mod views;

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;

use calipam_model::IpNet;
use calipam_model::attributes::AttributeRef;
use calipam_model::snapshot::Snapshot;
use jiff::{SignedDuration, Timestamp};

pub use self::code::{Code, Severity, UnknownCode};
pub use self::earlier::{Change, Changes, EarlierFinding, EarlierReport, EarlierSubject, parse_document};
pub use self::finding::*;
pub use self::remedy::Remedy;
pub use self::report::{ClusterIdentity, Counts, Filter, Report};
pub use self::settle::{revisions, settle, suspects};
use crate::index::Index;
use crate::owner::{Doubt, Owners, RecordedOwner};
use crate::record::Claim;
use crate::rules::addresses::Record;

/// A map for a million short keys. Its hash is the same in every run and does not resist keys that are made to collide:
/// those would cost no more than time.
pub(crate) type FastMap<K, V> = std::collections::HashMap<K, V, foldhash::fast::FixedState>;

/// Allocations younger than this are not judged where the cluster configures nothing.
pub const DEFAULT_GRACE: SignedDuration = SignedDuration::from_mins(15);
/// A pool counts as nearly full above this share of its usable addresses, in percent.
pub const DEFAULT_POOL_THRESHOLD: f64 = 90.0;

/// What a check can be told.
#[derive(Clone, Debug)]
pub struct Options {
    /// Allocations younger than this are not judged; `None` for the cluster's `leakGracePeriod`, else
    /// [`DEFAULT_GRACE`]. Zero judges everything.
    pub grace: Option<SignedDuration>,
    /// See [`DEFAULT_POOL_THRESHOLD`].
    pub pool_threshold: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self { grace: None, pool_threshold: DEFAULT_POOL_THRESHOLD }
    }
}

/// What every rule gets to see.
#[derive(Debug)]
pub struct Context<'s> {
    /// What was read.
    pub snapshot: &'s Snapshot,
    /// Lookups over it.
    pub index: Index<'s>,
    /// By which ages are judged: when it was read.
    pub now: Timestamp,
    /// Allocations younger than this are not judged.
    pub grace: SignedDuration,
    /// See [`DEFAULT_POOL_THRESHOLD`].
    pub pool_threshold: f64,
    /// Strict affinity is known to be on.
    pub strict_affinity: bool,
}

/// The first version of Calico that takes empty blocks from other nodes.
const RECLAIMS_SINCE: (u32, u32) = (3, 32);

impl<'s> Context<'s> {
    /// Prepares to judge a snapshot.
    pub fn new(snapshot: &'s Snapshot, options: &Options) -> Self {
        Self {
            snapshot,
            index: Index::new(snapshot, snapshot.taken_at),
            now: snapshot.taken_at,
            grace: grace(snapshot, options),
            pool_threshold: options.pool_threshold,
            strict_affinity: snapshot.effective_ipam_config().is_some_and(|c| c.strict_affinity),
        }
    }
}

/// The grace period that counts for a cluster: what was asked for, else what it configures, else
/// [`DEFAULT_GRACE`].
pub fn grace(snapshot: &Snapshot, options: &Options) -> SignedDuration {
    let configured = snapshot.kube_controllers.as_ref().and_then(|c| c.leak_grace_period);
    options.grace.or(configured.filter(|grace| grace.is_positive())).unwrap_or(DEFAULT_GRACE)
}

impl Context<'_> {
    /// Judges by all rules.
    pub fn judge(&self) -> Report {
        let snapshot = self.snapshot;
        if !uses_ipam(snapshot) {
            let note = "There is no block, handle or affinity: this cluster does not use Calico IPAM";
            let findings = if snapshot.defects.is_empty() { Vec::new() } else { rules::run(self) };
            return Report::new(snapshot, vec![note.to_owned()], findings);
        }
        let services_only =
            "No node has a block, handle or affinity: Calico IPAM serves LoadBalancer services only";
        let notes = index::is_for_services_only(snapshot).then(|| services_only.to_owned());
        Report::new(snapshot, notes.into_iter().collect(), rules::run(self))
    }

    /// Code and subject of what would be a finding for the only reason that it is judged at a later time, such as an
    /// allocation that is too young to be judged now. Findings of other codes than those in `codes` may be left out.
    pub fn aged(self, later: Timestamp, codes: &HashSet<Code>) -> HashSet<(Code, Subject)> {
        if !uses_ipam(self.snapshot) && self.snapshot.defects.is_empty() {
            return HashSet::new();
        }
        rules::aged::findings(self, later, codes)
    }

    /// Who uses an address, by all evidence that accuses.
    pub fn owners_of(&self, address: IpAddr) -> Vec<Arc<OwnerEvidence>> {
        rules::evidence::of_owners(&self.index, self.index.uses_of(address))
    }

    /// True where a node that finds no block to claim takes an empty one of another node. Where the version of Calico is
    /// not known it counts as a current one, so that no node is called stranded for that alone.
    pub(crate) fn reclaims_empty_blocks(&self) -> bool {
        self.snapshot.is_calico_since(RECLAIMS_SINCE).unwrap_or(true)
    }

    /// What is known of the recorded owners of allocations, given by block and ordinal.
    pub fn recorded_owners(&self, allocations: &[(IpNet, u32)]) -> Vec<RecordedOwner> {
        let record = |(cidr, ordinal): &(IpNet, u32)| {
            let block = self.index.block(*cidr)?;
            let allocation = block.sound?.allocation(*ordinal)?;
            Some((Record { block, allocation }, Claim::of(&allocation.attribute)))
        };
        let records: Vec<Option<(Record<'_, '_>, Claim<'_>)>> = allocations.iter().map(record).collect();
        let owners = Owners::new(self, records.iter().flatten().map(|(_, claim)| claim));

        let owner = |record: &Option<(Record<'_, '_>, Claim<'_>)>| match record {
            Some((_, claim)) if owner::unread(self.snapshot, claim).is_some() => {
                RecordedOwner::Unknown(Doubt::NotRead)
            }
            Some((record, claim)) => owners.of_record(record, claim),
            None => RecordedOwner::Unowned,
        };
        records.iter().map(owner).collect()
    }

    /// True where the allocation is younger than the grace period: its owner may not have appeared yet.
    pub fn is_young(&self, record: &AttributeRef<'_>) -> bool {
        rules::leaks::is_young(self, record)
    }
}

/// How a message names owners: `default/web-0 (node-1) and a tunnel of node-2`.
pub fn names_of_owners(owners: &[Arc<OwnerEvidence>]) -> String {
    rules::evidence::names_of_owners(owners)
}

/// True where something of IPAM is stored.
fn uses_ipam(snapshot: &Snapshot) -> bool {
    !snapshot.blocks.is_empty() || !snapshot.handles.is_empty() || !snapshot.affinities.is_empty()
}

/// Judges a snapshot by all rules.
pub fn check(snapshot: &Snapshot, options: &Options) -> Report {
    Context::new(snapshot, options).judge()
}
