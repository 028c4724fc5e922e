//! Plans the handles' counts after the rebuild, and finds the handles that must not be written.

mod carriage_returns;
mod counts;
mod handle_plan;

use std::collections::HashSet;

use calipam_check::Code;
use calipam_model::handle::{is_storable_id, resource_name};
use calipam_model::key::Key;
use calipam_model::snapshot::{DatastoreKind, DefectKind};

pub(super) use self::carriage_returns::plan_carriage_returns;
pub(super) use self::counts::plan;
use crate::basis::Basis;
use crate::basis::handles::clean;
use crate::skipped::{Refusal, SkipReason};

/// Handles that cannot be counted. Addresses under them stay as they are.
pub(super) struct UncountableHandles {
    /// Clean IDs of objects that cannot be decoded.
    undecodable: HashSet<String>,
    /// Lower-cased IDs under which Kubernetes keeps several handles in one object.
    colliding: HashSet<String>,
    datastore: DatastoreKind,
}

impl UncountableHandles {
    /// Finds the handles that cannot be counted: those that cannot be decoded, and those with IDs that differ only in case.
    pub(super) fn new(basis: &Basis<'_>) -> Self {
        let mut uncountable = Self {
            undecodable: Default::default(),
            colliding: Default::default(),
            datastore: basis.snapshot.datastore,
        };
        for defect in &basis.snapshot.defects {
            if let (Some(Key::Handle(id)), DefectKind::Value(_)) = (&defect.key, &defect.kind) {
                uncountable.undecodable.insert(clean(id).to_owned());
            }
        }
        for finding in basis.findings(Code::HandleCaseCollision) {
            uncountable
                .colliding
                .extend(finding.subject.handle().map(str::to_owned));
        }
        uncountable
    }

    /// Refuses a handle that must not be counted up or down. `id` is its clean ID.
    pub(super) fn refusal(&self, id: &str) -> Option<Refusal> {
        if self.undecodable.contains(id) {
            let detail = format!("its handle {id} cannot be decoded; repair or delete that object first");
            return Some(Refusal::new(SkipReason::Unchecked, detail));
        }
        if !is_storable_id(id, self.datastore) {
            let detail = format!(
                "its handle {id:?} cannot be an object of this datastore: it can be released only address by address"
            );
            return Some(Refusal::new(SkipReason::HandleNotStorable, detail));
        }

        if !self.colliding.is_empty() && self.colliding.contains(&resource_name(id)) {
            let detail = format!("its handle {id} shares one object with a handle that differs only in case");
            return Some(Refusal::new(SkipReason::NeedsDecision, detail));
        }
        None
    }
}
