//! Plans: edits of the objects in a snapshot, either justified by findings or requested by the operator. This crate
//! neither reads nor writes a datastore.
//!
//! A plan that changes blocks, handles and affinities is [tried](try_plan()) in memory before it is carried out: the
//! findings that it claims to repair must be gone afterwards, and no new ones may appear.
//!
//! "Facts" in the documentation of this crate means `docs/calico-ipam.md` of the project.

mod basis;
mod kinship;
mod plan;
mod range;
mod skipped;
mod trial;

pub mod advice;
pub mod assign;
pub mod configure;
pub mod migrate;
pub mod rebuild;
mod refusal;
pub mod release;
pub mod split;

pub use self::basis::Basis;
pub use self::kinship::{Doubt, doubt};
pub use self::plan::{Action, Change, Plan, PlanKind, PlanSummary, Totals, Verb};
pub use self::refusal::Refused;
pub use self::skipped::{SkipReason, Skipped, SuggestedAction};
pub use self::trial::{FailedTrial, FindingSet, StepError, TrialRefusal, apply_plan, try_plan};
