//! Pools that cannot be used as they are.

use calipam_check::{Code, Evidence, Finding, PoolChange, Remedy};

use super::{Facts, Found};

/// Takes each finding about an unusable pool as a cause of its own.
pub(super) fn find(facts: &Facts<'_>) -> Vec<Found> {
    let mut causes = Vec::new();
    for (position, finding) in facts.open(&[Code::InvalidPoolSelector, Code::PoolSmallerThanBlock]) {
        causes.push(Found {
            says: finding.message(),
            findings: vec![position],
            remedies: remedy(finding).into_iter().collect(),
        });
    }
    causes
}

/// A node selector that does not parse can be replaced by one that selects all nodes.
fn remedy(finding: &Finding) -> Option<Remedy> {
    let Evidence::Pool(evidence) = &finding.evidence else {
        return None;
    };
    let invalid = evidence.invalid_selector.as_ref()?;
    if invalid.field != "nodeSelector" {
        return None;
    }
    Some(Remedy::ChangePool {
        pool: evidence.name.clone(),
        change: PoolChange::SelectAllNodes,
    })
}
