//! Operations that were broken off between two writes: Calico's, or a run of calipam that was killed.

use calipam_check::{Code, Finding, NeededBy};
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
    let half_done: Vec<_> = facts.open(&HALF_DONE).collect();
    let mut unneeded = Vec::new();
    let mut unknown = Vec::new();
    for (position, finding) in facts.open(&[Code::OrphanHandle]) {
        match finding.needed_by() {
            None => unneeded.push((position, finding)),
            Some(NeededBy::Unknown(_)) => unknown.push((position, finding)),
            // The owner still exists, so no release was broken off.
            Some(NeededBy::Owner(_)) => {}
        }
    }

    let causes = [
        half_done_objects(half_done),
        unneeded_handles(unneeded),
        handles_of_lost_block(unknown),
    ];
    causes.into_iter().flatten().collect()
}

/// Describes affinities, blocks and handles that were written only in part.
fn half_done_objects(findings: Vec<(usize, &Finding)>) -> Option<Found> {
    if findings.is_empty() {
        return None;
    }
    let says = format!(
        "operations were broken off between two writes: {} half-done",
        count(findings.len(), "object is", "objects are")
    );
    Some(Found::with_own_remedies(says, findings))
}

/// Describes handles under which no address is recorded.
fn unneeded_handles(findings: Vec<(usize, &Finding)>) -> Option<Found> {
    if findings.is_empty() {
        return None;
    }
    let says = format!(
        "releases were broken off before their last write, or records were lost: {} no address",
        count(findings.len(), "handle has", "handles have")
    );
    Some(Found::with_own_remedies(says, findings))
}

/// Describes handles that count addresses of a block that does not exist.
fn handles_of_lost_block(findings: Vec<(usize, &Finding)>) -> Option<Found> {
    if findings.is_empty() {
        return None;
    }
    let says = format!(
        "a block was lost: {} its addresses, and it is not known whether pods still use them",
        count(findings.len(), "handle counts", "handles count")
    );
    Some(Found::with_own_remedies(says, findings))
}
