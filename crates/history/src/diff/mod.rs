//! The differences between two snapshots of one cluster.

mod addresses;
mod align;
mod blocks;
mod findings;
mod objects;
mod owned;
mod regions;
mod sums;
#[cfg(test)]
mod tests;
mod uncompared;

use calipam_check::{Report, Scope};
use calipam_model::snapshot::{Snapshot, Source};
use serde::Serialize;

pub use self::addresses::AddressChange;
pub use self::align::align;
pub use self::blocks::{BlockChange, BlockState};
pub use self::findings::{FindingChanges, FindingSummary};
pub use self::objects::{FieldChange, ObjectChange};
pub use self::owned::{AffinityChange, HandleChange};
pub use self::sums::{NamedSum, Sum, Sums};
use self::uncompared::Hidden;
pub use self::uncompared::{NotCompared, Side, Uncompared};
pub use crate::block_change::{AddressRecord, Change};

/// The differences between two snapshots in a scope.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Difference<'s> {
    /// True if nothing differs, and `not_compared` contains only sources.
    pub same: bool,
    /// Sources that were read in only one of the snapshots, and objects that cannot be compared.
    pub not_compared: Vec<NotCompared>,
    /// Numbers of addresses: in total, by pool and by node.
    pub sums: Sums,
    /// Changed addresses, ascending.
    pub addresses: Vec<AddressChange<'s>>,
    /// Changed blocks, ascending by CIDR.
    pub blocks: Vec<BlockChange>,
    /// Changed affinities, ascending by type, holder and CIDR.
    pub affinities: Vec<AffinityChange>,
    /// Changed handles: first those that are gone, then changed and new ones.
    pub handles: Vec<HandleChange<'s>>,
    /// Changed IP pools, by name.
    pub pools: Vec<ObjectChange>,
    pub reservations: Vec<ObjectChange>,
    /// Changed Calico nodes, by name.
    pub nodes: Vec<ObjectChange>,
    /// Changed cluster information and settings.
    pub configuration: Vec<ObjectChange>,
    pub findings: FindingChanges,
}

impl Difference<'_> {
    /// Returns true if nothing differs among the compared objects and findings. The sums follow from the addresses.
    fn is_empty(&self) -> bool {
        self.addresses.is_empty()
            && self.blocks.is_empty()
            && self.affinities.is_empty()
            && self.handles.is_empty()
            && self.pools.is_empty()
            && self.reservations.is_empty()
            && self.nodes.is_empty()
            && self.configuration.is_empty()
            && self.findings.new.is_empty()
            && self.findings.gone.is_empty()
    }
}

/// The differences between two snapshots, not yet including findings.
#[derive(Debug)]
pub struct Unchecked<'s>(Difference<'s>);

impl<'s> Unchecked<'s> {
    /// Adds the findings that only one of the two reports has, and decides whether the snapshots are the same. `scope`
    /// must be the scope of the comparison.
    pub fn checked(self, old: Report, new: Report, scope: &Scope) -> Difference<'s> {
        let mut difference = self.0;
        difference.findings = findings::changes(&old, &new, scope);
        // A source that only one side has is left out on purpose, but an unreadable object may have changed.
        let is_unknown = difference
            .not_compared
            .iter()
            .any(|left_out| left_out.kind != Uncompared::Source);
        difference.same = !is_unknown && difference.is_empty();
        difference
    }
}

/// Compares two snapshots of one cluster in a scope. Call [`align`] first.
pub fn compare<'s>(before: &'s Snapshot, after: &'s Snapshot, scope: &Scope) -> Unchecked<'s> {
    let both_read = |source: Source| before.has_read(source) && after.has_read(source);
    let hidden = Hidden::new(before, after);
    let mut not_compared = uncompared::sources(before, after);
    not_compared.extend(hidden.listed(scope));

    let mut comparison = addresses::AddressComparison::default();
    let mut blocks = Vec::new();
    if both_read(Source::Blocks) {
        let regions = regions::group(before, after);
        comparison = addresses::compare_addresses(&regions, before, after, scope);
        blocks = blocks::changes(&regions, scope);
        not_compared.extend(uncompared::blocks(&regions, scope));
    }
    let addresses::AddressComparison {
        changes: addresses,
        sums,
    } = comparison;

    let mut handles = Vec::new();
    if both_read(Source::Handles) {
        handles = owned::handles(before, after, &hidden, &addresses, scope);
    }
    let mut affinities = Vec::new();
    if both_read(Source::Affinities) {
        affinities = owned::affinities(before, after, &hidden, scope);
    }

    let [pools, reservations, nodes, configuration] = objects::changes(before, after, &hidden, scope);
    Unchecked(Difference {
        // This is determined with the findings.
        same: false,
        not_compared,
        sums: sums.finish(),
        addresses,
        blocks,
        affinities,
        handles,
        pools,
        reservations,
        nodes,
        configuration,
        findings: FindingChanges::default(),
    })
}
