//! Changes between two states of a block, address by address, for `diff`, histories, rates and trends.

use std::net::IpAddr;

use calipam_check::Scope;
use calipam_check::claim::{Claim, describe};
use calipam_model::IpNet;
use calipam_model::attributes::AttributeRef;
use calipam_model::block::{Allocation, Block};
use calipam_model::text::TextRef;
use serde::Serialize;

/// A change of an address, a block, or another object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    New,
    Gone,
    Changed,
    Assigned,
    Released,
    /// Assigned to another owner.
    Moved,
    /// Released, and assigned again to the same owner.
    Renewed,
    /// The same allocation, with changed attributes.
    #[serde(rename = "changed")]
    Attributes,
    /// Not allocated in either state, but cooling down after an assignment and a release in between, or newly reserved
    /// for Windows.
    Passed,
    /// The address was cooling down or reserved, and is free now.
    Cooled,
    Claimed,
    /// The block has another owner, or none.
    Owner,
    /// Released and claimed again by the same owner, according to its claim time.
    ClaimedAgain,
    /// Replaced by blocks of another size.
    Size,
}

impl Change {
    /// Returns the change in words, for texts and tables.
    pub fn words(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Gone => "gone",
            Self::Changed => "changed",
            Self::Assigned => "assigned",
            Self::Released => "released",
            Self::Moved => "moved to another owner",
            Self::Renewed => "released and assigned again",
            Self::Attributes => "attributes changed",
            Self::Passed => "assigned and released",
            Self::Cooled => "cooled down",
            Self::Claimed => "claimed",
            Self::Owner => "changed owner",
            Self::ClaimedAgain => "released and claimed again",
            Self::Size => "changed size",
        }
    }

    /// Returns the change between two states of an object; `None` if they are equal.
    pub(crate) fn of<T: PartialEq>(before: &Option<T>, after: &Option<T>) -> Option<Self> {
        match (before, after) {
            (None, None) => None,
            (None, Some(_)) => Some(Self::New),
            (Some(_), None) => Some(Self::Gone),
            (Some(before), Some(after)) if before != after => Some(Self::Changed),
            (Some(_), Some(_)) => None,
        }
    }
}

/// The node of an address: the node in its record, or else the owner of the block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum NodeName<'s> {
    Recorded(TextRef<'s>),
    Host(&'s str),
    Unknown,
}

impl<'s> NodeName<'s> {
    pub(crate) fn of(record: &AttributeRef<'s>, block: &'s Block) -> Self {
        match record.get("node").filter(|node| !node.is_empty()) {
            Some(node) => Self::Recorded(node),
            None => block.host().map_or(Self::Unknown, Self::Host),
        }
    }

    pub(crate) fn is_in(self, scope: &Scope) -> bool {
        scope.nodes.is_empty() || self != Self::Unknown && scope.nodes.contains(&self.text())
    }

    pub(crate) fn text(self) -> String {
        match self {
            Self::Recorded(name) => name.to_string(),
            Self::Host(name) => name.to_owned(),
            Self::Unknown => String::new(),
        }
    }
}

/// The record of an address in a block. The address is allocated, cooling down, or reserved for Windows.
#[derive(Clone, Copy, Debug)]
pub struct AddressRecord<'s> {
    pub(crate) block: &'s Block,
    /// The allocation, read from the block only once because a comparison uses it many times.
    pub(crate) allocation: Allocation<'s>,
}

impl<'s> AddressRecord<'s> {
    pub fn record(self) -> AttributeRef<'s> {
        self.allocation.attribute
    }

    /// Returns the CIDR of the address's block.
    pub fn block(self) -> IpNet {
        self.block.cidr()
    }

    pub(crate) fn address(self) -> IpAddr {
        self.allocation.address
    }

    pub(crate) fn node_name(self) -> NodeName<'s> {
        NodeName::of(&self.record(), self.block)
    }

    /// Returns the node that the record names, or else the node that owns the block.
    pub fn node(self) -> Option<String> {
        let node = self.node_name().text();
        if node.is_empty() { None } else { Some(node) }
    }

    /// Returns the type and name of the owner.
    pub fn owner(self) -> (&'static str, String) {
        let record = self.record();
        describe(&Claim::of(&record), &record)
    }

    /// True if the address belongs to an owner; false if it is cooling down or reserved for Windows.
    pub fn is_allocated(self) -> bool {
        let record = self.record();
        !record.is_cooling() && !record.is_windows_reserved()
    }
}

/// Pairs the records of each address in the old and the new state of a block. Addresses that are free in both states
/// are left out.
pub(crate) fn addresses<'s>(
    old: Option<&'s Block>,
    new: Option<&'s Block>,
) -> impl Iterator<Item = [Option<AddressRecord<'s>>; 2]> {
    let size = old.or(new).map_or(0, Block::size);
    let pairs = (0..size).map(move |ordinal| [record_at(old, ordinal), record_at(new, ordinal)]);
    pairs.filter(|states| states.iter().any(Option::is_some))
}

