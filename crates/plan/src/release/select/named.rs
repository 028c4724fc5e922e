//! Selects what the operator names: addresses, handles, or nodes. Named addresses and handles need no earlier
//! observation.

use std::collections::HashMap;
use std::net::IpAddr;

use calipam_check::{Code, Evidence, Finding, Remedy, Subject};
use calipam_model::block::BlockOwner;

use super::super::may_release::{can_be_forced, needed_orphan, why_not};
use super::super::{Force, Request};
use super::Selection;
use crate::basis::handles::{Allocated, clean};
use crate::basis::sound_records;
use crate::skipped::{SkipReason, Skipped, SuggestedAction};

impl<'s> Selection<'_, 's> {
    /// Chooses everything that the named nodes hold, if only nodes are named. Otherwise, chooses the named addresses, or
    /// without any those of the named handles.
    pub(super) fn choose_named(&mut self, request: &Request) {
        if request.is_of_nodes() {
            self.choose_nodes(request);
            return;
        }
        for address in &request.addresses {
            self.choose_address_in_scope(*address);
        }
        if request.addresses.is_empty() {
            for id in &request.handles {
                self.choose_handle(clean(id));
            }
        }
    }

    /// Chooses a named address, unless the other options exclude it.
    fn choose_address_in_scope(&mut self, address: IpAddr) {
        let index = &self.basis.context.index;
        let is_in_scope = match self.finding_about(address) {
            Some(finding) => self.is_wanted(finding),
            // An address that no block records is reported as such.
            None if sound_records(index, address).next().is_none() => true,
            None => self.scope.has_address(address, index),
        };

        if is_in_scope {
            self.choose_address(address);
        } else {
            let detail = format!("{address} is excluded by the other options");
            self.skip_subject(Subject::Address(address), SkipReason::OutOfScope, detail);
        }
    }

    /// Chooses a named address if it is leaked, or if its release is forced; otherwise notes why it is kept.
    fn choose_address(&mut self, address: IpAddr) {
        let is_forced = self.force == Force::Named;
        let Some(finding) = self.finding_about(address) else {
            if is_forced {
                self.force_release(address);
            } else {
                self.plan.skipped.push(why_not(self.basis, address));
            }
            return;
        };

        let is_corrupt = self.basis.context.index.is_unchecked(address.into());
        if is_forced && !is_corrupt {
            // The address is released by itself, whatever other addresses its handle holds.
            self.plan.forced.push(address);
        }
        self.choose(finding);
    }

    /// Returns the finding that justifies the release of a named address.
    fn finding_about(&self, address: IpAddr) -> Option<&'s Finding> {
        let subject = Subject::Address(address);
        let leaked = self.basis.finding(Code::LeakedAddress, &subject);
        leaked.or_else(|| self.basis.finding(Code::ServiceAddressExtra, &subject))
    }

    /// Chooses an address although it may be in use, unless it cannot be released.
    fn force_release(&mut self, address: IpAddr) {
        let refusal = why_not(self.basis, address);
        if !can_be_forced(refusal.reason) {
            self.plan.skipped.push(refusal);
            return;
        }

        let warning = format!("--force: {}; releasing anyway", refusal.detail);
        self.plan.warnings.push(warning.into());
        self.plan.forced.push(address);

        for block in self.basis.context.index.blocks_around(address) {
            if let Some(allocation) = block.sound.and_then(|sound| sound.allocation_of(address)) {
                self.choose_allocation(Allocated::new(block.key, &allocation), None);
            }
        }
    }

    /// Chooses all addresses under a named handle.
    fn choose_handle(&mut self, id: &str) {
        let allocated = self.handles.allocated(id).to_vec();
        if allocated.is_empty() {
            self.choose_empty_handle(id);
        }
        for held in allocated {
            self.choose_address_in_scope(held.address);
        }
    }

    /// Chooses a named handle without known allocations.
    fn choose_empty_handle(&mut self, id: &str) {
        let subject = Subject::Handle(id.to_owned());
        let Some(finding) = self.basis.finding(Code::OrphanHandle, &subject) else {
            self.skip_unknown_handle(id);
            return;
        };

        if !self.is_wanted(finding) {
            let detail = format!("{id} is excluded by the other options");
            self.skip_finding(finding, SkipReason::OutOfScope, detail);
            return;
        }
        if self.force != Force::Named
            && let Some(refusal) = needed_orphan(id, finding)
        {
            self.skip_refused(finding, refusal);
            return;
        }
        self.orphans.insert(id.to_owned(), finding);
    }

    /// Skips a named handle that has no known allocations, and about which there is no finding.
    fn skip_unknown_handle(&mut self, id: &str) {
        let subject = Subject::Handle(id.to_owned());
        let exists = !self.handles.objects(id).is_empty();
        if exists {
            let detail =
                format!("the blocks that handle {id} names cannot be checked, or it has just changed");
            self.skip_subject(subject, SkipReason::Unchecked, detail);
        } else {
            let detail = format!("there is no handle {id}, and no address is recorded under it");
            self.skip_subject(subject, SkipReason::NotFound, detail);
        }
    }

    /// Chooses all that belongs to the named nodes.
    fn choose_nodes(&mut self, request: &Request) {
        let nodes = &request.scope.nodes;
        let mut by_node: HashMap<&str, Vec<&'s Finding>> = HashMap::new();
        for finding in &self.basis.report.findings {
            for node in finding.nodes.iter().filter(|node| nodes.contains(*node)) {
                by_node.entry(node).or_default().push(finding);
            }
        }

        for node in nodes {
            let findings = by_node.remove(node.as_str()).unwrap_or_default();
            self.choose_node(node, &findings);
        }
    }

    /// Chooses the leaked addresses of a deleted node, with the findings that name the node. The node also loses its
    /// blocks and affinities. Skips any other node.
    fn choose_node(&mut self, node: &str, findings: &[&'s Finding]) {
        let index = &self.basis.context.index;
        if index.node_exists(node) {
            self.plan.skipped.push(skip_existing_node(node, findings));
            return;
        }

        let is_named_by_workloads = index.workloads_name_node(node);
        if !is_named_by_workloads && findings.is_empty() {
            let detail = format!("nothing is recorded for node {node}");
            self.skip_subject(Subject::Node(node.to_owned()), SkipReason::NotFound, detail);
            return;
        }
        if is_named_by_workloads {
            let warning = format!(
                "node {node} does not exist, but endpoints or pods still refer to it; what they use is kept"
            );
            self.plan.warnings.push(warning.into());
        }

        for finding in findings {
            // Without a known owner, only a release by name frees the address.
            let is_leak = finding.code == Code::LeakedAddress && !finding.is_owner_unknown();
            if is_leak && is_recorded_for(finding, node) && self.is_wanted(finding) {
                self.choose(finding);
            }
        }
        self.nodes.insert(node.to_owned());
    }
}

/// Refuses to release what belongs to an existing node.
fn skip_existing_node(node: &str, findings: &[&Finding]) -> Skipped {
    let detail = format!("node {node} exists; only what belongs to a deleted node is released");
    let skipped = Skipped::new(Subject::Node(node.to_owned()), SkipReason::NodeExists, detail);
    if !findings.iter().any(|finding| finding.code == Code::LeakedAddress) {
        return skipped;
    }
    // The node may have been reinstalled, and the addresses of its earlier pods are still recorded.
    let release = Remedy::ReleaseLeakedOf(node.to_owned());
    skipped.suggesting(SuggestedAction::Remedy(release))
}

/// Returns true if all records of the address name the node, or name none and are in the node's block.
fn is_recorded_for(finding: &Finding, node: &str) -> bool {
    let Evidence::Address(evidence) = &finding.evidence else {
        return false;
    };
    for record in &evidence.records {
        let is_for_node = match record.record.as_ref().get("node") {
            Some(recorded) => recorded == *node,
            None => record.block_owner.as_ref().and_then(BlockOwner::host) == Some(node),
        };
        if !is_for_node {
            return false;
        }
    }
    true
}
