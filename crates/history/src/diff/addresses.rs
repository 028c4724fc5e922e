//! Addresses that were assigned, released, or have another owner.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use calipam_check::Scope;
use calipam_check::claim::{Claim, describe};
use calipam_model::IpNet;
use calipam_model::attributes::AttributeRef;
use calipam_model::block::{Allocation, Block};
use calipam_model::snapshot::Snapshot;
use calipam_model::text::TextRef;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use super::regions::Region;
use super::sums::{NodeName, Part, Pools, Tally};

/// What happened to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AddressChangeKind {
    Assigned,
    Released,
    /// It belongs to another owner.
    Moved,
    /// Released, and assigned again to the same owner.
    Renewed,
    /// The same allocation with other attributes of its owner.
    Changed,
    /// Assigned and released in between: it is not in use on either side.
    Passed,
    /// It cooled down, and is free now.
    Cooled,
}

impl AddressChangeKind {
    /// What people read.
    pub fn words(self) -> &'static str {
        match self {
            Self::Assigned => "assigned",
            Self::Released => "released",
            Self::Moved => "moved to another owner",
            Self::Renewed => "released and assigned again",
            Self::Changed => "attributes changed",
            Self::Passed => "assigned and released",
            Self::Cooled => "cooled down",
        }
    }
}

/// The record of an address in a block: allocated, cooling, or reserved.
#[derive(Clone, Copy, Debug)]
pub struct Held<'s> {
    block: &'s Block,
    ordinal: u32,
}

impl<'s> Held<'s> {
    fn allocation(self) -> Option<Allocation<'s>> {
        self.block.allocation(self.ordinal)
    }

    pub fn record(self) -> AttributeRef<'s> {
        self.allocation().map(|allocation| allocation.attribute).unwrap_or_default()
    }

    /// The CIDR of its block.
    pub fn block(self) -> IpNet {
        self.block.cidr()
    }

    /// The node that holds it.
    pub(crate) fn node_name(self) -> NodeName<'s> {
        NodeName::of(&self.record(), self.block)
    }

    /// The node that holds it: the one that the record names, else the owner of the block.
    pub fn node(self) -> Option<String> {
        let node = self.node_name();
        (node != NodeName::Unknown).then(|| node.text())
    }

    /// The type of its owner, and the owner's name.
    pub fn owner(self) -> (&'static str, String) {
        let record = self.record();
        describe(&Claim::of(&record), &record)
    }

    /// True for an address that an owner holds; false if it cools down or is reserved by Windows.
    pub fn is_allocated(self) -> bool {
        is_allocated(&self.record())
    }
}

fn is_allocated(record: &AttributeRef<'_>) -> bool {
    !record.is_cooling() && !record.is_windows_reserved()
}

impl Serialize for Held<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let record = self.record().to_attribute();
        let (kind, name) = self.owner();
        let mut object = serializer.serialize_struct("Held", 8)?;
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

/// An address that differs.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AddressChange<'s> {
    pub address: IpAddr,
    pub change: AddressChangeKind,
    /// The smallest pool around it.
    pub pool: Option<&'s str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Held<'s>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Held<'s>>,
}

/// What comparing all blocks gives.
#[derive(Debug, Default)]
pub(crate) struct Walked<'s> {
    pub changes: Vec<AddressChange<'s>>,
    pub sums: Tally<'s>,
}

/// Compares the addresses of all regions.
pub(crate) fn walk<'s>(
    regions: &[Region<'s>],
    old: &'s Snapshot,
    new: &'s Snapshot,
    scope: &Scope,
) -> Walked<'s> {
    let mut walk = Walk { old: Pools::new(old), new: Pools::new(new), scope, walked: Walked::default() };
    for region in regions {
        match region.pair() {
            Some((old, new)) if old == new => walk.unchanged(old),
            Some((old, new)) => walk.pair(old, new),
            None => walk.region(region),
        }
    }
    walk.walked
}

struct Walk<'s, 'w> {
    old: Pools<'s>,
    new: Pools<'s>,
    scope: &'w Scope,
    walked: Walked<'s>,
}

