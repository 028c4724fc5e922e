//! One line in an export.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;

use crate::raw::RawEntry;

/// An entry, or the footer.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Line<'a> {
    /// The key, if it is text.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    key: Option<Cow<'a, str>>,
    /// The key in base64, if it is not text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key_bytes: Option<String>,
    /// Revision of the entry's last change, in decimal digits.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    revision: Option<Cow<'a, str>>,
    /// The value, if it is JSON on one line.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    value: Option<&'a RawValue>,
    /// The value in base64, if it is anything else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bytes: Option<String>,
    /// The number of entries, only in the footer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entries: Option<u64>,
}

impl<'a> Line<'a> {
    /// Makes the line of an entry. A key that is not UTF-8 and a value that is not JSON are written in base64.
    pub(super) fn new(entry: &RawEntry<'a>) -> Self {
        let mut line = Self {
            revision: Some(entry.mod_revision.to_string().into()),
            ..Self::default()
        };
        match std::str::from_utf8(entry.key) {
            Ok(key) => line.key = Some(Cow::Borrowed(key)),
            Err(_) => line.key_bytes = Some(STANDARD.encode(entry.key)),
        }
        match as_json(entry.value) {
            Some(value) => line.value = Some(value),
            None => line.bytes = Some(STANDARD.encode(entry.value)),
        }
        line
    }

    pub(super) fn footer(entries: u64) -> Self {
        Self {
            entries: Some(entries),
            ..Self::default()
        }
    }

    /// Passes the entry in the line to `sink`.
    ///
    /// # Errors
    /// If the line lacks the key or the value, has both forms of one, or has one that cannot be decoded.
    pub(super) fn pass_to(&self, sink: &mut impl FnMut(&RawEntry<'_>)) -> Result<(), String> {
        let key = decode_bytes(
            self.key.as_deref(),
            self.key_bytes.as_deref(),
            "it needs one of `key` and `keyBytes`",
        )?;
        let value = decode_bytes(
            self.value.map(RawValue::get),
            self.bytes.as_deref(),
            "it needs one of `value` and `bytes`",
        )?;
        let revision = self.revision.as_deref().unwrap_or("0");
        let mod_revision = revision
            .parse()
            .map_err(|_| format!("the revision {revision:?} is not a number"))?;
        sink(&RawEntry {
            key: &key,
            value: &value,
            mod_revision,
            ..RawEntry::default()
        });
        Ok(())
    }
}

/// Returns the bytes that a line has in one of two forms, as text or in base64. `expected` is the error if it has both
/// or none.
fn decode_bytes<'t>(
    text: Option<&'t str>,
    base64: Option<&str>,
    expected: &str,
) -> Result<Cow<'t, [u8]>, String> {
    match (text, base64) {
        (Some(text), None) => Ok(Cow::Borrowed(text.as_bytes())),
        (None, Some(base64)) => match STANDARD.decode(base64) {
            Ok(bytes) => Ok(Cow::Owned(bytes)),
            Err(error) => Err(format!("not base64: {error}")),
        },
        (Some(_), Some(_)) | (None, None) => Err(expected.to_owned()),
    }
}

/// Returns the value if a line can contain it as JSON that is read back as the same bytes. `null` is written in base64,
/// because it would be read back as a missing value.
fn as_json(value: &[u8]) -> Option<&RawValue> {
    let text = std::str::from_utf8(value).ok()?;
    if text.contains(['\n', '\r']) || text.trim() != text || text == "null" {
        return None;
    }
    serde_json::from_str(text).ok()
}
