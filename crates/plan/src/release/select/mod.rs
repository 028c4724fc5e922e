//! Selects the requested addresses and objects that may be released.

mod leaked;
mod named;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::IpAddr;

use calipam_check::{Finding, Remedy, Subject};

use super::may_release::{Choice, Chosen, allocations, in_corrupt_block, keep_whole_handles};
use super::observation::Observations;
use super::scope::Scope;
use super::{Force, Request};
use crate::basis::Basis;
use crate::basis::handles::{Allocated, HandleAllocations, clean};
use crate::plan::{Plan, PlanKind};
use crate::skipped::{Refusal, SkipReason, Skipped, SuggestedAction};

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

/// Selects what the request asks for. All else about the plan follows from the selection.
pub(super) fn select<'b, 's>(basis: &'b Basis<'s>, request: &Request) -> Selection<'b, 's> {
    let named_handles: HashSet<String> = request.handles.iter().map(|id| clean(id).to_owned()).collect();
    let mut selection = Selection {
        basis,
        force: request.force,
        chosen: Choice::new(),
        orphans: BTreeMap::new(),
        nodes: BTreeSet::new(),
        scope: Scope::new(request),
        handles: HandleAllocations::new(basis, &named_handles),
        plan: Plan::new(PlanKind::Release, basis.snapshot, Vec::new()),
    };

    if request.leaked {
        selection.choose_leaked();
    }
    if request.orphan_handles {
        selection.choose_orphans();
    }
    if !request.leaked && !request.orphan_handles {
        selection.choose_named(request);
    }

    selection.keep_whole_handles();
    selection
}

impl<'s> Selection<'_, 's> {
    /// Chooses the addresses of a finding, unless their block is corrupt.
    fn choose(&mut self, finding: &'s Finding) {
        self.choose_held(finding, allocations(self.basis, finding));
    }

    /// Chooses the allocations of a finding, unless their block is corrupt.
    fn choose_held(&mut self, finding: &'s Finding, held: Vec<Allocated>) {
        if let Subject::Address(address) = finding.subject
            && let Some(refusal) = in_corrupt_block(&self.basis.context.index, address)
        {
            self.skip_in_corrupt_block(finding, address, refusal);
            return;
        }

        for allocated in held {
            self.choose_allocation(allocated, Some(finding));
        }
    }

    /// Chooses one allocation. Without a finding, the operator insists on its release.
    fn choose_allocation(&mut self, allocated: Allocated, finding: Option<&'s Finding>) {
        let record = (allocated.block, allocated.guard.ordinal);
        self.chosen.insert(record, Chosen { allocated, finding });
    }

    /// Skips an address until its block is rebuilt.
    fn skip_in_corrupt_block(&mut self, finding: &Finding, address: IpAddr, refusal: Refusal) {
        let skipped = Skipped::refused(finding, refusal);
        let mut blocks = self.basis.context.index.blocks_around(address);
        let skipped = match blocks.find(|block| block.sound.is_none()) {
            Some(corrupt) => {
                let rebuild = Remedy::Rebuild([corrupt.key].into());
                skipped.suggesting(SuggestedAction::Remedy(rebuild))
            }
            None => skipped,
        };
        self.plan.skipped.push(skipped);
    }

    /// Leaves out addresses whose handle keeps another address: most handles are released completely or not at all.
    fn keep_whole_handles(&mut self) {
        let forced: HashSet<IpAddr> = self.plan.forced.iter().copied().collect();
        let insists = |address| forced.contains(&address);
        // A release moves no record to another handle.
        let leaves_handle = |_: &str, _| false;
        let index = &self.basis.context.index;
        let in_scope = |allocated: &Allocated| self.scope.has_address(allocated.address, index);
        let (handles, skipped) =
            keep_whole_handles(self.basis, &mut self.chosen, insists, leaves_handle, in_scope);

        let kept: HashSet<&Subject> = skipped.iter().map(|skipped| &skipped.subject).collect();
        self.plan
            .forced
            .retain(|address| !kept.contains(&Subject::Address(*address)));
        self.plan.skipped.extend(skipped);
        self.handles = handles;
    }

    /// Returns the reports of `--from-report`, each of which limits the release to what it lists.
    fn reports(&self) -> Vec<&'s Observations> {
        let observations = self.basis.observations.iter();
        observations.filter(|report| report.narrows).collect()
    }

    fn is_wanted(&self, finding: &Finding) -> bool {
        self.scope.has(finding, &self.basis.context.index)
    }

    fn skip_finding(&mut self, finding: &Finding, reason: SkipReason, detail: String) {
        self.plan.skipped.push(Skipped::finding(finding, reason, detail));
    }

    fn skip_refused(&mut self, finding: &Finding, refusal: Refusal) {
        self.plan.skipped.push(Skipped::refused(finding, refusal));
    }

    fn skip_subject(&mut self, subject: Subject, reason: SkipReason, detail: String) {
        self.plan.skipped.push(Skipped::new(subject, reason, detail));
    }
}
