//! Subjects that a plan leaves as they are, with the reasons.

use calipam_check::{Code, Finding, Remedy, Subject};
use serde::Serialize;

/// A subject that a plan leaves as it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Skipped {
    pub subject: Subject,
    /// The finding that would have justified a change.
    pub code: Option<Code>,
    pub reason: SkipReason,
    /// The reason with names and evidence, and the decision that a person has to make.
    pub detail: String,
    pub suggested_action: Option<SuggestedAction>,
}

/// A suggestion for a skipped subject. The command-line program translates it into a command.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SuggestedAction {
    /// The remedy of a finding.
    Remedy(Remedy),
    /// Releasing an address that the operator names.
    ReleaseByName,
    /// Releasing the addresses and blocks of a node, once the node is known to be dead.
    NodeIsDead(String),
    /// Showing what the allocator decides for this node.
    ExplainNode(String),
    /// Listing the findings in full.
    ListFindings,
}

impl Skipped {
    /// Creates an entry without a finding and without a suggested action.
    pub fn new(subject: Subject, reason: SkipReason, detail: impl Into<String>) -> Self {
        Self {
            subject,
            code: None,
            reason,
            detail: detail.into(),
            suggested_action: None,
        }
    }

    /// Skips the subject of a finding.
    pub(crate) fn finding(finding: &Finding, reason: SkipReason, detail: impl Into<String>) -> Self {
        Self::new(finding.subject.clone(), reason, detail).with_code(finding.code)
    }

    /// Skips the subject of a finding for which a change was refused.
    pub(crate) fn refused(finding: &Finding, refusal: Refusal) -> Self {
        Self::finding(finding, refusal.reason, refusal.detail)
    }

    /// Sets the code of the finding that would have justified a change.
    pub fn with_code(mut self, code: Code) -> Self {
        self.code = Some(code);
        self
    }

    pub fn suggesting(mut self, suggested_action: SuggestedAction) -> Self {
        self.suggested_action = Some(suggested_action);
        self
    }
}

/// A refusal to change a subject.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Refusal {
    pub reason: SkipReason,
    /// The reason with names and evidence.
    pub detail: String,
}

impl Refusal {
    pub(crate) fn new(reason: SkipReason, detail: impl Into<String>) -> Self {
        Self {
            reason,
            detail: detail.into(),
        }
    }
}

/// The result of a plan for one object.
pub(crate) type Result<T, E = Refusal> = std::result::Result<T, E>;

/// The reason why a subject is left as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SkipReason {
    /// Something uses the address, handle or block, or could use it.
    InUse,
    /// The allocation is younger than the grace period.
    Young,
    /// The address, handle or affinity has to be seen in this state a second time.
    SeenOnce,
    /// Other addresses of the same handle stay allocated, and a handle is released completely or not at all.
    HandleHeld,
    /// The requested handle or node does not exist.
    NotFound,
    /// No block records the address.
    NotAllocated,
    /// The address, or one in the block, has to cool down first.
    Cooling,
    /// Windows reserves the address.
    WindowsReserved,
    /// A decision is impossible, since a block, handle or affinity is corrupt or cannot be decoded.
    Unchecked,
    /// Objects on which the decision depends were not read.
    NotRead,
    /// The cluster has not a single node, or not a single workload: these objects were probably lost, not deleted.
    EvidenceLost,
    /// The recorded owner may still exist, and use the address again.
    OwnerMayLive,
    /// The record names no owner: the address is released only if the operator names it, or insists on a report.
    UnknownOwner,
    NodeExists,
    /// The node is missing, but workloads name it.
    NodeMayLive,
    /// The operator names the subject, but another option excludes it.
    OutOfScope,
    /// The address or handle differs, or may differ, from the one that the report lists.
    ReportDiffers,
    /// A block records the address already, or the plan assigns it already.
    AlreadyAssigned,
    /// The allocator finds no address, or refuses the named one.
    NotAvailable,
    /// The owner is not known.
    OwnerNotFound,
    /// The node of the address, block or endpoint is unknown, or does not exist.
    NodeUnknown,
    /// The node has no tunnel address.
    TunnelAddressNotSet,
    /// The tunnel address is before the block.
    TunnelAddressTooLow,
    /// The tunnel address is after the block.
    TunnelAddressTooHigh,
    /// Too little of the block is readable to repair it.
    CorruptBeyondRepair,
    /// Several live owners use the address.
    DuplicateOwners,
    /// The container or its network is not known, so nothing would ever free the address.
    ContainerUnknown,
    /// The datastore cannot hold an object for the handle.
    HandleNotStorable,
    /// The address or block is in no pool, or in no enabled one.
    OutsidePools,
    /// Blocks or pools overlap each other, or a pool overlaps nodes or services.
    Overlap,
    /// The change was tried in memory, and did not repair what it should, or broke something else. This is a bug in
    /// calipam.
    TrialFailed,
    /// A person has to decide.
    NeedsDecision,
}

calipam_model::display_serialized!(SkipReason);
