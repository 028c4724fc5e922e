//! Pods of another CNI plugin, with addresses in Calico's pools.

use std::collections::BTreeSet;

use calipam_check::{Code, Evidence, OwnerKind, list};
use calipam_model::words::count;

use super::{Facts, Found};

pub(super) fn find(facts: &Facts<'_>) -> Vec<Found> {
    let mut pods = BTreeSet::new();
    let mut findings = Vec::new();
    for (at, finding) in facts.open(&[Code::UnrecordedAddress]) {
        let Evidence::Address(evidence) = &finding.evidence else { continue };
        let of_pods = evidence.owners.iter().filter(|owner| owner.kind == OwnerKind::Pod);
        let names: Vec<&str> = of_pods.map(|owner| owner.pod.as_str()).collect();
        if !names.is_empty() {
            pods.extend(names);
            findings.push(at);
        }
    }
    if pods.is_empty() {
        return Vec::new();
    }
    let says = format!(
        "another CNI plugin gave {} an address of an enabled pool, which Calico can give to another pod: {}",
        count(pods.len(), "pod", "pods"),
        list(&pods)
    );
    vec![Found { says, findings, remedies: Vec::new() }]
}
