//! What the lines of a journal say. `line.rs` adds the sum of each, `frames.rs` compresses them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// The version of the format, the only one that this program writes and reads.
pub const FORMAT: u32 = 1;

/// One line of a journal.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Entry {
    /// The first line.
    Header(Header),
    /// What is about to be written.
    Intent(Intent),
    /// What became of an intent.
    Outcome(Outcome),
    /// The datastore lock was about to be taken, or was restored.
    Lock(LockMark),
    /// The run came to its end by itself.
    End {},
}

/// The first line of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Header {
    /// Version of the format.
    pub format: u32,
    /// Version of the program that wrote it.
    pub program: String,
    /// When the run began, RFC 3339.
    pub started_at: String,
    /// What was run, such as `release --leaked`.
    pub command: String,
    /// GUID of the cluster; empty if it has none.
    pub cluster: String,
    /// `etcd`, `etcdv2` or `kubernetes`.
    pub datastore: String,
    /// Where the datastore is, without secrets.
    pub location: String,
}

/// What is about to be written, in one batch.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Intent {
    /// Number of the intent, from 0. Intents that are noted at the same time may be in another order.
    pub id: u64,
    /// Which step of the plan it belongs to.
    pub step: usize,
    /// Why it is written, for people.
    pub reason: String,
    /// The changes, in order.
    pub changes: Vec<ChangeRecord>,
    /// What else had to be true: key and revision, or that it does not exist.
    pub guards: Vec<GuardRecord>,
}

/// One object before and after a change.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ChangeRecord {
    /// The object, by its etcd path.
    pub key: String,
    /// What was stored; `None` if nothing was.
    pub before: Option<Version>,
    /// What is to be stored; `None` if it is deleted.
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

/// What an object had to be like for the change of another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GuardRecord {
    /// The object, by its etcd path.
    pub key: String,
    /// Its revision; `None` if it had to be absent.
    pub revision: Option<String>,
}

/// A value as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Value {
    /// A text in UTF-8; nearly always JSON.
    #[serde(with = "text")]
    Text(Bytes),
    /// Bytes that are no text, in base64.
    Base64(String),
}

impl Value {
    /// The value of some bytes, which are not copied.
    pub fn new(bytes: &Bytes) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(_) => Self::Text(bytes.clone()),
            Err(_) => Self::Base64(STANDARD.encode(bytes)),
        }
    }

    /// The bytes; `None` if the base64 is broken.
    pub fn bytes(&self) -> Option<Bytes> {
        match self {
            Self::Text(text) => Some(text.clone()),
            Self::Base64(text) => STANDARD.decode(text).ok().map(Bytes::from),
        }
    }

    /// True if this is the value of `bytes`.
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

/// True if two values are the same, be it that one says `strictAffinity: false` and the other nothing: blocks on
/// Kubernetes have to say it, and it is left out when they are read (facts 2.4).
pub(crate) fn same_value(a: &[u8], b: &[u8]) -> bool {
    let without = |raw: &[u8]| {
        let mut value: serde_json::Value = serde_json::from_slice(raw).ok()?;
        let fields = value.as_object_mut()?;
        if fields.get("strictAffinity") == Some(&false.into()) {
            fields.remove("strictAffinity");
        }
        Some(value)
    };
    a == b || without(a).is_some_and(|a| Some(a) == without(b))
}

/// Bytes that are a text.
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
    /// About how long its line is: values are JSON, in which a tenth of the characters needs escaping.
    pub(super) fn length_hint(&self) -> usize {
        let of_change = |change: &ChangeRecord| {
            let before = change.before.as_ref().map(|before| &before.value);
            let values: usize = before.into_iter().chain(&change.after).map(Value::len).sum();
            values + values / 4 + change.key.len() + 1024
        };
        let guards: usize = self.guards.iter().map(|guard| guard.key.len() + 64).sum();
        self.changes.iter().map(of_change).sum::<usize>() + guards + self.reason.len() + 128
    }
}

/// What became of an intent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// Number of the intent.
    pub id: u64,
    /// The revisions that the changed objects have now, in the order of the changes; `None` for the whole
    /// where nothing was written because something had changed since.
    pub written: Option<Vec<Option<String>>>,
}

/// A mark about the datastore lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LockMark {
    /// About to be taken. The value is what `datastoreReady` was before; `None` if it was absent.
    Taking(Option<bool>),
    /// Taken. The value is the revision that this made of ClusterInformation.
    Taken(String),
    Restored,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_about_as_long_as_its_hint() {
        let value = |length: usize| Value::Text("x".repeat(length).into());
        let before = Version { revision: "7".into(), value: value(3_000) };
        let change = |key: &str| ChangeRecord {
            key: key.repeat(100),
            before: Some(before.clone()),
            after: Some(value(50_000)),
        };
        let guard = GuardRecord { key: "/calico/resources/v3/a-pool".into(), revision: None };
        let guarded = Intent {
            id: 1,
            step: 2,
            reason: "of a test".into(),
            changes: Vec::new(),
            guards: vec![guard; 90],
        };
        let changing =
            Intent { changes: vec![change("a"), change("b")], guards: Vec::new(), ..guarded.clone() };
        for intent in [guarded, changing] {
            let (length, hint) = (serde_json::to_vec(&intent).unwrap().len(), intent.length_hint());
            assert!(hint >= length && hint <= 2 * length + 4_096, "{hint} of {length}");
        }
    }

    #[test]
    fn values_differ_by_more_than_what_blocks_on_kubernetes_have_to_say() {
        let (plain, said) =
            (br#"{"cidr":"10.0.0.0/30"}"#, br#"{"strictAffinity":false,"cidr":"10.0.0.0/30"}"#);
        assert!(same_value(plain, said) && same_value(said, plain));
        assert!(same_value(b"no JSON", b"no JSON") && same_value(b"[]", b"[]"));
        let strict = br#"{"strictAffinity":true,"cidr":"10.0.0.0/30"}"#;
        assert!(!same_value(plain, strict) && !same_value(b"[]", b"[ ]"));
    }
}
