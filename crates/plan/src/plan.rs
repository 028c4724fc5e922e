//! What a plan is.

use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::net::IpAddr;

use calipam_check::{ClusterIdentity, Code, Subject};
use calipam_model::edit::{Edit, Step, cooling};
use calipam_model::hint::{Call, Hint};
use calipam_model::key::Key;
use calipam_model::snapshot::Snapshot;
use calipam_model::words::count;
use serde::Serialize;

use crate::skipped::Skipped;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum PlanKind {
    /// `ReleasePlan`: to free addresses and delete handles.
    #[serde(rename = "ReleasePlan")]
    Release,
    /// `RebuildPlan`: to make blocks, handles and affinities agree with what uses addresses.
    #[serde(rename = "RebuildPlan")]
    Rebuild,
    /// `SplitPlan`: to replace a pool by smaller ones.
    #[serde(rename = "SplitPlan")]
    Split,
    /// `ConfigurePlan`: to set how the allocator works.
    #[serde(rename = "ConfigurePlan")]
    Configure,
    /// `AssignPlan`: to assign addresses for people.
    #[serde(rename = "AssignPlan")]
    Assign,
    /// `MigrationPlan`: one phase of the migration from one pool to another.
    #[serde(rename = "MigrationPlan")]
    Migrate,
}

/// What to change, and what not. Nothing changes a plan once it is made; the executor carries out its steps
/// and never plans.
#[derive(Clone, Debug)]
pub struct Plan {
    pub kind: PlanKind,
    /// The cluster that it was made for, and what was read of it.
    pub cluster: ClusterIdentity,
    /// What to do, in this order.
    pub actions: Vec<Action>,
    /// What is left as it is although it was asked for, or although it is broken.
    pub skipped: Vec<Skipped>,
    /// What the operator should know before it is carried out.
    pub warnings: Vec<Hint>,
    /// Addresses that are released although something says that they are in use, or assigned although nothing uses them:
    /// the operator insists, so that findings about them are no objection.
    pub forced: Vec<IpAddr>,
    /// Those of them that are assigned against an objection.
    pub objected: Vec<IpAddr>,
    /// Findings that corrupt blocks have hidden, and that show as soon as these are repaired: not of this plan's
    /// making.
    pub revealed: Vec<(Code, Subject)>,
}

/// What people see of a plan: everything but the edits, which the executor consumes.
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
    /// Both, where this one was made once the first was carried out.
    #[must_use]
    pub fn after(self, first: Self) -> Self {
        let mut warnings = first.warnings;
        warnings.extend(
            self.warnings.into_iter().filter(|warning| !warnings.contains(warning)).collect::<Vec<_>>(),
        );
        Self {
            totals: self.totals.after(first.totals),
            changes: first.changes.into_iter().chain(self.changes).collect(),
            warnings,
            ..self
        }
    }

    /// True if a person who has read the other one learns nothing new.
    pub fn says_the_same(&self, other: &Self) -> bool {
        (&self.changes, &self.skipped, &self.warnings) == (&other.changes, &other.skipped, &other.warnings)
    }
}

/// One step of a plan, and what it does in words.
#[derive(Clone, Debug)]
pub struct Action {
    /// The edits and their guards.
    pub step: Step,
    /// What the step does, thing by thing.
    pub changes: Vec<Change>,
}

/// What a step does to one thing, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// What is done.
    pub action: Verb,
    pub subject: Subject,
    /// Where and why, in one line.
    pub detail: String,
    /// The findings that are gone after it.
    #[serde(serialize_with = "findings")]
    pub repairs: Vec<(Code, Subject)>,
}

