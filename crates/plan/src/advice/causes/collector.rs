//! Leaked addresses that stay recorded, since Calico's collector is off.

use calipam_check::Code;
use calipam_model::words::count;

use super::{Facts, Found};

/// Finds leaked addresses that stay recorded because the collector of kube-controllers is off.
pub(super) fn find(facts: &Facts<'_>) -> Vec<Found> {
    let controllers = facts.snapshot.kube_controllers.as_ref();
    let grace_period = controllers.and_then(|controllers| controllers.leak_grace_period);
    // Without the setting, the collector is on.
    let is_off = grace_period.is_some_and(|period| !period.is_positive());
    if !is_off {
        return Vec::new();
    }

    let mut collectable: Vec<_> = facts.open(&[Code::LeakedAddress]).collect();
    // Only a person can decide about an address without an owner.
    collectable.retain(|(_, finding)| !finding.is_owner_unknown());
    if collectable.is_empty() {
        return Vec::new();
    }

    let says = format!(
        "the collector of kube-controllers is off (leakGracePeriod is 0): {} leaked and stay recorded",
        count(collectable.len(), "address", "addresses")
    );
    vec![Found::with_own_remedies(says, collectable)]
}
