//! The context of rules and views: a snapshot with lookups and settings.

use std::net::IpAddr;
use std::sync::Arc;

use calipam_model::CniConfiguration;
use calipam_model::attributes::AttributeRef;
use calipam_model::snapshot::Snapshot;
use calipam_model::time::CLOCK_SKEW;
use jiff::{SignedDuration, Timestamp};

use crate::finding::OwnerEvidence;
use crate::index::Index;

/// The grace period of clusters that configure none. Allocations younger than the grace period are not reported as
/// leaked or mismatched.
pub const DEFAULT_GRACE: SignedDuration = SignedDuration::from_mins(15);
/// The percentage of usable addresses in use above which a pool counts as nearly full.
pub const DEFAULT_POOL_THRESHOLD: f64 = 90.0;

#[derive(Clone, Debug)]
pub struct Options {
    /// Allocations younger than this are not reported as leaked or mismatched. `None` means the cluster's
    /// `leakGracePeriod`, or else [`DEFAULT_GRACE`]. Zero checks everything.
    pub grace: Option<SignedDuration>,
    /// See [`DEFAULT_POOL_THRESHOLD`].
    pub pool_threshold: f64,
    /// The CNI configuration of the nodes, if it is known. Otherwise, the cluster's pods show a part of it.
    pub cni_configuration: Option<CniConfiguration>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            grace: None,
            pool_threshold: DEFAULT_POOL_THRESHOLD,
            cni_configuration: None,
        }
    }
}

/// A snapshot with lookups and settings.
#[derive(Debug)]
pub struct Context<'s> {
    pub snapshot: &'s Snapshot,
    pub index: Index<'s>,
    /// The time of the snapshot. All rules use it as the current time.
    pub now: Timestamp,
    /// Allocations younger than this are not reported as leaked or mismatched.
    pub grace: SignedDuration,
    /// See [`DEFAULT_POOL_THRESHOLD`].
    pub pool_threshold: f64,
    /// True if strict affinity is known to be on.
    pub strict_affinity: bool,
    /// See [`Options::cni_configuration`].
    pub cni_configuration: Option<CniConfiguration>,
}

impl<'s> Context<'s> {
    /// Indexes a snapshot. If the CNI configuration is given, nodes are taken to use Calico IPAM.
    pub fn new(snapshot: &'s Snapshot, options: &Options) -> Self {
        if options.cni_configuration.is_some() {
            return Self::of_nodes(snapshot, options);
        }
        Self::from_index(Index::new(snapshot, snapshot.taken_at), options)
    }

    /// Makes the context for a cluster whose nodes use Calico IPAM, even if the snapshot does not show it.
    pub(crate) fn of_nodes(snapshot: &'s Snapshot, options: &Options) -> Self {
        Self::from_index(Index::of_nodes(snapshot, snapshot.taken_at), options)
    }

    /// Creates the context of an indexed snapshot. Its current time is the time of the snapshot.
    fn from_index(index: Index<'s>, options: &Options) -> Self {
        let snapshot = index.snapshot;
        let config = snapshot.effective_ipam_config();
        Self {
            snapshot,
            index,
            now: snapshot.taken_at,
            grace: grace(snapshot, options),
            pool_threshold: options.pool_threshold,
            strict_affinity: config.is_some_and(|config| config.strict_affinity),
            cni_configuration: options.cni_configuration.clone(),
        }
    }

    /// Returns the evidence about every user of an address.
    pub fn owners_of(&self, address: IpAddr) -> Vec<Arc<OwnerEvidence>> {
        self.index.describe_users(address, self.index.uses_of(address))
    }

    /// Returns true if the allocation is younger than the grace period. Its owner may not have appeared yet.
    pub fn is_young(&self, record: &AttributeRef<'_>) -> bool {
        self.is_young_at(self.now, record)
    }

    /// Returns true if the allocation is younger than the grace period at the time `now`. A record without a time is
    /// not.
    pub(crate) fn is_young_at(&self, now: Timestamp, record: &AttributeRef<'_>) -> bool {
        let Some(allocated_at) = record.allocated_at() else {
            return false;
        };
        let age = now.duration_since(allocated_at);
        // A time far in the future, from a wrong clock, would keep the allocation young until then.
        age < self.grace && age >= -CLOCK_SKEW
    }
}

/// Returns the grace period of the options, or else the cluster's `leakGracePeriod` if it is positive, or else
/// [`DEFAULT_GRACE`].
pub fn grace(snapshot: &Snapshot, options: &Options) -> SignedDuration {
    let configured = snapshot
        .kube_controllers
        .as_ref()
        .and_then(|controllers| controllers.leak_grace_period);
    options
        .grace
        .or(configured.filter(|grace| grace.is_positive()))
        .unwrap_or(DEFAULT_GRACE)
}
