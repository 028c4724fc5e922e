//! The plan and its parts.

use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;

use calipam_check::{ClusterIdentity, Code, Subject};
use calipam_model::edit::{Edit, Evidence, Part, Precondition, Step, Unit, cooling};
use calipam_model::hint::{Call, Hint};
use calipam_model::key::Key;
use calipam_model::snapshot::Snapshot;
use calipam_model::words::count;
use serde::Serialize;

use crate::skipped::Skipped;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanKind {
    /// `ReleasePlan`: to free addresses and delete handles.
    Release,
    /// `RebuildPlan`: to make blocks, handles and affinities agree with the users of addresses.
    Rebuild,
    /// `SplitPlan`: to replace a pool with smaller ones.
    Split,
    /// `ConfigurePlan`: to change how the allocator works.
    Configure,
    /// `AssignPlan`: to assign addresses by hand.
    Assign,
    /// `MigrationPlan`: one phase of the migration from one pool to another.
    Migrate,
}

/// The planned changes, and the subjects that stay as they are. The executor carries out the changes and plans nothing
/// itself.
#[derive(Clone, Debug)]
pub struct Plan {
    pub kind: PlanKind,
    pub cluster: ClusterIdentity,
    /// The actions, in the order in which they are carried out.
    pub actions: Vec<Action>,
    /// Subjects of findings or requests that the plan leaves as they are, with the reasons.
    pub skipped: Vec<Skipped>,
    pub warnings: Vec<Hint>,
    /// Assigned addresses, and those that the operator insists on releasing. New findings about them do not fail the
    /// trial.
    pub forced: Vec<IpAddr>,
    /// Addresses that the operator insists on assigning against an objection.
    pub objected: Vec<IpAddr>,
    /// Findings that corrupt blocks hid, and that appear once the blocks are repaired. The plan is not their cause.
    pub revealed: Vec<(Code, Subject)>,
}

/// The part of a plan that people see. The executor consumes the edits.
#[derive(Clone, Debug)]
pub struct PlanSummary {
    pub kind: PlanKind,
    pub cluster: ClusterIdentity,
    pub totals: Totals,
    pub changes: Vec<Change>,
    pub skipped: Vec<Skipped>,
    pub warnings: Vec<Hint>,
}

impl PlanSummary {
    /// Adds the summary of a plan that was carried out before this plan was made. The skipped subjects remain those of
    /// this plan.
    #[must_use]
    pub fn after(self, first: Self) -> Self {
        let mut changes = first.changes;
        changes.extend(self.changes);

        let mut new_warnings = self.warnings;
        new_warnings.retain(|warning| !first.warnings.contains(warning));
        let mut warnings = first.warnings;
        warnings.extend(new_warnings);

        Self {
            totals: self.totals.after(first.totals),
            changes,
            warnings,
            ..self
        }
    }

    /// Returns true if both summaries have the same changes, skipped subjects and warnings.
    pub fn has_same_content_as(&self, other: &Self) -> bool {
        (&self.changes, &self.skipped, &self.warnings) == (&other.changes, &other.skipped, &other.warnings)
    }
}

/// One step of a plan with a description of its changes.
#[derive(Clone, Debug)]
pub struct Action {
    /// The edits and their guards.
    pub step: Step,
    pub changes: Vec<Change>,
}

impl Action {
    /// Creates an action whose edits are made together or not at all.
    pub(crate) fn new(reason: impl Into<String>, edits: Vec<Edit>, changes: Vec<Change>) -> Self {
        let parts = vec![Part {
            unit: Unit::WholeStep,
            edits,
            evidence: Evidence::default(),
        }];
        Self {
            step: Step {
                reason: reason.into(),
                parts,
            },
            changes,
        }
    }

    /// Adds preconditions of the whole step.
    pub(crate) fn requiring(mut self, evidence: impl IntoIterator<Item = (Key, Precondition)>) -> Self {
        self.step.whole().evidence.extend(evidence);
        self
    }
}

/// A readable description of a change that a step makes to one subject.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    pub action: Verb,
    pub subject: Subject,
    /// The place and the reason, in one line.
    pub detail: String,
    /// The findings that the change repairs.
    #[serde(serialize_with = "findings")]
    pub repairs: Vec<(Code, Subject)>,
}

