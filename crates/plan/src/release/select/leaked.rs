//! Selects everything that leaked: addresses, and handles without allocations. Reports of `--from-report` narrow both.

use std::collections::BTreeSet;
use std::net::IpAddr;

use calipam_check::{Code, Evidence, Finding, Subject};

use super::super::Force;
use super::super::may_release::{
    allocations, needed_orphan, too_early, too_early_orphan, unknown_owner, why_not,
};
use super::super::observation::Observations;
use super::Selection;
use crate::skipped::{Refusal, SkipReason, Skipped, SuggestedAction};

impl<'s> Selection<'_, 's> {
    /// Chooses every leaked address whose record names its owner. If there are reports, chooses only addresses that all
    /// of them list.
    pub(super) fn choose_leaked(&mut self) {
        let reports = self.reports();
        if reports.is_empty() {
            self.choose_all_leaked();
            return;
        }

        for address in addresses_in_all(&reports) {
            self.choose_reported(address, &reports);
        }
    }

    /// Chooses all leaked addresses that were seen often enough. Those without an owner stay, with a warning.
    fn choose_all_leaked(&mut self) {
        let mut without_owner = 0;
        for finding in self.basis.findings(Code::LeakedAddress) {
            if !self.is_wanted(finding) {
                continue;
            }
            if finding.is_owner_unknown() {
                without_owner += 1;
            } else {
                self.choose_if_seen_enough(finding);
            }
        }

        if without_owner > 0 {
            let warning = format!(
                "unused addresses whose records name no owner: {without_owner}; only `release --ip` or `release --handle` frees those"
            );
            self.plan.warnings.push(warning.into());
        }
    }

    /// Chooses an address that every report lists, if it is still leaked.
    fn choose_reported(&mut self, address: IpAddr, reports: &[&Observations]) {
        let subject = Subject::Address(address);
        let Some(finding) = self.basis.finding(Code::LeakedAddress, &subject) else {
            if self.scope.has_address(address, &self.basis.context.index) {
                let skipped = why_not(self.basis, address).with_code(Code::LeakedAddress);
                self.plan.skipped.push(skipped);
            }
            return;
        };
        if !self.is_wanted(finding) {
            return;
        }

        if self.force != Force::Reported
            && let Some(refusal) = unknown_owner(finding)
        {
            let skipped = Skipped::refused(finding, refusal);
            self.plan
                .skipped
                .push(skipped.suggesting(SuggestedAction::ReleaseByName));
            return;
        }

        match self.differing_report(finding, address, reports) {
            Some(refusal) => self.skip_refused(finding, refusal),
            None => self.choose_if_seen_enough(finding),
        }
    }

    /// Refuses a leaked address if one of the reports saw, or may have seen, another allocation of it.
    fn differing_report(
        &self,
        finding: &Finding,
        address: IpAddr,
        reports: &[&Observations],
    ) -> Option<Refusal> {
        let held = allocations(self.basis, finding);
        let saw_all =
            |report: &Observations| held.iter().all(|allocated| report.saw(address, &allocated.guard));
        let report = reports.iter().find(|report| !saw_all(report))?;
        let name = &report.name;

        let has_sequence = report.addresses[&address]
            .iter()
            .any(|seen| seen.sequence.is_some());
        let detail = if has_sequence {
            format!("{address} has been released and assigned again since {name} was written")
        } else {
            format!(
                "{name} does not give the sequence number of {address}: it is not known which allocation it saw"
            )
        };
        Some(Refusal::new(SkipReason::ReportDiffers, detail))
    }

    /// Chooses the addresses of a finding about a leak, unless they have to wait.
    fn choose_if_seen_enough(&mut self, finding: &'s Finding) {
        let held = allocations(self.basis, finding);
        match too_early(self.basis, finding, &held) {
            Some(refusal) => self.skip_refused(finding, refusal),
            None => self.choose_held(finding, held),
        }
    }

    /// Chooses every handle that no allocation refers to. If there are reports, chooses only handles that all of them
    /// list.
    pub(super) fn choose_orphans(&mut self) {
        let reports = self.reports();
        for finding in self.basis.findings(Code::OrphanHandle) {
            let Subject::Handle(id) = &finding.subject else {
                continue;
            };
            let is_reported = reports.iter().all(|report| report.handles.contains_key(id));
            if is_reported && self.is_wanted(finding) {
                self.choose_orphan(id, finding, &reports);
            }
        }
    }

    /// Chooses a handle without allocations for deletion. Skips a handle that has changed since a report was written,
    /// that a running pod still needs, or that was seen only once: a plugin writes the handle before the block.
    fn choose_orphan(&mut self, id: &str, finding: &'s Finding, reports: &[&Observations]) {
        let revision = revision_of(finding);
        let differing_report = reports
            .iter()
            .find(|report| Some(&report.handles[id]) != revision.as_ref());
        if let Some(report) = differing_report {
            let detail = format!("{id} has changed since {} was written", report.name);
            self.skip_finding(finding, SkipReason::ReportDiffers, detail);
            return;
        }

        if let Some(refusal) = needed_orphan(id, finding) {
            let skipped = Skipped::refused(finding, refusal);
            self.plan.skipped.push(Skipped {
                suggested_action: finding.remedy().map(SuggestedAction::Remedy),
                ..skipped
            });
            return;
        }

        if let Some(refusal) = too_early_orphan(self.basis, finding) {
            self.skip_refused(finding, refusal);
            return;
        }

        self.orphans.insert(id.to_owned(), finding);
    }
}

/// Returns the addresses that every report lists, in order.
fn addresses_in_all(reports: &[&Observations]) -> BTreeSet<IpAddr> {
    let Some((first, others)) = reports.split_first() else {
        return BTreeSet::new();
    };
    let mut addresses: BTreeSet<IpAddr> = first.addresses.keys().copied().collect();
    addresses.retain(|address| others.iter().all(|report| report.addresses.contains_key(address)));
    addresses
}

/// Returns the revision of the handle in a finding about one.
fn revision_of(finding: &Finding) -> Option<String> {
    let Evidence::Handle(evidence) = &finding.evidence else {
        return None;
    };
    evidence.revision.clone()
}
