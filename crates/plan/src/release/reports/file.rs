//! Reads reports as streams: of up to a million allocations, only the unused ones are kept.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::num::ParseIntError;

use calipam_check::{EarlierFinding, NoReport};
use calipam_model::attributes::Attribute;
use calipam_model::cidr::parse_address;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::{Observation, Observations, allocation, is_released};

/// A report by calipam or calicoctl, from JSON or YAML.
#[derive(Debug, Default)]
pub struct ReportFile {
    /// The fields except `allocations` and `findings`.
    pub(super) fields: Map<String, Value>,
    /// The unused addresses among calicoctl's `allocations`.
    pub(super) listed: HashMap<IpAddr, Vec<Observation>>,
    /// The unused addresses and handles among the `findings`; `None` if there is no such list.
    pub(super) found: Option<Result<Observations, NoReport>>,
}

impl ReportFile {
    /// Keeps the allocations of an address that calicoctl would release.
    fn list(&mut self, address: &str, elements: &Value) {
        let Some(address) = parse_address(address) else {
            return;
        };
        let mut observations = Vec::new();
        for element in elements.as_array().into_iter().flatten() {
            if let Some(fields) = element.as_object()
                && is_released(fields)
            {
                observations.extend(allocation(fields));
            }
        }
        if !observations.is_empty() {
            self.listed.insert(address, observations);
        }
    }
}

/// The evidence in a finding about an unused address or handle.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Unused {
    records: Vec<Recorded>,
    revision: String,
}

/// A record in a block. An unreadable field is an error: it must not count as a missing field.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Recorded {
    handle: Option<String>,
    attributes: Option<BTreeMap<String, String>>,
    /// The digits of the sequence number.
    sequence_number: Option<String>,
}

/// Adds a finding about an unused address or handle to the observations, and ignores any other.
fn add_finding(seen: &mut Observations, finding: &Value) -> Result<(), NoReport> {
    let undecodable = |error: &dyn fmt::Display| NoReport::Undecodable(error.to_string());
    let EarlierFinding {
        code,
        subject,
        evidence,
        ..
    } = Deserialize::deserialize(finding).map_err(|error: serde_json::Error| undecodable(&error))?;
    if evidence.is_null() || !["leaked-address", "orphan-handle"].contains(&code.as_str()) {
        return Ok(());
    }
    let unused: Unused = serde_json::from_value(evidence).map_err(|error| undecodable(&error))?;
    if code == "orphan-handle" {
        seen.handles.insert(subject.name, unused.revision);
    } else if let Some(address) = parse_address(&subject.name) {
        let observations = seen.addresses.entry(address).or_default();
        for recorded in unused.records {
            observations.push(observation_of(recorded)?);
        }
    }
    Ok(())
}

/// Returns the observation of a record; an error if its sequence number is not a number.
fn observation_of(recorded: Recorded) -> Result<Observation, NoReport> {
    let undecodable = |error: ParseIntError| NoReport::Undecodable(error.to_string());
    let sequence = match recorded.sequence_number {
        Some(digits) => Some(digits.parse().map_err(undecodable)?),
        None => None,
    };
    let has_owner = recorded.attributes.is_some();
    let record = Attribute {
        handle: recorded.handle,
        owner: recorded.attributes,
        ..Attribute::default()
    };
    Ok(Observation {
        record: record.into(),
        has_owner,
        sequence,
    })
}

impl<'de> Deserialize<'de> for ReportFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Fields)
    }
}

/// Reads the fields of a report.
struct Fields;

impl<'de> Visitor<'de> for Fields {
    type Value = ReportFile;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    /// Reads a report: its allocations and findings one by one, so that they are not held in memory, and the other
    /// fields.
    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<ReportFile, M::Error> {
        let mut file = ReportFile::default();
        while let Some(name) = map.next_key::<String>()? {
            match name.as_str() {
                "allocations" => {
                    map.next_value_seed(Each(|address: &str, elements: &Value| {
                        file.list(address, elements);
                    }))?;
                }
                "findings" => {
                    let mut found = Ok(Observations::default());
                    let is_list = map.next_value_seed(Each(|_: &str, finding: &Value| {
                        if let Ok(seen) = &mut found
                            && let Err(error) = add_finding(seen, finding)
                        {
                            found = Err(error);
                        }
                    }))?;
                    file.found = if is_list { Some(found) } else { None };
                }
                _ => {
                    let value = map.next_value()?;
                    file.fields.insert(name, value);
                }
            }
        }
        Ok(file)
    }
}

macro_rules! ignored {
    ($($visit:ident: $type:ty),*) => {$(
        fn $visit<E>(self, _: $type) -> Result<bool, E> {
            Ok(false)
        }
    )*};
}

/// Calls a function with each member of an object and its name, or with each element of a list. Returns true for a
/// list.
struct Each<F>(F);

impl<'de, F: FnMut(&str, &Value)> DeserializeSeed<'de> for Each<F> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, F: FnMut(&str, &Value)> Visitor<'de> for Each<F> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_map<M: MapAccess<'de>>(mut self, mut map: M) -> Result<bool, M::Error> {
        while let Some((name, value)) = map.next_entry::<String, Value>()? {
            (self.0)(&name, &value);
        }
        Ok(false)
    }

    fn visit_seq<S: SeqAccess<'de>>(mut self, mut list: S) -> Result<bool, S::Error> {
        while let Some(value) = list.next_element::<Value>()? {
            (self.0)("", &value);
        }
        Ok(true)
    }

    ignored! { visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64, visit_str: &str }

    fn visit_unit<E>(self) -> Result<bool, E> {
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_unused_allocations_are_kept() {
        let allocation = |in_use: bool| json!([{"handle": "h", "sequenceNumber": 7, "inUse": in_use}]);
        let mut allocations: Map<String, Value> = (0..250)
            .map(|last| (format!("10.0.0.{last}"), allocation(true)))
            .collect();
        allocations.insert("10.0.1.1".into(), allocation(false));
        let leaked = |kind: &str| json!({"code": "leaked-address", "subject": {"kind": "ip", "name": kind}, "evidence": {"records": [{}]}});
        let text =
            json!({"allocations": allocations, "findings": [leaked("10.0.0.9"), leaked("no")], "kind": [1]});
        let file: ReportFile = serde_json::from_str(&text.to_string()).unwrap();
        assert_eq!(file.fields, *json!({"kind": [1]}).as_object().unwrap());
        let expected = "10.0.1.1".parse::<IpAddr>().unwrap();
        assert_eq!(file.listed.keys().collect::<Vec<_>>(), [&expected]);
        assert_eq!(file.found.unwrap().unwrap().addresses.len(), 1);
    }
}
