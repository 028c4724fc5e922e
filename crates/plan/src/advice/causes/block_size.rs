//! A pool whose block size was changed: old and new blocks overlap.

use calipam_check::Code;
use calipam_model::words::count;

use super::{Facts, Found};

/// Finds a block size that was changed while the pool had blocks: some have another size, and blocks overlap. Blocks of
/// another size alone do no harm, and overlapping blocks of one size have another cause.
pub(super) fn find(facts: &Facts<'_>) -> Vec<Found> {
    let mut findings: Vec<_> = facts.open(&[Code::BlockSizeMismatch]).collect();
    let mismatched = findings.len();
    let overlaps = facts.open(&[Code::OverlappingBlocks, Code::AddressInSeveralBlocks]);
    let overlaps: Vec<_> = overlaps.collect();
    if mismatched == 0 || overlaps.is_empty() {
        return Vec::new();
    }

    findings.extend(overlaps);
    // As in the report.
    findings.sort_unstable_by_key(|(position, _)| *position);
    let says = format!(
        "the block size of a pool was changed while it had blocks: {} another size, and blocks overlap",
        count(mismatched, "block has", "blocks have")
    );
    vec![Found::with_own_remedies(says, findings)]
}