/// Returns the record of the address at `ordinal`; `None` if there is no block, or if the address is free.
fn record_at(block: Option<&Block>, ordinal: u32) -> Option<AddressRecord<'_>> {
    let block = block?;
    let allocation = block.allocation(ordinal)?;
    Some(AddressRecord { block, allocation })
}

/// Returns the change between two states of an address; `None` if nothing has changed.
pub(crate) fn address_change([before, after]: [Option<AddressRecord<'_>>; 2]) -> Option<Change> {
    let old = before.filter(|record| record.is_allocated());
    let new = after.filter(|record| record.is_allocated());
    match (old, new) {
        (Some(old), Some(new)) => allocation_change(old, new),
        (Some(_), None) => Some(Change::Released),
        (None, Some(_)) => Some(Change::Assigned),
        (None, None) => unallocated_change(before, after),
    }
}

/// Returns the change of an address that is allocated in both states, the most important one of several; `None` if
/// nothing has changed.
fn allocation_change(old: AddressRecord<'_>, new: AddressRecord<'_>) -> Option<Change> {
    let old_record = old.record();
    let new_record = new.record();

    if !is_same_owner(&old_record, &new_record) {
        Some(Change::Moved)
    } else if !is_same_allocation(old, new) {
        Some(Change::Renewed)
    } else if !is_same_record(&old_record, &new_record) {
        Some(Change::Attributes)
    } else {
        None
    }
}

/// Returns the change between two states in which the address is free, cooling down or reserved for Windows; `None` if
/// nothing has changed. Another release time shows that it was assigned in between.
fn unallocated_change(before: Option<AddressRecord<'_>>, after: Option<AddressRecord<'_>>) -> Option<Change> {
    let Some(new) = after else {
        return before.map(|_| Change::Cooled);
    };
    if let Some(old) = before
        && old.record().released_at() == new.record().released_at()
    {
        return None;
    }
    Some(Change::Passed)
}

/// Compares the owners and claim times of two states of a block. Returns `None` if neither is known to have changed.
pub(crate) fn owner_change(old: &Block, new: &Block) -> Option<Change> {
    if old.owner() != new.owner() {
        return Some(Change::Owner);
    }
    // Blocks of older Calico versions have no claim time.
    if let Some(old_time) = old.claim_time()
        && let Some(new_time) = new.claim_time()
        && old_time != new_time
    {
        return Some(Change::ClaimedAgain);
    }
    None
}

/// Counts the addresses that were assigned and those that were released between two states of a block. Only addresses
/// whose record `counts` accepts are included.
pub(crate) fn assigned_and_released(
    old: Option<&Block>,
    new: Option<&Block>,
    counts: impl Fn(&AttributeRef<'_>) -> bool,
) -> (u64, u64) {
    use Change::{Assigned, Moved, Released, Renewed};
    let is_counted = |record: Option<AddressRecord<'_>>| {
        record.is_some_and(|record| record.is_allocated() && counts(&record.record()))
    };

    let mut assigned = 0;
    let mut released = 0;
    for [before, after] in addresses(old, new) {
        let change = address_change([before, after]);
        if !matches!(change, Some(Assigned | Released | Moved | Renewed)) {
            continue;
        }
        if is_counted(after) {
            assigned += 1;
        }
        if is_counted(before) {
            released += 1;
        }
    }
    (assigned, released)
}

/// True if both records have the same handle or, if neither has a handle, the same content.
pub(crate) fn is_same_owner(old: &AttributeRef<'_>, new: &AttributeRef<'_>) -> bool {
    let old_handle = old.clean_handle().filter(|handle| !handle.is_empty());
    let new_handle = new.clean_handle().filter(|handle| !handle.is_empty());
    if old_handle.is_none() && new_handle.is_none() {
        return is_same_record(old, new);
    }
    old_handle == new_handle
}

/// False if the address was certainly assigned again: its sequence number (Calico 3.22.2 and later) or, without one,
/// its allocation time differs.
fn is_same_allocation(old: AddressRecord<'_>, new: AddressRecord<'_>) -> bool {
    let old_number = old.allocation.sequence;
    let new_number = new.allocation.sequence;
    if old.block() == new.block() && old_number != 0 && new_number != 0 {
        return old_number == new_number;
    }
    let old_record = old.record();
    let new_record = new.record();
    if let Some(old_time) = old_record.get("timestamp")
        && let Some(new_time) = new_record.get("timestamp")
    {
        return old_time == new_time;
    }
    true
}

/// True if two records say the same, in whatever order their attributes are stored.
fn is_same_record(old: &AttributeRef<'_>, new: &AttributeRef<'_>) -> bool {
    let old_alternate = old.alternate().unwrap_or_default();
    let new_alternate = new.alternate().unwrap_or_default();
    old.handle() == new.handle()
        && old.owner().is_same(new.owner())
        && old_alternate.is_same(new_alternate)
        && old.released_at() == new.released_at()
}
