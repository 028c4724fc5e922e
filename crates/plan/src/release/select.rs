//! Selects the requested addresses and objects that may be released.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;

use calipam_check::{Code, Evidence, Finding, Remedy, Subject};
use calipam_model::block::BlockOwner;

use super::may_release::{
    Choice, Chosen, allocations, can_be_forced, in_corrupt_block, keep_whole_handles, needed_orphan,
    too_early, too_early_orphan, unknown_owner, why_not,
};
use super::observation::Observations;
use super::scope::Scope;
use super::{Force, Request};
use crate::basis::handles::{Allocated, HandleAllocations, clean};
use crate::basis::{Basis, sound_records};
use crate::plan::{Plan, PlanKind};
use crate::skipped::{SkipReason, Skipped, SuggestedAction};

/// The addresses and objects to release, and the plan, to which skipped objects and warnings are added.
pub(super) struct Selection<'b, 's> {
    pub basis: &'b Basis<'s>,
    force: Force,
    pub chosen: Choice<'s>,
    /// Handles without allocations, which will be deleted.
    pub orphans: BTreeMap<String, &'s Finding>,
    /// Deleted nodes, which lose their blocks and affinities.
    pub nodes: BTreeSet<String>,
    pub scope: Scope,
    /// The named handles or, once the choice is made, the handles of the chosen allocations.
    pub handles: HandleAllocations<'s>,
    pub plan: Plan,
}

pub(super) fn select<'b, 's>(basis: &'b Basis<'s>, request: &Request) -> Selection<'b, 's> {
    let named: HashSet<String> = request.handles.iter().map(|id| clean(id).to_owned()).collect();
    let mut selection = Selection {
        basis,
        force: request.force,
        chosen: Choice::new(),
        orphans: BTreeMap::new(),
        nodes: BTreeSet::new(),
        scope: Scope::new(request),
        handles: HandleAllocations::new(basis, &named),
        plan: Plan::new(PlanKind::Release, basis.snapshot, Vec::new()),
    };

    if request.leaked {
        selection.leaked();
    }
    if request.orphan_handles {
        selection.choose_orphans();
    }

    if !request.leaked && !request.orphan_handles {
        selection.named(request);
    }
    selection.whole_handles();
    selection
}

