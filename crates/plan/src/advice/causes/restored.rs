//! IPAM data that is older than the pods, as after the restore of a backup: many addresses in use are not recorded.

use calipam_check::{Code, Finding, Remedy};
use calipam_model::words::count;

use super::{Facts, Found, nodes_of};

/// The number of addresses in use from which on they have one cause.
const MANY: usize = 3;

pub(super) fn find(facts: &Facts<'_>) -> Vec<Found> {
    let is_lost = |finding: &Finding| match finding.code {
        Code::OrphanHandle => finding.needed_by().is_some(),
        _ => true,
    };
    let codes = [
        Code::UnallocatedInUse,
        Code::OwnerMismatch,
        Code::MissingHandle,
        Code::OrphanHandle,
    ];
    let of: Vec<_> = facts
        .open(&codes)
        .filter(|(_, finding)| is_lost(finding))
        .collect();
    let with = |code| {
        of.iter()
            .filter(move |(_, finding)| finding.code == code)
            .map(|(_, finding)| *finding)
    };
    let unrecorded = with(Code::UnallocatedInUse);
    let mismatched = with(Code::OwnerMismatch);
    let numbers = [unrecorded.clone().count(), mismatched.clone().count()];
    let nodes = nodes_of(unrecorded.chain(mismatched));
    // A handle whose owner lives shows that a record was there once.
    let is_lost = nodes.len() > 1 || with(Code::OrphanHandle).next().is_some();
    if numbers.iter().sum::<usize>() < MANY || numbers[0] == 0 || !is_lost {
        return Vec::new();
    }
    let others = match numbers[1] {
        0 => String::new(),
        number => format!(
            ", and {} for others",
            count(number, "is recorded", "are recorded")
        ),
    };
    let says = format!(
        "records were lost, or are older than the pods, as after the restore of a backup: {} on {} not recorded{others}",
        count(numbers[0], "address in use", "addresses in use"),
        count(nodes.len(), "node is", "nodes are"),
    );
    let findings = of.iter().map(|(at, _)| *at).collect();
    vec![Found {
        says,
        findings,
        remedies: vec![Remedy::Rebuild([].into())],
    }]
}
