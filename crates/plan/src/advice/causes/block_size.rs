//! A pool whose block size was changed: old and new blocks overlap.

use calipam_check::Code;
use calipam_model::words::count;

use super::{Facts, Found};

/// Finds a block size that was changed while the pool had blocks: some have another size, and blocks overlap.
pub(super) fn find(facts: &Facts<'_>) -> Vec<Found> {
    let number_of_mismatched = facts.open(&[Code::BlockSizeMismatch]).count();
    let findings: Vec<_> = facts
        .open(&[
            Code::BlockSizeMismatch,
            Code::OverlappingBlocks,
            Code::AddressInSeveralBlocks,
        ])
        .collect();
    let has_overlaps = findings.len() > number_of_mismatched;
    if number_of_mismatched == 0 || !has_overlaps {
        return Vec::new();
    }

    let says = format!(
        "the block size of a pool was changed while it had blocks: {} another size, and blocks overlap",
        count(number_of_mismatched, "block has", "blocks have")
    );
    vec![Found::with_own_remedies(says, findings)]
}
