//! A snapshot with its report, from which plans are made, and what tests read from plans.

use std::collections::HashSet;

use calipam_check::{Code, Options, Report, Subject, check};
use calipam_model::block::{Block, BlockContent};
use calipam_model::edit::Edit;
use calipam_model::key::Key;
use calipam_model::snapshot::Snapshot;
use calipam_model::writable::Object;
use calipam_plan::release::Observations;
use calipam_plan::{Basis, Plan, SkipReason};
use jiff::SignedDuration;

pub(crate) struct Checked {
    pub snapshot: Snapshot,
    pub report: Report,
    pub options: Options,
}

impl Checked {
    pub(crate) fn new(snapshot: Snapshot) -> Self {
        Self::with(snapshot, Options::default())
    }

    /// Checks allocations of any age.
    pub(crate) fn without_grace(snapshot: Snapshot) -> Self {
        Self::with(
            snapshot,
            Options {
                grace: Some(SignedDuration::ZERO),
                ..Options::default()
            },
        )
    }

    fn with(snapshot: Snapshot, options: Options) -> Self {
        Self {
            report: check(&snapshot, &options),
            snapshot,
            options,
        }
    }

    pub(crate) fn basis(&self) -> Basis<'_> {
        Basis::new(&self.snapshot, &self.report, &self.options)
    }

    /// The report as an observation from this many minutes ago.
    pub(crate) fn seen(&self, minutes: i64) -> Observations {
        let at = self.snapshot.taken_at - SignedDuration::from_mins(minutes);
        Observations {
            at,
            ..Observations::of_report(&self.report)
        }
    }
}

pub(crate) fn edits(plan: &Plan) -> impl Iterator<Item = &Edit> {
    plan.actions.iter().flat_map(|action| action.step.edits())
}

/// The block that a plan creates.
pub(crate) fn created_block(plan: &Plan) -> Option<&Block> {
    edits(plan).find_map(|edit| match edit {
        Edit::Create(Key::Block(_), object) => match &**object {
            Object::Block(BlockContent::Sound(block)) => Some(&**block),
            other => panic!("{other:?}"),
        },
        _ => None,
    })
}

/// The reason why a plan skips the finding with this code and subject.
pub(crate) fn skip_reason(plan: &Plan, code: Code, subject: &Subject) -> Option<SkipReason> {
    let mut skipped = plan.skipped.iter();
    skipped
        .find(|s| s.code == Some(code) && s.subject == *subject)
        .map(|skipped| skipped.reason)
}

/// Checks that a plan has changed only objects for which it has edits.
pub(crate) fn assert_nothing_else_changed(name: &str, before: &Snapshot, plan: &Plan, after: &Snapshot) {
    let touched: HashSet<Key> = edits(plan).map(Edit::key).collect();
    let untouched = |snapshot: &Snapshot| {
        let mut left = snapshot.clone();
        left.blocks
            .retain(|block| !touched.contains(&Key::Block(block.value.key)));
        left.handles
            .retain(|handle| !touched.contains(&Key::Handle(handle.value.id().to_string())));
        left.affinities
            .retain(|affinity| !touched.contains(&Key::Affinity(affinity.value.key.clone())));
        left
    };
    assert!(
        untouched(before) == untouched(after),
        "{name}: an object without an edit has changed"
    );
}
