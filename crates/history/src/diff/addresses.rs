//! Addresses whose records changed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use calipam_check::Scope;
use calipam_model::snapshot::Snapshot;
use calipam_model::text::TextRef;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use super::regions::Region;
use super::sums::{Pools, Tally};
use crate::block_change::{self, AddressRecord, Change, is_same_owner};

impl Serialize for AddressRecord<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let record = self.record().to_attribute();
        let (kind, name) = self.owner();
        let mut object = serializer.serialize_struct("AddressRecord", 8)?;
        object.serialize_field("block", &self.block())?;
        object.serialize_field("type", kind)?;
        object.serialize_field("allocatedTo", &name)?;
        object.serialize_field("node", &self.node())?;
        object.serialize_field("handle", &record.handle)?;
        object.serialize_field("attributes", &record.owner.unwrap_or_default())?;
        match record.alternate.filter(|alternate| !alternate.is_empty()) {
            Some(alternate) => object.serialize_field("alternateAttributes", &alternate)?,
            None => object.skip_field("alternateAttributes")?,
        }
        match record.released_at {
            Some(released_at) => object.serialize_field("releasedAt", &released_at)?,
            None => object.skip_field("releasedAt")?,
        }
        object.end()
    }
}

/// A changed address.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AddressChange<'s> {
    pub address: IpAddr,
    pub change: Change,
    /// The smallest pool that contains the address.
    pub pool: Option<&'s str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<AddressRecord<'s>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<AddressRecord<'s>>,
}

/// The result of comparing the addresses of all blocks.
#[derive(Debug, Default)]
pub(crate) struct AddressComparison<'s> {
    pub changes: Vec<AddressChange<'s>>,
    pub sums: Tally<'s>,
}

/// Compares the addresses of all regions.
pub(crate) fn compare_addresses<'s>(
    regions: &[Region<'s>],
    old: &'s Snapshot,
    new: &'s Snapshot,
    scope: &Scope,
) -> AddressComparison<'s> {
    let mut comparer = Comparer {
        old: Pools::new(old),
        new: Pools::new(new),
        scope,
        comparison: AddressComparison::default(),
    };
    for region in regions {
        match region.pair() {
            Some((old, _)) if !scope.has_network(old.cidr()) => {}
            Some((old, new)) if old == new => {
                let held = old.allocations().map(|allocation| AddressRecord {
                    block: old,
                    allocation,
                });
                held.for_each(|held| comparer.count([Some(held); 2], None));
            }
            Some((old, new)) => {
                block_change::addresses(Some(old), Some(new)).for_each(|both| comparer.compare(both))
            }
            None => comparer.region(region),
        }
    }
    comparer.comparison
}

struct Comparer<'s, 'w> {
    old: Pools<'s>,
    new: Pools<'s>,
    scope: &'w Scope,
    comparison: AddressComparison<'s>,
}

impl<'s> Comparer<'s, '_> {
    /// Compares a region whose blocks were claimed or released, overlap, or cannot be decoded.
    fn region(&mut self, region: &Region<'s>) {
        let mut addresses: BTreeMap<IpAddr, [Vec<AddressRecord<'s>>; 2]> = BTreeMap::new();
        for (side, stored) in [(0, &region.old), (1, &region.new)] {
            for block in stored.iter().filter_map(|stored| stored.block) {
                for allocation in block.allocations().filter(|a| !region.hides(a.address.into())) {
                    let held = AddressRecord { block, allocation };
                    addresses.entry(allocation.address).or_default()[side].push(held);
                }
            }
        }
        addresses
            .into_values()
            .flat_map(pairs)
            .for_each(|states| self.compare(states));
    }

    fn compare(&mut self, states: [Option<AddressRecord<'s>>; 2]) {
        // Windows reservations are created and deleted with their block, so they do not count as separate changes.
        let is_reserved = || {
            states
                .iter()
                .flatten()
                .any(|held| held.record().is_windows_reserved())
        };
        let change = block_change::address_change(states)
            .filter(|change| !matches!(change, Change::Passed | Change::Cooled) || !is_reserved());
        self.count(states, change);
    }

    /// Counts an address and keeps its change, if the address is in the scope.
    fn count(&mut self, states: [Option<AddressRecord<'s>>; 2], change: Option<Change>) {
        let [before, after] = states;
        let Some(address) = before.or(after).map(AddressRecord::address) else {
            return;
        };
        let is_wanted = states
            .iter()
            .flatten()
            .any(|held| held.node_name().is_in(self.scope));
        if !is_wanted || !self.scope.has_network(address.into()) {
            return;
        }
        let [old, new] = [(&mut self.old, before), (&mut self.new, after)]
            .map(|(pools, held)| held.map(|held| (held, pools.of(address, held.block()))));
        let allocated = |side: Option<(AddressRecord<'s>, Option<&'s str>)>| {
            let (held, pool) = side.filter(|(held, _)| held.is_allocated())?;
            Some((held.node_name(), pool.unwrap_or_default()))
        };
        self.comparison.sums.count(change, allocated(old), allocated(new));
        if let Some(change) = change {
            let pool = new.or(old).and_then(|(_, pool)| pool);
            self.comparison.changes.push(AddressChange {
                address,
                change,
                pool,
                before,
                after,
            });
        }
    }
}

/// Pairs the records of one address by owner, and the remaining records in order. There can be several records, since
/// overlapping blocks can each record the address.
fn pairs<'s>([before, mut after]: [Vec<AddressRecord<'s>>; 2]) -> Vec<[Option<AddressRecord<'s>>; 2]> {
    let mut found = Vec::with_capacity(before.len().max(after.len()));
    let mut alone = Vec::new();
    for held in before {
        match after
            .iter()
            .position(|other| is_same_owner(&held.record(), &other.record()))
        {
            Some(place) => found.push([Some(held), Some(after.remove(place))]),
            None => alone.push(held),
        }
    }
    let mut others = after.into_iter();
    found.extend(alone.into_iter().map(|held| [Some(held), others.next()]));
    found.extend(others.map(|held| [None, Some(held)]));
    found
}

/// The handles in the records of the changed addresses, as packed bytes ([`TextRef::packed`]).
pub(crate) fn handles_of<'s>(changes: &[AddressChange<'s>]) -> BTreeSet<&'s [u8]> {
    let held = changes
        .iter()
        .flat_map(|change| change.before.iter().chain(&change.after));
    held.filter_map(|held| held.record().clean_handle())
        .map(TextRef::packed)
        .collect()
}
