//! Block affinities: each records that a node (or virtual owner) holds a block (facts 1.2, 1.4, 3.9).

use std::fmt;

use data_encoding::BASE32_NOPAD;
use ipnet::IpNet;
use serde::de::MapAccess;
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::DecodeError;
use crate::block::BlockOwner;
use crate::cidr::is_v4;
use crate::digest;
use crate::json::{Fields, Unknown, is_field, keep_unknown, read_object, set_unless_null};
use crate::stored::{Revision, Versioned};

/// The virtual owner of blocks from which Calico assigns service addresses.
pub const LOAD_BALANCER: &str = "load-balancer";

/// The kind of holder: a segment of the key in etcd, or `spec.type` on Kubernetes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AffinityType {
    /// A node. The empty type also means a node.
    #[default]
    Host,
    /// Something other than a node, such as `load-balancer`.
    Virtual,
    /// Any other type, such as the `@` that Calico reads but never writes.
    Other(String),
}

impl AffinityType {
    /// Reads a type; an empty one is [`Self::Host`].
    pub fn parse(text: &str) -> Self {
        match text {
            "" | "host" => Self::Host,
            "virtual" => Self::Virtual,
            other => Self::Other(other.to_owned()),
        }
    }

    /// The holder of this type with a name, in the form of the field `affinity` in blocks.
    pub fn owner(&self, name: &str) -> BlockOwner {
        match self {
            Self::Host => BlockOwner::Host(name.to_owned()),
            Self::Virtual => BlockOwner::Virtual(name.to_owned()),
            Self::Other(kind) => BlockOwner::Other(format!("{kind}:{name}")),
        }
    }
}

impl fmt::Display for AffinityType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "host",
            Self::Virtual => "virtual",
            Self::Other(text) => text,
        })
    }
}

/// The name of the label that holds the [`AffinityType`].
pub const AFFINITY_TYPE: &str = "projectcalico.org/affinity-type";

/// Names and values of the labels by which Calico 3.31 and later finds affinities on Kubernetes.
pub type AffinityLabels = [(&'static str, String); 3];

/// The holder of an affinity, and the block that it holds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AffinityKey {
    pub kind: AffinityType,
    /// The node's name, or the name of the virtual owner.
    pub node: String,
    pub cidr: IpNet,
}

impl AffinityKey {
    /// The key of the affinity by which an owner holds a block; `None` if the owner is neither a node nor virtual.
    pub fn of_owner(owner: &BlockOwner, cidr: IpNet) -> Option<Self> {
        let (kind, node) = match owner {
            BlockOwner::Host(node) => (AffinityType::Host, node.clone()),
            BlockOwner::Virtual(name) => (AffinityType::Virtual, name.clone()),
            BlockOwner::Other(_) => return None,
        };
        Some(Self { kind, node, cidr })
    }

    /// The holder, in the form of the field `affinity` in blocks.
    pub fn owner(&self) -> BlockOwner {
        self.kind.owner(&self.node)
    }

    /// True if `owner`, the owner recorded in a block, is the holder of this affinity.
    pub fn is_of(&self, owner: Option<&BlockOwner>) -> bool {
        match (&self.kind, owner) {
            (AffinityType::Host, Some(BlockOwner::Host(node))) => self.node == *node,
            (AffinityType::Virtual, Some(BlockOwner::Virtual(name))) => self.node == *name,
            (AffinityType::Other(_), Some(owner)) => self.owner() == *owner,
            _ => false,
        }
    }

    /// Returns the labels of the affinity object (facts 2.5).
    pub fn labels(&self) -> AffinityLabels {
        let hostname_hash = BASE32_NOPAD.encode(&digest::sha3_256(self.node.as_bytes()));
        let ip_version = if is_v4(self.cidr) { "4" } else { "6" };
        [
            (AFFINITY_TYPE, self.kind.to_string()),
            ("projectcalico.org/hostname-hash", hostname_hash),
            ("projectcalico.org/ip-version", ip_version.to_owned()),
        ]
    }
}

impl Versioned<Affinity> {
    /// Returns the names of the labels that the object lacks, or that have another value than Calico selects affinities
    /// by (facts 2.5). Empty on etcd, where affinities are found by their keys.
    pub fn wrong_labels(&self) -> Vec<&'static str> {
        let Revision::Kubernetes(version) = &self.revision else {
            return Vec::new();
        };
        let mut wrong_names = Vec::new();
        for (name, value) in self.value.key.labels() {
            if version.labels.get(name) != Some(&value) {
                wrong_names.push(name);
            }
        }
        wrong_names
    }
}

