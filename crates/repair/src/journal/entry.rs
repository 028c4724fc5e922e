//! The entries of a journal. `line.rs` turns them into lines with checksums, and `frames.rs` compresses the lines.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use calipam_model::snapshot::DatastoreKind;
use serde::{Deserialize, Serialize};

/// The version of the format, the only one that calipam writes and reads.
pub const FORMAT: u32 = 1;

/// One entry of a journal.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Entry {
    /// The first entry.
    Header(Header),
    Intent(Intent),
    Outcome(Outcome),
    Lock(LockMark),
    /// A signal stopped the run before its last step. Only the end follows, since steps that have begun are finished.
    Interrupted {},
    /// The run ended normally.
    End {},
}

/// The first entry of a journal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Header {
    /// The version of the format.
    pub format: u32,
    /// The version of calipam.
    pub program: String,
    /// The start of the run, in RFC 3339 format.
    pub started_at: String,
    /// The command, such as `release --leaked`.
    pub command: String,
    /// The GUID of the cluster; empty if it has none.
    pub cluster: String,
    pub datastore: DatastoreKind,
    /// The location of the datastore, without secrets.
    pub location: String,
}

/// A batch that is about to be written.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Intent {
    /// The number of the intent, from 0. Concurrent intents may be out of order in the file.
    pub id: u64,
    /// The index of the step in the plan.
    pub step: usize,
    /// The reason for the step, for human readers.
    pub reason: String,
    /// The changes, in order.
    pub changes: Vec<ChangeRecord>,
    /// Other objects that must have a certain revision, or must not exist.
    pub guards: Vec<GuardRecord>,
}

/// One object before and after a change.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ChangeRecord {
    /// The object, by its etcd path.
    pub key: String,
    /// The version before the change, if there is one.
    pub before: Option<Version>,
    /// The value to write; `None` to delete the object.
    pub after: Option<Value>,
}

/// A version of an object.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Version {
    pub revision: String,
    #[serde(flatten)]
    pub value: Value,
}

/// The required state of an object that the intent does not change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GuardRecord {
    /// The object, by its etcd path.
    pub key: String,
    /// The required revision; `None` if the object must be absent. For the CIDR of a deleted pool, no block may have
    /// been created in the pool after this revision.
    pub revision: Option<String>,
}

/// The value of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Value {
    /// UTF-8 text, nearly always JSON.
    #[serde(with = "text")]
    Text(Bytes),
    /// Other bytes, in base64.
    Base64(String),
}

impl Value {
    /// Creates the value from bytes. UTF-8 text is not copied.
    pub fn new(bytes: &Bytes) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(_) => Self::Text(bytes.clone()),
            Err(_) => Self::Base64(STANDARD.encode(bytes)),
        }
    }

    /// Returns the bytes; `None` if the base64 is broken.
    pub fn bytes(&self) -> Option<Bytes> {
        match self {
            Self::Text(text) => Some(text.clone()),
            Self::Base64(text) => STANDARD.decode(text).ok().map(Bytes::from),
        }
    }

    /// Returns true if `bytes` contain the same value.
    pub fn is(&self, bytes: &[u8]) -> bool {
        self.bytes().is_some_and(|own| same_value(&own, bytes))
    }

    fn len(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Base64(text) => text.len(),
        }
    }
}

/// Returns true if two values are equal, apart from `strictAffinity: false`. Blocks on Kubernetes must have this field,
/// but it is left out when they are read (facts 2.4).
pub(crate) fn same_value(first: &[u8], second: &[u8]) -> bool {
    if first == second {
        return true;
    }
    match without_strict_affinity(first) {
        Some(value) => Some(value) == without_strict_affinity(second),
        None => false,
    }
}

/// Parses a JSON object, and removes `strictAffinity: false`; `None` for anything but a JSON object.
fn without_strict_affinity(raw: &[u8]) -> Option<serde_json::Value> {
    let mut value: serde_json::Value = serde_json::from_slice(raw).ok()?;
    let fields = value.as_object_mut()?;
    if fields.get("strictAffinity") == Some(&false.into()) {
        fields.remove("strictAffinity");
    }
    Some(value)
}

/// Serializes bytes as text.
mod text {
    use bytes::Bytes;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(text: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(std::str::from_utf8(text).map_err(serde::ser::Error::custom)?)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        String::deserialize(deserializer).map(Bytes::from)
    }
}

impl Intent {
    /// Estimates the length of the line. Values are JSON, in which about one character in ten needs escaping.
    pub(super) fn length_hint(&self) -> usize {
        let mut length = self.reason.len() + 128;
        for change in &self.changes {
            let before = change.before.as_ref().map(|before| &before.value);
            let values: usize = before.into_iter().chain(&change.after).map(Value::len).sum();
            length += values + values / 4 + change.key.len() + 1024;
        }
        for guard in &self.guards {
            length += guard.key.len() + 64;
        }
        length
    }
}

/// The outcome of an intent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// The number of the intent.
    pub id: u64,
    /// The new revisions of the objects, in the order of the changes; `None` if nothing was written.
    pub written: Option<Vec<Option<String>>>,
}

/// A mark about the datastore lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LockMark {
    /// The lock is about to be taken. The mark contains the earlier `datastoreReady`; `None` if it was absent.
    Taking(Option<bool>),
    /// The lock is taken. The mark contains the new revision of ClusterInformation.
    Taken(String),
    Restored,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_about_as_long_as_its_hint() {
        let value = |length: usize| Value::Text("x".repeat(length).into());
        let before = Version {
            revision: "7".into(),
            value: value(3_000),
        };
        let change = |key: &str| ChangeRecord {
            key: key.repeat(100),
            before: Some(before.clone()),
            after: Some(value(50_000)),
        };
        let guard = GuardRecord {
            key: "/calico/resources/v3/a-pool".into(),
            revision: None,
        };
        let guarded = Intent {
            id: 1,
            step: 2,
            reason: "of a test".into(),
            changes: Vec::new(),
            guards: vec![guard; 90],
        };
        let changing = Intent {
            changes: vec![change("a"), change("b")],
            guards: Vec::new(),
            ..guarded.clone()
        };
        for intent in [guarded, changing] {
            let length = serde_json::to_vec(&intent).unwrap().len();
            let hint = intent.length_hint();
            assert!(hint >= length && hint <= 2 * length + 4_096, "{hint} of {length}");
        }
    }

    #[test]
    fn strict_affinity_false_is_ignored() {
        let (plain, said) = (
            br#"{"cidr":"10.0.0.0/30"}"#,
            br#"{"strictAffinity":false,"cidr":"10.0.0.0/30"}"#,
        );
        assert!(same_value(plain, said) && same_value(said, plain));
        assert!(same_value(b"no JSON", b"no JSON") && same_value(b"[]", b"[]"));
        let strict = br#"{"strictAffinity":true,"cidr":"10.0.0.0/30"}"#;
        assert!(!same_value(plain, strict) && !same_value(b"[]", b"[ ]"));
    }
}
