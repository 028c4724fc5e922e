//! Operations that were broken off between two writes: Calico's, or a run of calipam that was killed.

use calipam_check::{Code, NeededBy};
use calipam_model::words::count;

use super::{Facts, Found};

/// The leftovers of an operation that ended between two of its writes (facts 3.14, 3.15).
const HALF_DONE: [Code; 5] = [
    Code::UnsettledAffinity,
    Code::HalfDeleted,
    Code::EmptyUnownedBlock,
    Code::BlockWithoutAffinity,
    Code::HandleCount,
];

/// Finds operations that ended between two writes, and handles and blocks that lost their counterparts this way.
pub(super) fn find(facts: &Facts<'_>) -> Vec<Found> {
    let mut causes = Vec::new();
    let half_done: Vec<_> = facts.open(&HALF_DONE).collect();
    if !half_done.is_empty() {
        let says = format!(
            "operations were broken off between two writes: {} half-done",
            count(half_done.len(), "object is", "objects are")
        );
        causes.push(Found::with_own_remedies(says, half_done));
    }

    let mut unneeded = Vec::new();
    let mut unknown = Vec::new();
    for (position, finding) in facts.open(&[Code::OrphanHandle]) {
        match finding.needed_by() {
            None => unneeded.push((position, finding)),
            Some(NeededBy::Unknown(_)) => unknown.push((position, finding)),
            Some(_) => {}
        }
    }
    if !unneeded.is_empty() {
        let says = format!(
            "releases were broken off before their last write, or records were lost: {} no address",
            count(unneeded.len(), "handle has", "handles have")
        );
        causes.push(Found::with_own_remedies(says, unneeded));
    }
    if !unknown.is_empty() {
        let says = format!(
            "a block was lost: {} its addresses, and it is not known whether pods still use them",
            count(unknown.len(), "handle counts", "handles count")
        );
        causes.push(Found::with_own_remedies(says, unknown));
    }
    causes
}
