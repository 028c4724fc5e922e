//! A pool whose block size was changed: old and new blocks overlap.

use calipam_check::Code;
use calipam_model::words::count;

use super::{Facts, Found};

pub(super) fn find(facts: &Facts<'_>) -> Vec<Found> {
    let mismatched = facts.open(&[Code::BlockSizeMismatch]).count();
    let of: Vec<_> = facts
        .open(&[
            Code::BlockSizeMismatch,
            Code::OverlappingBlocks,
            Code::AddressInSeveralBlocks,
        ])
        .collect();
    if mismatched == 0 || of.len() == mismatched {
        return Vec::new();
    }
    let says = format!(
        "the block size of a pool was changed while it had blocks: {} another size, and blocks overlap",
        count(mismatched, "block has", "blocks have")
    );
    vec![Found::with_own_remedies(says, of)]
}
