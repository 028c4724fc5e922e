//! The findings that a check of a generated cluster must report.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::{Cluster, Pod};
use crate::kube::Flavour;

/// The datastore of a cluster, and the parts of the cluster that a check reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// In etcd, without a kubeconfig.
    Etcd,
    /// In etcd, with the pods, services and machines of its Kubernetes.
    EtcdWithKubernetes,
    /// In Kubernetes, in the classic API group.
    Classic,
    /// In Kubernetes, in the native API group.
    Native,
}

impl Form {
    pub const ALL: [Self; 4] = [Self::Etcd, Self::EtcdWithKubernetes, Self::Classic, Self::Native];
    /// The forms with Calico's data in etcd.
    pub const IN_ETCD: [Self; 2] = [Self::Etcd, Self::EtcdWithKubernetes];
    /// The forms with Calico's data in Kubernetes.
    pub const IN_KUBERNETES: [Self; 2] = [Self::Classic, Self::Native];
    /// The forms with pods, services and machines.
    pub const WITH_PODS: [Self; 3] = [Self::EtcdWithKubernetes, Self::Classic, Self::Native];
    /// The forms in which Calico allows no overlapping pools, even if one is disabled.
    pub const WITHOUT_POOL_CONTROLLER: [Self; 3] = [Self::Etcd, Self::EtcdWithKubernetes, Self::Classic];

    /// The form of an API group.
    pub fn of(flavour: Flavour) -> Self {
        match flavour {
            Flavour::Classic => Self::Classic,
            Flavour::Native => Self::Native,
        }
    }
}

/// An expected finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    pub code: &'static str,
    /// The subject, in canonical form.
    pub subject: String,
    /// The severity, if it is unusual for the code.
    pub severity: Option<&'static str>,
    /// Strings that the evidence must contain, such as the reason for a leak or the problems of a block.
    pub details: Vec<&'static str>,
}

/// A finding of a check, as JSON, since the ground truth uses none of calipam's types.
#[derive(Clone, Debug)]
pub struct Found {
    finding: Value,
    /// The severity of the code unless the evidence says otherwise.
    usual_severity: String,
}

/// The exact set of findings that a check of a cluster must report.
#[derive(Clone, Debug, Default)]
pub struct GroundTruth {
    /// The findings by `code subject`.
    findings: BTreeMap<String, Expected>,
}

impl Found {
    /// Reads a finding from its JSON in a report. `usual_severity` is the severity of its code.
    ///
    /// # Panics
    /// Panics if the finding lacks a text.
    pub fn new(finding: &impl Serialize, usual_severity: &impl ToString) -> Self {
        let finding = serde_json::to_value(finding).expect("findings are shown in JSON");
        let found = Self {
            finding,
            usual_severity: usual_severity.to_string(),
        };
        for pointer in ["/code", "/subject/name", "/severity", "/message"] {
            found.text(pointer);
        }
        found
    }

    fn text(&self, pointer: &str) -> &str {
        self.finding
            .pointer(pointer)
            .and_then(Value::as_str)
            .expect("a finding has texts")
    }

    fn line(&self) -> String {
        format!("{} {}", self.text("/code"), self.text("/subject/name"))
    }

    fn describe(&self) -> String {
        let severity = self.text("/severity");
        let message = self.text("/message");
        format!(
            "{severity} {}: {message} {}",
            self.line(),
            self.finding["evidence"]
        )
    }

    fn differs(&self, expected: &Expected) -> Option<String> {
        let severity = expected.severity.unwrap_or(&self.usual_severity);
        let evidence = self.finding["evidence"].to_string();
        let lacking = expected
            .details
            .iter()
            .find(|detail| !evidence.contains(&format!("\"{detail}\"")));
        let what = match lacking {
            Some(detail) => format!("no {detail}"),
            None if self.text("/severity") != severity => format!("should be {severity}"),
            None => return None,
        };
        Some(format!("{what} in {}", self.describe()))
    }
}

impl GroundTruth {
    /// Expects a finding, if it is not yet expected. Returns it, to be changed.
    pub(super) fn entry(&mut self, code: &'static str, subject: &impl ToString) -> &mut Expected {
        let subject = subject.to_string();
        let new = Expected {
            code,
            subject,
            severity: None,
            details: Vec::new(),
        };
        self.findings
            .entry(format!("{code} {}", new.subject))
            .or_insert(new)
    }

