//! Errors for a runtime.

use serde::{Serialize, Serializer};

/// The kind of an error, numbered as in the CNI specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    IncompatibleVersion = 1,
    /// An environment variable is missing or malformed, or the command is unknown.
    InvalidEnvironment = 4,
    /// stdin cannot be read.
    Io = 5,
    /// stdin is not a JSON configuration.
    Decoding = 6,
    InvalidConfiguration = 7,
    /// The container's network namespace is the plugin's own.
    InvalidNamespace = 8,
    /// The same call may succeed if it is repeated a little later.
    TryAgainLater = 11,
    /// STATUS: no ADD can succeed.
    NotAvailable = 50,
    /// Any other error.
    Internal = 999,
}

impl Code {
    pub fn number(self) -> u32 {
        self as u32
    }
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(self.number())
    }
}

/// An error for stdout, with exit code 1. As in Calico, it has no `cniVersion`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{msg}{}{details}", if details.is_empty() { "" } else { "; " })]
pub struct CniError {
    pub code: Code,
    pub msg: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub details: String,
}

impl CniError {
    pub fn new(code: Code, msg: impl Into<String>) -> Self {
        Self {
            code,
            msg: msg.into(),
            details: String::new(),
        }
    }

    pub fn internal(msg: impl Into<String>) -> Self {
        Self::new(Code::Internal, msg)
    }

    pub fn with_details(mut self, details: impl Into<String>) -> Self {
        self.details = details.into();
        self
    }
}

#[cfg(test)]
mod tests {
    use super::super::to_json;
    use super::*;

    #[test]
    fn errors_have_the_form_of_the_facts() {
        let error = CniError::internal("No IPs available in pools: [10.7.0.0/31]");
        let json = "{\n    \"code\": 999,\n    \"msg\": \"No IPs available in pools: [10.7.0.0/31]\"\n}";
        assert_eq!(String::from_utf8(to_json(&error)).unwrap(), json);
        let json = to_json(&CniError::new(Code::InvalidConfiguration, "a").with_details("b"));
        let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(json, serde_json::json!({"code": 7, "msg": "a", "details": "b"}));
    }
}
