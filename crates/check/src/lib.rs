//! The rules of calipam, which make a [`Report`] from a [`Snapshot`], and the views that `show` prints. Nothing here
//! does I/O except [`read_document`], and the only clock is the snapshot's.
//!
//! "Facts" in this crate's comments means the project's `docs/calico-ipam.md`.

mod answers;
pub mod claim;
mod code;
mod context;
mod earlier;
mod filter;
mod finding;
mod finding_ages;
#[cfg(test)]
mod finding_ages_tests;
pub mod fleet;
pub mod index;
mod names;
pub mod occupancy;
pub mod owner;
mod places;
pub mod record;
mod remedy;
mod report;
mod rules;
mod scope;
mod services;
mod suspects;
#[cfg(test)]
mod test_cluster;
pub mod views;

use std::collections::{BTreeSet, HashSet};

use calipam_model::key::Key;
use calipam_model::snapshot::{Snapshot, Source};
use jiff::Timestamp;

pub use self::code::{Code, Severity, UnknownCode};
pub use self::context::{Context, DEFAULT_GRACE, DEFAULT_POOL_THRESHOLD, Options, grace};
pub use self::earlier::{
    API_VERSION, Change, Changes, EarlierFinding, EarlierReport, EarlierSubject, NoReport, read_document,
};
pub use self::filter::Filter;
pub use self::finding::*;
pub use self::finding_ages::FindingAges;
pub use self::names::{and_more, list, names_of_mentions, names_of_owners, short};
pub use self::places::Places;
pub use self::remedy::{PoolChange, Remedy, RestartReason, Topic};
pub use self::report::{ClusterIdentity, Counts, Report};
pub use self::rules::without_address::nodes_without_addresses;
pub use self::scope::Scope;
pub use self::suspects::{ReadObject, Recheck, drop_changed, handle_ids, objects, suspects};

/// A map for a million short keys. Its hash is the same in every run. Deliberate collisions would only cost time.
pub type FastMap<K, V> = std::collections::HashMap<K, V, foldhash::fast::FixedState>;
/// A set for a million short keys.
pub type FastSet<K> = std::collections::HashSet<K, foldhash::fast::FixedState>;

impl Context<'_> {
    /// Checks the snapshot with all rules. If no IPAM data is stored and every object can be decoded, this runs only
    /// the rules that make sense before the first block exists.
    pub fn check(&self) -> Report {
        if uses_ipam(self.snapshot) {
            return report_of_use(self, rules::run(self));
        }
        let is_decoded = self.snapshot.defects.is_empty();
        let findings = if is_decoded {
            rules::run_unused(self)
        } else {
            rules::run(self)
        };
        let note = unused_note(self.snapshot, self.serves_pods());
        Report::new(self.snapshot, vec![note.to_owned()], findings)
    }

    /// Returns true if Calico IPAM gives pods their addresses, or would give them. The CNI configuration is one of Calico
    /// IPAM, or it would not have been read.
    pub(crate) fn serves_pods(&self) -> bool {
        self.cni_configuration.is_some() || self.index.serves_pods(uses_ipam(self.snapshot))
    }

    /// Returns the findings about nodes and pods that get no address, as if the cluster had the blocks, affinities,
    /// pools and configuration of `changed`. The other rules do not run.
    pub fn without_addresses(&self, changed: &Snapshot) -> Vec<Finding> {
        let mut findings = Vec::new();
        rules::without_address::check_on(self, changed, &mut findings);
        findings
    }

    /// Counts the addresses for which a check would report `borrowed-under-strict-affinity` if strict affinity were on.
    pub fn borrowed_if_strict(&self) -> usize {
        rules::addresses::count_borrowed(self)
    }

    /// Returns the nodes whose next pod gets no address, without running the other rules.
    pub fn nodes_without_addresses(&self) -> BTreeSet<String> {
        let findings = self.without_addresses(self.snapshot);
        nodes_without_addresses(&findings)
            .into_iter()
            .map(str::to_owned)
            .collect()
    }

    /// Returns findings that the same snapshot has at a later time. They include all findings that appear only because
    /// time passes, for example about allocations that are too young now, and some findings that exist already.
    /// Findings whose codes are not in `codes` can be missing.
    pub fn aged(self, later: Timestamp, codes: &HashSet<Code>) -> HashSet<(Code, Subject)> {
        if !uses_ipam(self.snapshot) && self.snapshot.defects.is_empty() {
            return HashSet::new();
        }
        rules::aged::findings(self, later, codes)
    }
}

