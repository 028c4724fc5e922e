//! Calico's values as JSON, for tests that write objects by hand.

use ipnet::IpNet;
use serde_json::{Value, json};

/// A block with a record, or null for a free address, for each of its first ordinals. The other addresses are free.
/// Equal records are stored once, as Calico does.
pub fn block(cidr: &str, affinity: impl Into<Value>, records: impl IntoIterator<Item = Value>) -> Value {
    let net: IpNet = cidr.parse().expect("a CIDR");
    let size = 1_usize << (net.max_prefix_len() - net.prefix_len());
    let mut attributes = Vec::new();
    let mut allocations: Vec<Option<usize>> = Vec::new();
    for record in records {
        let place = attributes
            .iter()
            .position(|other| *other == record)
            .unwrap_or(attributes.len());
        allocations.push((!record.is_null()).then_some(place));
        if !record.is_null() && place == attributes.len() {
            attributes.push(record);
        }
    }
    assert!(allocations.len() <= size, "{cidr} has {size} addresses");
    allocations.resize(size, None);
    let free: Vec<usize> = (0..size)
        .filter(|ordinal| allocations[*ordinal].is_none())
        .collect();
    json!({"cidr": cidr, "affinity": affinity.into(), "allocations": allocations, "unallocated": free,
        "attributes": attributes})
}

/// The etcd key of a block.
pub fn block_key(cidr: &str) -> String {
    crate::cluster::wire::key::block(cidr.parse().expect("a CIDR"))
}

/// The etcd key of an affinity; `holder` is `host/<node>`, or has another type in place of `host`.
pub fn affinity_key(holder: &str, cidr: &str) -> String {
    let (kind, name) = holder.split_once('/').expect("a type and a name");
    crate::cluster::wire::key::affinity(kind, name, cidr.parse().expect("a CIDR"))
}

/// Records by ordinal, with nulls between them.
pub fn sparse(held: impl IntoIterator<Item = (usize, Value)>) -> Vec<Value> {
    let mut records = Vec::new();
    for (ordinal, record) in held {
        records.resize(records.len().max(ordinal + 1), Value::Null);
        records[ordinal] = record;
    }
    records
}
