//! Objects as Calico never writes them.

use calipam_check::{Code, Evidence, Finding};
use calipam_model::block::BlockProblem;
use calipam_model::words::count;

use super::{Facts, Found};

pub(super) fn find(facts: &Facts<'_>) -> Vec<Found> {
    // A wrong clock, not a hand, writes a release time in the future.
    let is_of_clock = |finding: &Finding| match &finding.evidence {
        Evidence::Block(block) => {
            let of_clock = |problem: &BlockProblem| matches!(problem, BlockProblem::ReleasedInFuture { .. });
            !block.problems.is_empty() && block.problems.iter().all(of_clock)
        }
        _ => false,
    };
    let codes = [
        Code::CorruptBlock,
        Code::UnexpectedBlockOwner,
        Code::UnexpectedAffinityType,
    ];
    let of: Vec<_> = facts
        .open(&codes)
        .filter(|(_, finding)| !is_of_clock(finding))
        .collect();
    if of.is_empty() {
        return Vec::new();
    }
    let says = format!(
        "{} edited by hand or by another program: Calico never writes such content",
        count(of.len(), "block or affinity was", "blocks and affinities were")
    );
    vec![Found::with_own_remedies(says, of)]
}
