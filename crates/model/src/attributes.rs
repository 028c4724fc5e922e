//! The owner records of a block (Calico: "attributes"). A block keeps its records in one packed table.
//! [`AttributeRef`] reads one of them in place, and [`Attribute`] is a copy.

mod table;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;

pub(crate) use self::table::{AttributeTable, RecordParts};
use crate::json::Unknown;
pub use crate::owner_map::{Owner, OwnerMap};
use crate::packing::take_sized;
use crate::text::TextRef;
use crate::time::{format_seconds, parse_time};

/// Handle under which Windows nodes reserve the first three ordinals and the last one in a block.
/// There is no handle object for it (facts 3.1).
pub const WINDOWS_RESERVED_HANDLE: &str = "windows-reserved-ipam-handle";

/// True for the handle of the ordinals that Windows reserves. Like Calico, ignores the case.
pub fn is_windows_reserved(handle: TextRef<'_>) -> bool {
    handle.packed().len() == WINDOWS_RESERVED_HANDLE.len()
        && handle
            .packed()
            .eq_ignore_ascii_case(WINDOWS_RESERVED_HANDLE.as_bytes())
}

/// One owner record: Calico's `AllocationAttribute` (facts 1.3, "Attribute object").
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attribute {
    /// `handle_id`: the primary identity; `None` for anonymous allocations.
    pub handle: Option<String>,
    /// `secondary`: attributes of the active owner. `None` if null or absent.
    pub owner: Option<BTreeMap<String, String>>,
    /// `alternateOwnerAttrs`: the alternate owner, in a KubeVirt live migration (Calico 3.32 and later).
    pub alternate: Option<BTreeMap<String, String>>,
    /// `releasedAt`, RFC 3339: the start of the cooldown (Calico 3.33 and later).
    pub released_at: Option<String>,
    /// Unknown fields, kept for the next write.
    pub unknown: Unknown,
}

impl Attribute {
    /// Creates the record of an allocation: a handle and attributes of the active owner.
    pub fn new<'a>(handle: Option<&str>, owner: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let owner: BTreeMap<_, _> = owner
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        Self {
            handle: handle.map(str::to_owned),
            owner: Some(owner).filter(|owner| !owner.is_empty()),
            ..Self::default()
        }
    }

    /// Calls `call` with a packed form of the record.
    pub fn with_ref<T>(&self, call: impl FnOnce(AttributeRef<'_>) -> T) -> T {
        let mut table = AttributeTable::default();
        table.push(self);
        call(table.get(0).unwrap_or_default())
    }

    /// The record for the ordinals that Windows reserves.
    pub fn windows_reserved() -> Self {
        Self::new(Some(WINDOWS_RESERVED_HANDLE), [("note", "windows host rsvd")])
    }

    /// Creates the record of an address that was released at `released_at` and is cooling down.
    pub fn cooling(released_at: Timestamp) -> Self {
        Self {
            released_at: Some(format_seconds(released_at)),
            ..Self::default()
        }
    }
}

/// Presence bits at the start of a packed record.
const HAS_HANDLE: u8 = 1;
const HAS_OWNER: u8 = 2;
const HAS_ALTERNATE: u8 = 4;
const HAS_RELEASED: u8 = 8;
const HAS_UNKNOWN: u8 = 16;

/// A view of one owner record in the packed table of a block.
#[derive(Clone, Copy, Debug, Default)]
pub struct AttributeRef<'a> {
    packed: &'a [u8],
    handle: Option<TextRef<'a>>,
    owner: Option<OwnerMap<'a>>,
    alternate: Option<OwnerMap<'a>>,
    released_at: Option<TextRef<'a>>,
    unknown: &'a [u8],
}

