//! Operations of Calico that were broken off between two writes.

use calipam_check::{Code, NeededBy};
use calipam_model::words::count;

use super::{Facts, Found};

/// The leftovers of an operation that ended between two of its writes (facts 3.14, 3.15).
const LEFT: [Code; 5] = [
    Code::UnsettledAffinity,
    Code::HalfDeleted,
    Code::EmptyUnownedBlock,
    Code::BlockWithoutAffinity,
    Code::HandleCount,
];

pub(super) fn find(facts: &Facts<'_>) -> Vec<Found> {
    let left: Vec<_> = facts.open(&LEFT).collect();
    let handles = facts.open(&[Code::OrphanHandle]);
    let handles: Vec<_> = handles
        .filter(|(_, finding)| finding.needed_by().is_none())
        .collect();
    let mut found = Vec::new();
    if !left.is_empty() {
        let says = format!(
            "operations of Calico were broken off between two writes: {} half-done",
            count(left.len(), "object is", "objects are")
        );
        found.push(Found::with_own_remedies(says, left));
    }
    if !handles.is_empty() {
        let says = format!(
            "releases were broken off before their last write, or records were lost: {} no address",
            count(handles.len(), "handle has", "handles have")
        );
        found.push(Found::with_own_remedies(says, handles));
    }
    let unknown = facts.open(&[Code::OrphanHandle]);
    let unknown: Vec<_> = unknown
        .filter(|(_, finding)| matches!(finding.needed_by(), Some(NeededBy::Unknown(_))))
        .collect();
    if !unknown.is_empty() {
        let says = format!(
            "a block was lost: {} its addresses, and it is not known whether pods still use them",
            count(unknown.len(), "handle counts", "handles count")
        );
        found.push(Found::with_own_remedies(says, unknown));
    }
    found
}
