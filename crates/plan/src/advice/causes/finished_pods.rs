//! Pods that finished and keep their addresses, such as those of jobs.

use calipam_check::{Code, Evidence, Finding, LeakReason, PodState, addresses};
use calipam_model::words::thousands;

use super::{Facts, Found, leak_reasons};

pub(super) fn find(facts: &Facts<'_>) -> Vec<Found> {
    let is_of_finished = |finding: &Finding| match (finding.code, &finding.evidence) {
        (Code::LeakedAddress, _) => leak_reasons(finding) == [LeakReason::PodFinished],
        (_, Evidence::Endpoint(owner)) => owner.pod_state == Some(PodState::Finished),
        _ => false,
    };
    let codes = [Code::LeakedAddress, Code::EndpointWithoutPod];
    let of: Vec<_> = facts
        .open(&codes)
        .filter(|(_, finding)| is_of_finished(finding))
        .collect();
    let leaked = of
        .iter()
        .filter(|(_, finding)| finding.code == Code::LeakedAddress)
        .count();
    if leaked == 0 {
        return Vec::new();
    }
    let says = format!(
        "pods that have finished, as those of jobs, keep {}",
        addresses(thousands(leaked))
    );
    vec![Found::with_own_remedies(says, of)]
}