impl fmt::Display for AffinityKey {
    /// Prints the form used in findings: `node-1/10.244.1.0/26`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.node, self.cidr)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum AffinityState {
    /// The holder owns the block. Old data can have an empty state instead, which means the same.
    #[default]
    Confirmed,
    /// The holder is about to claim the block.
    Pending,
    /// The holder is about to release the block.
    PendingDeletion,
    /// Any other state.
    Other(String),
}

impl AffinityState {
    /// Reads a state; an empty one is [`Self::Confirmed`].
    pub fn parse(text: &str) -> Self {
        match text {
            "" | "confirmed" => Self::Confirmed,
            "pending" => Self::Pending,
            "pendingDeletion" => Self::PendingDeletion,
            other => Self::Other(other.to_owned()),
        }
    }
}

impl fmt::Display for AffinityState {
    /// Writes the state as Calico stores it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Confirmed => "confirmed",
            Self::Pending => "pending",
            Self::PendingDeletion => "pendingDeletion",
            Self::Other(text) => text,
        })
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Affinity {
    /// Holder and block.
    pub key: AffinityKey,
    pub state: AffinityState,
    /// True if the record has no state, or an empty one. This counts as [`AffinityState::Confirmed`], but when the
    /// holder claims the block again, Calico marks the affinity as pending, as it does with every unconfirmed state.
    pub is_unstated: bool,
    /// True if the affinity is marked as deleted. On Kubernetes, this is the first of the two writes with which Calico
    /// deletes an object.
    pub deleted: bool,
    /// Unknown fields, kept for the next write.
    pub unknown: Option<Box<Unknown>>,
}

impl Affinity {
    /// Creates an affinity in a state, as Calico writes it.
    pub fn new(key: AffinityKey, state: AffinityState) -> Self {
        Self {
            key,
            state,
            is_unstated: false,
            deleted: false,
            unknown: None,
        }
    }

    /// Reads the value in etcd. An empty value, which the oldest Calico versions wrote, reads as `{}`.
    pub fn parse(key: AffinityKey, json: &[u8]) -> Result<Self, DecodeError> {
        let without_fields = || Self {
            is_unstated: true,
            ..Self::new(key.clone(), AffinityState::default())
        };
        if json.is_empty() {
            return Ok(without_fields());
        }
        read_object(json, without_fields).map_err(DecodeError::from)
    }
}

impl<'de> Fields<'de> for Affinity {
    /// Reads a field of an affinity. An empty state is kept as unstated.
    fn field<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        if is_field(name, "state") {
            let mut state = if self.is_unstated {
                String::new()
            } else {
                self.state.to_string()
            };
            set_unless_null(&mut state, map)?;
            self.is_unstated = state.is_empty();
            self.state = AffinityState::parse(&state);
            Ok(())
        } else if is_field(name, "deleted") {
            set_unless_null(&mut self.deleted, map)
        } else {
            keep_unknown(&mut self.unknown, name, map)
        }
    }
}

impl Serialize for Affinity {
    /// Writes the etcd form. It does not contain the holder and the block, which are in the key.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("state", &self.state.to_string())?;
        map.serialize_entry("deleted", &self.deleted)?;
        for (name, value) in self.unknown.iter().flat_map(|unknown| unknown.iter()) {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_values_of_the_facts() {
        for (node, hash) in [
            ("node-1", "A3XPYDATRKB7Q4SM2O5FN4RXIHBFIL2PITFX26BAIP5XAB2X74CA"),
            (
                "load-balancer",
                "TAU2RK2F2FG7MIS72DPZYC6FJ3U3BIWIDZAMUTQY7ZXMSKQZ5GSQ",
            ),
        ] {
            let cidr = "10.244.1.0/29".parse().unwrap();
            let key = AffinityKey {
                kind: AffinityType::Virtual,
                node: node.into(),
                cidr,
            };
            let labels = key.labels();
            let expected = (hash, "virtual", "4");
            assert_eq!(
                (labels[1].1.as_str(), labels[0].1.as_str(), labels[2].1.as_str()),
                expected
            );
        }
    }
}