impl<'a> AttributeRef<'a> {
    /// Splits a packed record into its parts, which have a fixed order. The first byte says which of them it has.
    fn read(bytes: &'a [u8]) -> Self {
        let Some((flags, mut rest)) = bytes.split_first() else {
            return Self::default();
        };
        let mut record = Self {
            packed: bytes,
            ..Self::default()
        };
        if flags & HAS_HANDLE != 0 {
            record.handle = Some(TextRef::from_packed(take_sized(&mut rest)));
        }
        if flags & HAS_OWNER != 0 {
            record.owner = Some(OwnerMap::take(&mut rest));
        }
        if flags & HAS_ALTERNATE != 0 {
            record.alternate = Some(OwnerMap::take(&mut rest));
        }
        if flags & HAS_RELEASED != 0 {
            record.released_at = Some(TextRef::from_packed(take_sized(&mut rest)));
        }
        if flags & HAS_UNKNOWN != 0 {
            record.unknown = take_sized(&mut rest);
        }
        record
    }

    /// The handle ID as recorded, including any text that follows a carriage return.
    pub fn handle(&self) -> Option<TextRef<'a>> {
        self.handle
    }

    /// The handle ID as Calico compares it: cut at the first carriage return (facts 3.13).
    pub fn clean_handle(&self) -> Option<TextRef<'a>> {
        self.handle.map(TextRef::cut_at_carriage_return)
    }

    /// Attributes of the active owner; empty if there are none.
    pub fn owner(&self) -> OwnerMap<'a> {
        self.owner.unwrap_or_default()
    }

    /// Attributes of the alternate owner; `None` if null or absent.
    pub fn alternate(&self) -> Option<OwnerMap<'a>> {
        self.alternate
    }

    /// The value of one attribute of the active owner.
    pub fn get(&self, key: &str) -> Option<TextRef<'a>> {
        self.owner().get(key)
    }

    /// `releasedAt` as recorded.
    pub fn released_at(&self) -> Option<TextRef<'a>> {
        self.released_at
    }

    /// The start of the cooldown, if it is a readable time.
    pub fn released_time(&self) -> Option<Timestamp> {
        parse_time(&self.released_at?.to_string())
    }

    /// True while the address is cooling down: it was released but is not free yet.
    pub fn is_cooling(&self) -> bool {
        self.released_at.is_some()
    }

    /// True for the ordinals that Windows reserves. Like Calico, ignores the handle's case.
    pub fn is_windows_reserved(&self) -> bool {
        self.handle.is_some_and(is_windows_reserved)
    }

    /// The unknown fields.
    pub(crate) fn unknown(&self) -> Unknown {
        if self.unknown.is_empty() {
            return Unknown::new();
        }
        serde_json::from_slice(self.unknown).unwrap_or_default()
    }

    /// True if the record has neither a handle nor attributes of an active owner. False for a cooling address.
    pub fn is_anonymous(&self) -> bool {
        self.handle.is_none_or(TextRef::is_empty) && self.owner().is_empty() && !self.is_cooling()
    }

    /// The time of the allocation, from the attribute `timestamp`.
    pub fn allocated_at(&self) -> Option<Timestamp> {
        let text = self.get("timestamp")?;
        match text.packed_time() {
            Some(nanos) => Timestamp::from_nanosecond(nanos.into()).ok(),
            None => parse_time(&text.to_string()),
        }
    }

    /// Returns a packed copy.
    pub fn to_packed(self) -> PackedAttribute {
        PackedAttribute(self.packed.into())
    }

    /// True if both records are equal, in whatever order their attributes are stored.
    pub fn is_same(self, other: AttributeRef<'_>) -> bool {
        // The bytes differ if a map's entries are in another order.
        self.packed == other.packed || self.to_attribute() == other.to_attribute()
    }

    /// Returns an unpacked copy.
    pub fn to_attribute(self) -> Attribute {
        Attribute {
            handle: self.handle.map(|handle| handle.to_string()),
            owner: self.owner.map(OwnerMap::to_map),
            alternate: self.alternate.map(OwnerMap::to_map),
            released_at: self.released_at.map(|time| time.to_string()),
            unknown: self.unknown(),
        }
    }
}

/// A packed owner record outside its block. Clones share the bytes.
#[derive(Clone)]
pub struct PackedAttribute(Arc<[u8]>);

