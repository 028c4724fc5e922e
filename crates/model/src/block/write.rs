//! Writes a block as Calico does in etcd: fields in Calico's order, then unknown fields.

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::Block;
use crate::attributes::{Attribute, AttributeRef, OwnerMap};
use crate::text::TextRef;

impl Serialize for Block {
    /// Writes the block in the order of Go's fields.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("cidr", &self.cidr)?;
        map.serialize_entry("affinity", &self.owner.as_ref().map(ToString::to_string))?;
        if let Some(time) = &self.claim_time {
            map.serialize_entry("affinity_claim_time", time)?;
        }
        map.serialize_entry("allocations", &self.allocations)?;
        map.serialize_entry("unallocated", &self.unallocated)?;
        let records = (!self.null_attributes).then_some(Records(self));
        map.serialize_entry("attributes", &records)?;
        map.serialize_entry("sequenceNumber", &self.sequence)?;
        let sequences = (!self.null_sequences).then_some(Sequences(self));
        map.serialize_entry("sequenceNumberForAllocation", &sequences)?;
        map.serialize_entry("deleted", &self.deleted)?;
        for (name, value) in self.unknown() {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl Block {
    /// True if both blocks are the same, apart from the sequence numbers of the block and its addresses, which may
    /// differ.
    pub fn differs_only_in_sequences(&self, other: &Self) -> bool {
        // Names all fields, so that a new one cannot be forgotten here.
        let Self {
            cidr,
            owner,
            claim_time,
            allocations,
            unallocated,
            attributes,
            deleted,
            null_attributes,
            // Of these, the unknown fields are compared, but not the sequence numbers.
            extras: _,
            sequence: _,
            sequences: _,
            null_sequences: _,
        } = self;
        *cidr == other.cidr
            && *owner == other.owner
            && *claim_time == other.claim_time
            && *allocations == other.allocations
            && *unallocated == other.unallocated
            && *attributes == other.attributes
            && *deleted == other.deleted
            && *null_attributes == other.null_attributes
            && self.unknown() == other.unknown()
    }
}

/// A block's owner records, serialized in place.
struct Records<'a>(&'a Block);

impl Serialize for Records<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.attributes())
    }
}

impl Serialize for Attribute {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.with_ref(|record| record.serialize(serializer))
    }
}

impl Serialize for AttributeRef<'_> {
    /// Writes a record without its empty parts.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if let Some(handle) = self.handle() {
            map.serialize_entry("handle_id", &Plain(handle))?;
        }
        if !self.owner().is_empty() {
            map.serialize_entry("secondary", &Entries(self.owner()))?;
        }
        if let Some(alternate) = self.alternate()
            && !alternate.is_empty()
        {
            map.serialize_entry("alternateOwnerAttrs", &Entries(alternate))?;
        }
        if let Some(released_at) = self.released_at() {
            map.serialize_entry("releasedAt", &Plain(released_at))?;
        }
        for (name, value) in self.unknown() {
            map.serialize_entry(&name, &value)?;
        }
        map.end()
    }
}

/// A text, unpacked piece by piece into the JSON. A copy of each would take as long as the rest of the block.
struct Plain<'a>(TextRef<'a>);

impl Serialize for Plain<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// An owner's attributes, sorted by key as in Go's JSON.
struct Entries<'a>(OwnerMap<'a>);

impl Serialize for Entries<'_> {
    /// Writes attributes sorted by key, as Go does.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut entries = Vec::new();
        for (key, value) in self.0.iter() {
            entries.push((key.plain(), Plain(value)));
        }
        entries.sort_by(|(key, _), (other, _)| key.cmp(other));
        serializer.collect_map(entries)
    }
}

/// `sequenceNumberForAllocation`: keys are decimal strings, sorted bytewise as in Go's JSON.
struct Sequences<'a>(&'a Block);

impl Serialize for Sequences<'_> {
    /// Writes the sequence numbers sorted by ordinal as text, as Go does.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let block = self.0;
        let mut entries: Vec<(String, u64)> = Vec::new();
        for (ordinal, number) in &block.sequences {
            entries.push((ordinal.to_string(), *number));
        }
        if let Some(extras) = &block.extras {
            entries.extend(extras.stray_sequences.iter().cloned());
        }
        entries.sort();
        serializer.collect_map(entries)
    }
}
