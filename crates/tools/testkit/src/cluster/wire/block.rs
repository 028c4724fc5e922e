//! Blocks, with as much of Calico's arithmetic as a generator needs (facts 1.3, 3.1–3.10).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::go_json;

/// Entries of an owner record.
pub type Entries = BTreeMap<String, String>;

/// The version of Calico that wrote a block, which determines the block's fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Era {
    /// 3.33 and later.
    #[default]
    Current,
    /// 3.22.2 to 3.31: `null` for absent parts of an owner record.
    Numbered,
    /// 3.14 to 3.22.1: no sequence numbers.
    Unnumbered,
    /// 2.x to 3.13: `strictAffinity`, and no `deleted`.
    Legacy,
}

/// An owner record.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Attribute {
    #[serde(rename = "handle_id", skip_serializing_if = "Option::is_none")]
    pub handle: Option<String>,
    #[serde(rename = "secondary", skip_serializing_if = "Option::is_none")]
    pub owner: Option<Entries>,
    #[serde(rename = "alternateOwnerAttrs", skip_serializing_if = "Option::is_none")]
    pub alternate: Option<Entries>,
    #[serde(rename = "releasedAt", skip_serializing_if = "Option::is_none")]
    pub released_at: Option<String>,
}

impl Attribute {
    /// Creates a record with a handle and attributes.
    pub fn new<'a>(handle: &str, entries: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let owner = entries
            .into_iter()
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .collect();
        Self {
            handle: Some(handle.to_owned()),
            owner: Some(owner),
            ..Self::default()
        }
    }

    /// Creates a record with only a handle.
    pub fn bare(handle: &str) -> Self {
        Self {
            handle: Some(handle.to_owned()),
            ..Self::default()
        }
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.owner.as_ref()?.get(name).map(String::as_str)
    }

    pub fn set(&mut self, name: &str, value: &str) {
        self.owner
            .get_or_insert_default()
            .insert(name.to_owned(), value.to_owned());
    }
}

/// The value of a block. All fields are public, so that a fault can break any of them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Block {
    /// The CIDR in the value, which may differ from the key.
    pub cidr: IpNet,
    /// `host:<node>`, `virtual:<name>` or none.
    pub affinity: Option<String>,
    /// The time of the claim.
    #[serde(rename = "affinity_claim_time", skip_serializing_if = "Option::is_none")]
    pub claim_time: Option<String>,
    /// Indices of records, by ordinal.
    pub allocations: Vec<Option<i64>>,
    /// Free ordinals.
    pub unallocated: Vec<i64>,
    /// Owner records.
    #[serde(default)]
    pub attributes: Vec<Attribute>,
    #[serde(rename = "sequenceNumber", default)]
    pub sequence: u64,
    /// Per-ordinal sequence numbers.
    #[serde(rename = "sequenceNumberForAllocation", default)]
    pub sequences: BTreeMap<String, u64>,
    /// True if the block is about to be deleted.
    #[serde(default)]
    pub deleted: bool,
    #[serde(skip)]
    pub era: Era,
}

impl Block {
    /// Creates an empty block. `sequence` is the current time in nanoseconds.
    pub fn new(cidr: IpNet, affinity: Option<String>, claim_time: Option<String>, sequence: u64) -> Self {
        let size = 1_i64 << (cidr.max_prefix_len() - cidr.prefix_len());
        Self {
            cidr,
            affinity,
            claim_time,
            allocations: vec![None; size as usize],
            unallocated: (0..size).collect(),
            attributes: Vec::new(),
            sequence,
            sequences: BTreeMap::new(),
            deleted: false,
            era: Era::Current,
        }
    }

    /// Reads a value; `None` if it is not a block. The era is always the current one.
    pub fn read(value: &[u8]) -> Option<Self> {
        let mut fields: Value = serde_json::from_slice(value).ok()?;
        fields.as_object_mut()?.retain(|_, field| !field.is_null());
        let mut block: Self = serde_json::from_value(fields).ok()?;
        for record in &mut block.attributes {
            record.owner.take_if(|entries| entries.is_empty());
        }
        Some(block)
    }

    /// The bytes that Calico stores.
    pub fn value(&self) -> Vec<u8> {
        let mut value = json!(self);
        if self.era != Era::Current {
            let fields = value.as_object_mut().expect("a block is an object");
            fields.remove("affinity_claim_time");
            let is_numbered = self.era == Era::Numbered;
            fields.retain(|name, _| is_numbered || !name.starts_with("sequenceNumber"));
            if self.era == Era::Legacy {
                fields.remove("deleted");
                fields.insert("strictAffinity".to_owned(), false.into());
            }
            let records = fields["attributes"].as_array_mut().into_iter().flatten();
            for record in records.filter_map(Value::as_object_mut) {
                record.entry("handle_id").or_insert(Value::Null);
                record.entry("secondary").or_insert(Value::Null);
            }
        }
        go_json(&value)
    }

