//! The findings that a generated cluster must give.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use serde::Serialize;

/// A finding to be expected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Expected {
    /// Its code.
    pub code: String,
    /// Its subject in canonical form.
    pub subject: String,
    /// Its severity, where it is not the usual one of the code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub severity: Option<String>,
    /// What the evidence must name: reasons of a leak, problems of a block.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<String>,
}

/// Severity and details.
type Rest = (Option<&'static str>, Vec<&'static str>);

/// All findings to be expected of a cluster: these and no others.
#[derive(Clone, Debug, Default)]
pub struct GroundTruth {
    findings: BTreeMap<(&'static str, String), Rest>,
}

impl GroundTruth {
    /// Expects a finding. Expecting it twice is expecting it once: one subject, one code, one finding.
    pub(super) fn expect(&mut self, code: &'static str, subject: impl ToString) {
        self.findings.entry((code, subject.to_string())).or_default();
    }

    /// Expects a finding whose evidence names `detail`.
    pub(super) fn expect_detail(&mut self, code: &'static str, subject: impl ToString, detail: &'static str) {
        self.findings.entry((code, subject.to_string())).or_default().1.push(detail);
    }

    /// Expects a finding of another severity than usual.
    pub(super) fn expect_as(&mut self, code: &'static str, subject: impl ToString, severity: &'static str) {
        self.findings.entry((code, subject.to_string())).or_default().0 = Some(severity);
    }

    /// The same with other subjects, and without those for which there is none. `rename` is given code and subject.
    pub(super) fn renamed(&self, rename: impl Fn(&'static str, &str) -> Option<String>) -> Self {
        let renamed = |((code, subject), rest): (&(&'static str, String), &Rest)| {
            Some(((*code, rename(code, subject)?), rest.clone()))
        };
        Self { findings: self.findings.iter().filter_map(renamed).collect() }
    }

    /// Expects another text in the evidence wherever `from` was expected.
    pub(super) fn rename_detail(&mut self, from: &str, to: &'static str) {
        let details = self.findings.values_mut().flat_map(|(_, details)| details);
        details.filter(|detail| **detail == from).for_each(|detail| *detail = to);
    }

    /// Takes over all findings of another one.
    pub(super) fn extend(&mut self, other: &Self) {
        self.findings.extend(other.findings.iter().map(|(key, rest)| (key.clone(), rest.clone())));
    }

    /// Number of findings.
    pub fn len(&self) -> usize {
        self.findings.len()
    }

    /// True where the cluster is healthy.
    pub fn is_empty(&self) -> bool {
        self.findings.is_empty()
    }

    /// The findings, ascending by code and subject.
    pub fn iter(&self) -> impl Iterator<Item = Expected> + '_ {
        self.findings.iter().map(|((code, subject), (severity, details))| Expected {
            code: (*code).to_owned(),
            subject: subject.clone(),
            severity: severity.map(str::to_owned),
            details: details.iter().map(|d| (*d).to_owned()).collect(),
        })
    }

    /// `code subject` of every finding, ascending.
    pub fn lines(&self) -> Vec<String> {
        self.findings.keys().map(|(code, subject)| format!("{code} {subject}")).collect()
    }

    /// The file: a JSON array with one finding a line.
    pub fn to_json(&self) -> String {
        let lines: Vec<String> =
            self.iter().map(|e| serde_json::to_string(&e).expect("texts serialise")).collect();
        format!("[\n{}\n]\n", lines.join(",\n"))
    }

    /// Writes the file.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn write(&self, path: &Path) -> std::io::Result<()> {
        std::fs::File::create(path)?.write_all(self.to_json().as_bytes())
    }
}
