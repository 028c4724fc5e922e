//! Errors in decoding datastore keys and values.

use ipnet::IpNet;

/// The reason why a key, a value or a list of objects cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DecodeError(pub String);

/// The end of the reason if a field is not a CIDR.
const NOT_A_CIDR: &str = ", which is not a CIDR";

impl DecodeError {
    pub fn missing(field: &str) -> Self {
        Self(format!("the field `{field}` is missing"))
    }

    pub fn not_a_cidr(field: &str, value: &str) -> Self {
        Self(format!("`{field}` is {value:?}{NOT_A_CIDR}"))
    }

    /// The value in the reason of an error that [`Self::not_a_cidr`] made.
    pub fn no_cidr_of(reason: &str) -> Option<String> {
        let (_, value) = reason.strip_suffix(NOT_A_CIDR)?.split_once(" is ")?;
        serde_json::from_str(value).ok()
    }

    pub fn another_block(cidr: IpNet) -> Self {
        Self(format!("the block says that it is {cidr}"))
    }
}

impl From<&str> for DecodeError {
    fn from(reason: &str) -> Self {
        Self(reason.to_owned())
    }
}

impl From<serde_json::Error> for DecodeError {
    fn from(error: serde_json::Error) -> Self {
        Self(error.to_string())
    }
}
