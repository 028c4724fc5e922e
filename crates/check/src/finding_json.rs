//! Findings as reports write them.

use serde::ser::{Serialize, SerializeStruct, Serializer};

use crate::finding::{Finding, Subject};

impl Serialize for Subject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("Subject", 2)?;
        object.serialize_field("kind", self.kind())?;
        object.serialize_field("name", &self.to_string())?;
        object.end()
    }
}

impl Serialize for Finding {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let repair = self.remedy().map(|remedy| format!("calipam {remedy}"));
        let mut object = serializer.serialize_struct("Finding", 5 + usize::from(repair.is_some()))?;
        object.serialize_field("code", &self.code)?;
        object.serialize_field("severity", &self.severity)?;
        object.serialize_field("subject", &self.subject)?;
        object.serialize_field("message", &self.message)?;
        object.serialize_field("evidence", &self.evidence)?;
        match &repair {
            Some(command) => object.serialize_field("repair", command)?,
            None => object.skip_field("repair")?,
        }
        object.end()
    }
}
