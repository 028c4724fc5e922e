//! The objects that a repair changes, in Calico's form for etcd.

use crate::DecodeError;
use crate::affinity::Affinity;
use crate::block::{Block, BlockContent};
use crate::document::Document;
use crate::handle::Handle;
use crate::key::Key;

/// The number of bytes that are enough for most handles and affinities.
const USUAL_RECORD: usize = 128;
/// The number of bytes that are enough for most pools and configurations.
const USUAL_DOCUMENT: usize = 512;

/// A block, a handle, an affinity, a pool or the allocator's configuration.
#[derive(Clone, Debug, PartialEq)]
pub enum Object {
    /// A block, sound or corrupt.
    Block(BlockContent),
    Handle(Handle),
    Affinity(Affinity),
    /// A pool, as the full resource.
    Pool(Document),
    /// The allocator's configuration, in etcd form even on Kubernetes.
    IpamConfig(Document),
}

impl Object {
    /// Decodes the value under `key`; `None` for an object that a repair does not change.
    pub fn parse(key: &Key, json: &[u8]) -> Result<Option<Self>, DecodeError> {
        let object = match key {
            Key::Block(_) => Self::Block(BlockContent::parse(json)?),
            Key::Handle(id) => Self::Handle(Handle::parse(id, json)?),
            Key::Affinity(key) => Self::Affinity(Affinity::parse(key.clone(), json)?),
            Key::Pool(_) => Self::Pool(Document::parse(json)?),
            Key::IpamConfig => Self::IpamConfig(Document::parse(json)?),
            _ => return Ok(None),
        };
        Ok(Some(object))
    }

    /// Encodes the value as Calico does. A corrupt block stays as it was read.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Block(BlockContent::Sound(block)) => {
                // This capacity is enough for nearly all blocks, which avoids reallocation.
                let capacity = 512 + 320 * block.attributes().len() + 8 * block.size() as usize;
                encode(block, capacity)
            }
            Self::Block(BlockContent::Corrupt(block)) => block.raw.as_bytes().to_vec(),
            Self::Handle(handle) => encode(handle, USUAL_RECORD),
            Self::Affinity(affinity) => encode(affinity, USUAL_RECORD),
            Self::Pool(document) | Self::IpamConfig(document) => encode(document, USUAL_DOCUMENT),
        }
    }

    /// True if the object is marked as deleted. On Kubernetes, this is the first of the two writes with which Calico
    /// deletes an object. A pool in this state is waiting for its finalizers.
    pub fn is_deleted(&self) -> bool {
        match self {
            Self::Block(block) => block.is_deleted(),
            Self::Handle(handle) => handle.is_deleted(),
            Self::Affinity(affinity) => affinity.deleted,
            Self::Pool(pool) => pool.is_being_deleted(),
            Self::IpamConfig(_) => false,
        }
    }
}

impl From<Block> for Object {
    fn from(block: Block) -> Self {
        Self::Block(BlockContent::Sound(Box::new(block)))
    }
}

/// Writes a value as Go's encoder does. `capacity` is the number of bytes to reserve; more are added if needed.
fn encode(value: &impl serde::Serialize, capacity: usize) -> Vec<u8> {
    let mut json = Vec::with_capacity(capacity);
    // All maps have strings as keys, so writing to memory cannot fail.
    if serde_json::to_writer(&mut json, value).is_err() {
        return Vec::new();
    }
    escape_html(json)
}

/// Escapes `<`, `>` and `&` as Go's encoder does (facts 1.3.2). In JSON they occur only within strings.
fn escape_html(json: Vec<u8>) -> Vec<u8> {
    // Without branches, the compiler compares many bytes at once.
    let has_any = json.iter().fold(false, |any, byte| {
        any | (*byte == b'<') | (*byte == b'>') | (*byte == b'&')
    });
    if !has_any {
        return json;
    }
    let escaped = json
        .iter()
        .filter(|byte| matches!(byte, b'<' | b'>' | b'&'))
        .count();
    let mut out = Vec::with_capacity(json.len() + 5 * escaped);
    for byte in json {
        match byte {
            b'<' => out.extend_from_slice(b"\\u003c"),
            b'>' => out.extend_from_slice(b"\\u003e"),
            b'&' => out.extend_from_slice(b"\\u0026"),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_escaped_as_go_does() {
        let mut handle = Handle::parse("h", br#"{"block":{"10.0.0.0/26":1},"x":"a<b>&c"}"#).unwrap();
        handle.set_count("10.0.0.64/26".parse().unwrap(), 2);
        let text = Object::Handle(handle).encode();
        assert_eq!(
            text,
            br#"{"block":{"10.0.0.0/26":1,"10.0.0.64/26":2},"deleted":false,"x":"a\u003cb\u003e\u0026c"}"#
                .as_slice()
        );
    }

    #[test]
    fn values_that_cannot_be_decoded_are_errors() {
        let key = Key::Block("10.0.0.0/26".parse().unwrap());
        assert!(Object::parse(&key, b"{").is_err());
        assert_eq!(Object::parse(&Key::Node("n".into()), b"{"), Ok(None));
    }

    #[test]
    fn a_corrupt_block_stays_as_it_was() {
        let key = Key::Block("10.0.0.0/30".parse().unwrap());
        let value = br#"{ "cidr":"10.0.0.0/30","allocations":[9],"deleted":true }"#;
        let object = Object::parse(&key, value).unwrap().unwrap();
        assert!(matches!(object, Object::Block(BlockContent::Corrupt(_))) && object.is_deleted());
        assert_eq!(object.encode(), value);
    }
}
