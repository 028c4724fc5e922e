//! The state while a rebuild is being planned.

use std::collections::HashMap;

use calipam_check::index::{Index, IndexedBlock};
use calipam_check::{Code, Finding, Subject};
use calipam_model::IpNet;
use calipam_model::snapshot::StoredBlock;

use super::block_plan::BlockPlans;
use super::corrupt::CorruptBlocks;
use super::handles::UncountableHandles;
use super::request::Request;
use crate::basis::Basis;
use crate::plan::Action;
use crate::skipped::{SkipReason, Skipped, SuggestedAction};

/// A rebuild plan under construction.
pub(super) struct Planner<'p, 's> {
    pub basis: &'p Basis<'s>,
    pub request: &'p Request,
    pub corrupt: &'p CorruptBlocks,
    pub uncountable: UncountableHandles,
    pub blocks: BlockPlans<'s>,
    pub before_blocks: Vec<Action>,
    /// The places in `before_blocks` of actions that delete affinities, by block.
    pub deletions: HashMap<IpNet, Vec<usize>>,
    pub after_blocks: Vec<Action>,
    pub skipped: Vec<Skipped>,
}

impl<'p, 's> Planner<'p, 's> {
    /// Begins a plan without any steps.
    pub(super) fn new(basis: &'p Basis<'s>, request: &'p Request, corrupt: &'p CorruptBlocks) -> Self {
        Self {
            basis,
            request,
            corrupt,
            uncountable: UncountableHandles::new(basis),
            blocks: BlockPlans::new(),
            before_blocks: Vec::new(),
            deletions: HashMap::new(),
            after_blocks: Vec::new(),
            skipped: Vec::new(),
        }
    }

    pub(super) fn index(&self) -> &'p Index<'s> {
        &self.basis.context.index
    }

    /// Returns the findings with this code that are in scope.
    pub(super) fn findings(&self, code: Code) -> Vec<&'s Finding> {
        let found = self.basis.findings(code);
        found
            .filter(|finding| self.request.has(finding, self.index()))
            .collect()
    }

    pub(super) fn skip(&mut self, finding: &Finding, reason: SkipReason, detail: impl Into<String>) {
        self.skipped.push(Skipped::finding(finding, reason, detail));
    }

    /// Skips a finding about a node that may be alive although its object does not exist.
    pub(super) fn skip_of_living(&mut self, finding: &Finding, node: &str) {
        let detail = format!(
            "{node} does not exist, but endpoints or pods name it: if the node is alive, recreate its object"
        );
        let skipped = Skipped::finding(finding, SkipReason::NodeMayLive, detail);
        self.skipped
            .push(skipped.suggesting(SuggestedAction::NodeIsDead(node.to_owned())));
    }

    pub(super) fn may_change(&self, block: &IndexedBlock<'_>) -> bool {
        self.request.has_block(block.key, block.owner)
    }

    /// Returns true if there is a block at `cidr` which the plan may change.
    pub(super) fn may_change_at(&self, cidr: IpNet) -> bool {
        self.index()
            .block(cidr)
            .is_some_and(|block| self.may_change(block))
    }

    /// Returns true if the plan finishes the half-done deletion of the block, which has to be empty.
    pub(super) fn finishes(&self, block: &StoredBlock) -> bool {
        let found = self
            .basis
            .finding(Code::HalfDeleted, &Subject::Block(block.key))
            .is_some();
        let is_empty = block.content.sound().is_some_and(|sound| sound.is_empty());
        found && is_empty && self.request.has_block(block.key, block.content.owner())
    }

    /// Returns true if the plan changes addresses of the block, or repairs the block.
    pub(super) fn rewrites_block(&self, cidr: IpNet) -> bool {
        self.changes_addresses(cidr) || self.corrupt.blocks.contains_key(&cidr)
    }

    pub(super) fn changes_addresses(&self, cidr: IpNet) -> bool {
        self.blocks
            .get(&cidr)
            .is_some_and(|planned| !planned.addresses.is_empty())
    }
}