    /// Returns the same findings with renamed subjects.
    pub(super) fn renamed(&self, rename: impl Fn(&str) -> String) -> Self {
        let mut renamed = Self::default();
        for expected in self.findings.values() {
            let entry = renamed.entry(expected.code, &rename(&expected.subject));
            (entry.severity, entry.details) = (expected.severity, expected.details.clone());
        }
        renamed
    }

    /// Replaces a detail in all findings.
    pub(super) fn rename_detail(&mut self, from: &str, to: &'static str) {
        let details = self
            .findings
            .values_mut()
            .flat_map(|expected| &mut expected.details);
        details
            .filter(|detail| **detail == from)
            .for_each(|detail| *detail = to);
    }

    pub fn len(&self) -> usize {
        self.findings.len()
    }

    /// True if the cluster is healthy.
    pub fn is_empty(&self) -> bool {
        self.findings.is_empty()
    }

    /// The findings, ascending by code and subject.
    pub fn iter(&self) -> impl Iterator<Item = Expected> + '_ {
        self.findings.values().cloned()
    }

    /// `code subject` of every finding, ascending.
    pub fn lines(&self) -> Vec<String> {
        self.findings.keys().cloned().collect()
    }

    /// Compares the findings of a check with the expected ones. Returns a line for each finding that is missing or
    /// unexpected, has another severity, or lacks a detail.
    pub fn complaints(&self, found: &[Found]) -> Vec<String> {
        let by_line: BTreeMap<String, &Found> = found.iter().map(|found| (found.line(), found)).collect();
        let expected = &self.findings;
        let missing = expected.keys().filter(|line| !by_line.contains_key(*line));
        let mut complaints: Vec<String> = missing.map(|line| format!("missing: {line}")).collect();
        let extra = found.iter().filter(|found| !expected.contains_key(&found.line()));
        complaints.extend(extra.map(|found| format!("not expected: {}", found.describe())));
        if by_line.len() != found.len() {
            complaints.push("one subject and code gave several findings".to_owned());
        }
        let both = expected
            .iter()
            .filter_map(|(line, expected)| Some((expected, *by_line.get(line)?)));
        complaints.extend(both.filter_map(|(expected, found)| found.differs(expected)));
        complaints
    }
}

/// A code, a severity or a detail of a finding.
pub(super) type Text = &'static str;

impl Cluster {
    /// Expects a finding in every form.
    pub(super) fn expect(&mut self, code: Text, subject: impl ToString) {
        self.expect_in(&Form::ALL, code, subject);
    }

    /// Expects a finding in some forms.
    pub(super) fn expect_in(&mut self, forms: &[Form], code: Text, subject: impl ToString) {
        for form in forms {
            self.truths[*form as usize].entry(code, &subject);
        }
    }

    /// Expects a finding with `detail` in its evidence, in every form.
    pub(super) fn expect_detail(&mut self, code: Text, subject: impl ToString, detail: Text) {
        self.expect_detail_in(&Form::ALL, code, subject, detail);
    }

    pub(super) fn expect_detail_in(
        &mut self,
        forms: &[Form],
        code: Text,
        subject: impl ToString,
        detail: Text,
    ) {
        for form in forms {
            self.truths[*form as usize]
                .entry(code, &subject)
                .details
                .push(detail);
        }
    }

    /// Expects a finding with an unusual severity.
    pub(super) fn expect_as(&mut self, forms: &[Form], code: Text, subject: impl ToString, severity: Text) {
        for form in forms {
            self.truths[*form as usize].entry(code, &subject).severity = Some(severity);
        }
    }

    /// Expects all addresses of a pod to be reported as leaked for a reason.
    pub(super) fn expect_leaked(&mut self, pod: &Pod, reason: Text) {
        self.expect_leaked_in(&Form::ALL, pod, reason);
    }

    pub(super) fn expect_leaked_in(&mut self, forms: &[Form], pod: &Pod, reason: Text) {
        for (address, _) in &pod.addresses {
            self.expect_detail_in(forms, "leaked-address", address, reason);
        }
    }

    /// Expects a finding for each address of a pod.
    pub(super) fn expect_for(&mut self, code: Text, pod: &Pod) {
        for (address, _) in &pod.addresses {
            self.expect(code, address);
        }
    }
}