    pub fn address(&self, ordinal: usize) -> IpAddr {
        match self.cidr {
            IpNet::V4(net) => IpAddr::V4((u32::from(net.network()) + ordinal as u32).into()),
            IpNet::V6(net) => IpAddr::V6((u128::from(net.network()) + ordinal as u128).into()),
        }
    }

    /// The ordinal of an address, which must be in the block.
    pub fn ordinal(&self, address: IpAddr) -> usize {
        match (self.cidr, address) {
            (IpNet::V4(net), IpAddr::V4(a)) => (u32::from(a) - u32::from(net.network())) as usize,
            (IpNet::V6(net), IpAddr::V6(a)) => (u128::from(a) - u128::from(net.network())) as usize,
            _ => panic!("{address} is not in {}", self.cidr),
        }
    }

    /// Takes `count` addresses from the head of the free list in one update.
    pub fn take(&mut self, count: usize, attribute: Attribute) -> Vec<IpAddr> {
        assert!(
            self.unallocated.len() >= count,
            "{} has no {count} free addresses",
            self.cidr
        );
        let taken: Vec<usize> = self.unallocated.drain(..count).map(|o| o as usize).collect();
        let index = self.index_of(attribute);
        self.record(&taken, index);
        taken.into_iter().map(|ordinal| self.address(ordinal)).collect()
    }

    /// Takes an ordinal, which must be free.
    pub fn take_ordinal(&mut self, ordinal: usize, attribute: Attribute) -> IpAddr {
        let place = self.unallocated.iter().position(|o| *o == ordinal as i64);
        let place = place.unwrap_or_else(|| panic!("ordinal {ordinal} of {} is taken", self.cidr));
        let ordinal_number = self.unallocated.remove(place);
        self.unallocated.insert(0, ordinal_number);
        self.take(1, attribute)[0]
    }

    /// Sets the record of ordinals in one update.
    fn record(&mut self, ordinals: &[usize], index: i64) {
        for ordinal in ordinals {
            self.allocations[*ordinal] = Some(index);
            self.sequences.insert(ordinal.to_string(), self.sequence);
        }
        self.sequence += 1;
    }

    fn index_of(&mut self, attribute: Attribute) -> i64 {
        if let Some(index) = self.attributes.iter().position(|a| *a == attribute) {
            return index as i64;
        }
        self.attributes.push(attribute);
        self.attributes.len() as i64 - 1
    }

    pub fn free(&mut self, address: IpAddr) {
        self.free_all(&[address]);
    }

    /// Frees addresses in one update.
    pub fn free_all(&mut self, addresses: &[IpAddr]) {
        for address in addresses {
            let ordinal = self.ordinal(*address);
            self.allocations[ordinal] = None;
            self.unallocated.push(ordinal as i64);
            self.sequences.remove(&ordinal.to_string());
        }
        self.sequence += 1;
        self.compact();
    }

    /// Makes addresses cool down, starting at `released_at`.
    pub fn cool(&mut self, addresses: &[IpAddr], released_at: &str) {
        let cooling = Attribute {
            released_at: Some(released_at.to_owned()),
            ..Attribute::default()
        };
        self.attributes.push(cooling);
        let index = self.attributes.len() as i64 - 1;
        let ordinals: Vec<usize> = addresses.iter().map(|address| self.ordinal(*address)).collect();
        self.record(&ordinals, index);
        self.compact();
    }

    /// Reserves the ordinals that Windows nodes reserve: the first three and the last one.
    pub fn reserve_for_windows(&mut self) {
        let last = self.allocations.len() - 1;
        self.attributes.push(Attribute::new(
            "windows-reserved-ipam-handle",
            [("note", "windows host rsvd")],
        ));
        for ordinal in [0, 1, 2, last] {
            self.allocations[ordinal] = Some(0);
        }
        self.unallocated.retain(|o| *o > 2 && *o < last as i64);
    }

    /// The owner record of an allocated address. Addresses can share a record. Use this only for an address that does
    /// not.
    pub fn record_mut(&mut self, address: IpAddr) -> &mut Attribute {
        let index = self.allocations[self.ordinal(address)].unwrap_or_else(|| panic!("{address} is free"));
        &mut self.attributes[index as usize]
    }

    /// Every allocated address with its record, except broken entries.
    pub fn records(&self) -> impl Iterator<Item = (IpAddr, &Attribute)> {
        let known = |(ordinal, index): (usize, &Option<i64>)| {
            let record = self.attributes.get(usize::try_from((*index)?).ok()?)?;
            Some((self.address(ordinal), record))
        };
        self.allocations.iter().enumerate().filter_map(known)
    }

    fn compact(&mut self) {
        let used: BTreeSet<i64> = self.allocations.iter().flatten().copied().collect();
        let new_index = |old: i64| used.iter().position(|u| *u == old).map(|i| i as i64);
        for slot in &mut self.allocations {
            *slot = slot.and_then(new_index);
        }
        let mut index = -1;
        self.attributes.retain(|_| {
            index += 1;
            used.contains(&index)
        });
    }
}
