//! The values of blocks as Calico writes them.

use std::collections::BTreeMap;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::{Attribute, Block, Entries, Era, go_json};

/// A block with its fields in Calico's order. A field that the writer's version does not have is `None`.
#[derive(Serialize, Deserialize)]
struct Stored {
    cidr: IpNet,
    affinity: Option<String>,
    #[serde(rename = "strictAffinity", skip_serializing_if = "Option::is_none")]
    strict_affinity: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    affinity_claim_time: Option<String>,
    allocations: Vec<Option<i64>>,
    unallocated: Vec<i64>,
    attributes: Option<Vec<Record>>,
    #[serde(rename = "sequenceNumber", skip_serializing_if = "Option::is_none")]
    sequence: Option<u64>,
    #[serde(rename = "sequenceNumberForAllocation", skip_serializing_if = "Option::is_none")]
    sequences: Option<BTreeMap<String, u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deleted: Option<bool>,
}

/// An owner record. Early versions wrote `null` for a part that is absent, which is the inner `None`.
#[derive(Serialize, Deserialize)]
struct Record {
    #[serde(skip_serializing_if = "Option::is_none")]
    handle_id: Option<Option<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    secondary: Option<Option<Entries>>,
    #[serde(rename = "alternateOwnerAttrs", skip_serializing_if = "Option::is_none")]
    alternate: Option<Entries>,
    #[serde(rename = "releasedAt", skip_serializing_if = "Option::is_none")]
    released_at: Option<String>,
}

impl Block {
    /// The bytes that Calico stores.
    pub fn value(&self) -> Vec<u8> {
        let is_numbered = matches!(self.era, Era::Current | Era::Numbered);
        let records = self.attributes.iter().map(|record| Record {
            handle_id: (record.handle.is_some() || self.era != Era::Current).then(|| record.handle.clone()),
            secondary: (record.owner.is_some() || self.era != Era::Current).then(|| record.owner.clone()),
            alternate: record.alternate.clone(),
            released_at: record.released_at.clone(),
        });
        go_json(&Stored {
            cidr: self.cidr,
            affinity: self.affinity.clone(),
            strict_affinity: (self.era == Era::Legacy).then_some(false),
            affinity_claim_time: self.claim_time.clone().filter(|_| self.era == Era::Current),
            allocations: self.allocations.clone(),
            unallocated: self.unallocated.clone(),
            attributes: Some(records.collect()),
            sequence: is_numbered.then_some(self.sequence),
            sequences: is_numbered.then(|| self.sequences.clone()),
            deleted: (self.era != Era::Legacy).then_some(false),
        })
    }

    /// Reads a value; `None` if it is not a block. The era is always the current one.
    pub fn read(value: &[u8]) -> Option<Self> {
        let stored: Stored = serde_json::from_slice(value).ok()?;
        let attribute = |record: Record| Attribute {
            handle: record.handle_id.flatten(),
            owner: record.secondary.flatten().filter(|entries| !entries.is_empty()),
            alternate: record.alternate,
            released_at: record.released_at,
        };
        Some(Self {
            cidr: stored.cidr,
            affinity: stored.affinity,
            claim_time: stored.affinity_claim_time,
            allocations: stored.allocations,
            unallocated: stored.unallocated,
            attributes: stored.attributes.unwrap_or_default().into_iter().map(attribute).collect(),
            sequence: stored.sequence.unwrap_or_default(),
            sequences: stored.sequences.unwrap_or_default(),
            era: Era::Current,
        })
    }
}
