//! LoadBalancer services that were deleted and created again so soon that Calico's controller kept the earlier addresses.

use std::collections::BTreeSet;

use calipam_check::views::of_earlier_services;
use calipam_check::{Code, Evidence, Subject, list};

use super::{Facts, Found};

/// Finds services that have an address besides that of an earlier service of the same name.
pub(super) fn find(facts: &Facts<'_>) -> Vec<Found> {
    let extra: Vec<_> = facts.open(&[Code::ServiceAddressExtra]).collect();
    if extra.is_empty() {
        return Vec::new();
    }

    let of_earlier = of_earlier_services(facts.snapshot);
    let mut services = BTreeSet::new();
    let mut findings = Vec::new();
    let mut remedies = Vec::new();
    for (position, finding) in extra {
        let (Subject::Address(address), Evidence::Address(evidence)) = (&finding.subject, &finding.evidence)
        else {
            continue;
        };
        for owner in &evidence.owners {
            let Some(earlier) = of_earlier.get(&owner.name) else {
                continue;
            };
            services.insert(owner.name.as_str());
            findings.push(position);
            // If the status names the earlier address, the other one is the service's own.
            if earlier.contains(address) {
                remedies.extend(finding.remedy());
            }
        }
    }
    if services.is_empty() {
        return Vec::new();
    }

    let were = if services.len() == 1 {
        "service was"
    } else {
        "services were"
    };
    let says = format!(
        "{} {were} deleted and created again at once, and Calico's controller kept the earlier addresses: {}",
        services.len(),
        list(&services)
    );
    vec![Found {
        says,
        findings,
        remedies,
    }]
}
