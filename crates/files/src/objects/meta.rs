//! The needed part of an object's `metadata`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use calipam_model::snapshot::{ObjectVersion, Revision};
use calipam_model::time::parse_time;
use jiff::Timestamp;
use serde::{Deserialize, Serialize, Serializer};

use super::Result;
use super::list_splitter::Encoding;
use super::wire::{Take, Text, decode, each, entry, message, text};

/// An object's `metadata`. Missing fields are empty.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta<'a> {
    #[serde(borrow)]
    pub name: Cow<'a, str>,
    #[serde(borrow, skip_serializing_if = "str::is_empty")]
    pub namespace: Cow<'a, str>,
    #[serde(borrow)]
    pub uid: Cow<'a, str>,
    #[serde(borrow)]
    pub resource_version: Cow<'a, str>,
    #[serde(borrow, rename = "creationTimestamp", skip_serializing_if = "Option::is_none")]
    pub created: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "deletionTimestamp", skip_serializing_if = "Option::is_none")]
    pub deleted: Option<Cow<'a, str>>,
    /// Only those in [`Wanted::labels`] are read from protobuf.
    #[serde(
        deserialize_with = "pairs",
        serialize_with = "map",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub labels: Pairs<'a>,
    /// Only those in [`Wanted::annotations`] are read from protobuf.
    #[serde(
        deserialize_with = "pairs",
        serialize_with = "map",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub annotations: Pairs<'a>,
    /// Read from protobuf only if [`Wanted::owners`] is set.
    #[serde(borrow, skip_serializing_if = "Vec::is_empty")]
    pub owner_references: Vec<OwnerReference<'a>>,
    /// The creation time in protobuf, in seconds since 1970.
    #[serde(skip)]
    pub created_seconds: Option<i64>,
}

/// The parts of a Kubernetes object that are read: `metadata`, `spec` and `status`.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(
    default,
    bound(deserialize = "S: Deserialize<'de> + Default, T: Deserialize<'de> + Default")
)]
pub(super) struct Parts<'a, S, T> {
    #[serde(borrow)]
    pub metadata: Meta<'a>,
    pub spec: S,
    pub status: T,
}

impl<'a, S, T> Parts<'a, S, T>
where
    S: Take<'a> + Deserialize<'a>,
    T: Take<'a> + Deserialize<'a>,
{
    /// Reads an object's metadata, and the parts that the kind needs, from JSON or protobuf.
    pub(super) fn read(object: &'a [u8], encoding: Encoding, wanted: Wanted) -> Result<Self> {
        if encoding == Encoding::Json {
            return Ok(serde_json::from_slice(object)?);
        }
        decode!(object, parts: Self, value, {
            1 => parts.metadata = Meta::from_protobuf(value.bytes(), wanted)?,
            2 => parts.spec.take(value)?,
            3 => parts.status.take(value)?,
        })
    }
}

/// Names and values of labels or annotations.
pub type Pairs<'a> = Vec<(Cow<'a, str>, Cow<'a, str>)>;

message! {
    pub OwnerReference {
        5 "apiVersion" api_version: Text<'a>,
        1 "kind" kind: Text<'a>,
        3 "name" name: Text<'a>,
        4 "uid" uid: Text<'a>,
        6 "controller" controller: bool,
    }
}

/// The labels that are needed for a kind.
#[derive(Clone, Copy)]
pub enum Labels {
    None,
    All,
    /// Only labels with these names.
    Only(&'static [&'static str]),
}

impl Labels {
    /// True if the label with this name is needed.
    fn include(self, name: &[u8]) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Only(names) => names.iter().any(|known| known.as_bytes() == name),
        }
    }
}

/// The optional parts of `metadata` that are needed for a kind.
#[derive(Clone, Copy)]
pub struct Wanted {
    pub labels: Labels,
    pub annotations: &'static [&'static str],
    pub owners: bool,
}

impl<'a> Meta<'a> {
    /// Reads `ObjectMeta`.
    pub(crate) fn from_protobuf(message: &'a [u8], wanted: Wanted) -> Result<Self> {
        let is_wanted = |key: &[u8]| wanted.annotations.iter().any(|known| known.as_bytes() == key);
        decode!(message, meta: Self, value, {
            1 => meta.name = text(value)?,
            3 => meta.namespace = text(value)?,
            5 => meta.uid = text(value)?,
            6 => meta.resource_version = text(value)?,
            8 => meta.created_seconds = Some(seconds(value.bytes())?),
            9 => meta.deleted = Some(rfc3339(seconds(value.bytes())?)),
            11 if wanted.labels.include(entry(value.bytes())?.0) => meta.labels.push(pair(value.bytes())?),
            12 if is_wanted(entry(value.bytes())?.0) => meta.annotations.push(pair(value.bytes())?),
            13 if wanted.owners => meta.owner_references.take(value)?,
        })
    }

