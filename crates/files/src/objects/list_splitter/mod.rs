//! Splits a list into its items while the response body arrives, so that a complete list is never in memory. `json.rs`
//! and `protobuf.rs` find the ends of items.

pub(crate) mod json;
pub mod protobuf;

use calipam_model::{DecodeError, or_empty};
use serde::Deserialize;

use self::json::JsonList;
use self::protobuf::ProtobufList;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// JSON. API servers send custom resources only in this encoding, unless nothing but `metadata` is requested.
    Json,
    /// Kubernetes' protobuf. API servers send built-in kinds in this encoding, and any kind if only `metadata` is
    /// requested.
    Protobuf,
}

/// The metadata of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListMeta {
    /// The revision of the data, the same for all pages of a list.
    #[serde(deserialize_with = "or_empty")]
    pub resource_version: String,
    /// The token to request the next page; empty on the last one.
    #[serde(rename = "continue", deserialize_with = "or_empty")]
    pub next: String,
    /// Number of items after this page; 0 if the server does not send it.
    #[serde(rename = "remainingItemCount", deserialize_with = "or_empty")]
    pub remaining: u64,
}

impl ListMeta {
    /// True for the last page.
    pub fn is_last(&self) -> bool {
        self.next.is_empty() && self.remaining == 0
    }
}

/// Reads one page of a list from the pieces of its body.
#[derive(Debug)]
pub enum ItemReader {
    Json(JsonList),
    Protobuf(ProtobufList),
}

impl ItemReader {
    /// Creates a reader for a body in the given encoding.
    pub fn new(encoding: Encoding) -> Self {
        match encoding {
            Encoding::Json => Self::Json(JsonList::default()),
            Encoding::Protobuf => Self::Protobuf(ProtobufList::default()),
        }
    }

    /// Reads the next piece of the body, and passes each complete item to `on_item`.
    pub fn feed(&mut self, piece: &[u8], on_item: &mut dyn FnMut(&[u8])) -> Result<(), DecodeError> {
        match self {
            Self::Json(list) => list.feed(piece, on_item),
            Self::Protobuf(list) => list.feed(piece, on_item),
        }
    }

    /// The list's metadata, if it precedes the items, as in protobuf.
    pub fn meta(&self) -> Option<&ListMeta> {
        match self {
            Self::Json(_) => None,
            Self::Protobuf(list) => list.meta(),
        }
    }

    /// Ends the body, and returns the list's metadata.
    pub fn finish(self) -> Result<ListMeta, DecodeError> {
        match self {
            Self::Json(list) => list.finish(),
            Self::Protobuf(list) => list.finish(),
        }
    }
}