/// Returns true if some rules will run only after a node gets its first block. This is the case if no IPAM data is
/// stored, or if Calico IPAM serves only LoadBalancer services.
pub fn awaits_first_block(snapshot: &Snapshot) -> bool {
    !uses_ipam(snapshot) || index::is_for_services_only(snapshot)
}

/// Checks a snapshot as if a node already had its first block.
pub fn check_by_all_rules(snapshot: &Snapshot, options: &Options) -> Report {
    let context = Context::of_nodes(snapshot, options);
    report_of_use(&context, rules::run(&context))
}

/// Makes the report about addresses and their users, with notes on what its findings depend on.
fn report_of_use(context: &Context<'_>, findings: Vec<Finding>) -> Report {
    let snapshot = context.snapshot;
    let mut notes = Vec::new();
    if context.index.services_only {
        notes.push(SERVES_SERVICES.to_owned());
    }
    if depends_on_list_order(snapshot, &findings) {
        notes.push("Blocks were listed before pods: an address that a pod got in between is reported as unallocated, or as recorded for another owner".to_owned());
    }
    for name in &snapshot.ignored_configs {
        notes.push(note_of_ignored_config(name));
    }
    Report::new(snapshot, notes, findings)
}

/// Returns a note that Calico ignores an allocator configuration.
pub fn note_of_ignored_config(name: &str) -> String {
    format!(
        "Calico ignores the IPAM configuration {}: only the one called default counts",
        names::short(name)
    )
}

/// The note of a check of a cluster that stores no IPAM data.
fn unused_note(snapshot: &Snapshot, serves_pods: bool) -> &'static str {
    if index::keeps_data_elsewhere(snapshot) {
        return DATA_IS_ELSEWHERE;
    }
    if serves_pods { NOTHING_ASSIGNED } else { UNUSED }
}

const NOTHING_ASSIGNED: &str =
    "There is no block, handle or affinity: Calico IPAM has assigned no address yet";
const DATA_IS_ELSEWHERE: &str = "This etcd is not where the cluster's Calico keeps its data: it has no node and no endpoint, and the pods have the annotations that Calico's plugin writes with the Kubernetes datastore. Read the Kubernetes datastore instead";
const UNUSED: &str = "There is no block, handle or affinity: this cluster does not use Calico IPAM";
const SERVES_SERVICES: &str =
    "No node has a block, handle or affinity: Calico IPAM serves LoadBalancer services only";

/// Returns a note that Calico IPAM does not assign pod addresses; `None` if it does, or if that is unknown.
pub fn note_of_other_ipam(snapshot: &Snapshot) -> Option<&'static str> {
    if !snapshot.has_read(Source::Blocks) || !snapshot.has_read(Source::Affinities) {
        return None;
    }
    for defect in &snapshot.defects {
        // The object could be of Calico IPAM.
        if matches!(defect.key, None | Some(Key::Block(_) | Key::Affinity(_))) {
            return None;
        }
    }

    if uses_ipam(snapshot) {
        if index::is_for_services_only(snapshot) {
            return Some(SERVES_SERVICES);
        }
        if index::is_host_local(snapshot) {
            return Some("Pods have addresses from host-local, not from Calico IPAM");
        }
        return None;
    }

    if snapshot.has_read(Source::Pools) && snapshot.pools.is_empty() {
        return Some("There is no pool and no block: this cluster does not use Calico IPAM");
    }
    if index::keeps_data_elsewhere(snapshot) {
        return Some(DATA_IS_ELSEWHERE);
    }
    if snapshot.has_read(Source::Handles) {
        return Some(UNUSED);
    }
    Some("There is no block and no affinity: Calico IPAM has assigned no address")
}

/// Returns true if any IPAM data is stored.
fn uses_ipam(snapshot: &Snapshot) -> bool {
    !snapshot.blocks.is_empty() || !snapshot.handles.is_empty() || !snapshot.affinities.is_empty()
}

/// Returns true if one of the findings could be due to an address that was assigned after blocks were listed, but
/// before pods were.
fn depends_on_list_order(snapshot: &Snapshot, findings: &[Finding]) -> bool {
    let codes = [
        Code::UnallocatedInUse,
        Code::OwnerMismatch,
        Code::DuplicateAddress,
    ];
    snapshot.blocks_before_pods && findings.iter().any(|finding| codes.contains(&finding.code))
}

/// Checks a snapshot, as [`Context::check`] does.
pub fn check(snapshot: &Snapshot, options: &Options) -> Report {
    Context::new(snapshot, options).check()
}
