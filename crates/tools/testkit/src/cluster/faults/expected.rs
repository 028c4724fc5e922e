//! The findings that faults must cause.

use crate::cluster::{Cluster, Form, Pod};

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
            self.truths[*form as usize].entry(code, &subject).details.push(detail);
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
