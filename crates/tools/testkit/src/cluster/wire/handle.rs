//! Values of handles and affinities (facts 1.4, 1.5).

use std::collections::BTreeMap;

use ipnet::IpNet;
use serde::Serialize;

/// The value of a handle.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Handle {
    /// Number of addresses in each block.
    pub block: BTreeMap<String, i64>,
    /// Always false in etcd.
    pub deleted: bool,
}

impl Handle {
    /// Adds `by` to the count of a block, and removes the entry if the count reaches 0.
    pub fn add(&mut self, block: IpNet, by: i64) {
        let count = self.block.entry(block.to_string()).or_default();
        *count += by;
        if *count == 0 {
            self.block.remove(&block.to_string());
        }
    }
}

/// The value of an affinity.
pub fn affinity(state: &str) -> Vec<u8> {
    format!(r#"{{"state":"{state}","deleted":false}}"#).into_bytes()
}
