//! Leaked addresses that nobody collects, since Calico's collector is off.

use calipam_check::{Code, addresses};
use calipam_model::words::thousands;

use super::{Facts, Found};

pub(super) fn find(facts: &Facts<'_>) -> Vec<Found> {
    let period = facts
        .snapshot
        .kube_controllers
        .as_ref()
        .and_then(|controllers| controllers.leak_grace_period);
    let of: Vec<_> = facts
        .open(&[Code::LeakedAddress])
        .filter(|(_, finding)| !finding.is_owner_unknown())
        .collect();
    if of.is_empty() || period.is_none_or(|period| period.is_positive()) {
        return Vec::new();
    }
    let says = format!(
        "the collector of kube-controllers is off (leakGracePeriod is 0): {} leaked and stay recorded",
        addresses(thousands(of.len()))
    );
    vec![Found::with_own_remedies(says, of)]
}
