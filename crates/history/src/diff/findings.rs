//! Findings that are new, and findings that are gone.

use std::collections::HashSet;

use calipam_check::{Code, Finding, Report, Subject};
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use super::scope::Scope;

/// A finding that only one side has.
#[derive(Clone, Copy, Debug)]
pub struct FindingSummary<'s>(pub &'s Finding);

impl Serialize for FindingSummary<'_> {
    /// Without evidence: a check of that side has it.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("FindingSummary", 4)?;
        object.serialize_field("code", &self.0.code)?;
        object.serialize_field("severity", &self.0.severity)?;
        object.serialize_field("subject", &self.0.subject)?;
        object.serialize_field("message", &self.0.message)?;
        object.end()
    }
}

/// How the findings differ, each list ordered as in a report.
#[derive(Clone, Debug, Serialize)]
pub struct FindingChanges<'s> {
    pub new: Vec<FindingSummary<'s>>,
    pub gone: Vec<FindingSummary<'s>>,
}

/// Two findings are the same where code and subject are: what they say of it may have changed.
pub(crate) fn changes<'s>(old: &'s Report, new: &'s Report, scope: &Scope) -> FindingChanges<'s> {
    let filter = scope.filter();
    let only = |of: &'s Report, other: &'s Report| -> Vec<FindingSummary<'s>> {
        let known: HashSet<(Code, &Subject)> = other.findings.iter().map(|f| (f.code, &f.subject)).collect();
        let unknown = of.findings.iter().filter(|f| !known.contains(&(f.code, &f.subject)));
        unknown.filter(|finding| filter.admits(finding)).map(FindingSummary).collect()
    };
    FindingChanges { new: only(new, old), gone: only(old, new) }
}
