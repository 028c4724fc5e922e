//! Reading the fields of a JSON object as Go's decoder does: names match in any case, the last of several equal fields
//! wins, `null` leaves a field as it is, unknown fields are allowed.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The fields of an object, undecoded, in their order.
#[derive(Default)]
pub(super) struct Fields<'a> {
    /// Where the object lies, such as `ipam.`; empty for the whole document.
    path: String,
    fields: Vec<(String, &'a RawValue)>,
}

impl<'a> Fields<'a> {
    /// Reads a document.
    pub(super) fn read(json: &'a str) -> Result<Self, String> {
        let fields: Option<Raw<'a>> = serde_json::from_str(json).map_err(|error| error.to_string())?;
        Ok(Self { path: String::new(), fields: fields.unwrap_or_default().0 })
    }

    /// The value of a field, or its default where it is not set. `kind` says in errors what it must be, such as `a
    /// string`: the value itself may be a secret.
    pub(super) fn get<T: DeserializeOwned + Default>(&self, name: &str, kind: &str) -> Result<T, String> {
        Ok(self.find(name, kind)?.unwrap_or_default())
    }

    /// As [`Self::get`]; `None` if the field is not set.
    pub(super) fn find<T: DeserializeOwned>(&self, name: &str, kind: &str) -> Result<Option<T>, String> {
        let mut found = None;
        for value in self.named(name) {
            let decoded: Option<T> = serde_json::from_str(value.get())
                .map_err(|_| format!("the field {}{name} must be {kind}", self.path))?;
            found = decoded.or(found);
        }
        Ok(found)
    }

    /// A text; empty where it is not set.
    pub(super) fn text(&self, name: &str) -> Result<String, String> {
        self.get(name, "a string")
    }

    /// An object within; without fields where it is not set.
    pub(super) fn object(&self, name: &str) -> Result<Fields<'a>, String> {
        let mut fields = Vec::new();
        for value in self.named(name) {
            let inner: Option<Raw<'a>> = serde_json::from_str(value.get())
                .map_err(|_| format!("the field {}{name} must be an object", self.path))?;
            fields.extend(inner.unwrap_or_default().0);
        }
        Ok(Self { path: format!("{}{name}.", self.path), fields })
    }

    fn named(&self, name: &str) -> impl Iterator<Item = &'a RawValue> {
        self.fields.iter().filter(move |(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| *value)
    }
}

#[derive(Default)]
struct Raw<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Raw<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Raw<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Raw<'de>, A::Error> {
                let mut fields = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    fields.push(entry);
                }
                Ok(Raw(fields))
            }
        }
        deserializer.deserialize_map(Entries)
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
        assert_eq!((ipam.text("type").unwrap().as_str(), ipam.get("V", "a number")), ("t", Ok(2)));
        assert_eq!(Fields::read("null").unwrap().text("name").unwrap(), "");
    }

    #[test]
    fn a_wrong_type_is_named_without_the_value() {
        let fields = Fields::read(r#"{"policy":{"k8s_auth_token":12345},"ipam":[]}"#).unwrap();
        let error = fields.object("policy").unwrap().text("k8s_auth_token").unwrap_err();
        assert_eq!(error, "the field policy.k8s_auth_token must be a string");
        assert!(fields.object("ipam").is_err());
        for text in ["", "[]", "{", "1", "{} {}", "{\"a\":}"] {
            assert!(Fields::read(text).is_err(), "{text}");
        }
    }
}
