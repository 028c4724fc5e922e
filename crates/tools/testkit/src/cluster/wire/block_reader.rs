//! Reads blocks.

use std::collections::BTreeMap;

use ipnet::IpNet;
use serde::Deserialize;

use super::{Attribute, Block, Entries, Era};

#[derive(Deserialize)]
struct Stored {
    cidr: IpNet,
    affinity: Option<String>,
    affinity_claim_time: Option<String>,
    allocations: Vec<Option<i64>>,
    unallocated: Vec<i64>,
    attributes: Option<Vec<StoredAttribute>>,
    #[serde(rename = "sequenceNumber", default)]
    sequence: u64,
    #[serde(rename = "sequenceNumberForAllocation")]
    sequences: Option<BTreeMap<String, u64>>,
}

#[derive(Deserialize)]
struct StoredAttribute {
    handle_id: Option<String>,
    secondary: Option<Entries>,
    #[serde(rename = "alternateOwnerAttrs")]
    alternate: Option<Entries>,
    #[serde(rename = "releasedAt")]
    released_at: Option<String>,
}

impl Block {
    /// Reads a value; `None` if it is not a block. The era is always the current one.
    pub fn read(value: &[u8]) -> Option<Self> {
        let stored: Stored = serde_json::from_slice(value).ok()?;
        let attribute = |a: StoredAttribute| Attribute {
            handle: a.handle_id,
            owner: a.secondary.filter(|entries| !entries.is_empty()),
            alternate: a.alternate,
            released_at: a.released_at,
        };
        Some(Self {
            cidr: stored.cidr,
            affinity: stored.affinity,
            claim_time: stored.affinity_claim_time,
            allocations: stored.allocations,
            unallocated: stored.unallocated,
            attributes: stored.attributes.unwrap_or_default().into_iter().map(attribute).collect(),
            sequence: stored.sequence,
            sequences: stored.sequences.unwrap_or_default(),
            era: Era::Current,
        })
    }
}
