//! Reads the fields of a JSON object as Go's decoder does: names match in any case, the last of several fields with the
//! same name wins, `null` leaves a field unchanged, and unknown fields are allowed.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// A field of the wrong type. The error omits the value, which could be a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the field {field} must be {kind}")]
pub struct WrongType {
    /// The field with its path, such as `policy.k8s_auth_token`.
    field: String,
    kind: &'static str,
}

/// The undecoded fields of an object, in the document's order.
#[derive(Default)]
pub(super) struct Fields<'a> {
    /// The path of the object, such as `ipam.`; empty for the whole document.
    path: String,
    fields: Vec<(String, &'a RawValue)>,
}

impl<'a> Fields<'a> {
    pub(super) fn read(json: &'a str) -> serde_json::Result<Self> {
        let object: Option<RawFields<'a>> = serde_json::from_str(json)?;
        Ok(Self {
            path: String::new(),
            fields: object.unwrap_or_default().0,
        })
    }

    /// The value of a field, or its type's default if it is not set. Errors name the wanted `kind`, such as `a string`.
    pub(super) fn get<T: DeserializeOwned + Default>(
        &self,
        name: &str,
        kind: &'static str,
    ) -> Result<T, WrongType> {
        Ok(self.find(name, kind)?.unwrap_or_default())
    }

    /// Returns the value of a field; `None` if it is not set or `null`.
    pub(super) fn find<T: DeserializeOwned>(
        &self,
        name: &str,
        kind: &'static str,
    ) -> Result<Option<T>, WrongType> {
        let mut last = None;
        for value in self.named(name) {
            // As in Go, the last of several values counts, and `null` leaves the value before it.
            if let Some(decoded) = self.decode(name, value, kind)? {
                last = Some(decoded);
            }
        }
        Ok(last)
    }

    /// A string; empty if it is not set.
    pub(super) fn text(&self, name: &str) -> Result<String, WrongType> {
        self.get(name, "a string")
    }

    /// Returns the fields of a nested object; none if it is not set.
    pub(super) fn object(&self, name: &str) -> Result<Fields<'a>, WrongType> {
        let mut fields = Vec::new();
        // If the object is there several times, the fields of the later ones come last, and so take precedence.
        for value in self.named(name) {
            let object: Option<RawFields<'a>> = self.decode(name, value, "an object")?;
            if let Some(RawFields(fields_of_object)) = object {
                fields.extend(fields_of_object);
            }
        }
        Ok(Self {
            path: format!("{}{name}.", self.path),
            fields,
        })
    }

    /// Decodes the value of a field. The error names the field and the kind of value that it needs.
    fn decode<T: Deserialize<'a>>(
        &self,
        name: &str,
        value: &'a RawValue,
        kind: &'static str,
    ) -> Result<T, WrongType> {
        serde_json::from_str(value.get()).map_err(|_| WrongType {
            field: format!("{}{name}", self.path),
            kind,
        })
    }

    fn named(&self, name: &str) -> impl Iterator<Item = &'a RawValue> {
        self.fields
            .iter()
            .filter(move |(field, _)| field.eq_ignore_ascii_case(name))
            .map(|(_, value)| *value)
    }
}

/// All fields of a JSON object in the document's order, with their undecoded values. A map would have only one of
/// several fields with the same name.
#[derive(Default)]
struct RawFields<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for RawFields<'a> {
    /// Reads an object without decoding the values of its fields.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FieldCollector)
    }
}

/// Collects the fields of an object for serde.
struct FieldCollector;

impl<'de> Visitor<'de> for FieldCollector {
    type Value = RawFields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    /// Adds one field after the other, as long as the object has more.
    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<RawFields<'de>, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = object.next_entry()? {
            fields.push(field);
        }
        Ok(RawFields(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_in_any_case_and_the_last_wins() {
        let fields =
            Fields::read(r#"{"NAME":"a","x":1,"name":null,"Name":"b","Ipam":{"Type":"t"},"ipam":{"v":2}}"#);
        let fields = fields.unwrap();
        assert_eq!(fields.text("name").unwrap(), "b");
        assert_eq!(fields.text("missing").unwrap(), "");
        let ipam = fields.object("ipam").unwrap();
        assert_eq!(
            (ipam.text("type").unwrap().as_str(), ipam.get("V", "a number")),
            ("t", Ok(2))
        );
        assert_eq!(Fields::read("null").unwrap().text("name").unwrap(), "");
    }

    #[test]
    fn a_wrong_type_is_named_without_the_value() {
        let fields = Fields::read(r#"{"policy":{"k8s_auth_token":12345},"ipam":[]}"#).unwrap();
        let error = fields
            .object("policy")
            .unwrap()
            .text("k8s_auth_token")
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "the field policy.k8s_auth_token must be a string"
        );
        assert!(fields.object("ipam").is_err());
        for text in ["", "[]", "{", "1", "{} {}", "{\"a\":}"] {
            assert!(Fields::read(text).is_err(), "{text}");
        }
    }
}