/// Writes findings as `CODE SUBJECT`, the form of `--ignore` files.
fn findings<S: serde::Serializer>(repairs: &[(Code, Subject)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(repairs.iter().map(|(code, subject)| format!("{code} {subject}")))
}

/// What is done with a thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verb {
    /// An address is freed.
    ReleaseAddress,
    /// An address that is in use is recorded.
    AssignAddress,
    /// An address gets the record of its real owner.
    RewriteOwner,
    /// A block that does not exist is created.
    CreateBlock,
    /// A block is written again as a whole.
    RebuildBlock,
    /// An empty block is deleted.
    DeleteBlock,
    /// A block gets another owner, or none.
    SetBlockOwner,
    /// A handle gets the counts that the blocks say.
    SetHandleCounts,
    /// A handle that allocations refer to is created.
    CreateHandle,
    /// A handle that no allocation refers to is deleted.
    DeleteHandle,
    CreateAffinity,
    ConfirmAffinity,
    /// An affinity gets the labels by which Calico finds it.
    LabelAffinity,
    DeleteAffinity,
    CreatePool,
    /// A pool is disabled: nodes get no addresses from it any more.
    DisablePool,
    /// A pool is enabled: nodes get addresses from it again.
    EnablePool,
    /// A pool is deleted; its blocks and affinities stay.
    DeletePool,
    /// A setting of the allocator gets another value.
    Configure,
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// How much a plan changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Totals {
    /// Addresses that are released, assigned or rewritten.
    pub addresses: usize,
    /// Blocks that are written or deleted.
    pub blocks: usize,
    /// Handles that are written or deleted.
    pub handles: usize,
    /// Affinities that are written or deleted.
    pub affinities: usize,
    /// Pools that are created, disabled, enabled or deleted.
    #[serde(skip_serializing_if = "is_zero")]
    pub pools: usize,
    /// 1 where the configuration of the allocator is written.
    #[serde(skip_serializing_if = "is_zero")]
    pub configurations: usize,
    /// Things that are skipped.
    pub skipped: usize,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl Totals {
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

    /// Objects that are written or deleted.
    pub fn objects(&self) -> usize {
        self.blocks + self.handles + self.others()
    }

    /// Of these, what is neither block nor handle.
    pub fn others(&self) -> usize {
        self.affinities + self.pools + self.configurations
    }
}

impl Plan {
    /// A plan for what was read, with nothing but its actions.
    pub(crate) fn new(kind: PlanKind, snapshot: &Snapshot, actions: Vec<Action>) -> Self {
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

    /// A plan that does nothing.
    pub fn nothing(kind: PlanKind, snapshot: &Snapshot) -> Self {
        Self::new(kind, snapshot, Vec::new())
    }

    /// True if there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.actions.is_empty()
    }

    /// Everything that it does, thing by thing.
    pub fn changes(&self) -> impl Iterator<Item = &Change> {
        self.actions.iter().flat_map(|action| &action.changes)
    }

    /// The objects that it writes.
    pub(crate) fn keys(&self) -> HashSet<Key> {
        self.actions.iter().flat_map(|action| action.step.edits()).map(Edit::key).collect()
    }

    /// How much it changes.
    pub fn totals(&self) -> Totals {
        let keys = self.keys();
        let count = |wanted: fn(&Key) -> bool| keys.iter().filter(|key| wanted(key)).count();
        let addresses: BTreeSet<IpAddr> = self
            .changes()
            .filter_map(|change| match change.subject {
                Subject::Address(address) => Some(address),
                _ => None,
            })
            .collect();

        Totals {
            addresses: addresses.len(),
            blocks: count(|key| matches!(key, Key::Block(_))),
            handles: count(|key| matches!(key, Key::Handle(_))),
            affinities: count(|key| matches!(key, Key::Affinity(_))),
            pools: count(|key| matches!(key, Key::Pool(_))),
            configurations: count(|key| matches!(key, Key::IpamConfig)),
            skipped: self.skipped.len(),
        }
    }

    /// What people see of it, and the steps, for the executor.
    pub fn divide(self) -> (PlanSummary, Vec<Step>) {
        let totals = self.totals();
        let Self { kind, cluster, actions, skipped, mut warnings, .. } = self;
        let cooling = cooling(actions.iter().flat_map(|action| action.step.edits()));
        warnings.extend(cooling.map(|(addresses, seconds)| {
            let what = count(addresses, "released address cools", "released addresses cool");
            Hint::new(format!("{what} down for {seconds} s; {{}} ends that at once"), [Call::NoCooldown])
        }));
        let (steps, changes): (Vec<Step>, Vec<Vec<Change>>) =
            actions.into_iter().map(|action| (action.step, action.changes)).unzip();
        let changes = changes.into_iter().flatten().collect();
        (PlanSummary { kind, cluster, totals, changes, skipped, warnings }, steps)
    }
}