/// Writes findings as `CODE SUBJECT`, the form of `--ignore` files.
fn findings<S: serde::Serializer>(repairs: &[(Code, Subject)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(repairs.iter().map(|(code, subject)| format!("{code} {subject}")))
}

impl Change {
    /// Creates a change that repairs the findings with these codes about its subject.
    pub(crate) fn new(action: Verb, subject: Subject, detail: impl Into<String>, repairs: &[Code]) -> Self {
        let repairs = repairs.iter().map(|code| (*code, subject.clone())).collect();
        Self {
            action,
            subject,
            detail: detail.into(),
            repairs,
        }
    }
}

/// A kind of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verb {
    /// An address is freed.
    ReleaseAddress,
    /// An address is assigned, or recorded because it is in use.
    AssignAddress,
    /// An address gets the record of its real owner.
    RewriteOwner,
    CreateBlock,
    /// A block is rewritten in one write.
    RebuildBlock,
    /// An empty or half-deleted block is deleted.
    DeleteBlock,
    /// A block gets another owner, or none.
    SetBlockOwner,
    /// A handle gets the counts that the blocks record.
    SetHandleCounts,
    /// A handle that allocations refer to is created.
    CreateHandle,
    /// A handle to which no allocation refers is deleted, or a handle object that Calico never finds.
    DeleteHandle,
    CreateAffinity,
    ConfirmAffinity,
    /// An affinity gets the labels by which Calico finds it.
    LabelAffinity,
    DeleteAffinity,
    CreatePool,
    /// A pool is disabled: nodes get no more addresses from it.
    DisablePool,
    /// A pool is enabled: nodes get addresses from it again.
    EnablePool,
    /// A pool is deleted; its blocks and affinities stay.
    DeletePool,
    /// A setting of the allocator gets another value.
    Configure,
}

calipam_model::display_serialized!(Verb);

/// The numbers of addresses and objects that a plan changes, and of subjects that it skips.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Totals {
    /// The number of addresses that are released, assigned or rewritten.
    pub addresses: usize,
    /// The number of blocks that are written or deleted.
    pub blocks: usize,
    /// The number of handles that are written or deleted.
    pub handles: usize,
    /// The number of affinities that are written or deleted.
    pub affinities: usize,
    /// The number of pools that are created, disabled, enabled or deleted.
    #[serde(skip_serializing_if = "is_zero")]
    pub pools: usize,
    /// 1 if the allocator's configuration is written.
    #[serde(skip_serializing_if = "is_zero")]
    pub configurations: usize,
    pub skipped: usize,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl Totals {
    /// Adds the totals of the first part to those of the second one. Only what the second part skips stays skipped.
    fn after(self, first: Self) -> Self {
        Self {
            addresses: first.addresses + self.addresses,
            blocks: first.blocks + self.blocks,
            handles: first.handles + self.handles,
            affinities: first.affinities + self.affinities,
            pools: first.pools + self.pools,
            configurations: first.configurations + self.configurations,
            skipped: self.skipped,
        }
    }

    /// Returns the number of objects that are written or deleted.
    pub fn objects(&self) -> usize {
        self.blocks + self.handles + self.others()
    }

    /// Returns the number of written or deleted objects that are neither blocks nor handles.
    pub fn others(&self) -> usize {
        self.affinities + self.pools + self.configurations
    }
}

impl Plan {
    /// Creates a plan that contains only actions.
    pub fn new(kind: PlanKind, snapshot: &Snapshot, actions: Vec<Action>) -> Self {
        Self {
            kind,
            cluster: ClusterIdentity::of(snapshot),
            actions,
            skipped: Vec::new(),
            warnings: Vec::new(),
            forced: Vec::new(),
            objected: Vec::new(),
            revealed: Vec::new(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.actions.is_empty()
    }

    pub fn changes(&self) -> impl Iterator<Item = &Change> {
        self.actions.iter().flat_map(|action| &action.changes)
    }

    /// Returns the keys of the objects that the plan writes.
    pub(crate) fn keys(&self) -> HashSet<Key> {
        self.actions
            .iter()
            .flat_map(|action| action.step.edits())
            .map(Edit::key)
            .collect()
    }

    /// Counts the addresses that the plan changes, and the objects of each kind that it writes.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals {
            skipped: self.skipped.len(),
            ..Totals::default()
        };
        for key in self.keys() {
            match key {
                Key::Block(_) => totals.blocks += 1,
                Key::Handle(_) => totals.handles += 1,
                Key::Affinity(_) => totals.affinities += 1,
                Key::Pool(_) => totals.pools += 1,
                Key::IpamConfig => totals.configurations += 1,
                _ => {}
            }
        }
        let mut addresses: BTreeSet<IpAddr> = BTreeSet::new();
        for change in self.changes() {
            addresses.extend(change.subject.address());
        }
        totals.addresses = addresses.len();
        totals
    }

    /// Splits the plan into the summary for people and the steps for the executor.
    pub fn divide(self) -> (PlanSummary, Vec<Step>) {
        let totals = self.totals();
        let Self {
            kind,
            cluster,
            actions,
            skipped,
            mut warnings,
            ..
        } = self;
        warnings.extend(cooldown_warning(&actions));

        let mut steps = Vec::new();
        let mut changes = Vec::new();
        for action in actions {
            steps.push(action.step);
            changes.extend(action.changes);
        }
        (
            PlanSummary {
                kind,
                cluster,
                totals,
                changes,
                skipped,
                warnings,
            },
            steps,
        )
    }
}

/// Warns that released addresses will cool down; `None` if they are free at once.
fn cooldown_warning(actions: &[Action]) -> Option<Hint> {
    let edits = actions.iter().flat_map(|action| action.step.edits());
    let (addresses, seconds) = cooling(edits)?;

    let released = count(addresses, "released address", "released addresses");
    Some(Hint::new(
        format!("{released} will cool down for {seconds} s; {{}} ends the cooldown at once"),
        [Call::to(["configure", "--ip-cooldown-seconds", "0"])],
    ))
}
