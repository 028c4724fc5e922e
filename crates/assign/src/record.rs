//! The records that an allocator reads and writes.

use std::sync::Arc;

use calipam_model::affinity::Affinity;
use calipam_model::block::{Block, BlockContent};
use calipam_model::config::IpamConfig;
use calipam_model::handle::Handle;
use calipam_model::key::Key;
use calipam_model::node::Node;
use calipam_model::pool::{Pool, Reservation};
use calipam_model::writable::Object;
use calipam_model::{DecodeError, IpNet};

/// A record under its key. Only blocks, affinities, handles and the configuration are written; a [`Record::Host`] can
/// only be deleted.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    Block(Arc<Block>),
    /// A block of which only the key was read.
    BlockKey(IpNet),
    Affinity(Affinity),
    Handle(Handle),
    /// The configuration of the allocator: `/calico/ipam/v2/config`, or the Kubernetes object `default`.
    Config(IpamConfig),
    Pool(Pool),
    Reservation(Reservation),
    Node(Node),
    /// The leftover key `/calico/ipam/v2/host/<node>`.
    Host(String),
    /// A record that cannot be decoded, such as a broken block.
    Undecodable {
        key: Key,
        reason: String,
    },
}

impl Record {
    /// Decodes the value that etcd stores under `key`. `None` for keys that an allocator does not read.
    pub fn decode(key: &Key, value: &[u8]) -> Option<Self> {
        let record = match key {
            Key::Block(cidr) => block(*cidr, value),
            Key::Affinity(affinity) => Affinity::parse(affinity.clone(), value).map(Self::Affinity),
            Key::Handle(id) => Handle::parse(id, value).map(Self::Handle),
            Key::IpamConfig => IpamConfig::parse(value).map(Self::Config),
            Key::IpamConfiguration(_) => IpamConfig::parse_resource(value).map(Self::Config),
            Key::Pool(name) => Pool::parse(name, value).map(|pool| Self::Pool(pool.value)),
            Key::Reservation(name) => {
                Reservation::parse(name, value).map(|read| Self::Reservation(read.value))
            }
            Key::Node(name) => Node::parse(name, value).map(|node| Self::Node(node.value)),
            Key::IpamHost(name) => Ok(Self::Host(name.clone())),
            _ => return None,
        };
        Some(record.unwrap_or_else(|error| Self::Undecodable {
            key: key.clone(),
            reason: error.to_string(),
        }))
    }

    /// Encodes the record as its value in etcd. `None` for records that are never written.
    pub fn encode(&self) -> Option<Vec<u8>> {
        match self {
            Self::Block(block) => Some(Object::from(Block::clone(block)).encode()),
            Self::Affinity(affinity) => Some(Object::Affinity(affinity.clone()).encode()),
            Self::Handle(handle) => Some(Object::Handle(handle.clone()).encode()),
            Self::Config(config) => Some(config.encode()),
            Self::BlockKey(_)
            | Self::Pool(_)
            | Self::Reservation(_)
            | Self::Node(_)
            | Self::Host(_)
            | Self::Undecodable { .. } => None,
        }
    }

    /// Returns the key of the object.
    pub fn key(&self) -> Key {
        match self {
            Self::Block(block) => Key::Block(block.cidr()),
            Self::BlockKey(cidr) => Key::Block(*cidr),
            Self::Affinity(affinity) => Key::Affinity(affinity.key.clone()),
            Self::Handle(handle) => Key::Handle(handle.id().to_string()),
            Self::Config(_) => Key::IpamConfig,
            Self::Pool(pool) => Key::Pool(pool.name.clone()),
            Self::Reservation(reservation) => Key::Reservation(reservation.name.clone()),
            Self::Node(node) => Key::Node(node.name.clone()),
            Self::Host(name) => Key::IpamHost(name.clone()),
            Self::Undecodable { key, .. } => key.clone(),
        }
    }
}

/// Takes the value out of a record; `None` for records of another kind.
macro_rules! from_record {
    ($($kind:ident($value:ident) => $type:ty: $take:expr;)+) => {$(
        impl From<Record> for Option<$type> {
            fn from(record: Record) -> Self {
                if let Record::$kind($value) = record { Some($take) } else { None }
            }
        }
    )+};
}

from_record! {
    Block(block) => Block: Arc::unwrap_or_clone(block);
    Affinity(affinity) => Affinity: affinity;
    Handle(handle) => Handle: handle;
    Config(config) => IpamConfig: config;
    Pool(pool) => Pool: pool;
    Reservation(reservation) => Reservation: reservation;
    Node(node) => Node: node;
}

/// Decodes a block, which must be usable and have the CIDR of its key.
fn block(key: IpNet, value: &[u8]) -> Result<Record, DecodeError> {
    let block = BlockContent::parse(value)?.into_usable()?;
    if block.cidr() != key {
        return Err(DecodeError::another_block(block.cidr()));
    }
    Ok(Record::Block(Arc::from(block)))
}
