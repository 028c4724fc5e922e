//! Pods and services that have addresses of Calico's pools without IPAM.

use std::collections::BTreeSet;

use calipam_check::{Code, Evidence, OwnerEvidence, OwnerKind, list};
use calipam_model::words::count;

use super::{Facts, Found};

/// Pods of another CNI plugin.
pub(super) fn plugin(facts: &Facts<'_>) -> Vec<Found> {
    let is_of_plugin = |owner: &OwnerEvidence| owner.kind == OwnerKind::Pod && owner.annotation.is_none();
    addresses_without_ipam(facts, &[Code::UnrecordedAddress], is_of_plugin, |pods| {
        let pods = format!("{} an address of an enabled pool", count(pods, "pod", "pods"));
        format!("another CNI plugin gave {pods}")
    })
}

/// Pods whose annotations name the addresses, even if Calico has given them to other pods already.
pub(super) fn annotation(facts: &Facts<'_>) -> Vec<Found> {
    let is_annotated = |owner: &OwnerEvidence| owner.annotation.is_some();
    addresses_without_ipam(
        facts,
        &[Code::DuplicateAddress, Code::UnrecordedAddress],
        is_annotated,
        |pods| {
            let pods = count(pods, "pod names", "pods name");
            format!("{pods} an address of an enabled pool in the annotation ipAddrsNoIpam or floatingIPs")
        },
    )
}

/// Services of another load balancer.
pub(super) fn load_balancer(facts: &Facts<'_>) -> Vec<Found> {
    let is_service = |owner: &OwnerEvidence| owner.kind == OwnerKind::Service;
    addresses_without_ipam(facts, &[Code::UnrecordedAddress], is_service, |services| {
        let services = count(services, "service", "services");
        format!("another load balancer gave {services} an address of an enabled pool")
    })
}

/// Finds the findings with these codes whose addresses have a user that `is_user_of_cause` accepts, and makes one cause
/// of them. `event` returns the first half of its sentence for a number of users, such as "another CNI plugin gave 2 pods
/// an address of an enabled pool".
fn addresses_without_ipam(
    facts: &Facts<'_>,
    codes: &[Code],
    is_user_of_cause: fn(&OwnerEvidence) -> bool,
    event: impl Fn(usize) -> String,
) -> Vec<Found> {
    let mut users: BTreeSet<&str> = BTreeSet::new();
    let mut findings = Vec::new();
    for (position, finding) in facts.open(codes) {
        let Evidence::Address(evidence) = &finding.evidence else {
            continue;
        };
        let mut has_user_of_cause = false;
        for owner in &evidence.owners {
            if is_user_of_cause(owner) {
                users.insert(&owner.name);
                has_user_of_cause = true;
            }
        }
        if has_user_of_cause {
            findings.push(position);
        }
    }
    if users.is_empty() {
        return Vec::new();
    }

    let says = format!(
        "{}, which Calico can give to another pod: {}",
        event(users.len()),
        list(&users)
    );
    vec![Found {
        says,
        findings,
        remedies: Vec::new(),
    }]
}
