//! The items of a list, one at a time, while the body of the answer arrives: no list is ever held whole.
//! Where one item ends and the next begins, `json.rs` and `protobuf.rs` find out.

pub(crate) mod json;
pub mod protobuf;

use self::json::JsonList;
use self::protobuf::ProtobufList;

/// How an answer is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// JSON, the only one that custom resources have.
    Json,
    /// Kubernetes' own protobuf, which built-in kinds have.
    Protobuf,
}

/// What a list says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListMeta {
    /// The revision at which it was read; all pages of a list have the same.
    pub resource_version: String,
    /// What to ask for the next page with; empty on the last.
    pub next: String,
    /// Number of items after this page, where the server says so.
    pub remaining: u64,
}

impl ListMeta {
    /// True if nothing follows.
    pub fn is_last(&self) -> bool {
        self.next.is_empty() && self.remaining == 0
    }
}

/// Why a body is not a list.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    #[error("it ends in the middle")]
    Cut,
    #[error("it is not a complete list: {0}")]
    Envelope(serde_json::Error),
    #[error("it has neither items nor metadata")]
    Nothing,
    #[error("a bracket closes that was not opened")]
    Bracket,
    #[error("it holds no items")]
    NoItems,
    #[error("an item is not an object")]
    NoObject,
    #[error("one of its items does not end")]
    EndlessItem,
    #[error("it does not begin as Kubernetes' protobuf does")]
    NoProtobuf,
    #[error("an item is larger than its list")]
    LargeItem,
    #[error("its metadata cannot be decoded")]
    Metadata,
    #[error("its fields cannot be decoded")]
    Fields,
}

/// Reads one page of a list from the pieces of its body.
#[derive(Debug)]
pub enum ItemReader {
    Json(JsonList),
    Protobuf(ProtobufList),
}

impl ItemReader {
    /// A reader for a body in that encoding.
    pub fn new(encoding: Encoding) -> Self {
        match encoding {
            Encoding::Json => Self::Json(JsonList::default()),
            Encoding::Protobuf => Self::Protobuf(ProtobufList::default()),
        }
    }

    /// Takes the next piece of the body and hands on each item that is complete.
    pub fn feed(&mut self, piece: &[u8], on_item: &mut dyn FnMut(&[u8])) -> Result<(), ListError> {
        match self {
            Self::Json(list) => list.feed(piece, on_item),
            Self::Protobuf(list) => list.feed(piece, on_item),
        }
    }

    /// What the list says about itself, as soon as it is known: in protobuf before the items.
    pub fn meta(&self) -> Option<&ListMeta> {
        match self {
            Self::Json(_) => None,
            Self::Protobuf(list) => list.meta(),
        }
    }

    /// The end of the body.
    pub fn finish(self) -> Result<ListMeta, ListError> {
        match self {
            Self::Json(list) => list.finish(),
            Self::Protobuf(list) => list.finish(),
        }
    }
}
