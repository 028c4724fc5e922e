//! Findings that are new, and findings that are gone.

use std::collections::HashSet;

use calipam_check::{Code, Finding, Report, Scope, Subject};
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

/// A finding that only one side has.
#[derive(Clone, Debug)]
pub struct FindingSummary(pub Finding);

impl Serialize for FindingSummary {
    /// Without evidence: a check of that side has it.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("FindingSummary", 4)?;
        object.serialize_field("code", &self.0.code)?;
        object.serialize_field("severity", &self.0.severity)?;
        object.serialize_field("subject", &self.0.subject)?;
        object.serialize_field("message", &self.0.message())?;
        object.end()
    }
}

/// How the findings differ, each list ordered as in a report.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FindingChanges {
    pub new: Vec<FindingSummary>,
    pub gone: Vec<FindingSummary>,
}

/// Two findings are the same where code and subject are: what they say of it may have changed.
pub(crate) fn changes(mut old: Report, mut new: Report, scope: &Scope) -> FindingChanges {
    let only = |of: &Report, other: &Report| -> Vec<bool> {
        let known: HashSet<(Code, &Subject)> = other.findings.iter().map(|f| f.key_ref()).collect();
        let is_only = |f: &Finding| !known.contains(&f.key_ref()) && scope.has(f);
        of.findings.iter().map(is_only).collect()
    };
    let (is_new, is_gone) = (only(&new, &old), only(&old, &new));
    let take = |of: &mut Report, wanted: Vec<bool>| -> Vec<FindingSummary> {
        let findings = std::mem::take(&mut of.findings).into_iter().zip(wanted);
        findings.filter(|(_, wanted)| *wanted).map(|(finding, _)| FindingSummary(finding)).collect()
    };
    FindingChanges { new: take(&mut new, is_new), gone: take(&mut old, is_gone) }
}