    pub(crate) fn annotation(&self, name: &str) -> Option<&str> {
        self.annotations
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_ref())
    }

    pub(crate) fn label(&self, name: &str) -> Option<&str> {
        self.labels
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_ref())
    }

    /// Returns the creation time: a number of seconds from protobuf, or a text from JSON. `None` if there is none, or
    /// if it is no time.
    pub(crate) fn created_at(&self) -> Option<Timestamp> {
        if let Some(seconds) = self.created_seconds
            && let Ok(created) = Timestamp::from_second(seconds)
        {
            return Some(created);
        }
        parse_time(self.created.as_deref()?)
    }

    /// Reduces the metadata to the part that an export keeps: identity, version, times, and the wanted labels,
    /// annotations and owners.
    pub(crate) fn for_export(mut self, wanted: Wanted) -> Self {
        // In protobuf, the time is a number, which is not written. An export has it as text in one form only.
        self.created = self.created_at().map(|created| Cow::Owned(created.to_string()));
        self.annotations
            .retain(|(name, _)| wanted.annotations.contains(&name.as_ref()));
        self.labels
            .retain(|(name, _)| wanted.labels.include(name.as_bytes()));
        if !wanted.owners {
            self.owner_references.clear();
        }
        self
    }

    /// The object's version, without its labels.
    pub fn revision(&self) -> Revision {
        self.revision_with(BTreeMap::new())
    }

    /// The object's version, with its labels.
    pub(crate) fn revision_with_labels(&self) -> Revision {
        let mut labels = BTreeMap::new();
        for (name, value) in &self.labels {
            labels.insert(name.to_string(), value.to_string());
        }
        self.revision_with(labels)
    }

    fn revision_with(&self, labels: BTreeMap<String, String>) -> Revision {
        Revision::Kubernetes(Box::new(ObjectVersion {
            resource_version: self.resource_version.to_string(),
            uid: self.uid.to_string(),
            labels,
        }))
    }
}

/// An object's `metadata`, even if other parts are invalid; `None` if it cannot be decoded.
pub fn metadata(object: &[u8], encoding: Encoding) -> Option<Meta<'_>> {
    #[derive(Deserialize)]
    struct Object<'a> {
        #[serde(borrow)]
        metadata: Option<Meta<'a>>,
    }
    if encoding == Encoding::Json {
        let object: Object<'_> = serde_json::from_slice(object).ok()?;
        return object.metadata;
    }

    let nothing_optional = Wanted {
        labels: Labels::None,
        annotations: &[],
        owners: false,
    };
    let mut meta = None;
    // The fields after the metadata could be malformed.
    let _ = each(object, |field, value| {
        if field == 1 {
            meta = Some(Meta::from_protobuf(value.bytes(), nothing_optional)?);
        }
        Ok(())
    });
    meta
}

/// An object's namespace and name, even if other parts are invalid; `?` if it has no name.
pub fn identify(object: &[u8], encoding: Encoding) -> (String, String) {
    let meta = metadata(object, encoding).unwrap_or_default();
    let name = if meta.name.is_empty() { "?" } else { &meta.name };
    (meta.namespace.to_string(), name.to_owned())
}

/// Reads a JSON object of strings, or `null`, which has no entries.
fn pairs<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Pairs<'de>, D::Error> {
    struct Visitor;
    impl<'de> serde::de::Visitor<'de> for Visitor {
        type Value = Pairs<'de>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object of strings")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(Vec::new())
        }

        fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut pairs = Vec::new();
            while let Some((Text(name), Text(value))) = map.next_entry()? {
                pairs.push((name, value));
            }
            Ok(pairs)
        }
    }
    deserializer.deserialize_any(Visitor)
}

fn map<S: Serializer>(pairs: &Pairs<'_>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(name, value)| (name, value)))
}

fn pair(message: &[u8]) -> Result<(Cow<'_, str>, Cow<'_, str>)> {
    let (name, value) = entry(message)?;
    let text = |bytes| std::str::from_utf8(bytes).map_err(|_| "a label or annotation is not UTF-8");
    Ok((Cow::Borrowed(text(name)?), Cow::Borrowed(text(value)?)))
}

fn rfc3339<'a>(seconds: i64) -> Cow<'a, str> {
    Cow::Owned(
        Timestamp::from_second(seconds)
            .map(|time| time.to_string())
            .unwrap_or_default(),
    )
}

/// Reads the seconds in a `Time`, which are its first field.
pub fn seconds(message: &[u8]) -> Result<i64> {
    decode!(message, seconds: i64, value, { 1 => seconds = value.number() as i64 })
}
