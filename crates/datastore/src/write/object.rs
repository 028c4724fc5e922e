//! Objects as a writer reads and writes them.

use bytes::Bytes;
use calipam_model::affinity::Affinity;
use calipam_model::block::{Block, BlockContent};
use calipam_model::handle::Handle;
use calipam_model::key::Key;
use calipam_model::snapshot::Revision;

/// What is to be stored under a key.
#[derive(Clone, Debug, PartialEq)]
pub enum Object {
    /// A block.
    Block(Box<Block>),
    /// A block affinity.
    Affinity(Affinity),
    /// A handle.
    Handle(Handle),
    /// A value in the form in which it was read. For values that no type holds: cluster information, and
    /// what undo brings back although it was corrupt.
    Verbatim(Bytes),
}

impl Object {
    /// The value in the form in which Calico writes it to etcd.
    pub fn encode(&self) -> Bytes {
        match self {
            // Large enough for nearly all, so that it does not grow step by step.
            Self::Block(block) => {
                encode(block, 512 + 320 * block.attributes().len() + 8 * block.size() as usize)
            }
            Self::Affinity(affinity) => encode(affinity, 128),
            Self::Handle(handle) => encode(handle, 128),
            Self::Verbatim(bytes) => bytes.clone(),
        }
    }
}

fn encode(value: &impl serde::Serialize, length: usize) -> Bytes {
    let mut json = Vec::with_capacity(length);
    // Keys of all maps are texts, so that writing to memory cannot fail.
    serde_json::to_writer(&mut json, value).map(|()| Bytes::from(escape_html(json))).unwrap_or_default()
}

/// Replaces `<`, `>` and `&` as Go's encoder does (facts 1.3.2). Outside of texts JSON has none of them.
fn escape_html(json: Vec<u8>) -> Vec<u8> {
    // Counting has no early way out and so takes many bytes at a time.
    let escaped = json.iter().filter(|b| matches!(b, b'<' | b'>' | b'&')).count();
    if escaped == 0 {
        return json;
    }
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

/// An object as it is stored now.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Which version of it was read.
    pub revision: Revision,
    /// The value: in etcd as it is stored, on Kubernetes the JSON of `spec`.
    pub raw: Bytes,
    /// The value as it is understood.
    pub content: Content,
}

impl Stored {
    /// Marked deleted: the first of the two steps in which objects are deleted on Kubernetes.
    pub fn is_deleted(&self) -> bool {
        match &self.content {
            Content::Block(block) => block.is_deleted(),
            Content::Affinity(affinity) => affinity.deleted,
            Content::Handle(handle) => handle.is_deleted(),
            Content::Other | Content::Unreadable(_) => false,
        }
    }
}

/// A stored value as it is understood.
#[derive(Clone, Debug)]
pub enum Content {
    /// A block, sound or corrupt.
    Block(BlockContent),
    /// A block affinity.
    Affinity(Affinity),
    /// A handle.
    Handle(Handle),
    /// An object whose value does not matter here, such as a node that is evidence.
    Other,
    /// A value that does not parse, and why.
    Unreadable(String),
}

impl Content {
    /// Reads the etcd form of what `key` names.
    pub(super) fn parse(key: &Key, raw: &[u8]) -> Self {
        let parsed = match key {
            Key::Block(_) => BlockContent::parse(raw).map(Self::Block),
            Key::Affinity(key) => Affinity::parse(key.clone(), raw).map(Self::Affinity),
            Key::Handle(id) => Handle::parse(id, raw).map(Self::Handle),
            _ => Ok(Self::Other),
        };
        parsed.unwrap_or_else(Self::Unreadable)
    }
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
        let value = Bytes::from_static(b"{ \"odd\": 1 }");
        assert_eq!(Object::Verbatim(value.clone()).encode(), value);
    }

    #[test]
    fn what_does_not_parse_is_told() {
        let key = Key::Block("10.0.0.0/26".parse().unwrap());
        assert!(matches!(Content::parse(&key, b"{"), Content::Unreadable(_)));
        assert!(matches!(Content::parse(&Key::Node("n".into()), b"{"), Content::Other));
    }
}
