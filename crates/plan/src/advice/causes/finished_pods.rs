//! Pods that finished and keep their addresses, such as those of jobs.

use calipam_check::{Code, Evidence, Finding, LeakReason, PodState};
use calipam_model::words::count;

use super::{Facts, Found, leak_reasons};

/// Finds the leaked addresses of finished pods, and the endpoints that these pods still have.
pub(super) fn find(facts: &Facts<'_>) -> Vec<Found> {
    let mut findings = Vec::new();
    let mut leaked = 0;
    for (position, finding) in facts.open(&[Code::LeakedAddress, Code::EndpointWithoutPod]) {
        if is_of_finished_pod(finding) {
            findings.push((position, finding));
            leaked += usize::from(finding.code == Code::LeakedAddress);
        }
    }
    // An endpoint alone keeps no address.
    if leaked == 0 {
        return Vec::new();
    }
    let says = format!(
        "pods that have finished, as those of jobs, keep {}",
        count(leaked, "address", "addresses")
    );
    vec![Found::with_own_remedies(says, findings)]
}

/// True if the finding is about the address or the endpoint of a pod that has finished but still exists.
fn is_of_finished_pod(finding: &Finding) -> bool {
    if finding.code == Code::LeakedAddress {
        return leak_reasons(finding) == [LeakReason::PodFinished];
    }
    match &finding.evidence {
        Evidence::Endpoint(owner) => owner.pod_state == Some(PodState::Finished),
        _ => false,
    }
}
