//! Objects as Calico never writes them.

use calipam_check::{Code, Evidence, Finding};
use calipam_model::block::BlockProblem;
use calipam_model::words::count;

use super::{Facts, Found};

/// Finds blocks and affinities with content that Calico never writes.
pub(super) fn find(facts: &Facts<'_>) -> Vec<Found> {
    let codes = [
        Code::CorruptBlock,
        Code::UnexpectedBlockOwner,
        Code::UnexpectedAffinityType,
    ];
    let mut edited = Vec::new();
    for (position, finding) in facts.open(&codes) {
        if !comes_from_clock(finding) {
            edited.push((position, finding));
        }
    }
    if edited.is_empty() {
        return Vec::new();
    }

    let says = format!(
        "{} edited by hand or by another program: Calico never writes such content",
        count(
            edited.len(),
            "block or affinity was",
            "blocks and affinities were"
        )
    );
    vec![Found::with_own_remedies(says, edited)]
}

/// Returns true if the only problems of a block are release times in the future: a wrong clock writes them, not a hand.
fn comes_from_clock(finding: &Finding) -> bool {
    let Evidence::Block(block) = &finding.evidence else {
        return false;
    };
    for problem in &block.problems {
        if !matches!(problem, BlockProblem::ReleasedInFuture { .. }) {
            return false;
        }
    }
    !block.problems.is_empty()
}
