//! Addresses whose records changed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use calipam_check::Scope;
use calipam_model::block::Block;
use calipam_model::snapshot::Snapshot;
use calipam_model::text::TextRef;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use super::regions::Region;
use super::sums::{Pools, Tally};
use crate::block_change::{self, AddressRecord, Change, NodeName, is_same_owner};

impl Serialize for AddressRecord<'_> {
    /// Writes the block, the owner, the handle and the recorded attributes. A record without a second set of attributes,
    /// or whose address was not released, has no fields for them.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let record = self.record().to_attribute();
        let (owner_kind, owner_name) = self.owner();
        let mut object = serializer.serialize_struct("AddressRecord", 8)?;
        object.serialize_field("block", &self.block())?;
        object.serialize_field("type", owner_kind)?;
        object.serialize_field("allocatedTo", &owner_name)?;
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

/// Compares the addresses of all regions, and counts those in scope by node and pool.
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
        let Some((old, new)) = region.pair() else {
            comparer.compare_region(region);
            continue;
        };
        if !scope.has_network(old.cidr()) {
            continue;
        }
        if old == new {
            comparer.count_unchanged_block(old);
            continue;
        }
        for states in block_change::addresses(Some(old), Some(new)) {
            comparer.compare(states);
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
    /// Counts the addresses of a block that is the same in both snapshots.
    fn count_unchanged_block(&mut self, block: &'s Block) {
        for allocation in block.allocations() {
            let record = AddressRecord { block, allocation };
            self.count([Some(record); 2], None);
        }
    }

    /// Compares a region whose blocks were claimed or released, overlap, or cannot be decoded.
    fn compare_region(&mut self, region: &Region<'s>) {
        let mut addresses: BTreeMap<IpAddr, [Vec<AddressRecord<'s>>; 2]> = BTreeMap::new();
        for (side, stored) in [(0, &region.old), (1, &region.new)] {
            for block in stored.iter().filter_map(|stored| stored.block) {
                for allocation in block.allocations() {
                    let address = allocation.address;
                    // If the address is unknown on one side, its records cannot be compared.
                    if region.hides(address.into()) {
                        continue;
                    }
                    let record = AddressRecord { block, allocation };
                    addresses.entry(address).or_default()[side].push(record);
                }
            }
        }
        for states in addresses.into_values().flat_map(pair_by_owner) {
            self.compare(states);
        }
    }

    /// Compares two states of an address.
    fn compare(&mut self, states: [Option<AddressRecord<'s>>; 2]) {
        let change = match block_change::address_change(states) {
            // Windows reservations are created and deleted with their block, so they do not count as separate changes.
            Some(Change::Passed | Change::Cooled) if is_windows_reserved(states) => None,
            change => change,
        };
        self.count(states, change);
    }

    /// Counts an address by node and pool in both snapshots, and keeps its change, if there is one. Ignores addresses
    /// outside of the scope.
    fn count(&mut self, states: [Option<AddressRecord<'s>>; 2], change: Option<Change>) {
        let [before, after] = states;
        let Some(address) = before.or(after).map(AddressRecord::address) else {
            return;
        };
        let mut records = states.iter().flatten();
        let has_node_in_scope = records.any(|record| record.node_name().is_in(self.scope));
        if !has_node_in_scope || !self.scope.has_network(address.into()) {
            return;
        }

        let old_pool = before.and_then(|record| self.old.pool_of(address, record.block()));
        let new_pool = after.and_then(|record| self.new.pool_of(address, record.block()));
        self.comparison.sums.count(
            change,
            node_and_pool(before, old_pool),
            node_and_pool(after, new_pool),
        );

        if let Some(change) = change {
            self.comparison.changes.push(AddressChange {
                address,
                change,
                pool: if after.is_some() { new_pool } else { old_pool },
                before,
                after,
            });
        }
    }
}

/// Returns the node and pool of an address; `None` if it is not allocated, and so does not count.
fn node_and_pool<'s>(
    record: Option<AddressRecord<'s>>,
    pool: Option<&'s str>,
) -> Option<(NodeName<'s>, &'s str)> {
    let record = record.filter(|record| record.is_allocated())?;
    Some((record.node_name(), pool.unwrap_or_default()))
}

fn is_windows_reserved(states: [Option<AddressRecord<'_>>; 2]) -> bool {
    let mut records = states.iter().flatten();
    records.any(|record| record.record().is_windows_reserved())
}

/// Pairs the records of one address by owner, and the remaining records in order. There can be several records, since
/// overlapping blocks can each record the address.
fn pair_by_owner<'s>(
    [before, mut after]: [Vec<AddressRecord<'s>>; 2],
) -> Vec<[Option<AddressRecord<'s>>; 2]> {
    let mut pairs = Vec::with_capacity(before.len().max(after.len()));
    let mut unpaired = Vec::new();
    for old in before {
        let has_same_owner = |new: &AddressRecord<'_>| is_same_owner(&old.record(), &new.record());
        match after.iter().position(has_same_owner) {
            Some(index) => pairs.push([Some(old), Some(after.remove(index))]),
            None => unpaired.push(old),
        }
    }

    let mut others = after.into_iter();
    for old in unpaired {
        pairs.push([Some(old), others.next()]);
    }
    for new in others {
        pairs.push([None, Some(new)]);
    }
    pairs
}

/// Returns the handles in the records of the changed addresses, as packed bytes ([`TextRef::packed`]).
pub(crate) fn handles_of<'s>(changes: &[AddressChange<'s>]) -> BTreeSet<&'s [u8]> {
    let mut handles = BTreeSet::new();
    for change in changes {
        for record in change.before.iter().chain(&change.after) {
            handles.extend(record.record().clean_handle().map(TextRef::packed));
        }
    }
    handles
}
