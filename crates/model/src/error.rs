//! Errors in decoding datastore values.

use ipnet::IpNet;

use crate::block::BlockProblem;
use crate::words::joined;

/// The reason why a datastore value cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("{0}")]
    Json(String),
    #[error("the field `{0}` is missing")]
    Missing(&'static str),
    #[error("`{field}` is {value:?}, which is not a CIDR")]
    NotACidr { field: &'static str, value: String },
    #[error("`{field}` is {value}, which is not a prefix length")]
    NotAPrefixLength { field: &'static str, value: i64 },
    #[error("the block says that it is {0}")]
    AnotherBlock(IpNet),
    /// The block can be read but is corrupt, and a sound one is required.
    #[error("{}", joined(.0, "; "))]
    Corrupt(Vec<BlockProblem>),
}

impl From<serde_json::Error> for DecodeError {
    fn from(error: serde_json::Error) -> Self {
        Self::Json(error.to_string())
    }
}
