//! Settings that stop the allocator.

use calipam_check::{Code, Remedy};
use calipam_model::config::IpamSetting;

use super::{Facts, Found};

/// Takes each finding about a setting that stops all pods as a cause of its own.
pub(super) fn find(facts: &Facts<'_>) -> Vec<Found> {
    let codes = [
        Code::AutoAllocationOff,
        Code::NoClusterInformation,
        Code::DatastoreLocked,
    ];
    let mut causes = Vec::new();
    for (position, finding) in facts.open(&codes) {
        let mut remedies = Vec::new();
        if finding.code == Code::AutoAllocationOff {
            remedies.push(Remedy::Configure(vec![IpamSetting::AutoAllocateBlocks(true)]));
        } else {
            remedies.extend(finding.remedy());
        }
        causes.push(Found {
            says: finding.message(),
            findings: vec![position],
            remedies,
        });
    }
    causes
}