impl<'s> Walk<'s, '_> {
    /// A block that is the same on both sides.
    fn unchanged(&mut self, block: &'s Block) {
        if !self.scope.has_network(block.cidr()) {
            return;
        }
        for allocation in block.allocations() {
            let record = allocation.attribute;
            let node = NodeName::of(&record, block);
            if self.scope.has_network(allocation.address.into())
                && node.is_in(self.scope)
                && is_allocated(&record)
            {
                let pool = self.new.of(allocation.address, block.cidr());
                self.walked.sums.both(node, pool);
            }
        }
    }

    /// A block that differs, at the same place.
    fn pair(&mut self, old: &'s Block, new: &'s Block) {
        if !self.scope.has_network(old.cidr()) {
            return;
        }
        for ordinal in 0..old.size() {
            let (before, after) = (old.allocation(ordinal), new.allocation(ordinal));
            let Some(address) = before.or(after).map(|allocation| allocation.address) else { continue };
            let before = before.map(|_| Held { block: old, ordinal });
            let after = after.map(|_| Held { block: new, ordinal });
            self.compare(address, before, after);
        }
    }

    /// Blocks that were claimed or released, that overlap, or that cannot be decoded.
    fn region(&mut self, region: &Region<'s>) {
        let mut addresses: BTreeMap<IpAddr, [Vec<Held<'s>>; 2]> = BTreeMap::new();
        for (side, stored) in [(0, &region.old), (1, &region.new)] {
            for block in stored.iter().filter_map(|stored| stored.block) {
                for allocation in block.allocations().filter(|a| !region.hides(a.address.into())) {
                    let held = Held { block, ordinal: allocation.ordinal };
                    addresses.entry(allocation.address).or_default()[side].push(held);
                }
            }
        }
        for (address, [before, after]) in addresses {
            for (before, after) in pairs(before, after) {
                self.compare(address, before, after);
            }
        }
    }

    fn compare(&mut self, address: IpAddr, before: Option<Held<'s>>, after: Option<Held<'s>>) {
        let is_wanted = before.iter().chain(&after).any(|held| held.node_name().is_in(self.scope));
        if !is_wanted || !self.scope.has_network(address.into()) {
            return;
        }
        let kind = kind(before, after);
        let before_pool = before.and_then(|held| self.old.of(address, held.block()));
        let after_pool = after.and_then(|held| self.new.of(address, held.block()));
        let sums = &mut self.walked.sums;
        let part =
            |held: Option<Held<'s>>, pool| held.filter(|h| h.is_allocated()).map(|held| Part { held, pool });
        sums.change(kind, part(before, before_pool), part(after, after_pool));
        if let Some(change) = kind {
            let pool = after_pool.or(before_pool);
            self.walked.changes.push(AddressChange { address, change, pool, before, after });
        }
    }
}

/// The records of one address on both sides, those of one owner together. Several blocks can record an address where
/// they overlap.
fn pairs<'s>(before: Vec<Held<'s>>, mut after: Vec<Held<'s>>) -> Vec<(Option<Held<'s>>, Option<Held<'s>>)> {
    let mut found = Vec::with_capacity(before.len().max(after.len()));
    let mut alone = Vec::new();
    for held in before {
        match after.iter().position(|other| is_same_owner(&held.record(), &other.record())) {
            Some(place) => found.push((Some(held), Some(after.remove(place)))),
            None => alone.push(held),
        }
    }
    let mut others = after.into_iter();
    found.extend(alone.into_iter().map(|held| (Some(held), others.next())));
    found.extend(others.map(|held| (None, Some(held))));
    found
}

/// What happened between two records of an address; `None` if nothing did.
fn kind(before: Option<Held<'_>>, after: Option<Held<'_>>) -> Option<AddressChangeKind> {
    use AddressChangeKind::{Assigned, Changed, Cooled, Moved, Passed, Released, Renewed};
    let (old, new) = (before.filter(|held| held.is_allocated()), after.filter(|held| held.is_allocated()));
    match (old, new) {
        (Some(old), Some(new)) if !is_same_owner(&old.record(), &new.record()) => Some(Moved),
        (Some(old), Some(new)) if !is_same_allocation(old, new) => Some(Renewed),
        (Some(old), Some(new)) => (!is_same_record(&old.record(), &new.record())).then_some(Changed),
        (Some(_), None) => Some(Released),
        (None, Some(_)) => Some(Assigned),
        (None, None) => match (released_at(before), released_at(after)) {
            (Some(_), None) => Some(Cooled),
            (old, new) => (old != new).then_some(Passed),
        },
    }
}

fn released_at<'s>(held: Option<Held<'s>>) -> Option<TextRef<'s>> {
    held.and_then(|held| held.record().released_at())
}

/// The handle is the identity of an owner; if there is none, all that the record says.
fn is_same_owner(old: &AttributeRef<'_>, new: &AttributeRef<'_>) -> bool {
    let handle =
        |record: &AttributeRef<'_>| record.clean_handle().filter(|handle| !handle.is_empty()).is_some();
    match (handle(old), handle(new)) {
        (true, true) => old.clean_handle() == new.clean_handle(),
        (false, false) => is_same_record(old, new),
        _ => false,
    }
}

/// True unless it is known that the address was assigned again: by its sequence number (Calico 3.22.2 and later), else by
/// the time of the allocation.
fn is_same_allocation(old: Held<'_>, new: Held<'_>) -> bool {
    let numbers = (old.block.sequence_of(old.ordinal), new.block.sequence_of(new.ordinal));
    if old.block() == new.block() && numbers.0 != 0 && numbers.1 != 0 {
        return numbers.0 == numbers.1;
    }
    match (old.record().get("timestamp"), new.record().get("timestamp")) {
        (Some(old), Some(new)) => old == new,
        _ => true,
    }
}

fn is_same_record(old: &AttributeRef<'_>, new: &AttributeRef<'_>) -> bool {
    let (alternate, new_alternate) =
        (old.alternate().unwrap_or_default(), new.alternate().unwrap_or_default());
    old.handle() == new.handle()
        && old.owner().iter().eq(new.owner().iter())
        && alternate.iter().eq(new_alternate.iter())
        && old.released_at() == new.released_at()
}

/// The handles that the changed addresses name, packed.
pub(crate) fn handles_of<'s>(changes: &[AddressChange<'s>]) -> BTreeSet<&'s [u8]> {
    let held = changes.iter().flat_map(|change| change.before.iter().chain(&change.after));
    held.filter_map(|held| held.record().clean_handle()).map(TextRef::packed).collect()
}