impl PackedAttribute {
    pub fn as_ref(&self) -> AttributeRef<'_> {
        AttributeRef::read(&self.0)
    }
}

impl From<&Attribute> for PackedAttribute {
    fn from(attribute: &Attribute) -> Self {
        attribute.with_ref(|record| record.to_packed())
    }
}

impl From<Attribute> for PackedAttribute {
    fn from(attribute: Attribute) -> Self {
        Self::from(&attribute)
    }
}

impl PartialEq for PackedAttribute {
    fn eq(&self, other: &Self) -> bool {
        self.as_ref().is_same(other.as_ref())
    }
}

impl Eq for PackedAttribute {}

impl fmt::Debug for PackedAttribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_ref().to_attribute().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod() -> Attribute {
        Attribute::new(
            Some("k8s-pod-network.3f9a6c0b7d2e4f11a0c5b8d9e7f60123456789abcdef0123456789abcdef0123"),
            [
                ("pod", "web-0"),
                ("namespace", "default"),
                ("odd", ""),
                ("timestamp", "2026-05-01 10:12:00.5 +0000 UTC"),
            ],
        )
    }

    #[test]
    fn records_survive_packing() {
        let mut strange = Attribute {
            alternate: Some(BTreeMap::new()),
            ..Attribute::default()
        };
        let future = serde_json::json!({"x": [1, null]});
        strange
            .unknown
            .insert("future".into(), (&future).try_into().unwrap());
        let all = [
            pod(),
            Attribute::default(),
            Attribute::windows_reserved(),
            strange,
            Attribute::cooling(Timestamp::UNIX_EPOCH),
        ];
        let mut table = AttributeTable::default();
        for a in all.iter() {
            table.push(a);
        }
        let back: Vec<_> = table.iter().map(AttributeRef::to_attribute).collect();
        assert_eq!(back, all);
        table.retain(&[false, true, true, false, true]);
        let back: Vec<_> = table.iter().map(AttributeRef::to_attribute).collect();
        assert_eq!(back, [all[1].clone(), all[2].clone(), all[4].clone()]);
    }

    #[test]
    fn accessors_of_a_record() {
        let mut table = AttributeTable::default();
        table.push(&pod());
        table.push(&Attribute::windows_reserved());
        table.push(&Attribute::cooling(Timestamp::UNIX_EPOCH));
        table.push(&Attribute::default());
        let record = |i| table.get(i).unwrap();
        assert!(record(0).get("pod").unwrap() == *"web-0");
        assert!(record(0).get("node").is_none());
        assert_eq!(record(0).allocated_at(), "2026-05-01T10:12:00.5Z".parse().ok());
        assert!(record(1).is_windows_reserved() && !record(0).is_windows_reserved());
        assert!(record(2).is_cooling() && !record(2).is_anonymous());
        assert_eq!(record(2).released_time(), Some(Timestamp::UNIX_EPOCH));
        assert!(record(3).is_anonymous() && !record(0).is_anonymous());
    }

    #[test]
    fn packed_records_are_equal_in_any_order_of_entries() {
        let record = Attribute::new(
            Some("k8s-pod-network.3f9a"),
            [("pod", "web-0"), ("namespace", "default")],
        );
        let apart = PackedAttribute::from(&record);
        assert_eq!(apart.as_ref().to_attribute(), record);
        let mut table = AttributeTable::default();
        let owner = record.owner.as_ref().unwrap();
        let backwards = owner
            .iter()
            .rev()
            .map(|(key, value)| (key.as_str().into(), value.as_str()));
        table.push_parts(RecordParts {
            handle: record.handle.as_deref(),
            owner: Some(backwards),
            alternate: None,
            released_at: None,
            unknown: &Unknown::new(),
        });
        table.push(&Attribute {
            handle: None,
            ..record.clone()
        });
        let [turned, other] = [0, 1].map(|index| table.get(index).unwrap().to_packed());
        assert!(turned.0 != apart.0 && turned == apart && other != apart);
        assert_eq!(
            AttributeRef::default().to_packed(),
            PackedAttribute::from(Attribute::default())
        );
    }
}
