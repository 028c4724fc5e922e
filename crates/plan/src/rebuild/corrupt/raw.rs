//! The JSON of a corrupt block, field by field.

use calipam_model::IpNet;
use calipam_model::block::{Block, BlockContent};
use calipam_model::cidr::size;
use calipam_model::time::{CLOCK_SKEW, format_seconds, parse_time};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::beyond;
use crate::skipped::Result;

/// The number of addresses in the largest block that Calico allows.
const MOST: usize = 4096;

/// The state of an ordinal after the repair of its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    Free,
    /// Held by the record with this index.
    Held(usize),
    /// Held for an unknown owner. The ordinal gets an empty record, which is released only by hand.
    Unknown,
}

/// The fields of a block as they are stored.
pub(super) struct RawBlock {
    key: IpNet,
    pub fields: Map<String, Value>,
    /// The number of addresses in the block.
    pub size: u32,
    /// The array as it is stored, of any length.
    pub allocations: Vec<Option<i64>>,
    /// Ordinals that are listed as free, each once, in their order.
    pub free: Vec<u32>,
    pub attributes: Vec<Value>,
}

impl RawBlock {
    /// Takes a corrupt block's lists from its JSON. Ordinals outside of the block are left out.
    pub(super) fn new(key: IpNet, content: &BlockContent) -> Result<Self> {
        let value = match content {
            BlockContent::Sound(block) => serde_json::to_value(block).ok(),
            BlockContent::Corrupt(block) => serde_json::from_str(&block.raw).ok(),
        };

        let Some(Value::Object(mut fields)) = value else {
            return Err(beyond(format!(
                "{key} is no longer a JSON object; delete it by hand"
            )));
        };

        let size = size(key).min(MOST as u128) as u32;
        let mut list = |name: &str| match take_fields(&mut fields, name) {
            Some(Value::Array(items)) => items,
            _ => Vec::new(),
        };

        let allocations = list("allocations").iter().map(Value::as_i64).collect();
        let attributes = list("attributes");
        let free = ordinals_in_block(&list("unallocated"), size);
        Ok(Self {
            key,
            fields,
            size,
            allocations,
            free,
            attributes,
        })
    }

    /// Creates a block that contains only the owner records, in order to decode them. Refuses more records than the
    /// largest block has addresses: they cannot all be in use.
    pub(super) fn records(&self) -> Result<Block> {
        if self.attributes.len() > MOST {
            return Err(beyond(format!(
                "{} has {} owner records, more than any block can use",
                self.key,
                self.attributes.len()
            )));
        }

        // The largest block, whose first ordinals have one record each.
        let number = self.attributes.len();
        let mut allocations: Vec<Option<usize>> = (0..number).map(Some).collect();
        allocations.resize(MOST, None);
        let free: Vec<usize> = (number..MOST).collect();
        let scratch = json!({
            "cidr": "0.0.0.0/20", "allocations": allocations, "unallocated": free, "attributes": self.attributes,
        });
        match BlockContent::parse(scratch.to_string().as_bytes()) {
            Ok(BlockContent::Sound(block)) => Ok(*block),
            _ => Err(beyond(format!(
                "the owner records of {} cannot be read",
                self.key
            ))),
        }
    }

    /// Returns the free ordinals: first those in the block's list, in its order, then those that it lacks.
    fn free_ordinals(&self, slots: &[Slot]) -> Vec<u32> {
        let is_free = |ordinal: &u32| slots[*ordinal as usize] == Slot::Free;
        let mut ordinals: Vec<u32> = self.free.iter().copied().filter(is_free).collect();
        let missing = (0..self.size).filter(|ordinal| !self.free.contains(ordinal));
        ordinals.extend(missing.filter(is_free));
        ordinals
    }

    /// Replaces the lists with those that the slots make, and `cidr` with the key. Other fields stay unchanged.
    pub(super) fn write(&mut self, slots: &[Slot], now: Timestamp) {
        // Records that no ordinal refers to are left out, so the others move forward.
        let mut new_indices = vec![None; self.attributes.len()];
        let mut kept = Vec::new();
        for slot in slots {
            if let Slot::Held(index) = slot
                && new_indices[*index].is_none()
            {
                new_indices[*index] = Some(kept.len());
                kept.push(not_in_future(self.attributes[*index].clone(), now));
            }
        }

        // All ordinals with an unknown owner share an empty record.
        let empty_record = kept.len();
        if slots.contains(&Slot::Unknown) {
            kept.push(json!({}));
        }

        let mut allocations: Vec<Option<usize>> = Vec::new();
        for slot in slots {
            allocations.push(match slot {
                Slot::Held(index) => new_indices[*index],
                Slot::Unknown => Some(empty_record),
                Slot::Free => None,
            });
        }

        let unallocated = self.free_ordinals(slots);
        // Go would also read a field whose name is in another case.
        take_fields(&mut self.fields, "cidr");
        let lists = [
            ("cidr", json!(self.key)),
            ("allocations", json!(allocations)),
            ("unallocated", json!(unallocated)),
            ("attributes", json!(kept)),
        ];
        for (name, value) in lists {
            self.fields.insert(name.to_owned(), value);
        }
    }
}

/// Returns the ordinals in a list that are in a block of this size, each of them once.
fn ordinals_in_block(list: &[Value], size: u32) -> Vec<u32> {
    let mut ordinals = Vec::new();
    for listed in list.iter().filter_map(Value::as_u64) {
        if let Ok(ordinal) = u32::try_from(listed)
            && ordinal < size
            && !ordinals.contains(&ordinal)
        {
            ordinals.push(ordinal);
        }
    }
    ordinals
}

/// Removes the fields whose names equal `name` apart from case, since Go's decoder accepts all of them. Returns the
/// last one.
fn take_fields(fields: &mut Map<String, Value>, name: &str) -> Option<Value> {
    let mut names: Vec<String> = fields.keys().cloned().collect();
    names.retain(|key| key.eq_ignore_ascii_case(name));

    let mut last = None;
    for name in names {
        last = fields.remove(&name);
    }
    last
}

/// Changes a record with a future release time so that its cooldown starts now.
fn not_in_future(mut record: Value, now: Timestamp) -> Value {
    let limit = now.saturating_add(CLOCK_SKEW).unwrap_or(Timestamp::MAX);
    for (name, value) in record.as_object_mut().into_iter().flatten() {
        if !name.eq_ignore_ascii_case("releasedAt") {
            continue;
        }
        if let Some(time) = value.as_str().and_then(parse_time)
            && time > limit
        {
            *value = json!(format_seconds(now));
        }
    }
    record
}
