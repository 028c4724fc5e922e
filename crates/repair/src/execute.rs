//! The executor: carries out steps, and never plans.

use std::collections::BTreeSet;

use calipam_datastore::Datastore;
use calipam_datastore::write::Consent;
use calipam_model::edit::{Edit, Step};
use calipam_model::key::Key;

use crate::engine::Execution;
use crate::error::RepairError;
use crate::session::{Options, Purpose, carry_out};
use crate::step::groups;

/// Carries out steps that were planned for `cluster`, many at the same time. Each step reads its objects
/// again, checks its guards, and is written by compare-and-swap; a step whose guards fail is abandoned
/// and reported, the others go on. Steps that change the same object keep their order.
///
/// # Errors
/// Where the cluster is another one, consent does not cover the steps, or the journal cannot be created:
/// nothing is written then. What happens later is in the [`Execution`].
pub async fn execute(
    datastore: &Datastore,
    cluster: &str,
    steps: Vec<Step>,
    consent: Consent,
    options: &Options,
) -> Result<Execution, RepairError> {
    let changed: BTreeSet<Key> = steps.iter().flat_map(|step| &step.edits).map(Edit::key).collect();
    let purpose = Purpose { what: "plan", cluster: cluster.to_owned(), objects: changed.len() };
    carry_out(datastore, consent, &purpose, options, move |writer| groups(steps, writer.limits())).await
}
