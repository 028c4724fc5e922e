//! Pools that cannot be used as they are.

use calipam_check::{Code, Evidence, Finding, PoolChange, Remedy};

use super::{Facts, Found};

pub(super) fn find(facts: &Facts<'_>) -> Vec<Found> {
    let of = facts.open(&[Code::InvalidPoolSelector, Code::PoolSmallerThanBlock]);
    of.map(|(at, finding)| Found {
        says: finding.message(),
        findings: vec![at],
        remedies: remedy(finding).into_iter().collect(),
    })
    .collect()
}

/// A node selector that does not parse can be replaced by one that selects all nodes.
fn remedy(finding: &Finding) -> Option<Remedy> {
    let Evidence::Pool(evidence) = &finding.evidence else {
        return None;
    };
    let is_of_nodes = evidence
        .invalid_selector
        .as_ref()
        .is_some_and(|invalid| invalid.field == "nodeSelector");
    let change = PoolChange::SelectAllNodes;
    is_of_nodes.then(|| Remedy::ChangePool {
        pool: evidence.name.clone(),
        change,
    })
}
