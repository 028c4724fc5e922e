//! Settings that stop the allocator.

use calipam_check::{Code, Remedy};
use calipam_model::config::IpamSetting;

use super::{Facts, Found};

pub(super) fn find(facts: &Facts<'_>) -> Vec<Found> {
    let of = facts.open(&[
        Code::AutoAllocationOff,
        Code::NoClusterInformation,
        Code::DatastoreLocked,
    ]);
    of.map(|(at, finding)| {
        let allow = || Remedy::Configure(vec![IpamSetting::AutoAllocateBlocks(true)]);
        let remedies = (finding.code == Code::AutoAllocationOff).then(allow);
        Found {
            says: finding.message(),
            findings: vec![at],
            remedies: remedies.into_iter().collect(),
        }
    })
    .collect()
}
