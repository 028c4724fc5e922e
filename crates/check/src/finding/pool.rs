//! Evidence about pools, and about a node's blocks in pools.

use std::fmt;
use std::net::IpAddr;

use calipam_model::display::{text, text_or_null};
use calipam_model::selector::SelectorError;
use serde::Serialize;

/// Evidence about a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolEvidence {
    pub name: String,
    /// Pools that overlap this pool, as `name CIDR`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<String>,
    /// The number of usable addresses that are allocated, cooling down or reserved for Windows.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "text_or_null")]
    pub in_use: Option<u128>,
    /// The number of addresses in `in_use` that are cooling down.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "text_or_null")]
    pub cooling: Option<u128>,
    /// The number of addresses in the pool, without those in IP reservations.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "text_or_null")]
    pub usable: Option<u128>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub invalid_selector: Option<InvalidSelector>,
    /// Addresses of the cluster's own nodes or services that the pool covers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub covers: Vec<Place>,
}

/// The address of a node or service, displayed as `address of name`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Place {
    pub address: IpAddr,
    /// The node's name, or `namespace/service`.
    pub name: String,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.address, self.name)
    }
}

/// A selector that Calico refuses.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct InvalidSelector {
    /// `nodeSelector` or `namespaceSelector`.
    pub field: &'static str,
    pub selector: String,
    /// The error in the selector.
    #[serde(serialize_with = "text")]
    pub reason: SelectorError,
}

/// Evidence about a node's blocks, by pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct NodeEvidence {
    pub pools: Vec<NodePoolEvidence>,
}

/// A node's blocks in a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodePoolEvidence {
    /// The pool's name.
    pub pool: String,
    /// The number of the node's blocks in the pool.
    pub blocks: u32,
    /// The block limit.
    pub limit: u32,
}
