//! IPAM data that is older than the pods, as after the restore of a backup: many addresses in use are not recorded.

use calipam_check::{Code, Remedy};
use calipam_model::words::count;

use super::{Facts, Found, nodes_of};

/// The number of addresses in use from which on they have one cause.
const MANY: usize = 3;

/// Finds records that were lost, as after the restore of a backup: many addresses in use on several nodes are not
/// recorded, or their handles remain.
pub(super) fn find(facts: &Facts<'_>) -> Vec<Found> {
    let codes = [
        Code::UnallocatedInUse,
        Code::OwnerMismatch,
        Code::MissingHandle,
        Code::OrphanHandle,
    ];
    let mut positions = Vec::new();
    let mut unrecorded = Vec::new();
    let mut mismatched = Vec::new();
    // A handle whose owner lives shows that a record was there once.
    let mut has_needed_handle = false;
    for (position, finding) in facts.open(&codes) {
        match finding.code {
            Code::UnallocatedInUse => unrecorded.push(finding),
            Code::OwnerMismatch => mismatched.push(finding),
            Code::OrphanHandle if finding.needed_by().is_none() => continue,
            Code::OrphanHandle => has_needed_handle = true,
            _ => {}
        }
        positions.push(position);
    }

    let nodes = nodes_of(unrecorded.iter().chain(&mismatched).copied());
    let is_loss = nodes.len() > 1 || has_needed_handle;
    let are_many = unrecorded.len() + mismatched.len() >= MANY;
    if unrecorded.is_empty() || !are_many || !is_loss {
        return Vec::new();
    }

    let for_others = match mismatched.len() {
        0 => String::new(),
        number => format!(
            ", and {} for others",
            count(number, "is recorded", "are recorded")
        ),
    };
    let says = format!(
        "records were lost, or are older than the pods, as after the restore of a backup: {} on {} not recorded{for_others}",
        count(unrecorded.len(), "address in use", "addresses in use"),
        count(nodes.len(), "node is", "nodes are"),
    );
    vec![Found {
        says,
        findings: positions,
        remedies: vec![Remedy::Rebuild([].into())],
    }]
}