impl<'s> Selection<'_, 's> {
    /// Chooses the named addresses. If there are none, chooses those of the named handles, or else everything that the
    /// named nodes hold. Named addresses and handles need no earlier observation.
    fn named(&mut self, request: &Request) {
        if request.is_of_nodes() {
            let mut of_nodes: HashMap<&str, Vec<&'s Finding>> = HashMap::new();
            for finding in &self.basis.report.findings {
                for name in finding
                    .nodes
                    .iter()
                    .filter(|name| request.scope.nodes.contains(*name))
                {
                    of_nodes.entry(name).or_default().push(finding);
                }
            }
            for node in &request.scope.nodes {
                self.node(node, of_nodes.remove(&**node).unwrap_or_default());
            }
        } else if request.addresses.is_empty() {
            request.handles.iter().for_each(|id| self.handle(clean(id)));
        } else {
            request
                .addresses
                .iter()
                .for_each(|address| self.named_address(*address));
        }
    }

    fn named_address(&mut self, address: IpAddr) {
        let index = &self.basis.context.index;
        let finding = self.about(address);
        // An address that no block records is reported as such.
        let is_known = finding.is_some() || sound_records(index, address).next().is_some();
        let is_wanted = |finding: &Finding| self.scope.has(finding, index);
        if is_known && !finding.map_or_else(|| self.scope.has_address(address, index), is_wanted) {
            let detail = format!("{address} is excluded by the other options");
            self.skip_other(Subject::Address(address), SkipReason::OutOfScope, detail);
            return;
        }
        self.address(address);
    }

    fn is_wanted(&self, finding: &Finding) -> bool {
        self.scope.has(finding, &self.basis.context.index)
    }

    /// Chooses every leaked address whose record names its owner. If there are reports, they narrow the choice.
    fn leaked(&mut self) {
        let reports: Vec<&Observations> = self.basis.observations.iter().filter(|s| s.narrows).collect();
        if let Some((first, others)) = reports.split_first() {
            let listed = first
                .addresses
                .keys()
                .filter(|a| others.iter().all(|r| r.addresses.contains_key(a)));
            let listed: BTreeSet<IpAddr> = listed.copied().collect();
            listed
                .into_iter()
                .for_each(|address| self.reported(address, &reports));
            return;
        }

        let mut unknown = 0;
        for finding in self.basis.findings(Code::LeakedAddress) {
            if !self.is_wanted(finding) {
                continue;
            }
            if unknown_owner(finding).is_some() {
                unknown += 1
            } else {
                self.if_seen_enough(finding)
            }
        }

        if unknown > 0 {
            self.plan.warnings.push(format!(
                "unused addresses whose records name no owner: {unknown}; only `release --ip` or `release --handle` frees those"
            ).into());
        }
    }

    /// Chooses an address that every report lists.
    fn reported(&mut self, address: IpAddr, reports: &[&Observations]) {
        let Some(finding) = self
            .basis
            .finding(Code::LeakedAddress, &Subject::Address(address))
        else {
            if self.scope.has_address(address, &self.basis.context.index) {
                self.plan
                    .skipped
                    .push(why_not(self.basis, address).with_code(Code::LeakedAddress));
            }
            return;
        };
        if !self.is_wanted(finding) {
            return;
        }
        if let Some((reason, detail)) = unknown_owner(finding).filter(|_| self.force != Force::Reported) {
            let skipped = Skipped::finding(finding, reason, detail);
            self.plan
                .skipped
                .push(skipped.suggesting(SuggestedAction::ReleaseByName));
            return;
        }

        let held = allocations(self.basis, finding);
        let same = |report: &&Observations| held.iter().all(|allocated| report.saw(address, &allocated.held));
        match reports.iter().find(|report| !same(report)) {
            Some(report) => {
                let tells = report.addresses[&address]
                    .iter()
                    .any(|seen| seen.sequence.is_some());
                let detail = if tells {
                    format!(
                        "{address} has been released and assigned again since {} was written",
                        report.name
                    )
                } else {
                    format!(
                        "{} does not give the sequence number of {address}: it is not known which allocation it saw",
                        report.name
                    )
                };
                self.skip(finding, SkipReason::ReportDiffers, detail);
            }
            None => self.if_seen_enough(finding),
        }
    }

    /// Chooses the addresses of a finding about a leak, unless they have to wait.
    fn if_seen_enough(&mut self, finding: &'s Finding) {
        let held = allocations(self.basis, finding);
        match too_early(self.basis, finding, &held) {
            Some((reason, detail)) => self.skip(finding, reason, detail),
            None => self.choose(finding),
        }
    }

    /// Chooses the leaked addresses of a deleted node with these findings. The node also loses its blocks and affinities. Skips any other
    /// node.
    fn node(&mut self, node: &str, findings: Vec<&'s Finding>) {
        let index = &self.basis.context.index;
        if index.node_exists(node) {
            let detail = format!("node {node} exists; only what belongs to a deleted node is released");
            self.skip_other(Subject::Node(node.to_owned()), SkipReason::NodeExists, detail);
            return;
        }

        let known = index.workloads_name_node(node) || !findings.is_empty();

        if !known {
            let detail = format!("nothing is recorded for node {node}");
            self.skip_other(Subject::Node(node.to_owned()), SkipReason::NotFound, detail);
            return;
        }

        if index.workloads_name_node(node) {
            self.plan.warnings.push(format!(
                "node {node} does not exist, but endpoints or pods still refer to it; what they use is kept"
            ).into());
        }

        for finding in findings {
            if finding.code == Code::LeakedAddress
                && unknown_owner(finding).is_none()
                && self.is_recorded_for(finding, node)
                && self.is_wanted(finding)
            {
                self.choose(finding);
            }
        }

        self.nodes.insert(node.to_owned());
    }

    /// Returns true if all records of the address name the node, or name none and are in the node's block.
    fn is_recorded_for(&self, finding: &Finding, node: &str) -> bool {
        let Evidence::Address(evidence) = &finding.evidence else {
            return false;
        };
        evidence
            .records
            .iter()
            .all(|record| match record.record.as_ref().get("node") {
                Some(recorded) => recorded == *node,
                None => record.block_owner.as_ref().and_then(BlockOwner::host) == Some(node),
            })
    }

    fn choose_orphans(&mut self) {
        let reports: Vec<&Observations> = self.basis.observations.iter().filter(|s| s.narrows).collect();
        for finding in self.basis.findings(Code::OrphanHandle) {
            let Subject::Handle(id) = &finding.subject else {
                continue;
            };
            if !self.is_wanted(finding) || !reports.iter().all(|report| report.handles.contains_key(id)) {
                continue;
            }
            let differs =
                |report: &&&Observations| Some(&report.handles[id]) != revision_of(finding).as_ref();
            if let Some(report) = reports.iter().find(differs) {
                let detail = format!("{id} has changed since {} was written", report.name);
                self.skip(finding, SkipReason::ReportDiffers, detail);
            } else if let Some((reason, detail)) = needed_orphan(id, finding) {
                let skipped = Skipped::finding(finding, reason, detail);
                let suggested_action = finding.remedy().map(SuggestedAction::Remedy);
                self.plan.skipped.push(Skipped {
                    suggested_action,
                    ..skipped
                });
            } else if let Some((reason, detail)) = too_early_orphan(self.basis, finding) {
                self.skip(finding, reason, detail);
            } else {
                self.orphans.insert(id.clone(), finding);
            }
        }
    }

    /// Chooses a named address.
    fn address(&mut self, address: IpAddr) {
        match self.about(address) {
            Some(finding) => {
                // The address is released by itself, whatever other addresses its handle holds.
                let is_corrupt = self.basis.context.index.is_unchecked(address.into());
                if self.force == Force::Named && !is_corrupt {
                    self.plan.forced.push(address);
                }
                self.choose(finding);
            }
            None if self.force == Force::Named => self.insist(address),
            None => self.plan.skipped.push(why_not(self.basis, address)),
        }
    }

    /// Returns the finding that justifies the release of a named address.
    fn about(&self, address: IpAddr) -> Option<&'s Finding> {
        let subject = Subject::Address(address);
        let mut codes = [Code::LeakedAddress, Code::ServiceAddressExtra].into_iter();
        codes.find_map(|code| self.basis.finding(code, &subject))
    }

    /// Chooses all addresses under a named handle.
    fn handle(&mut self, id: &str) {
        let held = self.handles.allocated(id).to_vec();
        if held.is_empty() {
            self.empty_handle(id);
            return;
        }
        held.iter()
            .for_each(|allocated| self.named_address(allocated.address));
    }

    /// Chooses a named handle without known allocations.
    fn empty_handle(&mut self, id: &str) {
        let subject = Subject::Handle(id.to_owned());
        if let Some(finding) = self.basis.finding(Code::OrphanHandle, &subject) {
            if !self.is_wanted(finding) {
                let detail = format!("{id} is excluded by the other options");
                self.skip(finding, SkipReason::OutOfScope, detail);
                return;
            }
            match needed_orphan(id, finding).filter(|_| self.force != Force::Named) {
                Some((reason, detail)) => self.skip(finding, reason, detail),
                None => drop(self.orphans.insert(id.to_owned(), finding)),
            }
            return;
        }

        let exists = !self.handles.objects(id).is_empty();
        let (reason, detail) = if exists {
            (
                SkipReason::Unchecked,
                format!("the blocks that handle {id} names cannot be checked, or it has just changed"),
            )
        } else {
            (
                SkipReason::NotFound,
                format!("there is no handle {id}, and no address is recorded under it"),
            )
        };

        self.skip_other(subject, reason, detail);
    }

    /// Chooses an address although it may be in use, unless it cannot be released.
    fn insist(&mut self, address: IpAddr) {
        let refusal = why_not(self.basis, address);
        if !can_be_forced(refusal.reason) {
            self.plan.skipped.push(refusal);
            return;
        }

        self.plan
            .warnings
            .push(format!("--force: {}; releasing anyway", refusal.detail).into());
        self.plan.forced.push(address);
        for block in self.basis.context.index.blocks_around(address) {
            let Some(allocation) = block.sound.and_then(|sound| sound.allocation_of(address)) else {
                continue;
            };
            let allocated = Allocated::new(block.key, &allocation);
            let record = (block.key, allocated.held.ordinal);
            self.chosen.insert(
                record,
                Chosen {
                    allocated,
                    finding: None,
                },
            );
        }
    }

    fn choose(&mut self, finding: &'s Finding) {
        let index = &self.basis.context.index;
        if let Subject::Address(address) = finding.subject
            && let Some((reason, detail)) = in_corrupt_block(index, address)
        {
            let corrupt = index.blocks_around(address).find(|block| block.sound.is_none());
            let repair = corrupt.map(|block| Remedy::Rebuild([block.key].into()));
            let skipped = Skipped::finding(finding, reason, detail);
            let suggested_action = repair.map(SuggestedAction::Remedy);
            self.plan.skipped.push(Skipped {
                suggested_action,
                ..skipped
            });
            return;
        }

        for allocated in allocations(self.basis, finding) {
            let record = (allocated.block, allocated.held.ordinal);
            self.chosen.insert(
                record,
                Chosen {
                    allocated,
                    finding: Some(finding),
                },
            );
        }
    }

    /// Leaves out addresses whose handle keeps another address: most handles are released completely or not at all.
    fn whole_handles(&mut self) {
        let basis = self.basis;
        let Self {
            chosen,
            scope,
            plan: Plan { forced, .. },
            ..
        } = self;
        let insisted: HashSet<IpAddr> = forced.iter().copied().collect();
        let insists = |address| insisted.contains(&address);
        let in_scope = |held: &Allocated| scope.has_address(held.address, &basis.context.index);
        let (handles, skipped) = keep_whole_handles(basis, chosen, insists, |_, _| false, in_scope);
        let kept: HashSet<&Subject> = skipped.iter().map(|kept| &kept.subject).collect();
        forced.retain(|address| !kept.contains(&Subject::Address(*address)));
        self.plan.skipped.extend(skipped);
        self.handles = handles;
    }

    fn skip(&mut self, finding: &Finding, reason: SkipReason, detail: String) {
        self.plan.skipped.push(Skipped::finding(finding, reason, detail));
    }

    fn skip_other(&mut self, subject: Subject, reason: SkipReason, detail: String) {
        self.plan.skipped.push(Skipped::new(subject, reason, detail));
    }
}

fn revision_of(finding: &Finding) -> Option<String> {
    let Evidence::Handle(evidence) = &finding.evidence else {
        return None;
    };
    evidence.revision.clone()
}
